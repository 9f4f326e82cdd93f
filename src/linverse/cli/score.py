"""`linverse score IMAGES…`: how probable are these pictures under a model? log p(x + N(0, λ_min)) = −U(x + noise, λ_min·I)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from linverse.cli.show import note, plain_warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from linverse.cli.output import OutputFolder
    from linverse.covariance import Covariance
    from linverse.energy import Energy

HELP = """How probable are these pictures under a model? Log-densities in nats and bits/dim, sorted, with a gallery.

The density is of the picture plus a trace of noise, N(0, λ_min): 8-bit pictures have no density of their own. λ_min is the smallest
variance that the model knows. Compare numbers of one model only. A model that carries held-out images also
says how typical a picture is: p is small where hardly any of them is as probable, or as improbable.

examples:
  linverse score shoe.png bag.png                          two pictures
  linverse score photos/ --resize --out scores             a folder, scaled and cropped to the model's size
"""
PLANNED = ("scores.csv", "gallery.png")
CHUNK, SHOWN, LISTED = 32, 40, 20


@dataclass(frozen=True)
class Options:
    """Log-densities of pictures."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE …")]
    """pictures, or folders of them"""
    model: str = "fashion-mnist"
    """a bundled name, a folder, or an id of the hub"""
    seed: int = 0
    """of the noise N(0, λ_min), which is the same for all pictures"""
    resize: bool = False
    """scale and crop pictures of another size"""
    out: Path = Path("scores")
    """folder for scores.csv, gallery.png and result.json"""


@dataclass(frozen=True)
class Scored:
    """A picture, its log-density in nats, and where that lies among those of held-out images (of a model that carries some)."""

    path: Path
    image: Tensor
    log_density: float
    typicality: dict[str, Any] | None = None


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = tyro.cli(
        Options, args=arguments, prog="linverse score", description=HELP, config=(tyro.conf.FlagCreatePairsOff,)
    )
    if not options.images:
        raise ValueError("name at least one picture or folder: linverse score shoe.png photos/")
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: Options, console: Console) -> None:
    """Read, score, sort, write."""
    from linverse.cli.experiment import Watcher
    from linverse.cli.files import expand_paths, read_image
    from linverse.cli.output import OutputFolder
    from linverse.store.hub import load

    # a folder may hold the gallery of an earlier run
    paths = [path for path in expand_paths(list(options.images)) if options.out.resolve() not in path.resolve().parents]
    energy = load(options.model)
    out = OutputFolder(options.out, "linverse score", PLANNED)
    pictures = [(path, read_image(path, energy.shape, console, resize=options.resize)) for path in paths]
    with Watcher(console) as watcher:
        scored = score(energy, pictures, options.seed, lambda done, total: watcher("scoring", done, total))
    scored = judge(energy, scored, options.seed)
    write(out, scored, energy, options, completed=len(scored) == len(paths))
    show(console, scored, energy, out)
    if len(scored) < len(paths):
        note(console, f"interrupted: {len(scored)} of {len(paths)} pictures were scored")
        raise SystemExit(130)


def floor(energy: Energy) -> Covariance:
    """λ_min·I."""
    import torch

    from linverse.covariance import SpatialCovariance

    channels, height, width = energy.shape
    return SpatialCovariance(torch.zeros(1, 1, height, width), channels).isotropic(energy.range.minimum)


def score(
    energy: Energy, pictures: list[tuple[Path, Tensor]], seed: int, report: Callable[[int, int], None]
) -> list[Scored]:
    """Most probable first; Ctrl-C ends it with the pictures that are done."""
    import torch

    from linverse.rng import keyed_generator, normal_like

    cov = floor(energy)
    # one draw for all: what differs between two pictures is then the pictures
    noise = cov.colour(normal_like(torch.empty(1, *energy.shape), keyed_generator(seed, "score")))
    scored: list[Scored] = []
    try:
        for start in range(0, len(pictures), CHUNK):
            part = pictures[start : start + CHUNK]
            with torch.no_grad():
                values = -energy(torch.cat([x for _, x in part]) + noise, cov.expand(len(part)))
            scored += [Scored(path, x[0], value) for (path, x), value in zip(part, values.tolist(), strict=True)]
            report(len(scored), len(pictures))
    except KeyboardInterrupt:
        if not scored:
            raise
    return sorted(scored, key=lambda one: -one.log_density)


def judge(energy: Energy, scored: list[Scored], seed: int) -> list[Scored]:
    """The same pictures, with where each lies among the held-out images that the model carries, if any."""
    import torch

    from linverse.rng import keyed_generator
    from linverse.typicality import compare, noisy_energies, reference_images

    reference = reference_images(energy)
    if reference is None:
        return scored
    expected = noisy_energies(energy, floor(energy), reference, keyed_generator(seed, "reference"))
    energies = torch.tensor([-one.log_density for one in scored], dtype=expected.dtype)
    found = compare(energies, expected[None]).records()
    return [replace(one, typicality=record) for one, record in zip(scored, found, strict=True)]


def bits(one: Scored) -> float:
    """−log₂ p a dimension."""
    import torch

    from linverse.units import bits_per_dim

    return float(bits_per_dim(torch.tensor(one.log_density, dtype=torch.float64), one.image.numel()))


# --- what comes out ----------------------------------------------------------------------------------------------------------------


def write(out: OutputFolder, scored: list[Scored], energy: Energy, options: Options, *, completed: bool) -> None:
    """scores.csv, gallery.png, result.json."""
    import linverse
    from linverse.cli.pictures import gallery_figure, nats
    from linverse.experiments.framework import picture

    rows: list[dict[str, Any]] = [
        {
            "rank": rank,
            "image": str(one.path),
            "log_density_nats": round(one.log_density, 4),
            "bits_per_dim": round(bits(one), 5),
            **{key: one.typicality[key] for key in ("p", "z", "unusual") if one.typicality is not None},
        }
        for rank, one in enumerate(scored, start=1)
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    out.write("scores.csv", text.getvalue().encode())
    kept, gap = ends(scored, SHOWN)
    heading = (
        f"log p(x + N(0, {energy.range.minimum:.0e})) in nats, most probable first · model {Path(options.model).name}"
    )
    heading += f" · the first and last {SHOWN // 2} of {len(scored)}" if gap else ""
    labels = [nats(one.log_density) for one in kept]
    out.write("gallery.png", picture(lambda: gallery_figure([one.image for one in kept], labels, heading)))
    settings: dict[str, Any] = {"model": options.model, "seed": options.seed, "smallest_variance": energy.range.minimum}
    compared = scored[0].typicality
    settings["reference_images"] = 0 if compared is None else compared["reference_images"]
    out.finish({"completed": completed, **settings, "linverse": linverse.__version__, "scores": rows})


def ends(scored: list[Scored], most: int) -> tuple[list[Scored], bool]:
    """All, or the first and the last of too many."""
    if len(scored) <= most:
        return scored, False
    return scored[: most // 2] + scored[-(most // 2) :], True


def show(console: Console, scored: list[Scored], energy: Energy, out: OutputFolder) -> None:
    """The sorted table."""
    compared = scored[0].typicality
    table = Table("", "picture", "log p (nats)", "bits/dim", *(["typical?"] if compared else []), box=None)
    kept, gap = ends(scored, LISTED)
    for place, one in enumerate(kept):
        rank = place + 1 if not gap or place < LISTED // 2 else len(scored) - len(kept) + place + 1
        if gap and place == LISTED // 2:
            table.add_row("…")
        row = [str(rank), one.path.name.replace("[", r"\["), f"{one.log_density:.1f}", f"{bits(one):.3f}"]
        table.add_row(*row, *([one.typicality["verdict"]] if one.typicality else []))
    console.print(table)
    against = f"; compared with {compared['reference_images']} held-out images of the model" if compared else ""
    note(console, f"log p(x + N(0, λ_min)), λ_min = {energy.range.minimum:g}; most probable first{against}")
    note(console, f"wrote {out.folder}/: gallery.png, scores.csv, result.json")
