"""What is compared unless somebody says otherwise: tasks, methods, and the networks that are bundled with an energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linverse.baselines import EnergyDenoiser
from linverse.evaluation.contenders import Contender, parse_contender
from linverse.evaluation.models import load_energy
from linverse.evaluation.networks import Models, PaletteModel
from linverse.evaluation.plan import Plan
from linverse.files.saving import CARD, ModelFileError
from linverse.models.denoiser import Denoiser
from linverse.store.card import Card
from linverse.store.hub import bundled, find_model, load_denoiser

DEFAULT_TASKS = ("box", "gauss", "superres")
DEFAULT_METHODS = {
    "energy": ("pseudo-inverse", "posterior-mean", "ours"),
    "score": ("dps", "pigdm", "red-diff", "daps", "diffpir", "ddrm", "mmps"),
}
BUNDLED_PALETTES = {"box": "palette-inpainting", "gauss": "palette-deblurring"}


def possible(plan: Plan) -> Plan:
    """The plan itself; a method that was asked for and can be run on no task at all is refused before the work."""
    skipped = plan.skipped()
    for contender in plan.contenders:
        reasons = [skipped.get((task.label, contender.label)) for task in plan.tasks]
        if all(reasons):
            raise ValueError(f"{contender.label} cannot be run: {reasons[0]}. Or leave it out")
    return plan


def load_models(model: str, score_model: str = "", palette_models: Sequence[str] = (), device: str = "cpu") -> Models:
    """The energy and the companions that are named (palettes as NAME or TASK=NAME), or else are bundled with it.

    `score_model` "energy" is the energy itself, at isotropic noise.
    """
    energy = load_energy(model).to(device)
    name, there = f"{model}-score", bundled()
    score_model = score_model or (name if name in there else "")
    score: Any = None
    if score_model == "energy":
        score = EnergyDenoiser(energy)
    elif score_model:
        score = load_companion("--score-model", score_model).to(device)
    beside = {task: f"{model}-{name}" for task, name in BUNDLED_PALETTES.items()}
    palettes = []
    for text in palette_models or [f"{task}={name}" for task, name in beside.items() if name in there]:
        name, equals, folder = text.rpartition("=")
        palettes.append(PaletteModel(load_companion("--palette-model", folder).to(device), name if equals else None))
    return Models(energy, score, tuple(palettes))


def load_companion(option: str, name: str) -> Denoiser:
    """A denoiser; an error says which option asked for it."""
    try:
        return load_denoiser(name)
    except ModelFileError as error:
        raise ModelFileError(f"{option} {name}: {error}") from error


def trained_on(model: str) -> str:
    """The data set of a model's card."""
    path = find_model(model) / CARD
    name = Card.decode(path.read_bytes()).data if path.is_file() else ""
    if not name:
        raise ValueError(f"the model {model} does not say what it was trained on: give --data NAME")
    return name


def default_contenders(models: Models) -> list[Contender]:
    """The paper's methods whose models are there."""
    names = [*DEFAULT_METHODS["energy"]]
    names += DEFAULT_METHODS["score"] if models.score is not None else ()
    names += ["palette"] if models.palettes else []
    return [parse_contender(name) for name in names]
