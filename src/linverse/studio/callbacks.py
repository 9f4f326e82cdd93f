"""What the page calls: gradio's values in, the library's answers out, as pictures and words. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
import torch
from torch import Tensor

from linverse.blind import FAMILIES
from linverse.data.mask_files import resized_mask
from linverse.data.picture import Picture
from linverse.data.pictures import fitted
from linverse.measurement import Measurement
from linverse.progress import Progress
from linverse.question import Question, ask
from linverse.report.blind import blind_figure, estimate_text
from linverse.report.film import film_bytes
from linverse.report.marginal import marginal_figure, marginal_words
from linverse.report.restoration import seen_picture
from linverse.restoration import BlindRestoration, Restoration, pixel_marginal
from linverse.studio import markup, work
from linverse.studio.kinds import KINDS, PAINTED, damage_of
from linverse.studio.models import Models, StudioModel
from linverse.studio.pack import script, zip_bytes
from linverse.studio.uploads import MOST_PIXELS, open_picture
from linverse.studio.visitors import Answer, Visitors

MANNERS = ["simulate on a clean picture", "this is the damaged picture"]
USUAL = {"sigma": 0.2, "std": 1.0, "side": 10, "angle": 30, "length": 5}  # for simulations


@contextmanager
def clear_words() -> Iterator[None]:
    """Errors as a sentence for the visitor, without a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        raise gr.Error("stopped before there was an answer", print_exception=False) from None
    except MemoryError as error:
        words = str(error) or "there is not enough memory for this: take a smaller picture"
        raise gr.Error(words, print_exception=False) from None
    except (ValueError, OSError, RuntimeError, FloatingPointError, ImportError) as error:
        raise gr.Error(str(error) or type(error).__name__, print_exception=False) from None


def number(value: float | None, name: str) -> float:
    """A field's number, or a word that it is empty."""
    if value is None:
        raise ValueError(f"{name} is empty: give a number")
    return float(value)


def mask_of(painted: Any) -> Tensor | None:
    """True where the brush did not go, [1, 1, H, W]; None where it went nowhere."""
    layers = [layer for layer in (painted or {}).get("layers", []) if layer is not None]
    if not layers:
        return None
    covered = torch.stack([torch.from_numpy(layer[..., -1] > 0) for layer in layers]).any(dim=0)
    return ~covered[None, None] if bool(covered.any()) else None


def clicked_patches(text: str) -> list[int]:
    """`5, 3` → [5, 3], each once."""
    try:
        numbers = list(dict.fromkeys(int(part) for part in (text or "").replace(",", " ").split()))
    except ValueError:
        raise ValueError(f"the order is a list of patch numbers, 0 to {work.PATCHES**2 - 1}; got {text!r}") from None
    if any(not 0 <= number < work.PATCHES**2 for number in numbers):
        raise ValueError(f"patches are numbered 0 to {work.PATCHES**2 - 1}, row by row; got {text!r}")
    return numbers


def shown_before(measurement: Measurement, answer: Tensor) -> Tensor:
    """What was measured, in the size of an answer [C, H, W] (itself, where the data are no picture)."""
    seen = seen_picture(measurement)
    size = tuple(answer.shape[1:])
    if seen.ndim != 3 or tuple(seen.shape[1:]) == size:
        return seen if seen.ndim == 3 else answer
    return torch.nn.functional.interpolate(seen[None], size=size, mode="nearest")[0]


def described(picture: Picture) -> str:
    """`two.png: 28×28, grey, 8 bits`."""
    return repr(picture).removeprefix("Picture(").removesuffix(")")


def in_bar(bar: gr.Progress) -> Progress:
    """Progress in the page's bar."""
    return lambda task, done, total: bar((done, total), desc=task)


class Studio:
    """The models, the visitors, and the callbacks of the page."""

    def __init__(self, models: Models, folder: Path) -> None:
        self.models, self.visitors = models, Visitors(folder)

    # --- model and picture ---------------------------------------------------------------------------------------------------

    def take(self, path: str | None, model: str) -> tuple[Any, ...]:
        """A picture that was uploaded or pasted: itself, in the editor, in words, the model that takes it, and no example."""
        if path is None:
            return (gr.skip(),) * 5
        told: list[str] = []
        with clear_words():
            try:
                picture = open_picture(path, told.append)
            except (ValueError, OSError):
                Path(path).unlink(missing_ok=True)  # gradio keeps it in its temporary folder
                raise
            fitting = self.models.fitting(model, picture)
            return (*self._taken(picture, self.models.get(fitting), told), fitting, None)

    def take_example(self, name: str | None, model: str) -> tuple[Any, ...]:
        """A bundled one; an upload that was shown goes."""
        with clear_words():
            examples = self.models.get(model).examples()
            if name not in examples:
                return gr.skip(), gr.skip(), gr.skip(), gr.skip()
            return (*self._taken(examples[name], self.models.get(model), []), None)

    def _taken(self, picture: Picture, model: StudioModel, told: list[str]) -> tuple[Any, Any, str]:
        shown = fitted(picture, model.energy.shape, tell=told.append, resize=True)
        if picture.channels == 1 and shown.channels == 3:
            told.append(
                "grey as three equal colours: this model takes their noise for independent, and is too sure of a damaged picture"
            )
        return picture, markup.picture(shown.pixels[0]), markup.notes([described(picture), *told])

    def first_example(self, model: StudioModel) -> tuple[str, Picture, Any, str]:
        """What a visitor sees before they have chosen anything: its name, itself, in the editor, in words."""
        name, picture = next(iter(model.examples().items()))
        return name, *self._taken(picture, model, [])

    def choose_model(self, name: str, picture: Picture | None, example: str | None = None) -> tuple[Any, ...]:
        """Another model: its examples, its card, and the picture as it takes it; in place of an example one of its own."""
        with clear_words():
            model = self.models.get(name)
            choices = list(model.examples())
            if picture is None or example is not None:
                chosen, *taken = self.first_example(model)
                return gr.update(choices=choices, value=chosen), model.card(), *taken
            return gr.update(choices=choices, value=None), model.card(), *self._taken(picture, model, [])

    def choose(self, kind: str) -> tuple[Any, Any, Any]:
        """The controls that a kind of damage has; what is to be found out is asked of a damaged picture."""
        what = KINDS[kind]
        strength = gr.update(visible=what.option is not None, label=what.words, value=what.default)
        return strength, gr.update(value=what.sigma, visible=not what.auto), MANNERS[1] if what.auto else gr.skip()

    def paint(self, painted: Any, kind: str) -> Any:
        """Who paints says that something is missing."""
        return gr.skip() if kind == PAINTED or mask_of(painted) is None else PAINTED

    def _question(
        self, model: StudioModel, picture: Picture | None, controls: tuple[Any, ...], progress: Progress
    ) -> tuple[Question, list[str]]:
        if picture is None:
            raise ValueError("there is no picture yet: upload or paste one, or choose an example")
        told: list[str] = []
        kind, strength, sigma, manner, painted, seed = controls
        damage = damage_of(
            kind,
            number(strength, "its strength"),
            number(sigma, "noise"),
            simulate=manner == MANNERS[0],
            mask=mask_of(painted),
        )
        height, width = (n for n in damage.image_size(picture.size))
        if not damage.simulate and None in model.energy.shape and height * width > MOST_PIXELS:
            raise ValueError(
                f"the answer would have {height}×{width} pixels, and this page works on at most {MOST_PIXELS:,}: take a smaller picture"
            )
        seed = int(number(seed, "seed"))
        how: Any = {"resize": True, "seed": seed, "tell": told.append, "progress": progress}
        return ask(model.energy, picture, damage, **how), told

    # --- restore -------------------------------------------------------------------------------------------------------------

    def restore(
        self,
        model: str,
        picture: Picture | None,
        kind: str,
        strength: float,
        sigma: float,
        manner: str,
        painted: Any,
        seed: float,
        samples: float,
        steps: float,
        request: gr.Request,
        bar: gr.Progress = gr.Progress(),  # noqa: B008 (gradio finds it by its default)
    ) -> Iterator[tuple[Any, ...]]:
        """Answers as they come: status, before and after, mean, error map, samples, code, whether there is something to download, and all
        of it in sight."""
        visitor = request.session_hash or ""
        with clear_words():
            progress = self._watched(request, bar)
            chosen = self.models.get(model)
            question, told = self._question(chosen, picture, (kind, strength, sigma, manner, painted, seed), progress)
            settings = {"steps": int(steps), "seed": int(seed)}
            answer = None
            for result, notes in work.restored(chosen, question, samples=int(samples), progress=progress, **settings):
                answer = Answer(question, result, model, **settings)
                self.visitors.keep(visitor, answer)
                shown = self._shown(result, [*told, *notes])
                yield (*shown, gr.skip(), gr.update(interactive=False), gr.update(visible=True))
            assert answer is not None
            yield (*shown, script(answer), gr.update(interactive=True), gr.skip())

    def _shown(self, result: Restoration, notes: list[str]) -> tuple[Any, ...]:
        words = [
            f"Mean: {result.mean_from}; expected error: {result.std_from}; evidence log p(y) = {result.evidence:.1f} nats",
            *notes,
        ]
        if result.psnr is not None:
            words.insert(0, f"PSNR of the mean: {result.psnr:.1f} dB (the truth is known)")
        mean = markup.picture(result.mean)
        before = markup.picture(shown_before(result.measurement, result.mean))
        return markup.notes(words), (before, mean), mean, markup.error_maps(result), markup.samples(result)

    def pack(self, request: gr.Request) -> str:
        """Everything about the last answer as a zip file."""
        visitor = request.session_hash or ""
        with clear_words():
            answer = self.visitors.answer(visitor)
            content = zip_bytes(answer, self.models.get(answer.model).energy)
            return str(self.visitors.hand_out(visitor, "linverse-restoration.zip", content))

    def press(self, request: gr.Request) -> None:
        """A button was pressed; its work may have to wait."""
        self.visitors.press(request.session_hash or "")

    def _watched(self, request: gr.Request, bar: gr.Progress) -> Progress:
        """Progress that ends the visitor's work when they press Stop; where they did so while it waited, it does not begin."""
        flag = self.visitors.begin(request.session_hash or "")
        if flag.is_set():
            raise KeyboardInterrupt
        return work.watched(flag, in_bar(bar))

    def stop(self, request: gr.Request) -> None:
        """The visitor has seen enough."""
        self.visitors.stop(request.session_hash or "")

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.visitors.leave(request.session_hash or "")

    def click(self, event: gr.SelectData, request: gr.Request) -> tuple[str, int, int]:
        """A click on the mean: which pixel that is."""
        with clear_words():
            scale = markup.scale_for(self.visitors.answer(request.session_hash or "").result.mean)
            column, row = (int(value) // scale for value in event.index)
            return self.pixel(row, column, request), row, column

    def pixel(self, row: float, column: float, request: gr.Request) -> str:
        """What is known of a pixel."""
        with clear_words():
            result = self.visitors.answer(request.session_hash or "").result
            found = pixel_marginal(result, int(number(row, "row")), int(number(column, "column")))
            words = marginal_words(found)
            return markup.figure(lambda: marginal_figure(found), words) + markup.notes([words])

    # --- blind ---------------------------------------------------------------------------------------------------------------

    def parameters(self, family: str, manner: str) -> tuple[Any, Any]:
        """The fields of a family's parameters, for a simulation; a damaged picture has its own."""
        axes, simulated = FAMILIES[family].axes((28, 28)), manner == MANNERS[0]
        names = [f"{axis.name} {axis.unit}".strip() + " of the simulation" for axis in axes] + [""]
        return gr.update(label=names[0], visible=simulated, value=USUAL[axes[0].name]), gr.update(
            label=names[1], visible=simulated and len(axes) > 1, value=USUAL[axes[-1].name]
        )

    def blind(
        self,
        model: str,
        picture: Picture | None,
        painted: Any,
        manner: str,
        family: str,
        first: float,
        second: float,
        seed: float,
        request: gr.Request,
        bar: gr.Progress = gr.Progress(),  # noqa: B008
        live: bool | None = None,
        looking: bool = True,
    ) -> tuple[Any, Any]:
        """Evidence and posterior of the parameters, in a figure and in words.

        Where `live` is given nobody pressed the button: something changed, and the answer comes anew for who wants that and looks at it.
        """
        if live is not None and not (live and looking and picture is not None):
            return gr.skip(), gr.skip()
        with clear_words():
            progress = self._watched(request, bar)
            if picture is None:
                raise ValueError("there is no picture yet: upload or paste one, or choose an example")
            told: list[str] = []
            chosen = self.models.get(model)
            seen = fitted(picture, chosen.energy.shape, tell=told.append, resize=True)
            truth = self._simulated(family, manner, seen.size, (first, second))
            result = work.blind(
                chosen,
                seen,
                family,
                truth=truth,
                mask=self._left_out(painted, family, seen.size, told),
                seed=int(number(seed, "seed")),
                progress=progress,
            )
            return self._blind_shown(result, family, truth, told)

    @staticmethod
    def _simulated(
        family: str, manner: str, size: tuple[int, int], values: tuple[float, float]
    ) -> dict[str, float] | None:
        """The parameters by which a clean picture is to be damaged; none for one that is."""
        if manner != MANNERS[0]:
            return None
        names = [axis.name for axis in FAMILIES[family].axes(size)]
        return {name: number(value, name) for name, value in zip(names, values, strict=False)}

    @staticmethod
    def _left_out(painted: Any, family: str, size: tuple[int, int], told: list[str]) -> Tensor | None:
        """The mask of what is painted over, for the family that can leave it out."""
        mask = mask_of(painted)
        if mask is None:
            return None
        if family != "noise":
            told.append("what is painted over counts for noise only")
            return None
        return resized_mask(mask, size)

    @staticmethod
    def _blind_shown(
        result: BlindRestoration, family: str, truth: dict[str, float] | None, told: list[str]
    ) -> tuple[str, str]:
        words = [estimate_text(result.search, axis) for axis in result.search.axes]
        pictures = [("measurement", result.raw), ("restored", result.mean)]
        drawn = markup.figure(
            lambda: blind_figure(result.search, pictures, truth, f"{family}: evidence and posterior"),
            f"evidence curve; {'; '.join(words)}",
            least=640,
        )
        if result.typicality is not None:
            words.append(f"against {result.typicality.count} held-out images: {result.typicality.describe()[0]}")
        edges = [
            f"{axis.name} lies at the edge of what was searched: it may be beyond" for axis in result.search.at_edge()
        ]
        return drawn, markup.notes([*words, *edges, *told])

    # --- path ----------------------------------------------------------------------------------------------------------------

    def _fitted(self, picture: Picture, model: str) -> Tensor:
        shape = self.models.get(model).energy.shape
        return fitted(picture, shape, tell=lambda text: None, resize=True).pixels[0]

    def board(self, picture: Picture | None, order: str, model: str) -> Any:
        """The picture with the patches that were clicked."""
        if picture is None:
            return None
        with clear_words():
            return markup.order_board(self._fitted(picture, model), clicked_patches(order), work.PATCHES)

    def add_patch(self, picture: Picture | None, order: str, model: str, event: gr.SelectData) -> str:
        """A click on the board: the patch comes next."""
        if picture is None:
            return order
        with clear_words():
            shown = self._fitted(picture, model)
            side = [n * markup.scale_for(shown) / work.PATCHES for n in shown.shape[-2:]]
            patch = int(event.index[1] // side[0]) * work.PATCHES + int(event.index[0] // side[1])
            return ", ".join(map(str, dict.fromkeys([*clicked_patches(order), patch])))

    def film(
        self,
        model: str,
        picture: Picture | None,
        kind: str,
        strength: float,
        sigma: float,
        manner: str,
        painted: Any,
        seed: float,
        path: str,
        steps: float,
        order: str,
        request: gr.Request,
        bar: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> str:
        """The way of one sample, as an animated picture."""
        with clear_words():
            progress = self._watched(request, bar)
            chosen = self.models.get(model)
            question, told = self._question(chosen, picture, (kind, strength, sigma, manner, painted, seed), progress)
            settings: Any = {"steps": int(steps), "seed": int(seed), "clicked": clicked_patches(order)}
            told += work.extrapolation(chosen, question)
            film = work.filmed(chosen, question, path, progress=progress, **settings)
            words = f"{film.path.steps} steps: the sample, its mean so far, and how much noise each coefficient still has (bright: much)"
            return markup.img(film_bytes(film), words, "gif", usual=markup.FILM) + markup.notes(
                [words, work.PATHS[path], *told]
            )

    # --- compare -------------------------------------------------------------------------------------------------------------

    def compare(
        self,
        model: str,
        picture: Picture | None,
        kind: str,
        strength: float,
        sigma: float,
        manner: str,
        painted: Any,
        seed: float,
        first: str,
        second: str,
        steps: float,
        request: gr.Request,
        bar: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> str:
        """Two methods side by side."""
        with clear_words():
            progress = self._watched(request, bar)
            chosen = self.models.get(model)
            question, told = self._question(chosen, picture, (kind, strength, sigma, manner, painted, seed), progress)
            settings: Any = {"steps": int(steps), "seed": int(seed), "progress": progress}
            told += work.extrapolation(chosen, question)
            found = [work.compared(chosen, question, name, **settings) for name in (first, second)]
            known = [("measurement", shown_before(question.measurement, found[0].image))]
            known += [("truth", question.truth)] if question.truth is not None else []
            return markup.comparison(found, known) + markup.notes(told)
