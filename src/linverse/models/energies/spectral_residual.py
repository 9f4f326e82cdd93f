"""The `spectral` energy, for pictures of any size: U = U₀ + R_θ, a stationary Gaussian plus what a network learns (mathematics §11).

U₀ = U_C̄ + Δ(w, φ): a Gaussian of one variance C̄ in Σ's own basis and the spectral correction of `bases.spectral`; R_θ(w, x̂₀; Σ) is that
of `network_residual`, fed with the base's own mean x̂₀ = m + √C̄(w − (1−φ)Aw). Both hang on w and λ alone. With g = ∂(Δ+R)/∂w and
r = ∂(Δ+R)/∂log λ at fixed w, and without cancellation at any λ,
    E[x|y] = m + √C̄(w − (1−φ)g)              ∇U = (w + φg)/√C̄
    κ      = (1−φ)(½ − ½w²/φ − gw) + r       Var[x] = C̄(1−φ)(1 − 2r/φ − (1−φ)g²).
"""

from __future__ import annotations

import torch
from torch import Tensor

from linverse.covariance import Covariance, SpatialCovariance
from linverse.energy import Evaluation, differentiable, group_mean
from linverse.models.bases.spectral import LinearAnswer, SpectralBase
from linverse.models.embeddings.space_frequency import band_weights, fine_maps
from linverse.models.energies.network_residual import PLAIN, NetworkInputs, NetworkResidual, Views
from linverse.models.energies.scores import Pair, Scores
from linverse.models.networks.unet import UNetConfig

BAND_SIDE = 64  # the picture on which the bands' own power is measured


class SpectralResidual(NetworkResidual):
    """U₀ + R_θ for pictures of `channels` colours and any size; the base is fitted to the data before training."""

    weighs_guesses = True

    def __init__(self, backbone: UNetConfig, channels: int, views: Views = PLAIN) -> None:
        super().__init__(backbone, channels, 0.03, views, fine_maps())
        self.base = SpectralBase(channels)

    @property
    def log_prior(self) -> Tensor:  # type: ignore[override]
        """log C̄."""
        return self.base.log_prior

    # --- coordinates -----------------------------------------------------------------------------------------------------

    def _mean_coefficients(self, cov: Covariance, like: Tensor) -> Tensor:
        return cov.analysis(self.base.mean.to(like).expand(1, -1, *cov.size))

    def whiten(self, z: Tensor, cov: Covariance) -> Tensor:
        """w = √C̄(z−m)/(C̄+λ), coefficients."""
        gain = torch.exp(0.5 * self.log_prior - torch.logaddexp(self.log_prior, cov.log_variance))
        return (z - self._mean_coefficients(cov, z)) * gain

    def plain_energy(self, z: Tensor, cov: Covariance) -> Tensor:
        """U_C̄, [B], float64: the Gaussian of one variance."""
        total = cov.with_log_variance(torch.logaddexp(self.log_prior, cov.log_variance))
        return -total.log_normal_coefficients(z - self._mean_coefficients(cov, z))

    def gaussian_energy(self, z: Tensor, cov: Covariance) -> Tensor:
        """U₀ = U_C̄ + Δ, [B], float64."""
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        white = cov.synthesis(self.whiten(z, cov))
        return self.plain_energy(z, cov) + self.base.correction(white, cov, log_phi.exp(), log_rest.exp()).delta

    def band_prior(self) -> Tensor:
        """log power of the images in each band of the embedding, [K]."""
        side = self.log_prior.new_zeros(1, 1, BAND_SIDE, BAND_SIDE)
        power = self.base.log_ratio((BAND_SIDE, BAND_SIDE), side)[0] + self.log_prior
        steps = torch.arange(BAND_SIDE, device=side.device) / (2 * BAND_SIDE)
        frequencies = torch.stack(torch.meshgrid(steps, steps, indexing="ij")).to(side)
        return torch.einsum("kyx,yx->k", band_weights(frequencies, self.embedding.dc_width), power)

    # --- what the energy is asked for ------------------------------------------------------------------------------------

    def _part(self, w: Tensor, cov: Covariance) -> tuple[Tensor, NetworkInputs]:
        """Δ and what the network is shown."""
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        white = cov.synthesis(w)
        answer = self.base.correction(white, cov, log_phi.exp(), log_rest.exp())
        damping = self.damping(cov, self.base.marginal(cov)[1])
        linear = (w - cov.analysis(answer.gradient) * log_rest.exp()) * damping
        white, shift = cov.synthesis(torch.cat([w * damping, linear])).chunk(2)
        sharper = self._sharper(answer)
        mean = self.base.mean.expand_as(white)
        seen = mean + torch.exp(0.5 * self.log_prior) * answer.steadied(shift)
        if sharper is not None:
            white = white * sharper**6
        return answer.delta, self.inputs(white, seen, mean, cov, answer.measured, sharper)

    def _sharper(self, answer: LinearAnswer) -> Tensor | None:
        """exp(−½t²/(1+t)), t = log V'/V: a pixel that its neighbours tell is corrected at the scale of what they leave, not of its noise.

        Of the powers tried for the spread (1, 2) this leaves the first steps calmest: what is wrong in x̂₀ is wrong alike in a dozen
        neighbours. w counts by its sixth power: what a pixel says itself is next to nothing beside what its neighbours say, and in smooth
        pictures, where these know ten times more than the base thinks, it is nothing but noise.
        """
        t = answer.neighbours
        return None if t is None else torch.exp(-0.5 * t.square() / (1 + t))

    def residual(self, whitened: list[tuple[Tensor, Covariance]], *, twice: bool) -> tuple[Tensor, Tensor]:
        """Δ + R [B], float64, and the pixels' log-variance, for coefficients w and Σ of possibly several bases."""
        deltas, parts = zip(*(self._part(w, cov) for w, cov in whitened), strict=True)
        learned, log_pixel_variance = self.run(list(parts), twice=twice)
        return torch.cat(deltas) + learned, log_pixel_variance

    def energies(self, pairs: list[Pair]) -> Tensor:
        """U, [B], float64, before the constant."""
        plain = torch.cat([self.plain_energy(z, cov) for z, cov in pairs])
        return plain + self.residual([(self.whiten(z, cov), cov) for z, cov in pairs], twice=False)[0]

    def derivatives(self, pairs: list[Pair], create_graph: bool) -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
        """(Δ+R, w, g, r, log-variance by pixel) for each basis; r is summed over the channels that share an entry of log λ."""
        with torch.enable_grad():
            ws = [differentiable(self.whiten(z, cov)) for z, cov in pairs]
            logs = [differentiable(cov.log_variance) for _, cov in pairs]
            covs = [cov.with_log_variance(log) for (_, cov), log in zip(pairs, logs, strict=True)]
            residual, log_pixel_variance = self.residual(list(zip(ws, covs, strict=True)), twice=create_graph)
            grads = torch.autograd.grad(residual.sum(), [*ws, *logs], create_graph=create_graph)
        n, sizes = len(pairs), [len(w) for w in ws]
        columns = (residual.split(sizes), ws, grads[:n], grads[n:], log_pixel_variance.split(sizes))
        return list(zip(*columns, strict=True))

    def scores(self, pairs: list[Pair], create_graph: bool = True) -> list[Scores]:
        """e and κ for each basis: what dual score matching compares with the noise."""
        out = []
        for (_, cov), (_, w, g, r, pixels) in zip(pairs, self.derivatives(pairs, create_graph), strict=True):
            log_phi, log_rest = self.log_shrinkage(cov.log_variance)
            e = (w + log_phi.exp() * g) * torch.exp(0.5 * (log_rest - log_phi))
            out.append(Scores(e, self._kappa(w, g, r, cov), self.linear_variance(cov), pixels))
        return out

    @torch.no_grad()
    def linear_variance(self, cov: Covariance) -> Tensor:
        """The scale of errors, [B, C, H, W]: of pixels the trees' posterior variance, of blocks the base's, else λc/(λ+c).

        c is the images' own variance in Σ's basis.
        """
        if isinstance(cov, SpatialCovariance):
            blank = cov.log_variance.new_zeros(cov.batch, cov.channels, *cov.size)
            answers = self.base.solve_trees(blank, cov.log_variance)
            return torch.stack([answer.variance for answer in answers]).mean(0)
        if (blocks := self.base.block_variance(cov)) is not None:
            return blocks
        _, prior = self.base.marginal(cov)
        return torch.exp(cov.log_variance + prior.log() - torch.logaddexp(cov.log_variance, prior.log()))

    def _kappa(self, w: Tensor, g: Tensor, r: Tensor, cov: Covariance) -> Tensor:
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        products = group_mean(0.5 * w.square() * torch.exp(-log_phi) + g * w, cov)
        return log_rest.exp() * (0.5 - products) + r / cov.multiplicity

    def evaluation(self, z: Tensor, cov: Covariance, create_graph: bool) -> Evaluation:
        """Everything in the stable forms above."""
        ((residual, w, g, r, log_pixels),) = self.derivatives([(z, cov)], create_graph)
        log_phi, log_rest = self.log_shrinkage(cov.log_variance)
        phi, rest, root = log_phi.exp(), log_rest.exp(), torch.exp(0.5 * self.log_prior)
        spread = 1 - 2 * r / (cov.multiplicity * phi) - rest * group_mean(g.square(), cov)
        result = Evaluation(
            cov,
            self.plain_energy(z, cov) + residual,
            (w + phi * g) / root,
            self._kappa(w, g, r, cov),
            self._mean_coefficients(cov, z) + root * (w - rest * g),
            (root.square() * rest * spread).clamp_min(0),
            log_pixels.exp(),
        )
        return result if create_graph else result.detach()
