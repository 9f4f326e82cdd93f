"""The page itself: gradio's components and how they are arranged; what they call is in `callbacks`. Nothing but this server is asked.

Each visitor's picture lives in the session's own state; a queue of bounded length hands the work to one worker per core.
"""

from __future__ import annotations

import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from linverse.blind import FAMILIES
from linverse.studio import markup, work
from linverse.studio.callbacks import MANNERS, Studio
from linverse.studio.kinds import KINDS
from linverse.studio.models import Models, StudioModel

QUEUE = 64  # visitors that wait
LARGEST_FILE = "30mb"
FONTS = ["system-ui", "sans-serif"]  # the visitor's own: none is fetched
FETCH = "() => setTimeout(() => document.querySelector('#packed').click(), 300)"  # a zip file is made only when it is asked for
STYLE = """
#mean button, #mean .image-frame, #mean img { width: 100% !important; height: auto !important; }
@media (max-width: 640px) { .tab-container > button { padding: 0 6px !important; font-size: .85em !important; } }
"""  # the mean as large as the slider beside it; all tabs in sight on a phone
HINT = "Press Restore: the answer of one evaluation comes at once, then samples, one by one, until Stop."
CREDIT = "Nothing that you upload is kept; no other server is asked."


def theme() -> Any:
    """Light and dark as the visitor's system has it; fonts of the visitor's own."""
    return gr.themes.Base(primary_hue="blue", font=FONTS, font_mono=["ui-monospace", "monospace"])


def upload_of(**options: Any) -> Any:
    """A picture whose file linverse reads itself: 16 bits stay 16 bits, and what is no picture is refused in our words."""
    component = gr.Image(
        type="filepath", sources=["upload", "clipboard"], **options
    )  # a subclass would write a .pyi beside us
    component.preprocess = lambda payload: None if payload is None else payload.path
    return component


def only_uploads(block: Any) -> None:
    """A forged request may name an address in place of a file, and gradio would fetch it: refused, this server asks no other."""
    move = block.async_move_resource_to_block_cache

    async def moved(path: str | Path | None) -> str | None:
        if path is not None and "://" in str(path):
            raise gr.Error("a picture is uploaded here, not named by an address", print_exception=False)
        return await move(path)

    block.async_move_resource_to_block_cache = moved


@dataclass(frozen=True)
class Asked:
    """The fields of the left column: which picture, what happened to it, and with what numbers it is restored."""

    model: Any
    upload: Any
    example: Any
    about: Any
    manner: Any
    kind: Any
    strength: Any
    sigma: Any
    painted: Any
    samples: Any
    steps: Any
    seed: Any


def _left_column(models: Models, first: StudioModel, begun: tuple[str, Any, str]) -> Asked:
    """`begun`: the example that is there at first, by name, as the editor shows it, and in words."""
    named, editable, said = begun
    model = gr.Dropdown(models.names, value=first.name, label="Model", elem_id="model")
    upload = upload_of(label="Your picture: drop, choose or paste it", height=220, elem_id="upload")
    example = gr.Dropdown(list(first.examples()), value=named, label="… or an example", elem_id="example")
    about = gr.HTML(said)
    manner = gr.Radio(MANNERS, value=MANNERS[0], label="Which picture is it?", elem_id="manner")
    kind = gr.Dropdown(list(KINDS), value=list(KINDS)[1], label="What happened to it?", elem_id="kind")
    strength = gr.Number(14, label="strength", visible=False, elem_id="strength")
    sigma = gr.Number(0.1, label="noise (standard deviation, white is 1)", elem_id="sigma")
    with gr.Accordion("Paint over what is missing", open=True):
        painted = _editor(editable)
    with gr.Accordion("Numbers", open=False):
        samples = gr.Slider(0, work.MOST_SAMPLES, value=8, step=1, label="samples")
        steps = gr.Slider(1, work.MOST_STEPS, value=50, step=1, label="steps of each")
        seed = gr.Number(0, precision=0, label="seed")
    return Asked(model, upload, example, about, manner, kind, strength, sigma, painted, samples, steps, seed)


def _tabs(studio: Studio, left: Asked, picture: Any, looking: Any, first: StudioModel, heavy: dict[str, Any]) -> Any:
    """What can be asked, and the model's card, which is handed back."""
    asked = [left.model, picture, left.kind, left.strength, left.sigma, left.manner, left.painted, left.seed]
    with gr.Tab("Restore"):
        _restore_tab(studio, [*asked, left.samples, left.steps], heavy)
    with gr.Tab("Blind"):
        _blind_tab(studio, [left.model, picture, left.painted, left.manner], left.seed, looking, heavy)
    with gr.Tab("Path"):
        _path_tab(studio, asked, heavy)
    with gr.Tab("Compare"):
        _compare_tab(studio, asked, heavy)
    with gr.Tab("Model card"):
        return gr.Markdown(first.card(), elem_id="card")


def _answer_changes(studio: Studio, left: Asked, picture: Any, card: Any) -> None:
    """What a choice in the left column changes there, and in the card."""
    taken = [picture, left.painted, left.about]
    quiet = {"show_progress": "hidden"}
    left.upload.change(studio.take, [left.upload, left.model], [*taken, left.model, left.example], **quiet)
    left.example.input(studio.take_example, [left.example, left.model], [*taken, left.upload], **quiet)
    chosen = [left.model, picture, left.example]
    left.model.change(studio.choose_model, chosen, [left.example, card, *taken], **quiet)
    left.kind.change(studio.choose, left.kind, [left.strength, left.sigma, left.manner], **quiet)
    left.painted.input(studio.paint, [left.painted, left.kind], left.kind, **quiet)


def build(models: Models, folder: Path) -> Any:
    """The page, not yet served. `folder` is for files on their way to a visitor."""
    studio, workers = Studio(models, folder), max(1, os.cpu_count() or 1)
    first = models.get(models.names[0])
    heavy: dict[str, Any] = {"concurrency_limit": workers, "concurrency_id": "work"}
    with gr.Blocks(title="linverse studio", analytics_enabled=False, delete_cache=(300, 900)) as page:
        gr.Markdown(
            f"# linverse studio\nWhat a damaged picture was, how sure we are, what else it could have been. {CREDIT}"
        )
        named, begun, editable, said = studio.first_example(first)
        picture, looking = gr.State(begun, time_to_live=3600), gr.State(False)
        with gr.Row():
            with gr.Column(min_width=300):
                left = _left_column(models, first, (named, editable, said))
            with gr.Column(min_width=300, scale=2), gr.Tabs() as tabs:
                card = _tabs(studio, left, picture, looking, first, heavy)
        _answer_changes(studio, left, picture, card)
        tabs.select(_is_blind, None, looking, show_progress="hidden")
        page.unload(studio.leave)
    page.queue(max_size=QUEUE, default_concurrency_limit=workers, api_open=False)
    for block in page.blocks.values():
        if hasattr(block, "async_move_resource_to_block_cache"):
            only_uploads(block)
    return page


def _pressed(studio: Studio, button: Any) -> Any:
    """A click that is noted at once, so that Stop reaches work that still waits in the queue."""
    return button.click(studio.press, queue=False, show_progress="hidden")


def _progress() -> Any:
    """Where progress, the place in the queue and errors are shown: beside the answer, not over it."""
    return gr.HTML(min_height=44, padding=False)


def _is_blind(event: gr.SelectData) -> bool:
    return event.value == "Blind"


def _editor(shown: Any) -> Any:
    brush = gr.Brush(default_size=24, colors=["#d55e00"], default_color="#d55e00", color_mode="fixed")
    return gr.ImageEditor(
        {"background": shown, "layers": [], "composite": shown},
        show_label=False,
        label="Paint over what is missing",
        sources=(),
        transforms=(),
        layers=False,
        brush=brush,
        eraser=gr.Eraser(default_size=24),
        type="numpy",
        format="png",
        height=400,
        elem_id="painted",
    )


def _restore_tab(studio: Studio, asked: list[Any], heavy: dict[str, Any]) -> None:
    with gr.Row():
        go = gr.Button("Restore", variant="primary", elem_id="restore")
        stop = gr.Button("Stop", elem_id="stop")
    at_work = _progress()
    status = gr.HTML(markup.notes([HINT]), elem_id="status")
    with gr.Column(visible=False) as answer:
        with gr.Row():
            slider = gr.ImageSlider(label="Before and after", elem_id="slider", format="png", buttons=[])
            mean = gr.Image(
                label="Posterior mean: click a pixel",
                elem_id="mean",
                interactive=False,
                format="png",
                alt_text="the posterior mean",
                buttons=[],
            )
        error = gr.HTML(elem_id="error-map")
        with gr.Row():
            row = gr.Number(0, precision=0, label="row", min_width=80, elem_id="row")
            column = gr.Number(0, precision=0, label="column", min_width=80, elem_id="column")
            look = gr.Button("Show this pixel", elem_id="look")
        pixel = gr.HTML(elem_id="pixel")
        drawn = gr.HTML(elem_id="samples")
        download = gr.Button("Download everything (zip)", interactive=False, elem_id="download")
        with gr.Accordion("The lines of Python that repeat it", open=False):
            code = gr.Code(show_label=False, language="python", elem_id="code")
    packed = gr.DownloadButton("the zip file", visible="hidden", elem_id="packed")
    outputs = [status, slider, mean, error, drawn, code, download, answer]
    _pressed(studio, go).then(studio.restore, asked, outputs, show_progress_on=[at_work], **heavy)
    stop.click(studio.stop, queue=False)
    mean.select(studio.click, None, [pixel, row, column], show_progress="hidden")
    download.click(studio.pack, None, packed, show_progress_on=[download], **heavy).success(None, js=FETCH)
    look.click(studio.pixel, [row, column], pixel, show_progress="hidden")


def _blind_tab(studio: Studio, asked: list[Any], seed: Any, looking: Any, heavy: dict[str, Any]) -> None:
    gr.Markdown(
        "How strong was it? The evidence says, for the family that you choose here (“What happened to it?” does not count). "
        "A clean picture is damaged first, as strongly as you say; a damaged one is taken as it is. "
        "What is painted over is left out (noise)."
    )
    family = gr.Dropdown(list(FAMILIES), value="noise", label="family", elem_id="family")
    with gr.Row():
        first = gr.Number(0.2, label="sigma of the simulation", elem_id="first")
        second = gr.Number(5, label="", visible=False, elem_id="second")
    live = gr.Checkbox(True, label="again by itself whenever something changes", elem_id="live")
    with gr.Row():
        go = gr.Button("Find out", variant="primary", elem_id="blind")
        stop = gr.Button("Stop")
    at_work = _progress()
    drawn, words = gr.HTML(elem_id="evidence"), gr.HTML(elem_id="estimate")
    model, picture, painted, manner = asked
    inputs = [*asked, family, first, second, seed]
    _pressed(studio, go).then(studio.blind, inputs, [drawn, words], show_progress_on=[at_work], **heavy)
    stop.click(studio.stop, queue=False)
    again: dict[str, Any] = {
        "fn": studio.blind,
        "inputs": [*inputs, live, looking],
        "outputs": [drawn, words],
        "trigger_mode": "always_last",
        "show_progress_on": [at_work],
        **heavy,
    }
    gr.on([picture.change, painted.input, model.change, looking.change, first.submit, second.submit], **again)
    asks = [family.change, manner.change]
    gr.on(asks, studio.parameters, [family, manner], [first, second], show_progress="hidden").then(**again)


def _path_tab(studio: Studio, asked: list[Any], heavy: dict[str, Any]) -> None:
    gr.Markdown("One sample on its way from the measurement to a clean picture, with the noise that is left beside it.")
    model, picture = asked[:2]
    path = gr.Dropdown(list(work.PATHS), value="clamped", label="path", elem_id="path")
    steps = gr.Slider(8, 160, value=40, step=1, label="steps")
    with gr.Accordion("Any order: click the patches in the order you like", visible=False) as patches:
        order = gr.Textbox("", label="order of the patches (0 to 15, row by row); the others follow", elem_id="order")
        board = gr.Image(
            studio.board(picture.value, "", model.value),
            label="patches",
            interactive=False,
            format="png",
            alt_text="the picture in 4×4 patches",
            buttons=[],
            elem_id="board",
        )
    with gr.Row():
        go = gr.Button("Film it", variant="primary", elem_id="film")
        stop = gr.Button("Stop")
    at_work, shown = _progress(), gr.HTML(elem_id="movie")
    board.select(studio.add_patch, [picture, order, model], order, show_progress="hidden")
    changes = [order.change, picture.change, model.change]
    gr.on(changes, studio.board, [picture, order, model], board, show_progress="hidden")
    path.change(lambda name: gr.update(visible=name == work.ANY_ORDER), path, patches, show_progress="hidden")
    _pressed(studio, go).then(studio.film, [*asked, path, steps, order], shown, show_progress_on=[at_work], **heavy)
    stop.click(studio.stop, queue=False)


def _compare_tab(studio: Studio, asked: list[Any], heavy: dict[str, Any]) -> None:
    gr.Markdown("Two methods on the same measurement. Those that need a denoiser get this model as one.")
    names = list(work.COMPARED)
    with gr.Row():
        first = gr.Dropdown(names, value="ours", label="method", elem_id="method-a")
        second = gr.Dropdown(names, value="diffpir", label="and", elem_id="method-b")
        steps = gr.Slider(5, work.MOST_STEPS, value=40, step=1, label="steps")
    with gr.Row():
        go = gr.Button("Compare", variant="primary", elem_id="compare")
        stop = gr.Button("Stop")
    at_work, shown = _progress(), gr.HTML(elem_id="compared")
    _pressed(studio, go).then(
        studio.compare, [*asked, first, second, steps], shown, show_progress_on=[at_work], **heavy
    )
    stop.click(studio.stop, queue=False)


def launch(models: Models, *, host: str, port: int, browser: bool = False, wait: bool = True) -> Any:
    """Serve the page until Ctrl-C (or, without `wait`, in the background; then close() ends it). Temporary files go with it."""
    import matplotlib.figure  # noqa: F401 (now, so that the first answer need not wait for it)

    folder = tempfile.TemporaryDirectory(prefix="linverse-studio-")
    os.environ["GRADIO_TEMP_DIR"] = folder.name
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    page = build(models, Path(folder.name) / "outbox")
    page.temporary = folder  # removed with the page
    page.launch(
        server_name=host,
        server_port=port,
        inbrowser=browser,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        max_file_size=LARGEST_FILE,
        state_session_capacity=200,
        show_error=False,  # what we raise is shown all the same; what gradio or Python says may name files of the server
        ssr_mode=False,
        footer_links=["settings"],
        theme=theme(),
        css=STYLE,
    )
    if not wait:
        return page
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # hosts end it so, and files shall go then, too
    try:
        page.block_thread()
    finally:
        page.close()
        folder.cleanup()
    return page
