"""How soon the page is there, and how soon a visitor has a first answer for a colour picture of 256×256 pixels.

    .venv-studio/bin/python benchmarks/studio.py [MODEL]        (default: photographs, where it is bundled)

CPU seconds stand beside those of the clock: on a machine with other work only they can be compared.
"""

import sys
import tempfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main() -> None:
    from linverse.store.choice import MODELS
    from linverse.store.hub import bundled

    model = sys.argv[1] if len(sys.argv) > 1 else MODELS[3]
    if find_spec("gradio") is None:
        print("gradio is not installed: make studio")
    elif len(sys.argv) == 1 and model not in bundled():
        print(f"{model} is not bundled: name a model for colour pictures of any size")
    else:
        measure(model)


def measure(model: str) -> None:
    from studio_server import served
    from studio_visitor import Visitor

    with tempfile.TemporaryDirectory() as temporary, served(model, Path(temporary)) as server:
        print(f"start: {server.start_seconds:.1f} s ({server.start_cpu:.1f} CPU s)")
        with Visitor(server.address) as visitor:
            taken = visitor.take("photo.png", photograph(), model)
            assert taken.error is None, taken.error
            for kind, sigma in [
                ("noise of a known level", 0.1),
                ("noise of a known level", 0.2),
                ("Gaussian blur", 0.01),
            ]:
                strength = 1.0 if kind == "Gaussian blur" else 0.0
                before = server.cpu()
                asked = (model, None, kind, strength, sigma, "simulate on a clean picture", None, 0, 0, 1)
                reply = visitor.call("restore", *asked)
                assert reply.error is None, reply.error
                spent = server.cpu() - before
                print(
                    f"{kind}, sigma {sigma}: first answer after {reply.first_after:.2f} s, all {reply.took:.2f} s ({spent:.2f} CPU s)"
                )


def photograph() -> bytes:
    """A bundled photograph, twice as large."""
    from PIL import Image

    from linverse.data.example_photographs import load_photographs
    from linverse.files.png import png_bytes

    small = Image.open(BytesIO(png_bytes(load_photographs()["lemur"].pixels[0])))
    stream = BytesIO()
    small.resize((256, 256), Image.Resampling.BICUBIC).save(stream, "PNG")
    return stream.getvalue()


if __name__ == "__main__":
    main()
