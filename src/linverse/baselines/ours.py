"""Our sampler behind the baselines' interface: from y along a path of covariances to the floor (linverse.sampling).

`surrogate` is what the paper does for motion blur, whose Σ its model never saw: the energy is told the Σ of a Gaussian blur (std 0.8
pixels) of the same noise. So that y carries no more noise than the energy is told, the gains that are undone are at least the
surrogate's: y_i = z_i/max(h_i, g_i), λ_i = ν_i/g_i². Our energy takes the exact Σ, and `solve` uses it.

`paper_sampler` is the paper's own (its table of sampler settings): 600 geometric levels, Euler steps, and after each of them one
Langevin step of its corrector with r = 0.15 at temperature 0.9.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from linverse.baselines.interface import NotApplicable, Solution
from linverse.degradations import Degradation, GaussianBlur
from linverse.energy import Energy
from linverse.measurement import Lifted, Measurement
from linverse.operator_measurement import OperatorMeasurement, as_operator
from linverse.operator_posterior import OperatorPosterior
from linverse.posterior import Posterior
from linverse.sampling import (
    MALA,
    Ancestral,
    Euler,
    Matched,
    OperatorSamples,
    Predictor,
    SampleResult,
    SignalToNoiseULA,
    TwoStepAncestral,
    geometric,
    sample,
)

PREDICTORS: dict[str, type[Predictor]] = {
    "two-step": TwoStepAncestral,
    "ancestral": Ancestral,
    "matched": Matched,
    "euler": Euler,
}
PredictorName = Literal["two-step", "ancestral", "matched", "euler"]


def solve(
    model: Energy,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    predictor: PredictorName = "two-step",
    corrector_steps: int = 0,
    temperature: float = 1.0,
    finish: Literal["mean", "sample"] = "mean",
    average: int = 1,
    sweeps: int = 0,
    general: bool = False,
) -> Solution:
    """One posterior sample per row: `steps`·(1 + `corrector_steps`) + 1 evaluations, each with its gradient.

    An operator that no basis diagonalises is sampled from its surrogate, and by so many exact `sweeps` of split Gibbs, whatever else is
    said; the `average` then is that of chains over half of their sweeps. `general` does so with any operator: for a Σ that the energy does
    not know.

    It ends with the mean at the floor, as the paper's does; `finish` = "sample" adds the variance that is left there. The `average` of
    several samples comes close to the posterior mean: the least error, and less detail than any image has.
    """
    if average < 1:
        raise ValueError(f"average is {average}; it takes at least one sample")
    begun = time.perf_counter()
    seen = degradation.from_raw(y_raw)
    posterior = Posterior(model, as_operator(seen) if general else seen, generator, check=False)
    if isinstance(posterior, OperatorPosterior):
        drawn = posterior.draw(average, sweeps=sweeps, finish=finish, generator=generator)
        return _finish(drawn, begun, average, drawn.samples if average == 1 else drawn.average)
    result = posterior.draw(
        average,
        steps,
        predictor=named_predictor(predictor),
        corrector=MALA() if corrector_steps else None,
        corrector_steps=corrector_steps,
        temperature=temperature,
        finish=finish,
        generator=generator,
    )
    return _finish(result, begun, average)


def named_predictor(name: str) -> Predictor:
    """A predictor by its name."""
    if name not in PREDICTORS:
        raise ValueError(f"predictor is {name!r}; it can be {', '.join(PREDICTORS)}")
    return PREDICTORS[name]()


def paper_sampler(
    model: Energy,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 600,
    corrector_steps: int = 1,
    r: float = 0.15,
    temperature: float = 0.9,
) -> Solution:
    """One sample per row by the paper's own settings; without corrector steps (as its ×4) the temperature is 1."""
    begun = time.perf_counter()
    measurement = degradation.from_raw(y_raw)
    if isinstance(measurement, OperatorMeasurement):
        raise NotApplicable("the paper's sampler needs an operator that a basis diagonalises")
    lifted = Posterior(model, measurement, generator, check=False).lift(generator)
    result = sample(
        model,
        lifted.y,
        lifted.cov,
        geometric(lifted.cov, model.range.minimum, steps),
        Euler(),
        corrector=SignalToNoiseULA(r) if corrector_steps else None,
        corrector_steps=max(corrector_steps, 1),
        temperature=temperature if corrector_steps else 1.0,
        generator=generator,
    )
    return _finish(result, begun)


def surrogate(
    model: Energy,
    degradation: Degradation,
    y_raw: Tensor,
    generator: torch.Generator | None,
    *,
    steps: int = 100,
    std: float = 0.8,
    predictor: PredictorName = "two-step",
) -> Solution:
    """The same under the Σ of a Gaussian blur of the given std, for blurs with periodic boundaries."""
    begun = time.perf_counter()
    measurement = degradation.from_raw(y_raw)
    if measurement.template.basis != "fourier":
        raise NotApplicable("the Gaussian surrogate stands for a periodic blur; this degradation is none")
    lifted = surrogate_lift(measurement, degradation.sigma, std, model, generator)
    result = sample(model, lifted.y, lifted.cov, steps, named_predictor(predictor), generator=generator)
    return _finish(result, begun)


def surrogate_lift(
    measurement: Measurement, sigma: float, std: float, model: Energy, generator: torch.Generator | None
) -> Lifted:
    """y with the larger of both gains undone, and Σ of the Gaussian."""
    told = GaussianBlur(std, sigma).encode(measurement.raw)
    bounded = replace(measurement, log_gain=torch.maximum(measurement.log_gain, told.log_gain))
    lifted = bounded.lift(model.range, model.gaussian(measurement.template), generator)
    return replace(lifted, cov=told.covariance(model.range))


def _finish(
    result: SampleResult | OperatorSamples, begun: float, average: int = 1, images: Tensor | None = None
) -> Solution:
    if not result.completed:  # the sampler keeps what it has on Ctrl-C; here half a sample is none
        raise KeyboardInterrupt
    means = (result.samples if images is None else images).unflatten(0, (average, -1)).mean(dim=0)
    evaluations = average * result.evaluations
    return Solution(means, evaluations, evaluations, time.perf_counter() - begun)
