"""The end of a run: normalise, test, and save the model with its card."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import singledispatch
from pathlib import Path

import torch

from linverse.files.saving import REFERENCE, HubModel
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.losses import NoisyBatch
from linverse.rng import keyed_generator
from linverse.store.card import Card, data_credits, data_facts
from linverse.store.references import References
from linverse.training.bands import BandTest, band_tests
from linverse.training.floor import FloorTest, floor_test
from linverse.training.limits import limits
from linverse.training.loop import Trainer, parameter_count
from linverse.training.normalise import SelfTest, normalising_constant, self_test
from linverse.training.partition import PartitionTest, partition_test
from linverse.training.presets import PRESETS
from linverse.training.sources import FixedImages, some_images

BAND_IMAGES = 128  # for the tests that look at many levels and kinds of noise


def merge_parts(batches: list[list[NoisyBatch]]) -> list[NoisyBatch]:
    """Parts of several batches, one a basis."""
    groups: dict[tuple[str, int], list[NoisyBatch]] = {}
    for part in (part for batch in batches for part in batch):
        groups.setdefault((part.cov.basis, part.cov.multiplicity), []).append(part)
    merged = []
    for parts in groups.values():
        cov = parts[0].cov.with_log_variance(torch.cat([p.cov.log_variance for p in parts]))
        merged.append(NoisyBatch(torch.cat([p.x for p in parts]), cov, torch.cat([p.noise for p in parts])))
    return merged


def normalised(trainer: Trainer, energy: LearnedEnergy, images: int) -> LearnedEnergy:
    """A copy of an energy with the constant that normalises it, found on so many training images."""
    config, copied = trainer.config, copy.deepcopy(energy)
    generator = keyed_generator(config.seed, "constant")
    seen = some_images(trainer.train_images, images, config.sample_shape[1], generator)
    copied.constant.zero_()
    copied.constant.fill_(normalising_constant(copied, seen.to(copied.form.log_prior), generator))
    return copied


def run_self_test(trainer: Trainer, energy: LearnedEnergy, images: int) -> SelfTest:
    """Test a normalised energy on so many held-out images; it stays as it is."""
    held_out = trainer.held_out.batch(torch.arange(min(images, len(trainer.held_out)))).to(energy.form.log_prior)
    parts = merge_parts(trainer.held_out_parts(images))
    return self_test(energy, held_out, parts, trainer.config.covariances.bases(trainer.config.sample_shape))


def run_band_tests(trainer: Trainer, energy: LearnedEnergy) -> tuple[FloorTest, list[BandTest]]:
    """The gap at the floor and the covariance score by band, on held-out images."""
    few = min(BAND_IMAGES, trainer.config.self_test_images, len(trainer.held_out))
    x = trainer.held_out.batch(torch.arange(few)).to(energy.form.log_prior)
    kinds = tuple(component.distribution.kind for component in trainer.config.covariances.components)
    return floor_test(energy, x), band_tests(energy, x, kinds)


def run_partition_test(trainer: Trainer, energy: LearnedEnergy) -> PartitionTest:
    """The sum of probabilities at the floor, from images that the model generates: fewer of them where few were asked for."""
    images, steps = (32, 200) if trainer.config.self_test_images >= 256 else (2, 20)
    return partition_test(
        energy, images, steps, size=None if None not in energy.shape else trainer.config.sample_shape[1:]
    )


def references(trainer: Trainer) -> References | None:
    """Held-out images to keep with the weights; of photographs those that may be passed on."""
    held_out = trainer.held_out
    if isinstance(held_out, FixedImages):
        held_out = FixedImages(held_out.shown, held_out.shown)
    white = getattr(held_out, "white", 255)  # data sets of bytes say which one means 1: theirs come back bit for bit
    return References.last_of(len(held_out), held_out.batch, trainer.config.reference_images, white)


def finish(trainer: Trainer, folder: Path, name: str) -> Card:
    """Normalise, test and save the averaged model under `folder`; returns its card."""
    config = trainer.config
    title, licence = data_facts(config.data)
    card = Card(
        name=name,
        about=PRESETS[name][0] if name in PRESETS else "",
        data=config.data,
        title=title,
        licence=licence,
        parameters=parameter_count(trainer.model),
        steps=trainer.step,
        batch=config.batch,
        seconds=round(trainer.seconds),
        held_out=trainer.evaluate(),
        limits=limits(config),
        training=config.to_dict(),
        credits=data_credits(config.data),
    )
    model, card = completed(trainer.averaged, trainer, card)
    card.attach_to(model)
    model.save_pretrained(folder)
    return card


@singledispatch
def completed(model: HubModel, trainer: Trainer, card: Card) -> tuple[HubModel, Card]:
    """A model as it is saved, and its card with what was found out about it; a denoiser needs nothing more."""
    return model, card


@completed.register
def _(model: LearnedEnergy, trainer: Trainer, card: Card) -> tuple[HubModel, Card]:
    images = trainer.config.self_test_images
    energy, kept = normalised(trainer, model, images), references(trainer)
    tested = run_self_test(trainer, energy, images)
    floor, bands = run_band_tests(trainer, energy)
    partition = run_partition_test(trainer, energy)
    energy.attach(REFERENCE, None if kept is None else kept.encode())
    return energy, replace(
        card,
        constant=float(energy.constant),
        self_test={
            **tested.to_dict(),
            "floor": floor.to_dict(),
            "partition": partition.to_dict(),
            "bands": [test.to_dict() for test in bands],
        },
        tests=(*tested.table(), floor.row(), *partition.rows()),
        bands=tuple(test.row() for test in bands),
        reference_images=0 if kept is None else len(kept),
    )
