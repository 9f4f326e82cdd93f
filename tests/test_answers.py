"""The bundled models answer as they did: values recorded before the house was rearranged, compared to rounding.

What moves code must not move answers. The comparison belongs to these weights and goes when they change. To record anew:
`python tests/test_answers.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import linverse as lv
from linverse.blind import UnknownNoise, estimate
from linverse.covariance import SpatialCovariance
from linverse.data.examples import load_examples
from linverse.energy import evaluate
from linverse.rng import keyed_generator, normal_like

RECORD = Path(__file__).parent / "answers.json"
MODELS = {"fashion-mnist": "fashion-mnist", "mnist": "mnist", "fashion-mnist-single": "fashion-mnist"}
TASKS: dict[str, lv.Degradation] = {
    "noise": lv.Denoising(0.2),
    "box": lv.Box(14, sigma=0.01),
    "blur": lv.GaussianBlur(1.2, sigma=0.02),
    "coarse": lv.SuperResolution(4, sigma=0.01),
}
PIXELS = ((6, 9), (14, 14), (20, 17))


def summary(images: Tensor) -> dict[str, Any]:
    """Mean, spread and a few pixels of images [B, C, H, W]."""
    chosen = [[float(image[0, row, column]) for row, column in PIXELS] for image in images]
    return {"mean": float(images.double().mean()), "spread": float(images.double().std()), "pixels": chosen}


def answers(name: str) -> dict[str, Any]:
    """What a model says of two bundled pictures."""
    energy, x = lv.load(name), load_examples(MODELS[name]).batch(torch.tensor([0, 5]))
    noisy = x + 0.2 * normal_like(x, keyed_generator("answers"))
    out: dict[str, Any] = {"score": score(energy, noisy), "blind": blind(energy, noisy[:1])}
    for task, degradation in TASKS.items():
        measurement = degradation.measure(x, keyed_generator("answers", task))
        if energy.range.bases and measurement.template.basis not in energy.range.bases:
            continue  # the digits' model knows masks only
        post = lv.Posterior(energy, measurement, check=False)
        out[task] = {
            "mean": summary(post.mean()),
            "variance": summary(post.evaluate().variance),
            "evidence": post.evidence().tolist(),
            "log_prob": post.log_prob(x, floor_noise=True).tolist(),
        }
        if task in ("box", "blur"):
            drawn = post.sample(1, 6, generator=keyed_generator("answers", "sample"), finish="floor")
            out[task]["sample"] = summary(drawn[0])
    return out


def score(energy: lv.Energy, y: Tensor) -> dict[str, Any]:
    """U, ∇U and κ at isotropic noise."""
    cov = SpatialCovariance(torch.zeros(1, 1, *energy.shape[1:]), energy.shape[0]).isotropic(0.04)
    found = evaluate(energy, y, cov.expand(len(y)))
    return {"energy": found.energy.tolist(), "score": summary(found.score), "cov_score": summary(found.cov_score)}


def blind(energy: lv.Energy, raw: Tensor) -> dict[str, Any]:
    """The noise on a picture, from its evidence over a small grid."""
    result = estimate(energy, raw, UnknownNoise(), {"sigma": torch.logspace(-1.5, 0, 13)})
    return {"log_evidence": result.log_evidence.tolist(), "sigma": result.refined("sigma")}


def differences(found: Any, recorded: Any, path: str = "") -> list[str]:
    """Where two records differ by more than rounding."""
    if isinstance(recorded, dict):
        assert found.keys() == recorded.keys()
        return [line for key in recorded for line in differences(found[key], recorded[key], f"{path}/{key}")]
    if isinstance(recorded, list):
        assert len(found) == len(recorded)
        pairs = enumerate(zip(found, recorded, strict=True))
        return [line for number, (a, b) in pairs for line in differences(a, b, f"{path}/{number}")]
    # an input that differs by one rounding of float32 moves densities by up to 6e-3 nats and samples by less than 1e-3
    allowed = 0.02 if abs(recorded) > 20 else 3e-3 if "/sample/" in path else 2e-4
    return [] if abs(found - recorded) <= allowed else [f"{path}: {found} where {recorded} was recorded"]


@pytest.mark.parametrize("name", MODELS)
def test_a_bundled_model_answers_as_before(name: str) -> None:
    assert differences(answers(name), json.loads(RECORD.read_text())[name]) == []


def test_another_answer_is_noticed() -> None:
    recorded = json.loads(RECORD.read_text())["mnist"]["box"]
    changed = json.loads(json.dumps(recorded))
    changed["mean"]["pixels"][0][0] += 1e-3
    changed["evidence"][1] += 0.1
    assert len(differences(changed, recorded)) == 2


if __name__ == "__main__":
    RECORD.write_text(json.dumps({name: answers(name) for name in MODELS}, indent=1) + "\n")
