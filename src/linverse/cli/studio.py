"""`linverse studio`: the same questions, asked in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console

from linverse.cli.parsing import parse
from linverse.report.console import note

HELP = """Open a page on which a picture is dropped, painted on, restored, and its posterior looked at.

examples:
  linverse studio                                     the bundled models: photographs (where they are bundled), garments, digits
  linverse studio --model fashion-mnist               garments of 28×28 pixels
  linverse studio --host 0.0.0.0 --port 8000          for the whole network: think of who can reach it

It needs `pip install 'linverse[studio]'`. Nothing that is uploaded is kept, and no other server is asked for anything.
"""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class StudioOptions:
    """The page, its model and where it listens."""

    model: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the bundled ones)")] = None
    """the one that is shown first: a bundled name, a folder, or an id of the hub"""
    host: str = "127.0.0.1"
    """the address to listen at; this one cannot be reached from other machines"""
    port: int = 7860
    """the port to listen at"""
    device: str = "cpu"
    """where the network runs: cpu, cuda, mps"""
    no_browser: bool = False
    """do not open the page in a browser"""


def main(arguments: list[str]) -> None:
    """Parse and run."""
    options = parse(StudioOptions, arguments, "studio", HELP)
    if not 0 < options.port < 65536:
        raise ValueError(f"--port is a number from 1 to 65535; got {options.port}")
    console = Console()
    from linverse.extras import require

    require("gradio", "studio")
    from linverse.store.choice import main_models
    from linverse.studio.models import Models
    from linverse.studio.page import launch

    models = Models([*([options.model] if options.model else []), *main_models()], options.device)
    models.get(models.names[0])  # a model that cannot be loaded is said now
    if options.host not in LOOPBACK:
        note(console, f"note: {options.host} can be reached by other machines, and whoever reaches it can use it")
    where = f"http://{options.host}:{options.port}"
    note(console, f"the studio is at {where} with the models {', '.join(models.names)}; Ctrl-C ends it")
    launch(models, host=options.host, port=options.port, browser=not options.no_browser)
