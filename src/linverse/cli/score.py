"""`linverse score IMAGES…`: how probable are these pictures under a model? log p(x + N(0, λ_min)) = −U(x + noise, λ_min·I)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from linverse.cli.parsing import DeviceOption, ModelOption, parse
from linverse.report.console import note, plain_warnings

HELP = """How probable are these pictures under a model? Log-densities in nats and bits/dim, sorted, with a gallery.

The density is of the picture plus a trace of noise, N(0, λ_min): 8-bit pictures have no density of their own. λ_min is the smallest
variance that the model knows. As bytes an 8-bit picture has a code length: the bits that an ideal coder with this model would need,
which can be set beside those of PNG. Compare numbers of one model only. A model that carries held-out images also
says how typical a picture is: p is small where hardly any of them is as probable, or as improbable.

examples:
  linverse score one.jpg another.png                       two photographs, of any size
  linverse score photos/ --model fashion-mnist --resize    a folder, scaled and cropped to the model's size
"""
ENOUGH = 2**17  # values whose noise within the cells of bytes tells a code length to 0.001 bits
PLANNED = ("scores.csv", "gallery.png")


@dataclass(frozen=True)
class ScoreOptions:
    """Log-densities of pictures."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE …")]
    """pictures, or folders of them"""
    model: ModelOption = None
    device: DeviceOption = "cpu"
    seed: int = 0
    """of the noise N(0, λ_min), which is the same for all pictures"""
    resize: bool = False
    """scale and crop pictures of another size"""
    out: Path = Path("scores")
    """folder for scores.csv, gallery.png and result.json"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(ScoreOptions, arguments, "score", HELP)
    if not options.images:
        raise ValueError("name at least one picture or folder: linverse score shoe.png photos/")
    console = Console()
    with plain_warnings(console):
        run(options, console)


def run(options: ScoreOptions, console: Console) -> None:
    """Read, score, sort, write."""
    import linverse
    from linverse.code_length import are_bytes, code_length
    from linverse.data.pictures import expand_paths, fitted, read_told
    from linverse.report.console import ProgressBars
    from linverse.report.output import OutputFolder
    from linverse.report.scores import ranked, show, write
    from linverse.store.choice import model_for
    from linverse.store.hub import load
    from linverse.typicality import score_pictures

    # a folder may hold the gallery of an earlier run
    paths = [path for path in expand_paths(list(options.images)) if options.out.resolve() not in path.resolve().parents]
    tell = partial(note, console)
    pictures = [read_told(path, tell) for path in paths]
    name = options.model or model_for(max(picture.channels for picture in pictures))
    energy = load(name, options.device)
    out = OutputFolder(options.out, "linverse score", PLANNED)
    x = [
        fitted(picture, energy.shape, tell=tell, resize=options.resize).pixels.to(options.device)
        for picture in pictures
    ]
    with ProgressBars(console) as progress:
        scores = score_pictures(energy, x, seed=options.seed, progress=progress)
        done = x[: len(scores.log_density)]
        bits: list[float | None] = []
        for number, one in enumerate(done):
            draws = max(1, min(4, ENOUGH // one[0].numel()))
            bits.append(code_length(energy, one, draws).mean if are_bytes(one) else None)
            progress("code lengths", number + 1, len(done))
    scored, floor = ranked(paths, x, scores, bits), energy.range.minimum
    settings = {
        "model": name,
        "seed": options.seed,
        "smallest_variance": floor,
        "linverse": linverse.__version__,
    }
    write(out, scored, settings, completed=len(scored) == len(paths))
    show(console, scored, floor, out)
    if len(scored) < len(paths):
        note(console, f"interrupted: {len(scored)} of {len(paths)} pictures were scored")
        raise SystemExit(130)
