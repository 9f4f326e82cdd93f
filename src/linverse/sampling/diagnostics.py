"""Is a sampler right, and are its error bars honest?

    Markov chains      effective sample size (arviz-stats), R-hat, acceptance
    calibration        for x ~ p(x), y ~ p(y|x) and L samples of p(x|y), the rank of a summary of x among those of the samples is uniform on
                       0…L (simulation-based calibration, Talts et al. 2018); its central intervals cover x as often as they say
Summaries are low-dimensional: a pixel, a mean, a distance, a log-density; [N] of the truths, [N, L] of the samples. The ranks themselves
are `metrics.rank_statistics`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linverse.extras import require
from linverse.metrics.calibration import rank_statistics
from linverse.sampling.langevin import KernelInfo


def effective_sample_size(draws: Tensor) -> Tensor:
    """Of [draws, chains, …] → […]: how many independent draws tell as much about the mean (bulk ESS)."""
    array_stats = require("arviz_stats.base", "evaluate").array_stats
    values = draws.detach().cpu().double().numpy()
    return torch.as_tensor(array_stats.ess(values, chain_axis=1, draw_axis=0))


def r_hat(draws: Tensor) -> Tensor:
    """Of [draws, chains, …] → […]: near 1 if the chains agree; NaN for fewer than 4 draws or 2 chains, or where nothing moves.

    Rank-normalised split R-hat, the larger of bulk and tail (Vehtari et al. 2021). Written here, because every posterior of a general
    operator asks for it, and restoring a picture needs no statistics library.
    """
    half = len(draws) // 2
    halves = torch.cat([draws[:half], draws[len(draws) - half :]], dim=1).detach().double()
    columns = halves.flatten(2).movedim(2, 0)  # of each quantity: [half, chains of half the length]
    if half < 2 or draws.shape[1] < 2:
        return columns.new_full(draws.shape[2:], math.nan)
    folded = (columns - columns.flatten(1).quantile(0.5, dim=1)[:, None, None]).abs()
    found = torch.maximum(_variance_ratio(_normal_scores(columns)), _variance_ratio(_normal_scores(folded)))
    found = torch.where(columns.isnan().flatten(1).any(dim=1), torch.nan, found)
    return found.reshape(draws.shape[2:])


def _normal_scores(values: Tensor) -> Tensor:
    """Φ⁻¹((r − ⅜)/(n + ¼)) of the ranks r in each row of [k, …], ties at their mean."""
    flat = values.flatten(1).contiguous()
    ordered = flat.sort(dim=1).values
    twice = torch.searchsorted(ordered, flat) + torch.searchsorted(ordered, flat, right=True) + 1
    return torch.special.ndtri((0.5 * twice.to(flat) - 0.375) / (flat.shape[1] + 0.25)).reshape(values.shape)


def _variance_ratio(values: Tensor) -> Tensor:
    """√(total variance ÷ that within chains) of [k, draws, chains]."""
    count, within = values.shape[1], values.var(dim=1).mean(dim=1)
    return (values.mean(dim=1).var(dim=1) / within + (count - 1) / count).sqrt()


@dataclass(frozen=True)
class AcceptanceSummary:
    """Mean acceptance, of the level or step and of the chain where it is least, and the share of moves made."""

    mean: float
    lowest_step: float
    lowest_chain: float
    moved: float


def summarise_acceptance(info: KernelInfo) -> AcceptanceSummary:
    """Of an `KernelInfo` with fields [steps, chains]."""
    acceptance = info.acceptance.double()
    return AcceptanceSummary(
        float(acceptance.mean()),
        float(acceptance.mean(dim=1).min()),
        float(acceptance.mean(dim=0).min()),
        float(info.accepted.double().mean()),
    )


@dataclass(frozen=True)
class Uniformity:
    """A rank histogram and its χ² test against uniformity."""

    counts: Tensor
    statistic: float
    p_value: float


def uniformity(rank: Tensor, samples: int, bins: int = 16) -> Uniformity:
    """χ² test of ranks on 0…`samples`; `bins` must divide samples + 1, so that all are equally likely."""
    chi2 = require("scipy.stats", "evaluate").chi2
    if (samples + 1) % bins:
        raise ValueError(
            f"{bins} bins do not divide the {samples + 1} ranks of {samples} samples: take e.g. 63 samples and 16 bins"
        )
    counts = torch.bincount(rank.long() * bins // (samples + 1), minlength=bins).double()
    expected = rank.numel() / bins
    statistic = float((counts - expected).square().sum() / expected)
    return Uniformity(counts, statistic, float(chi2.sf(statistic, bins - 1)))


@dataclass(frozen=True)
class RankCoverage:
    """How often intervals of a given probability hold the truth, with the standard error of that share."""

    nominal: Tensor
    observed: Tensor
    standard_error: Tensor


def rank_coverage(samples: Tensor, truth: Tensor, nominal: Tensor, *, central: bool = True) -> RankCoverage:
    """Of central intervals of a summary; with `central` False, of the sets where the summary is largest (log-density: highest density).

    The rank of the truth is uniform on 0…L if all is well, so an interval of k of the L + 1 ranks has probability k/(L+1) exactly;
    `nominal` is rounded to that, and reported so.
    """
    count = samples.shape[1] + 1
    rank = rank_statistics(samples, truth)
    # the number of ranks that the smallest interval around this one takes in
    needed = (2 * rank + 1 - count).abs() + 1 if central else count - rank
    held = (nominal * count).round().clamp(1, count)
    observed = (needed[None] <= held[:, None]).double().mean(dim=1)
    share = _central_share(held, count) if central else held / count
    return RankCoverage(share, observed, (share * (1 - share) / len(truth)).sqrt())


def _central_share(held: Tensor, count: int) -> Tensor:
    """Ranks within `held` of the centre, as a share: intervals have the parity of the number of ranks."""
    widths = (2 * torch.arange(count) + 1 - count).abs() + 1
    return (widths[None] <= held[:, None]).double().sum(dim=1) / count
