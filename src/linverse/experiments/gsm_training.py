"""Score matching for the scale mixture x ~ ½N(0, σ₁²I) + ½N(0, σ₂²I), from radii alone (paper, "Validation of the normalization
constant").

The d coefficients fall into two halves g of n = d/2, with noise variances t_g. With q_g = ‖y_g‖²/n the model is the paper's
mixture of quadratics U = −log Σ_i exp(−Σ_g a_i^g ‖y_g‖² − b_i), its a, b functions of (t_A, t_B) by an MLP of 5 layers:
    U = −log Σ_i exp(−d·u_i),   u_i = β_i + ¼ Σ_g α_i^g (q_g/(t_g + C) − 1),   C the variance of the data,
that is a_i^g = α_i^g / 2(t_g + C), b_i = d(β_i − ¼Σ_g α_i^g): the network predicts log α and β, numbers of order 1 where a runs over
three decades and b over thousands, and a shift of α on the shell ‖y_g‖² = n(t_g + C) need not be undone by b. Nothing ties β to α:
what the constant is, training must find out.

The derivatives, with w_i the softmax of −d·u_i:
    e_g = √t_g ∂U/∂y_g = ρ_g y_g,  ρ_g = √t_g Σ_i w_i α_i^g / (t_g + C)
    κ_g/n = 2 Σ_i w_i ∂u_i/∂log t_g
and the losses (mathematics of `models.losses`, one λ for each half):
    A-DSM = ½Σ_g ‖e_g − ε_g‖²/n = ½Σ_g (ρ_g² q_g − 2ρ_g ⟨y_g,ε_g⟩/n + ‖ε_g‖²/n)
    A-CSM = ½Σ_g (κ_g/n − ½(1 − ‖ε_g‖²/n))²
need ‖y_g‖², ⟨y_g,ε_g⟩ and ‖ε_g‖² only. Their joint law is exact in three draws: ‖x_g‖² = σ²χ²_n, and along and across x_g the noise is
z ~ N(0,1) and ‖ε_⊥‖² ~ χ²_{n−1}. A step of 512 samples costs the network and 2 560 numbers, not 10⁶. The samples of a step share a few
noise levels, and the network runs once a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from linverse.progress import Progress
from linverse.rng import keyed_generator, keyed_seed

Objective = Literal["dual", "single"]


@dataclass(frozen=True)
class ScaleMixtureConfig:
    """The data, the network and its training.

    `cov_weight` is w on the mean over the two halves; the paper's 1/d² on the sum is w = ½. `contrast`: the two quadratics begin at
    α = e^{±contrast}, the sharper one inside the shell of radius √(d(t + C)), so that neither starts without data.
    """

    dim: int = 1000
    sigmas: tuple[float, float] = (1.0, 4.0)
    t_min: float = 1e-2
    t_max: float = 1e2
    hidden: int = 256
    layers: int = 5
    contrast: float = 0.7
    steps: int = 10_000
    levels: int = 64
    samples_per_level: int = 8
    cov_weight: float = 0.5
    rate: float = 1e-3
    warmup: int = 200
    evaluation_samples: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        if self.dim % 2 or self.dim < 4:
            raise ValueError(f"the dimension is split into two equal halves: an even number ≥ 4; got {self.dim}")

    @property
    def half(self) -> int:
        """n = d/2."""
        return self.dim // 2

    @property
    def data_variance(self) -> float:
        """C = (σ₁² + σ₂²)/2."""
        return 0.5 * sum(sigma**2 for sigma in self.sigmas)

    def rate_at(self, step: int) -> float:
        """Warm-up, then linearly to zero: the errors of both scores average out at the end."""
        return self.rate * min((step + 1) / self.warmup, 1 - step / self.steps)

    def draw_levels(self, count: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
        """[count, 2]: (t_A, t_B), independent and log-uniform."""
        uniform = torch.rand(count, 2, generator=generator, dtype=dtype)
        return self.t_min * (self.t_max / self.t_min) ** uniform


# --- the data, as far as the losses see it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class HalfStatistics:
    """q = ‖y_g‖²/n, ⟨y_g,ε_g⟩/n and ‖ε_g‖²/n of each sample and half, [levels, samples, 2]."""

    radius: Tensor
    cross: Tensor
    noise: Tensor


def chi_square(freedom: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """χ² variables of like's shape. (`torch.distributions` takes no generator; this is the kernel below it.)"""
    return 2 * torch._standard_gamma(torch.full_like(like, 0.5 * freedom), generator=generator)


def draw_statistics(config: ScaleMixtureConfig, t: Tensor, samples: int, generator: torch.Generator) -> HalfStatistics:
    """Samples for each row (t_A, t_B) of t, [M, 2], from three numbers a half instead of n."""
    n, shape = config.half, (len(t), samples, 2)
    variances = torch.tensor(config.sigmas, dtype=t.dtype).square()
    component = torch.randint(2, (len(t), samples, 1), generator=generator)
    along = torch.randn(shape, generator=generator, dtype=t.dtype)  # ε's component along x
    squared = variances[component] * chi_square(n, along, generator)  # ‖x‖²
    noise = along.square() + chi_square(n - 1, along, generator)
    scale, inner = t.sqrt()[:, None], squared.sqrt() * along  # inner = ⟨x,ε⟩
    radius = squared + 2 * scale * inner + t[:, None] * noise
    return HalfStatistics(radius / n, (inner + scale * noise) / n, noise / n)


# --- the model ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quadratics:
    """α [M, i, g] and β [M, i] at M noise levels; their derivatives in log t_h, [M, h, i, g] and [M, h, i], where asked for."""

    alpha: Tensor
    beta: Tensor
    alpha_slope: Tensor | None = None
    beta_slope: Tensor | None = None


class QuadraticsNetwork(nn.Module):
    """The MLP (log(t_A + t_min), log(t_B + t_min)) → α, β of two quadratics."""

    def __init__(self, config: ScaleMixtureConfig) -> None:
        super().__init__()
        self.t_min, self.scale = config.t_min, 0.5 * math.log(config.t_max / config.t_min)
        widths = [2] + [config.hidden] * (config.layers - 1) + [6]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self._start(config.contrast)

    @torch.no_grad()
    def _start(self, contrast: float) -> None:
        """Hidden layers keep the scale of what passes (SiLU); the outputs start near log α = ±contrast, β = 0."""
        *hidden, last = self.layers
        for layer in hidden:
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=1.5 / math.sqrt(layer.in_features))
        assert isinstance(last, nn.Linear)
        last.weight.mul_(0.1)
        last.bias.copy_(torch.tensor([contrast, contrast, 0.0, -contrast, -contrast, 0.0]))

    def forward(self, t: Tensor, slopes: bool = False) -> Quadratics:
        """t [M, 2]; with `slopes` the derivatives in log t are carried along (forward mode: two tangents through the layers)."""
        out, tangent = self._propagate(t, slopes)
        log_alpha, beta = out[..., :2], out[..., 2]
        alpha = log_alpha.exp()
        if tangent is None:
            return Quadratics(alpha, beta)
        return Quadratics(alpha, beta, alpha[:, None] * tangent[..., :2], tangent[..., 2])

    def _propagate(self, t: Tensor, slopes: bool) -> tuple[Tensor, Tensor | None]:
        """The layers: [M, 2 components, 3 outputs], and [M, 2 slopes, 2, 3]."""
        shifted = t + self.t_min
        value = shifted.log() / self.scale
        tangent = torch.diag_embed(t / shifted / self.scale) if slopes else None
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            if layer is not self.layers[0]:
                gate = value.sigmoid()
                if tangent is not None:
                    tangent = tangent * (gate * (1 + value * (1 - gate)))[:, None]
                value = value * gate
            value = layer(value)
            tangent = None if tangent is None else tangent @ layer.weight.mT
        return value.unflatten(-1, (2, 3)), None if tangent is None else tangent.unflatten(-1, (2, 3))


def component_energies(quadratics: Quadratics, radius: Tensor, t: Tensor, config: ScaleMixtureConfig) -> Tensor:
    """u_i, [M, K, i], for radii [M, K, g] at levels t [M, g]: nats per dimension."""
    shell = radius / (t + config.data_variance)[:, None] - 1
    return quadratics.beta[:, None] + 0.25 * torch.einsum("mkg,mig->mki", shell, quadratics.alpha)


def component_slopes(quadratics: Quadratics, radius: Tensor, t: Tensor, config: ScaleMixtureConfig) -> Tensor:
    """∂u_i/∂log t_h, [M, K, h, i]; the shell's own radius moves with t too."""
    if quadratics.alpha_slope is None or quadratics.beta_slope is None:
        raise ValueError("the network was asked for no slopes; call it with slopes=True")
    white = radius / (t + config.data_variance)[:, None]
    inner = torch.einsum("mkg,mhig->mkhi", white - 1, quadratics.alpha_slope)
    share = t / (t + config.data_variance)  # −∂log(white)/∂log t
    moving = torch.einsum("mkh,mih->mkhi", white * share[:, None], quadratics.alpha)
    return quadratics.beta_slope[:, None] + 0.25 * (inner - moving)


# --- the losses --------------------------------------------------------------------------------------------------------------


def score_losses(
    network: QuadraticsNetwork, statistics: HalfStatistics, t: Tensor, config: ScaleMixtureConfig, dual: bool
) -> tuple[Tensor, Tensor]:
    """A-DSM and A-CSM of a batch (the second is 0 when it is not asked for)."""
    quadratics = network(t, slopes=dual)
    weights = torch.softmax(-config.dim * component_energies(quadratics, statistics.radius, t, config), dim=-1)
    precision = torch.einsum("mki,mig->mkg", weights, quadratics.alpha)
    gain = precision * (t.sqrt() / (t + config.data_variance))[:, None]
    dsm = (gain.square() * statistics.radius - 2 * gain * statistics.cross + statistics.noise).mean()
    if not dual:
        return dsm, torch.zeros_like(dsm)
    slopes = component_slopes(quadratics, statistics.radius, t, config)
    kappa = 2 * torch.einsum("mki,mkhi->mkh", weights, slopes)
    return dsm, (kappa - 0.5 * (1 - statistics.noise)).square().mean()


def build_network(config: ScaleMixtureConfig) -> QuadraticsNetwork:
    """The network before training; it depends on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(config.seed, "gsm weights"))
        return QuadraticsNetwork(config)


def train(config: ScaleMixtureConfig, objective: Objective, progress: Progress) -> QuadraticsNetwork:
    """Train from the same start and on the same samples for either objective."""
    network, generator = build_network(config), keyed_generator(config.seed, "gsm batches")
    optimiser = torch.optim.Adam(network.parameters(), config.rate, betas=(0.9, 0.99))
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = config.rate_at(step)
        t = config.draw_levels(config.levels, generator)
        statistics = draw_statistics(config, t, config.samples_per_level, generator)
        dsm, csm = score_losses(network, statistics, t, config, objective == "dual")
        loss = dsm + config.cov_weight * csm
        if not math.isfinite(float(loss.detach())):
            raise RuntimeError(f"the {objective} loss is {float(loss.detach())} at step {step}; try a smaller rate")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 49 or step + 1 == config.steps:
            progress(f"{objective} score matching", step + 1, config.steps)
    return network.eval()
