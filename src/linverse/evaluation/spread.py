"""Does a method vary as much as the truth? The share of pixels that its 90 % intervals hold, image by image.

LPIPS and its kind reward samplers that vary too little; an interval between the least and the greatest of 19 samples should hold the truth
in 90 of 100 pixels. Pixels that were measured to better than a hundredth of the prior's variance do not count. A method that gives the
same answer twice claims no interval, and has no coverage.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from linverse.baselines import Solution
from linverse.covariance import SpatialCovariance
from linverse.evaluation.plan import Plan, Unit
from linverse.measurement import Measurement
from linverse.metrics.calibration import coverage, credible_interval

COVERAGE = "90 % coverage"
LEVEL = 0.9
MEASURED = 0.01  # of the prior's variance: a pixel with less noise than that is known


def unit_coverage(plan: Plan, unit: Unit) -> list[float]:
    """Coverage of the images of a unit that are among the plan's first `coverage_images`; empty where there is nothing to say."""
    images = [i for i in plan.batches[unit.batch] if i < plan.setting.coverage_images]
    count = plan.setting.coverage
    if unit.contender is None or not count or not images:
        return []
    truth, raw = plan.images(unit)[: len(images)], plan.raw(unit)[: len(images)]
    where = uncertain(plan, unit, raw)
    drawn = torch.stack(
        [draw(plan, unit, one.expand(count, *one.shape), i) for one, i in zip(raw, images, strict=True)]
    )
    drawn = drawn.to(truth)
    if not bool((drawn.std(dim=1) > 0).any()):
        return []
    found: list[float] = coverage(credible_interval(drawn, LEVEL), truth, where).tolist()
    return found


def draw(plan: Plan, unit: Unit, raw: Tensor, image: int) -> Tensor:
    """One sample for each row of equal measurements."""
    assert unit.contender is not None
    model, generator = plan.choose(unit.task, unit.contender).network, plan.spread_generator(unit, image)
    answer = unit.contender.solve(model, unit.task.degradation, raw.to(plan.device), generator, **unit.contender.given)
    return (answer.samples if isinstance(answer, Solution) else answer).detach().cpu()


def uncertain(plan: Plan, unit: Unit, raw: Tensor) -> Tensor | None:
    """Which pixels were not measured, [B, C, H, W] or one for all; None: all of them count."""
    measurement = unit.task.degradation.from_raw(raw)
    if not isinstance(measurement, Measurement) or not isinstance(measurement.template, SpatialCovariance):
        return None
    prior = plan.models.energy.gaussian(measurement.template)[1]
    known = measurement.log_noise - 2 * measurement.log_gain < prior.log().cpu() + math.log(MEASURED)
    chosen = ~known.expand(raw.shape[0], *plan.truth.shape[1:])
    return chosen if bool(chosen.flatten(1).any(dim=1).all()) else None
