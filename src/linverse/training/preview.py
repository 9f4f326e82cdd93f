"""A preview of a model while it learns: pictures of what it can do, and its self-tests on a few held-out images.

The loss says little about an energy that is being normalised; pictures and self-tests say more. Everything here is keyed by the seed
and the step and leaves the model as it was, so that a preview does not change a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path

import torch
from torch import Tensor

from linverse.degradations import Box
from linverse.models.denoiser import Denoiser
from linverse.models.energies.learned import LearnedEnergy
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from linverse.sampling import prior_start, sample
from linverse.training.finish import normalised, run_self_test
from linverse.training.loop import Trainer
from linverse.training.normalise import SelfTest

ACROSS, STEPS, SELF_TEST_IMAGES = 8, 30, 128


@dataclass(frozen=True)
class Preview:
    """Rows of pictures [rows, n, C, H, W] in [0, 1] and, for an energy, its self-tests."""

    pictures: Tensor
    self_test: SelfTest | None

    def sheet(self) -> Tensor:
        """The pictures as one, [C, rows·H, n·W]."""
        return torch.cat([torch.cat(list(row), dim=2) for row in self.pictures], dim=1)

    def numbers(self) -> dict[str, float]:
        """The self-tests in short: the largest deviation of each kind; none for a denoiser."""
        return {} if self.self_test is None else self.self_test.deviations()

    def save(self, path: Path) -> None:
        """Write the sheet as a PNG, doubled in size."""
        from PIL import Image

        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (255 * self.sheet()).round().byte().permute(1, 2, 0).squeeze(2).numpy()
        image = Image.fromarray(pixels)
        image.resize((2 * image.width, 2 * image.height), Image.Resampling.NEAREST).save(path)


def preview(trainer: Trainer) -> Preview:
    """What the averaged weights can do now."""
    with torch.no_grad():
        pictures, tested = previewed(trainer.averaged, trainer)
    return Preview(pictures.clamp(0, 1).float().cpu(), tested)


@singledispatch
def previewed(model: object, trainer: Trainer) -> tuple[Tensor, SelfTest | None]:
    """Rows of pictures [rows, n, C, H, W], and self-tests of a model that has some."""
    raise TypeError(f"there is no preview of a {type(model).__name__}")


@previewed.register
def _(model: Denoiser, trainer: Trainer) -> tuple[Tensor, SelfTest | None]:
    return denoised(trainer, model), None


@previewed.register
def _(model: LearnedEnergy, trainer: Trainer) -> tuple[Tensor, SelfTest | None]:
    few = min(SELF_TEST_IMAGES, trainer.config.self_test_images)
    pictures = torch.cat([generated(trainer, model)[None], inpainted(trainer, model)])
    with torch.enable_grad():
        return pictures, run_self_test(trainer, normalised(trainer, model, few), few)


def generated(trainer: Trainer, energy: LearnedEnergy) -> Tensor:
    """Samples of the prior, [n, C, H, W]."""
    generator = keyed_generator(trainer.config.seed, "look", trainer.step)
    size = trainer.config.sample_shape[1:]
    start = prior_start(energy, ACROSS, generator, size=size)
    return sample(energy, *start, STEPS, generator=generator).samples


def inpainted(trainer: Trainer, energy: LearnedEnergy) -> Tensor:
    """Held-out images, what is seen of them, the one-shot mean and a sample, [4, n, C, H, W]."""
    generator = keyed_generator(trainer.config.seed, "look at a box", trainer.step)
    x = trainer.held_out.batch(torch.arange(min(ACROSS, len(trainer.held_out)))).to(energy.form.log_prior)
    box = Box(max(1, min(x.shape[2:]) // 2), sigma=0.01)
    posterior = Posterior(energy, box.measure(x, generator), check=False)
    seen = torch.where(box.mask_for((x.shape[2], x.shape[3])).to(x.device) > 0, x, torch.full_like(x, 0.5))
    rows = torch.stack([x, seen, posterior.mean(), posterior.sample(1, STEPS, generator=generator)[0]])
    return torch.nn.functional.pad(rows, (0, 0) * 3 + (0, ACROSS - len(x)), value=1.0)  # white where there are fewer


def denoised(trainer: Trainer, model: Denoiser) -> Tensor:
    """Held-out images, their noisy versions and what the network makes of them, [3, n, C, H, W]."""
    (part,) = trainer.held_out_parts(ACROSS)[0]
    variance = part.cov.log_variance.flatten(1)[:, :1].exp().flatten()
    return torch.stack([part.x, part.noisy(), model(part.noisy(), variance, part.condition)])
