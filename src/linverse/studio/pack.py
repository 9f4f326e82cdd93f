"""Everything about one restoration as a zip file: pictures, arrays, the record, and the lines of Python that repeat it."""

from __future__ import annotations

import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import linverse
from linverse.degradations import Degradation, Inpainting
from linverse.files.png import png_bytes
from linverse.files.saving import hash_weights
from linverse.models.energies.learned import LearnedEnergy
from linverse.report.output import OutputFolder
from linverse.report.restoration import planned_files, write_one_shot, write_rest
from linverse.studio.visitors import Answer

SCRIPT = """# Repeats restoration {name!r} of linverse studio (linverse {version}); run it in the folder of the zip file.
import numpy as np
import torch

import linverse as lv
from linverse.restoration import one_shot, stream_samples

measurement = {code}.from_raw(torch.from_numpy(np.load("measurement.npy"))[None]){rounded}
posterior = lv.Posterior(lv.load({model!r}), measurement, check=False)
*_, result = [one_shot(posterior), *stream_samples(one_shot(posterior), posterior, {samples}, {steps}, seed={seed})]
"""


def code_of(degradation: Degradation) -> str:
    """The degradation as Python, with `lv` for linverse and the mask in a file beside it."""
    if isinstance(degradation, Inpainting):
        return f'lv.Inpainting(lv.read_mask("mask.png"), {degradation.sigma!r})'
    return f"lv.{degradation!r}"


def script(answer: Answer) -> str:
    """The Python that repeats it: three lines, and what they import."""
    question = answer.question
    step = question.picture.step if question.truth is None else None  # data that are simulated here are not rounded
    return SCRIPT.format(
        name=question.picture.name,
        version=linverse.__version__,
        code=code_of(question.degradation),
        rounded="" if step is None else f".rounded({step!r})",
        model=answer.model,
        samples=len(answer.result.samples),
        steps=answer.steps,
        seed=answer.seed,
    )


def settings(answer: Answer, energy: LearnedEnergy) -> dict[str, Any]:
    """All that is needed to repeat it, for the record."""
    question = answer.question
    return {
        "image": question.picture.name,
        "task": type(question.degradation).__name__,
        "degradation": code_of(question.degradation),
        "sigma": question.degradation.sigma,
        "found": question.record,
        "simulated": question.truth is not None,
        "model": answer.model,
        "weights": hash_weights(energy),
        "smallest_variance": energy.range.minimum,
        "steps": answer.steps,
        "seed": answer.seed,
        "linverse": linverse.__version__,
    }


def zip_bytes(answer: Answer, energy: LearnedEnergy) -> bytes:
    """The files of `linverse restore`, with the mask and `repeat.py`, zipped; nothing of it stays on the disk."""
    question, result = answer.question, answer.result
    buffer = BytesIO()
    with tempfile.TemporaryDirectory(prefix="linverse-studio-") as folder:
        out = OutputFolder(Path(folder), "linverse studio", planned_files(len(result.samples)))
        write_one_shot(out, result, question.picture)
        if isinstance(question.degradation, Inpainting):
            out.write("mask.png", png_bytes(question.degradation.mask[0].float()))
        out.write("repeat.py", script(answer).encode())
        write_rest(out, result, settings(answer, energy), question.picture)
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
    return buffer.getvalue()
