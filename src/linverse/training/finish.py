"""The end of a run: normalise, test, and save the model with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from linverse.models.learned import LearnedEnergy
from linverse.models.reference import References
from linverse.rng import keyed_generator
from linverse.training.card import data_facts, limits, write_card
from linverse.training.loop import Trainer, parameter_count
from linverse.training.losses import Part
from linverse.training.normalise import SelfTest, normalising_constant, self_test
from linverse.training.presets import PRESETS


def merge_parts(batches: list[list[Part]]) -> list[Part]:
    """Parts of several batches, one a basis."""
    groups: dict[str, list[Part]] = {}
    for part in (part for batch in batches for part in batch):
        groups.setdefault(part.cov.basis, []).append(part)
    merged = []
    for parts in groups.values():
        cov = parts[0].cov.with_log_variance(torch.cat([p.cov.log_variance for p in parts]))
        merged.append(Part(torch.cat([p.x for p in parts]), cov, torch.cat([p.noise for p in parts])))
    return merged


def run_self_test(trainer: Trainer, energy: LearnedEnergy, images: int) -> SelfTest:
    """Set the constant on training images; test on as many held-out ones."""
    config = trainer.config
    count = min(images, len(trainer.train_images))
    generator = keyed_generator(config.seed, "constant")
    chosen = torch.randperm(len(trainer.train_images), generator=generator)[:count]
    like = energy.form.mean  # the model's precision and device
    energy.constant.zero_()
    energy.constant.fill_(normalising_constant(energy, trainer.train_images.batch(chosen).to(like), generator))
    held_out = trainer.held_out.batch(torch.arange(min(images, len(trainer.held_out)))).to(like)
    parts = merge_parts(trainer.held_out_parts(images))
    bases = config.covariances.bases(energy.shape)
    return self_test(energy, held_out, parts, bases)


def references(trainer: Trainer) -> References | None:
    """Held-out images to keep with the weights."""
    held_out = trainer.held_out
    white = getattr(held_out, "white", 255)  # data sets of bytes say which one means 1: theirs come back bit for bit
    return References.last_of(len(held_out), held_out.batch, trainer.config.reference_images, white)


def finish(trainer: Trainer, folder: Path, name: str) -> dict[str, Any]:
    """Save the averaged model under `folder`; returns its card."""
    model = trainer.averaged
    card: dict[str, Any] = {
        "name": name,
        "parameters": parameter_count(model),
        "data": trainer.config.data,
        **data_facts(trainer.config.data),
        "steps": trainer.step,
        "batch": trainer.config.batch,
        "seconds": round(trainer.seconds),
        "held_out": trainer.evaluate(),
        "training": trainer.config.to_dict(),
        "limits": limits(trainer.config),
    }
    if name in PRESETS:
        card["about"] = PRESETS[name][0]
    if isinstance(model, LearnedEnergy):
        result = run_self_test(trainer, model, trainer.config.self_test_images)
        card["constant"] = float(model.constant)
        card["self_test"] = result.to_dict()
        model.references = references(trainer)
        card["reference_images"] = 0 if model.references is None else len(model.references)
    model.save_pretrained(folder)
    write_card(folder, card)
    return card
