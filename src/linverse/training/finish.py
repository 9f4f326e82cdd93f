"""The end of a run: normalise, test, and save the model with its card."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.data.crops import PhotographCrops
from linverse.files.saving import REFERENCE, HubModel
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.losses import NoisyBatch
from linverse.progress import Progress, silent
from linverse.rng import keyed_generator
from linverse.store.card import Card, data_credits, data_facts
from linverse.store.references import References
from linverse.training.bands import BandTest, band_tests, worst
from linverse.training.batches import training_parts
from linverse.training.floor import FloorTest, floor_test
from linverse.training.gain import fit_gain
from linverse.training.levelling import fit_level
from linverse.training.limits import limits
from linverse.training.loop import Trainer, parameter_count
from linverse.training.normalise import SelfTest, normalising_constant, self_test
from linverse.training.partition import PartitionTest, partition_test
from linverse.training.presets import PRESETS
from linverse.training.sources import FixedImages, some_images

FINISHING = "normalise and test (constant, self-tests, bands, sum of probabilities)"
MOST_BATCHES = 40  # for the fits of γ(Σ) and c(Σ)
BAND_IMAGES = 128  # for the tests that look at many levels and kinds of noise
SIZES = (64, 128, 256)  # pixels a side at which a model of any size is tested
FEWEST = 4  # pictures of the largest size
LEVELS = 24  # of noise, for the gap at the floor at each of these sizes; twice as many at one size


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


def level_batches(trainer: Trainer, images: int) -> list[list[NoisyBatch]]:
    """Noisy training images, of steps that no run reaches, for the fits of γ(Σ) and c(Σ): so many batches, or as many as are enough.

    Every other one is of isotropic noise, along which the constant is carried from the loudest noise to the floor.
    """
    steps, count = trainer.config.steps, min(MOST_BATCHES, images)
    every = replace(trainer.config, steps=steps + 2 * count, isotropic_first=0)
    isotropic = replace(every, covariances=every.covariances.isotropic_part())
    device = trainer.accelerator.device
    return [
        [part.to(device) for part in training_parts((every, isotropic)[step % 2], trainer.train_images, step)]
        for step in range(steps, steps + 2 * count)
    ]


def normalised(trainer: Trainer, energy: LearnedEnergy, images: int) -> LearnedEnergy:
    """A copy of an energy with the constant that normalises it, found on so many training images."""
    config, copied = trainer.config, copy.deepcopy(energy)
    batches = level_batches(trainer, images)
    fit_gain(copied, config.loss, batches)
    if config.loss.objective == "dual":
        fit_level(copied, batches)
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


@dataclass(frozen=True)
class FloorAndBands:
    """The gap at the floor and the covariance score by band, on held-out images of one size."""

    size: tuple[int, int]
    floor: FloorTest
    bands: list[BandTest]

    def to_dict(self) -> dict[str, Any]:
        return {
            "size": list(self.size),
            "floor": self.floor.to_dict(),
            "bands": [test.to_dict() for test in self.bands],
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Both in short, with the size, as a person reads them."""
        what, value, meaning = self.floor.row()
        size, found = f"{self.size[0]}×{self.size[1]}", worst(self.bands)
        slopes = f"{found['lowest slope']:.2f} … {found['highest slope']:.2f}"
        return [
            (f"{what}, {size}", value, meaning),
            (
                f"covariance score by band, {size}: largest mean, slopes",
                f"{found['mean']:.3f}; {slopes}",
                "0 and 1, for every kind of noise that it was trained with",
            ),
        ]


def run_band_tests(trainer: Trainer, energy: LearnedEnergy) -> list[FloorAndBands]:
    """On held-out images; for a model of any size at several, fewer of the larger ones."""
    most = min(BAND_IMAGES, trainer.config.self_test_images, len(trainer.held_out))
    kinds = tuple(component.distribution.kind for component in trainer.config.covariances.components)
    sizes, tests = _held_out_sizes(trainer, most), []
    levels = LEVELS if len(sizes) > 1 else 2 * LEVELS
    for x in sizes:
        images = x.to(energy.form.log_prior)
        chunk = max(1, 32 * 64 * 64 // images[0, 0].numel())
        tests.append(
            FloorAndBands(
                (x.shape[2], x.shape[3]),
                floor_test(energy, images, levels, chunk=chunk),
                band_tests(energy, images, kinds, chunk=chunk),
            )
        )
    return tests


def _held_out_sizes(trainer: Trainer, most: int) -> list[Tensor]:
    """Held-out images: all of one size, or crops of every one of `SIZES` that fits into the pictures."""
    pictures = trainer.train_images
    if not isinstance(pictures, PhotographCrops) or None not in trainer.config.model.shape:
        return [trainer.held_out.batch(torch.arange(most))]
    found = []
    for size in SIZES:
        count = min(most, max(FEWEST, round(most * (SIZES[0] / size) ** 2)))
        try:
            found.append(pictures.held_out(size, count))
        except ValueError:  # no picture is as large
            break
    return found or [trainer.held_out.batch(torch.arange(most))]


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


def finish(trainer: Trainer, folder: Path, name: str, progress: Progress = silent) -> Card:
    """Normalise, test and save the averaged model under `folder`; returns its card."""
    config, origin = trainer.config, Path(trainer.config.start_from)
    origin_name = (
        origin.parent.name if origin.name == "model" else origin.name
    )  # runs/NAME/model; no path of this machine
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
        training={**config.to_dict(), "start_from": origin_name},
        started_from=origin_name,
        credits=data_credits(config.data),
    )
    model, card = completed(trainer.averaged, trainer, card, progress)
    card.attach_to(model)
    model.save_pretrained(folder)
    return card


@singledispatch
def completed(model: HubModel, trainer: Trainer, card: Card, progress: Progress = silent) -> tuple[HubModel, Card]:
    """A model as it is saved, and its card with what was found out about it; a denoiser needs nothing more."""
    return model, card


@completed.register
def _(model: LearnedEnergy, trainer: Trainer, card: Card, progress: Progress = silent) -> tuple[HubModel, Card]:
    images = trainer.config.self_test_images
    progress(FINISHING, 0, 4)
    energy, kept = normalised(trainer, model, images), references(trainer)
    progress(FINISHING, 1, 4)
    tested = run_self_test(trainer, energy, images)
    progress(FINISHING, 2, 4)
    sizes = run_band_tests(trainer, energy)
    floor, bands = sizes[0].floor, sizes[0].bands
    progress(FINISHING, 3, 4)
    partition = run_partition_test(trainer, energy)
    progress(FINISHING, 4, 4)
    energy.attach(REFERENCE, None if kept is None else kept.encode())
    return energy, replace(
        card,
        constant=float(energy.constant),
        self_test={
            **tested.to_dict(),
            "floor": floor.to_dict(),
            "partition": partition.to_dict(),
            "bands": [test.to_dict() for test in bands],
            **({"sizes": [test.to_dict() for test in sizes[1:]]} if len(sizes) > 1 else {}),
        },
        tests=(
            *tested.table(),
            *([floor.row()] if len(sizes) == 1 else [row for test in sizes for row in test.rows()]),
            *partition.rows(),
        ),
        bands=tuple(test.row() for test in bands),
        reference_images=0 if kept is None else len(kept),
    )
