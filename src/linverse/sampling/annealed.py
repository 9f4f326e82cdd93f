"""Any linear operator H, diagonal in no basis: annealed MALA on the exact posterior (mathematics §7, last bullet).

    π_k(x) ∝ exp(−U(x, λ_k I)) N(y_raw; Hx, (σ² + λ_k‖H‖²) I),   λ_k geometric down to λ_min,
    π(x)   ∝ exp(−U(x, λ_min I)) N(y_raw; Hx, σ² I)               in the end.
The levels before the last only bring the chains to where π is large: an ancestral step of the prior removes the noise between two of them,
MALA mends the rest. At the last one the step size is adapted, frozen, and only then are draws kept. λ_min blurs the prior, which is
harmless when σ² ≫ λ_min‖H‖².
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.degradations.operators import Linear, operator_gain
from linverse.energy import Energy, check_pair, fixed_shape
from linverse.rng import normal_like
from linverse.sampling.evaluator import Evaluator
from linverse.sampling.langevin import MALA, ChainState, KernelInfo, begin_chain, warm_up
from linverse.sampling.predictors import Ancestral, step_sizes
from linverse.sampling.targets import OperatorTarget
from linverse.units import variance_from_sigma

FIRST_LEVEL = 100.0  # λ_0 of the ladder: images in [0, 1] are lost in it


@dataclass(frozen=True)
class AnnealedResult:
    """`samples` [N, C, H, W] are the last draws; `draws` [kept, N, C, H, W] all that were kept at the last level.

    `info` has fields [steps, N] of every move at the last level after warm-up.
    """

    samples: Tensor
    draws: Tensor
    info: KernelInfo
    step_size: float
    evaluations: int


def sample_operator(
    energy: Energy,
    raw: Tensor,
    operator: Linear,
    adjoint: Linear,
    sigma: float,
    *,
    levels: int = 20,
    steps_per_level: int = 10,
    warm_up_steps: int = 100,
    draws: int = 1,
    thin: int = 50,
    floor: float | None = None,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> AnnealedResult:
    """One chain for each row of raw = Hx + σv: `operator` H takes images [N, C, H, W], `adjoint` Hᵀ takes raw data."""
    if min(levels, draws, thin) < 1:
        raise ValueError(f"levels, draws and thin are at least 1; got {levels}, {draws} and {thin}")
    variance, bottom = variance_from_sigma(sigma), energy.range.minimum if floor is None else floor
    template = identity("spatial", fixed_shape(energy), raw)
    blank = raw.new_zeros(1, *fixed_shape(energy))
    if operator(blank).shape[1:] != raw.shape[1:]:
        raise ValueError(
            f"the operator gives data of shape {tuple(operator(blank).shape)}; the measurement's is {tuple(raw.shape)}"
        )
    gain = operator_gain(operator, adjoint, blank)
    _check_noise(variance, bottom, gain)
    evaluator = Evaluator(energy, template)

    def target(scale: float, noise: float) -> OperatorTarget:
        return OperatorTarget(evaluator, template.isotropic(scale), operator, adjoint, raw, noise, gain, temperature)

    top = min(energy.range.maximum, FIRST_LEVEL)
    ladder = torch.logspace(math.log10(top), math.log10(bottom), levels + 1, dtype=torch.float64).tolist()
    stages = [target(scale, variance + scale * gain) for scale in ladder[:-1]] + [target(ladder[-1], variance)]
    with torch.no_grad():
        state = _begin(energy, stages[0], raw.shape[0], generator)
        check_pair(energy, state.iterate.z[:1], stages[-1].cov)
        state, kernel = _descend(state, stages, steps_per_level, generator)
        evaluator.label = "the last level"
        state, kernel = warm_up(kernel, state, stages[-1], warm_up_steps, generator)
        kept, infos = _collect(state, kernel, stages[-1], draws, thin, generator)
    info = KernelInfo(*(torch.stack([getattr(i, name) for i in infos]) for name in vars(infos[0])))
    return AnnealedResult(
        kept[-1], torch.stack(kept), info, float(torch.as_tensor(kernel.step_size)), evaluator.evaluations
    )


def _check_noise(variance: float, floor: float, gain: float) -> None:
    if variance == 0:
        raise ValueError("annealed MALA needs noise in the measurement: sigma = 0 is a hard constraint")
    if variance < 10 * floor * gain:
        warnings.warn(
            f"the noise variance σ² = {variance:.3g} is not far above λ_min‖H‖² = {floor * gain:.3g}: the answer is for a prior "
            "blurred by λ_min, not for clean images",
            stacklevel=3,
        )


def _begin(energy: Energy, target: OperatorTarget, chains: int, generator: torch.Generator | None) -> ChainState:
    """Draws of the energy's own Gaussian at the first level."""
    mean, prior = energy.gaussian(target.cov)
    shape = (chains, target.cov.channels, *target.cov.size)
    spread = (prior + target.cov.variance).sqrt()
    z = mean + spread * normal_like(target.raw.new_empty(shape), generator)
    return begin_chain(target.evaluate(z.to(target.raw.dtype)), target)


def _descend(
    state: ChainState, stages: list[OperatorTarget], steps: int, generator: torch.Generator | None
) -> tuple[ChainState, MALA]:
    """Through the levels, the step size adapted at each one."""
    kernel = MALA()
    for number, target in enumerate(stages):
        if isinstance(target.evaluator, Evaluator):
            target.evaluator.label = f"level {number + 1} of {len(stages)}"
        if number:
            log_now, noise = state.iterate.log_variance, normal_like(state.iterate.z, generator)
            size = step_sizes(log_now, target.cov.log_variance, torch.zeros_like(log_now))
            z = Ancestral().step(state.iterate, size, None, noise, target.evaluator)
            state = begin_chain(target.evaluate(z), target)
        state, kernel = warm_up(kernel, state, target, steps, generator)
    return state, kernel


def _collect(
    state: ChainState, kernel: MALA, target: OperatorTarget, draws: int, thin: int, generator: torch.Generator | None
) -> tuple[list[Tensor], list[KernelInfo]]:
    """`draws` images, `thin` frozen moves apart."""
    kept, infos = [], []
    for _ in range(draws):
        for _ in range(thin):
            state, info = kernel.step(state, target, generator)
            infos.append(info)
        kept.append(target.cov.synthesis(state.iterate.z))
    return kept, infos
