"""R_θ: what a network adds to a Gaussian base, whichever that is.

With C̄ the mean variance of a pixel, φ = C̄/(C̄+λ) and w = √C̄(y−m)/(C̄+λ) (the estimate that mixes no pixels),
    R_θ = ⟨1+φγ(Σ), ½ Σ_j f_j s_j + φa + ½φ log(1−φ)b⟩ + c(Σ),   (s, a, b, v) = network(f; log λ)
where f are w, G(x̂_G−m)/√C̄ and, for both estimates, the distance to the darkest and the brightest value and the local contrast, magnified by
the noise that is left: a network that sees pictures at unit scale is blind to noise of small amplitude. Every f_j is bounded and
vanishes as λ → ∞, so that U is right there by construction. The base's estimate x̂_G mixes noise over the whole picture, w keeps it
local: blurs want the one, white noise the other.

G = tr C(C+Σ)⁻¹/d is the share of the image that was measured. The coarsest coefficient is corrected by V·∂R/∂x̂_G, a sum over all d
pixels: where little is measured V is hundreds of C̄, and an error of a thousandth in every pixel's answer is one of the prior's standard
deviations. x̂_G then has Gd degrees of freedom that d pixels repeat, so each may say the Gth part.
(Images of one small size do without: G = 1.)

Before they become images both estimates are damped, coefficient by coefficient, by
    a = exp(−1½ λ/(λ+c)·t²/(1+t)),   t = log V/V̄ where that is positive,
V = λφ, V̄ its mean over the block, c the base's own variance of the coefficient: the network works at the scale of the noise around it,
1/√V̄, so that a coefficient that is far noisier than the others of its block (a notch in a blur's spectrum) would be corrected by V/√V̄ where
√V is right. What is well measured (λ ≪ c) must not be damped at all: ∂log a/∂log λ times a large coefficient of the image would be its
covariance score, hundreds where next to nothing is right. At isotropic noise a = 1, in every basis.

c(Σ) = ⟨φ, h⟩ with h from the maps of log λ alone does not hang on the picture: no mean feels it. It is there for the mean of the covariance
score, which is what makes densities right, and which the other terms can only mend at the expense of the means: at the end of training it
is fitted by itself (`training.levelling`), and costs nothing as long as it is silent. For pictures of any size h does not see the coarsest
bands: c is a sum over all pixels, and the few coarse waves of a band would share its whole derivative. γ(Σ), made alike and as blind, is
fitted before c (`training.gain`), so that means go neither too far nor too little. It acts on what was measured, by its share φ.

What stands in a hole is a guess from around it. What a network says of a guess moves it by the base's variance, that of a mean picture; in
a smooth one the guess is far better than that, and the network's own noise spoils it (a box of 30 pixels: 22 dB instead of 27). So all
that hangs on pixels which were not measured themselves may count
    τ = o + (1−o)·s/√(s²+s₀²),   o = φς²/k,   k = φ + (1−φ)(1−ς)
with ς ≈ √(V/V') (`sharper`), k what is known of a pixel, by itself and its neighbours, o its own share of that,
and s² the mean square of contrasts that were measured around it (`lively`).

`linear_views` grow like t, not like tanh t, up to four standard deviations: what is known to be black has the energy ½t², to a
hundredth, with s = f.

v is no part of the energy: log V̄ + v is the network's estimate of log E[(x−x̂)²|y] pixel by pixel, V̄ the mean of λφ around the pixel.

A network knows no size: its input is padded by reflection to a multiple of its divisor, its output cut before the sum over pixels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.covariance import Covariance
from linverse.energy import group_mean
from linverse.models.embeddings.space_frequency import SpaceFrequencyEmbedding
from linverse.models.energies.tiling import TiledSum
from linverse.models.networks.backbone import build_backbone
from linverse.models.networks.twice import join, twice_differentiable
from linverse.models.networks.unet import UNetConfig, conv, zero_init

FEATURES = 8  # of each channel: both estimates, and three magnified views of each
SATURATION = 6.0  # of the magnified features, in standard deviations
HIDDEN = 32  # of c(Σ) and γ(Σ)
LARGEST_GAIN = 0.3  # of γ, either way
DAMPING = 1.5
WIDEST = 8.0  # of v, in nats either way
TILED_FROM = 640 * 640  # pixels from which on a picture goes through the network in tiles …
TILE = 512  # … of this side
MARGIN = 64  # pixels around a tile at most: what lies beyond, though within reach, moves a mean by 3e-8 (benchmarks/large_pictures.py)

SCALES = (
    3,
    7,
    15,
    31,
)  # pixels around a hole where contrasts are looked for, each a hundredth as important as the one before
LIVELY = 0.1  # s₀: of 0.03, 0.1 and 0.3 that which serves both smooth and rough pictures

PLANES = 9  # w, x̂_G, m, φ̄, the mean of ½φ log(1−φ), V̄, that of contrasts, G, τ; one of each for every channel

NetworkInputs = tuple[Tensor, Tensor]  # the planes, and log λ/C by band


@dataclass(frozen=True)
class Views:
    """What R_θ may do beyond its first form.

    Magnified views that are linear up to four standard deviations, a term c(Σ), a gain by Σ.
    """

    linear: bool = False
    level: bool = False
    gain: bool = False


PLAIN = Views()


def _speaks(part: nn.Sequential) -> bool:
    """Whether the last layer of what began silent has any weight."""
    return any(bool(parameter.any()) for parameter in list(part.parameters())[-2:])


class NetworkResidual(nn.Module):
    """The network, its view of the estimates, and the sum over pixels."""

    log_prior: Tensor
    level_sees: Tensor
    fitting_gain = False
    weighs_guesses: ClassVar[bool] = False  # whether what was not measured counts by the contrast around it (τ)

    def __init__(
        self, backbone: UNetConfig, channels: int, dc_width: float, views: Views, level_sees: Tensor | None = None
    ) -> None:
        super().__init__()
        self.views = views
        self.divisor = backbone.divisor
        self.network = build_backbone(backbone, channels * FEATURES, channels * (FEATURES + 3))
        self.embedding = SpaceFrequencyEmbedding(backbone, dc_width)
        seen = torch.ones(1, 1, 1, 1) if level_sees is None else level_sees
        self.register_buffer("level_sees", seen, persistent=False)
        self.level = self._of_noise_alone(channels) if views.level else None
        self.gain = self._of_noise_alone(1) if views.gain else None

    def _of_noise_alone(self, outputs: int) -> nn.Sequential:
        """A silent network from the maps of log λ, pixel by pixel."""
        return nn.Sequential(conv(self.embedding.features, HIDDEN, 1), nn.SiLU(), zero_init(conv(HIDDEN, outputs, 1)))

    def log_shrinkage(self, log_variance: Tensor) -> tuple[Tensor, Tensor]:
        """log φ and log(1−φ)."""
        ratio = log_variance - self.log_prior
        return -F.softplus(ratio), -F.softplus(-ratio)

    def damping(self, cov: Covariance, variance: Tensor) -> Tensor:
        """a, of log λ's shape, for the base's own variance c of each coefficient, [1, C, H, W]."""
        log_spread = cov.log_variance + self.log_shrinkage(cov.log_variance)[0]
        noisier = (log_spread - cov.pool(log_spread.exp()).log()).clamp_min(0)
        own = group_mean(variance.expand(1, cov.channels, *cov.size), cov)
        unknown = cov.variance / (cov.variance + own)
        return torch.exp(-DAMPING * unknown * noisier.square() / (1 + noisier))

    def inputs(
        self,
        white: Tensor,
        seen: Tensor,
        mean: Tensor,
        cov: Covariance,
        measured: Tensor,
        sharper: Tensor | None = None,
    ) -> NetworkInputs:
        """w and x̂_G (images), G and what else of Σ stands beside them: all that the network's view and its factors are made of.

        `sharper` is by how much less than λφ a pixel's error is expected to be, where pixels differ: then contrasts, too, are magnified by
        what is known of the four around.
        """
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        phi = log_phi.exp()
        gate, log_gate = (cov.full(cov.pool(each)) for each in (phi, 0.5 * phi * log_rest))
        spread = around = cov.full(cov.pool(torch.exp(cov.log_variance + log_phi)))
        trust = torch.ones_like(white)
        if sharper is not None:
            spread = spread * sharper
            around = 0.5 * (spread + neighbours(spread))
            if sharper.ndim:
                own = (sharper.square() * gate / (gate + (1 - gate) * (1 - sharper))).expand_as(white)
                trust = own + (1 - own) * lively(seen, own)
                white = white * trust
        flat = (mean.expand_as(white), gate, log_gate, spread, around, measured.expand_as(white), trust)
        planes = torch.cat([white, seen, *flat], dim=1)
        return planes, self.embedding.ratios(cov, self.band_prior(), self.log_prior)

    def run(self, parts: list[NetworkInputs], *, twice: bool) -> tuple[Tensor, Tensor]:
        """R [B], float64, and log E[(x−x̂)²] by pixel: the backbone runs once for all parts.

        Pictures of more than `TILED_FROM` pixels go through it tile by tile, unless R is to be differentiated `twice` (training).
        """
        planes, ratios = (torch.cat(group) for group in zip(*parts, strict=True))
        height, width = planes.shape[2:]
        if height * width > TILED_FROM and not twice and self.network.reach is not None:
            energy, rest = TiledSum.apply(planes, ratios, self._terms, TILE, self._margin)
        else:
            with twice_differentiable(twice):
                terms, rest = self._terms(planes, ratios)
            energy = sum_pixels(terms)
        log_spread = planes.chunk(PLANES, dim=1)[5].log()
        return energy, log_spread + WIDEST * torch.tanh(rest / WIDEST)

    @abstractmethod
    def band_prior(self) -> Tensor:
        """log power of the images in each band of the embedding, or one number: what λ is compared with there."""

    @property
    def levelled(self) -> bool:
        """Whether c(Σ) says anything yet."""
        return self.level is not None and _speaks(self.level)

    @property
    def gained(self) -> bool:
        """Whether γ(Σ) is to be reckoned with: it says something, or is just being fitted."""
        return self.gain is not None and (_speaks(self.gain) or self.fitting_gain)

    def level_inputs(self, cov: Covariance) -> tuple[Tensor, Tensor]:
        """What c(Σ) is made of: φ̄ and the maps of log λ."""
        phi = self.log_shrinkage(cov.log_variance)[0].exp()
        ratios = self.embedding.ratios(cov, self.band_prior(), self.log_prior)
        return cov.full(cov.pool(phi)), self.embedding.shares(ratios)

    def level_term(self, gate: Tensor, maps: Tensor) -> Tensor:
        """c(Σ) pixel by pixel, [B, C, H, W]."""
        assert self.level is not None
        return gate * self._said_of_noise(self.level, maps)

    def gains(self, gate: Tensor, maps: Tensor) -> Tensor:
        """1 + φγ(Σ) pixel by pixel, [B, 1, H, W]."""
        assert self.gain is not None
        return 1 + gate.mean(dim=1, keepdim=True) * LARGEST_GAIN * torch.tanh(self._said_of_noise(self.gain, maps))

    def _said_of_noise(self, part: nn.Sequential, maps: Tensor) -> Tensor:
        """c or γ of the maps that it may see: the others are left out of the first weights, which is cheaper than out of every pixel."""
        first, between, last = part
        assert isinstance(first, nn.Conv2d)
        seen: Tensor = last(between(F.conv2d(maps, first.weight * self.level_sees, first.bias)))
        return seen

    def _terms(self, planes: Tensor, ratios: Tensor) -> tuple[Tensor, Tensor]:
        """The terms of R, [B, 1, H, W], whose sum over pixels it is, and v, of a picture or a tile.

        Channels are added up pixel by pixel: thirty of them at full resolution are what an evaluation's time is spent on.
        """
        features, (height, width) = self._view(planes), planes.shape[2:]
        maps = self.embedding.shares(ratios)
        out = self._outputs(padded(features, self.divisor), padded(maps, self.divisor))
        if out.shape[2:] != (height, width):
            out = out[..., :height, :width]
        gate, log_gate = planes.chunk(PLANES, dim=1)[3:5]
        channels = gate.shape[1]
        spoken, level, log_level, rest = out.split([FEATURES * channels, channels, channels, channels], dim=1)
        linear = torch.addcmul(gate * level, log_gate, log_level).sum(dim=1, keepdim=True)
        terms = torch.add(linear, (features * spoken).sum(dim=1, keepdim=True), alpha=0.5)
        if self.gained:
            terms = terms * self.gains(gate, maps)
        if self.levelled:
            terms = terms + self.level_term(gate, maps).sum(dim=1, keepdim=True)
        return terms, rest

    def _view(self, planes: Tensor) -> Tensor:
        """What the network is shown of w and x̂_G: f."""
        white, seen, mean, gate, _, spread, around, measured, trust = planes.chunk(PLANES, dim=1)
        root = torch.exp(0.5 * self.log_prior)
        views = join([*magnifiable(mean + root * white), *magnifiable(seen, trust if self.weighs_guesses else None)])
        near, wide = spread.rsqrt(), around.rsqrt()
        magnified = views.unflatten(1, (2, 3, -1)) * torch.stack([near, near, wide], dim=1)[:, None]
        magnified = saturated(magnified, self.views.linear) * gate[:, None, None]
        return join([white, measured * trust * (seen - mean) / root, magnified.flatten(1, 3)])

    def _outputs(self, features: Tensor, maps: Tensor) -> Tensor:
        features, maps = (t.contiguous(memory_format=torch.channels_last) for t in (features, maps))
        return self.network(features, self.embedding(maps))

    @property
    def _margin(self) -> int:
        assert self.network.reach is not None
        return self.divisor * math.ceil(min(self.network.reach, MARGIN) / self.divisor)


def sum_pixels(terms: Tensor) -> Tensor:
    """[B], float64."""
    return terms.flatten(1).sum(dim=1, dtype=torch.float64)


def saturated(t: Tensor, linear: bool) -> Tensor:
    """6 tanh(t/6), or t/(1 + (t/6)⁸)^⅛, which is t to a hundredth up to 4, and never beyond 6 either."""
    if not linear:
        return SATURATION * torch.tanh(t / SATURATION)
    eighth = (t / SATURATION).square().square().square()
    return t * (1 + eighth) ** -0.125


def magnifiable(x: Tensor, trust: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Distances to the darkest and the brightest value, and a pixel less the mean of its four neighbours (edges repeated).

    A neighbour may count less by its `trust`.
    """
    if trust is None:
        return x, x - 1.0, x - neighbours(x)
    contrast = x * neighbours(trust) - neighbours(x * trust)
    return x, x - 1.0, contrast


def neighbours(x: Tensor) -> Tensor:
    """The mean of the four pixels around each (edges repeated)."""
    edged = F.pad(x, (1, 1, 1, 1), mode="replicate")
    around = edged[..., :-2, 1:-1] + edged[..., 2:, 1:-1] + edged[..., 1:-1, :-2] + edged[..., 1:-1, 2:]
    return 0.25 * around


def lively(x: Tensor, own: Tensor) -> Tensor:
    """s/√(s²+s₀²), [B, 1, H, W]: s² is the mean square of contrasts around, of pixels that were measured and their neighbours too.

    From the nearest ones where there are any, else from farther ones, at last from the whole picture.
    """
    counts = own * neighbours(own)
    pair = torch.cat([t.mean(dim=1, keepdim=True) for t in (counts * (x - neighbours(x)).square(), counts)], dim=1)
    weight, total = 1.0, 1e-2 ** len(SCALES) * pair.mean(dim=(2, 3), keepdim=True)
    for scale in SCALES:
        total = total + weight * blurred(pair, scale)
        weight *= 1e-2
    square = total[:, :1] / (total[:, 1:] + 1e-12)
    return ((square + 1e-9) / (square + LIVELY**2)).sqrt()


def blurred(x: Tensor, side: int) -> Tensor:
    """Means over side×side pixels, twice (edges repeated)."""
    for _ in range(2):
        x = F.avg_pool2d(F.pad(x, (side // 2,) * 4, mode="replicate"), side, stride=1)
    return x


def padded(x: Tensor, divisor: int) -> Tensor:
    """x with rows and columns added by reflection, up to multiples of the divisor."""
    height, width = x.shape[2:]
    below, right = -height % divisor, -width % divisor
    if not below and not right:
        return x
    mode = "reflect" if below < height and right < width else "replicate"
    return F.pad(x, (0, right, 0, below), mode=mode)
