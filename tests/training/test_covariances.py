"""Training distributions over Σ: their structure, their range, and that they visit what inference visits."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from scipy.stats import binom, kstest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from linverse import degradations as dg
from linverse.covariance import Covariance, SpatialCovariance, VarianceRange
from linverse.covariance.fourier import mirrored
from linverse.degradations import blurs
from linverse.rng import keyed_generator
from linverse.training.covariances import (
    KINDS,
    BayerPatterns,
    Boxes,
    BoxSuperResolution,
    CentreBox,
    Component,
    CovarianceDistribution,
    DefocusBlurs,
    GaussianBlurs,
    HalfMasks,
    Isotropic,
    Mixture,
    MotionBlurs,
    Patches,
    RandomKernels,
    RandomPixelMasks,
    SmoothSpectra,
    Strokes,
)
from linverse.training.covariances.interface import Shape

LIMITS = VarianceRange(1e-9, 1e3)  # the paper's
SHAPE: Shape = (3, 28, 28)
SMALL: Shape = (1, 8, 12)
SMALL_TILED: Shape = (1, 4, 8)
ALARM = 1e-6

DISTRIBUTIONS: dict[str, CovarianceDistribution] = {
    "isotropic": Isotropic(),
    "box": CentreBox(),
    "half-horizontal": HalfMasks("horizontal"),
    "half-vertical": HalfMasks("vertical"),
    "pixels": RandomPixelMasks(),
    "patches": Patches(),
    "blur-periodic": GaussianBlurs(),
    "blur-reflecting": GaussianBlurs(boundary="reflecting"),
    "super-resolution-2": BoxSuperResolution(2),
    "super-resolution-4": BoxSuperResolution(4),
    "smooth-spectra": SmoothSpectra(),
    "boxes": Boxes(),
    "strokes": Strokes(),
    "bayer": BayerPatterns(),
    "defocus": DefocusBlurs(),
    "motion": MotionBlurs(),
    "kernels": RandomKernels(),
}
distributions = pytest.mark.parametrize("name", DISTRIBUTIONS)


def draw(
    distribution: CovarianceDistribution, n: int, shape: Shape = SHAPE, limits: VarianceRange = LIMITS, seed: int = 0
) -> Covariance:
    return distribution.sample(n, shape, limits, keyed_generator("draw", seed))


def everything(path: float = 0.5, isotropic: float = 0.05) -> Mixture:
    return Mixture(tuple(Component(1.0, d) for d in DISTRIBUTIONS.values()), path, isotropic)


def log_uniform_cdf(limits: VarianceRange) -> tuple[float, float]:
    """loc and scale of log λ for scipy's uniform."""
    return math.log(limits.minimum), math.log(limits.maximum / limits.minimum)


def is_isotropic(log_variance: Tensor) -> Tensor:
    flat = log_variance.flatten(1)
    return (flat - flat[:, :1]).abs().amax(1) < 1e-5


# --- every distribution --------------------------------------------------------------------------------------------------------


@distributions
def test_one_spectrum_a_sample_within_the_limits(name: str) -> None:
    cov = draw(DISTRIBUTIONS[name], 200)
    assert cov.log_variance.shape == (200, 3 if name == "bayer" else 1, 28, 28)
    assert cov.channels == 3
    low, high = (float(v) for v in cov.log_variance.aminmax())
    assert low >= math.log(LIMITS.minimum) - 1e-5
    assert high <= math.log(LIMITS.maximum) + 1e-5
    assert bool((cov.log_variance[0] != cov.log_variance[1]).any())


@distributions
def test_the_same_generator_gives_the_same_bits_and_nothing_else_is_drawn_from(name: str) -> None:
    before = torch.get_rng_state()
    a, b, c = (draw(DISTRIBUTIONS[name], 5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.log_variance, b.log_variance)
    assert not torch.equal(a.log_variance, c.log_variance)
    assert torch.equal(torch.get_rng_state(), before)


class CountOperations(TorchDispatchMode):
    """Counts what reaches the kernels."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@distributions
def test_no_loop_over_samples(name: str) -> None:
    counts = []
    for n in (3, 300):
        with CountOperations() as counter:
            draw(DISTRIBUTIONS[name], n, SHAPE if name in ("patches", "bayer") else SMALL)
        counts.append(counter.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("limits", [LIMITS, VarianceRange(1e-3, 2.0)], ids=["paper", "narrow"])
@pytest.mark.parametrize("name", ["isotropic", "box", "half-horizontal", "half-vertical", "pixels", "patches"])
def test_levels_are_log_uniform(name: str, limits: VarianceRange) -> None:
    cov = draw(DISTRIBUTIONS[name], 2000, limits=limits)
    for pixel in [(0, 0), (14, 14)]:
        levels = cov.log_variance[:, 0, *pixel].double().numpy()
        assert kstest(levels, "uniform", args=log_uniform_cdf(limits)).pvalue > ALARM


@pytest.mark.parametrize("name", ["box", "half-horizontal", "half-vertical", "pixels", "super-resolution-2"])
def test_inside_and_outside_are_independent(name: str) -> None:
    """|u − v| of two independent uniforms has the distribution function 1 − (1 − t)²."""
    log_variance = draw(DISTRIBUTIONS[name], 2000).log_variance.flatten(1).double()
    low, high = log_variance.aminmax(dim=1)
    two = low < high - 1e-6  # a mask that covers the image has one level
    gap = ((high - low) / log_uniform_cdf(LIMITS)[1])[two].numpy()
    assert kstest(gap, lambda t: 1 - (1 - t) ** 2).pvalue > ALARM


# --- the structure of each kind --------------------------------------------------------------------------------------------------


def inside_of(cov: Covariance, pixel: tuple[int, int]) -> Tensor:
    """[n, H, W]: where an image has the level of the given pixel."""
    lv = cov.log_variance[:, 0]
    return lv == lv[:, pixel[0], pixel[1]][:, None, None]


def as_rows(masks: Tensor) -> set[bytes]:
    return {mask.numpy().tobytes() for mask in masks}


@pytest.mark.parametrize(
    "family",
    [
        Boxes(hidden=0.4),
        Strokes(hidden=0.4),
        RandomPixelMasks(hidden=0.4),
        BayerPatterns(hidden=0.4),
        BoxSuperResolution(2, hidden=0.4),
    ],
    ids=lambda family: family.kind,
)
def test_a_share_of_masks_hides_what_is_inside(family: Any) -> None:
    """Nothing known inside (variances from 1 on), faint noise outside (up to 10⁻³); the others keep independent levels."""
    log = draw(family, 800, (3, 32, 32)).log_variance.flatten(1)
    found = float(((log.amax(1) >= 0) & (log.amin(1) <= math.log(1e-3))).double().mean())
    independent = 2 * (3 / 12) * (6 / 12)  # of twelve decades three are loud, six are faint
    assert abs(found - (0.4 + 0.6 * independent)) < 0.07


def test_what_hides_is_the_inside_of_masks_and_all_but_the_means_of_blocks() -> None:
    few = draw(RandomPixelMasks(0.1, 0.2, hidden=1.0), 50).log_variance
    assert 0.1 < float((few >= 0).double().mean()) < 0.2
    blocks = draw(BoxSuperResolution(4, hidden=1.0), 20).log_variance
    assert bool((blocks[..., ::4, ::4] <= math.log(1e-3)).all())
    assert float((blocks >= 0).double().mean()) == 15 / 16
    bayer = draw(BayerPatterns(hidden=1.0), 20, (3, 8, 8)).log_variance
    assert float((bayer >= 0).double().mean()) == 2 / 3


@pytest.mark.parametrize("size", [(28, 28), (9, 12), (7, 7)])
def test_boxes_are_those_of_the_box_degradation(size: tuple[int, int]) -> None:
    cov = draw(CentreBox(), 2000, (1, *size))
    inside = inside_of(cov, ((size[0] - 1) // 2, (size[1] - 1) // 2))
    sides = [s for s in range(1, min(size) + 1) if s < max(size)]
    expected = {(~dg.Box(side).mask_for(size))[0, 0].numpy().tobytes() for side in sides}
    if size[0] == size[1]:
        expected.add(torch.ones(size, dtype=torch.bool).numpy().tobytes())
    assert as_rows(inside) == expected


def test_box_sides_are_uniform_between_their_ends() -> None:
    cov = draw(CentreBox(5, 8), 4000)
    sides = inside_of(cov, (13, 13)).sum(dim=(1, 2)).sqrt()
    assert set(sides.int().tolist()) == {5, 6, 7, 8}
    for side in (5, 6, 7, 8):
        assert ALARM < binom.cdf(int((sides == side).sum()), 4000, 0.25) < 1 - ALARM


@pytest.mark.parametrize(("direction", "places"), [("horizontal", ("top", "bottom")), ("vertical", ("left", "right"))])
def test_half_masks_are_those_of_the_degradation(direction: str, places: tuple[str, str]) -> None:
    size = (7, 9)
    length = size[0] if direction == "horizontal" else size[1]
    cov = draw(HalfMasks(direction), 2000, (1, *size))
    corner = inside_of(cov, (0, 0))
    drawn = as_rows(corner) | as_rows(~corner)
    expected = {
        mask.numpy().tobytes()
        for place in places
        for depth in range(1, length)
        for mask in [dg.HalfMask(place, depth).mask_for(size)[0, 0].contiguous()]
    }
    whole = {torch.full(size, value, dtype=torch.bool).numpy().tobytes() for value in (True, False)}
    assert drawn == expected | whole


def test_half_mask_depths_stay_between_their_ends() -> None:
    corner = inside_of(draw(HalfMasks("vertical", 2, 3), 500, (1, 7, 9)), (0, 0))
    widths = corner[:, 0].sum(1)
    assert set(widths.tolist()) == {2, 3, 9 - 2, 9 - 3}


def test_random_pixels_have_two_levels_and_a_share_in_the_limits() -> None:
    cov = draw(RandomPixelMasks(0.2, 0.4), 500)
    inside = inside_of(cov, (0, 0))
    rest = torch.where(inside, torch.nan, cov.log_variance[:, 0]).flatten(1)
    spread = [float(row[~row.isnan()].max() - row[~row.isnan()].min()) for row in rest]
    assert max(spread) == 0
    share = inside.double().mean(dim=(1, 2))
    share = torch.minimum(share, 1 - share)
    slack = 6 * math.sqrt(0.24 / 784)
    assert float(share.min()) > 0.2 - slack
    assert float(share.max()) < 0.4 + slack


@pytest.mark.parametrize(("shape", "sizes"), [(SHAPE, {1, 2, 4, 7, 14, 28}), ((1, 8, 12), {1, 2, 4})])
def test_patches_are_constant_on_tiles_of_every_size(shape: Shape, sizes: set[int]) -> None:
    lv = draw(Patches(), 300, shape).log_variance[:, 0]
    seen = set()
    for row in lv:
        fits = [
            b
            for b in sorted(sizes, reverse=True)
            if torch.equal(row, row[::b, ::b].repeat_interleave(b, 0).repeat_interleave(b, 1))
        ]
        b = fits[0]
        seen.add(b)
        assert len(row.unique()) > 0.9 * (shape[1] // b) * (shape[2] // b)  # a level of its own for every tile
    assert seen == sizes


def test_patches_that_do_not_tile_are_refused() -> None:
    with pytest.raises(ValueError, match=r"none of the patch sizes \(4, 8\) tiles a 9×9"):
        draw(Patches((4, 8)), 1, (1, 9, 9))


@pytest.mark.parametrize("boundary", ["periodic", "reflecting"])
@pytest.mark.parametrize("std", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("size", [(28, 28), (9, 13)])
def test_blurs_are_those_of_the_degradation(boundary: str, std: float, size: tuple[int, int]) -> None:
    """The Σ of a draw is the one that a measurement by the same blur is lifted to."""
    cov = draw(GaussianBlurs(std, std, boundary), 20, (1, *size))
    x = torch.rand(1, 1, *size, generator=keyed_generator("x"), dtype=torch.float64)
    lines = [
        blurs._gaussian_line(std, 2 * ((n - 1) // 2) + 1) for n in size
    ]  # a blur on the grid of the image, whatever its sides
    for row in range(20):
        sigma = math.exp(0.5 * float(cov.log_variance[row, 0, 0, 0]))  # |h| = 1 at frequency 0
        blur = dg.Blur(torch.outer(*lines), sigma, boundary)
        expected = blur.encode(x).covariance(LIMITS)
        assert cov.basis == expected.basis
        torch.testing.assert_close(cov.log_variance[row], expected.log_variance[0].float(), rtol=0, atol=2e-4)


def test_blur_widths_cover_their_range_and_spectra_are_even() -> None:
    cov = draw(GaussianBlurs(0.8, 2.0), 2000, (1, 28, 28), VarianceRange(1e-9, 1e6))
    lv = cov.log_variance.double()
    torch.testing.assert_close(lv, mirrored(lv), rtol=0, atol=1e-5)
    # h at the lowest frequency tells the width: h(1) ≈ exp(−2π²s²/28²)
    gain = 0.5 * (lv[:, 0, 0, 0] - lv[:, 0, 0, 1])
    width = (-gain * 28**2 / (2 * math.pi**2)).clamp_min(0).sqrt()
    unclipped = lv[:, 0, 0, 0] < math.log(1e6) - 0.3
    assert kstest(width[unclipped].numpy(), "loguniform", args=(0.8, 2.0)).pvalue > ALARM


def test_blurs_are_no_louder_than_they_may_be() -> None:
    lowest = [draw(GaussianBlurs(loudest=loudest), 500).log_variance[:, 0, 0, 0].exp() for loudest in (0.0, 0.5)]
    assert float(lowest[0].max()) > 10
    assert 0.1 < float(lowest[1].max()) < 0.51


@pytest.mark.parametrize("factor", [2, 4])
def test_super_resolution_separates_what_a_box_mean_measures(factor: int) -> None:
    cov = draw(BoxSuperResolution(factor), 50)
    x = torch.rand(1, 3, 28, 28, generator=keyed_generator("x"))
    measured = dg.SuperResolution(factor, 0.1).measure(x, keyed_generator("v"))
    dc = measured.measured[0, 0]
    lv = cov.log_variance[:, 0]
    assert cov.basis == measured.template.basis
    assert float(lv[:, dc].std(dim=1).max()) == 0
    assert float(lv[:, ~dc].std(dim=1).max()) == 0
    assert bool((lv[:, 0, 0] != lv[:, 0, 1]).all())
    with pytest.raises(ValueError, match="do not tile"):
        draw(BoxSuperResolution(5), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HalfMasks("diagonal"),
        lambda: GaussianBlurs(boundary="reflective"),
        lambda: GaussianBlurs(2.0, 1.0),
        lambda: GaussianBlurs(0.0, 1.0),
        lambda: BoxSuperResolution(1),
        lambda: RandomPixelMasks(0.5, 1.5),
        lambda: Strokes(hidden=1.5),
        lambda: BoxSuperResolution(4, hidden=-0.1),
        lambda: CentreBox(0, 3),
        lambda: CentreBox(5, 3),
        lambda: HalfMasks("horizontal", 5, 3),
    ],
)
def test_options_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="got"):
        make()


# --- mixtures ------------------------------------------------------------------------------------------------------------------


def test_rows_cover_the_batch_once_and_bases_do_not_repeat() -> None:
    parts = everything().sample(300, SHAPE, LIMITS, keyed_generator("mixture"))
    assert torch.equal(torch.cat([rows for _, rows in parts]).sort().values, torch.arange(300))
    assert all(cov.batch == len(rows) for cov, rows in parts)
    bases = [cov.basis for cov, _ in parts]
    # a λ of its own for each channel (Bayer patterns) stands apart, and so does isotropic noise
    assert sorted(bases) == ["block-dct-2", "block-dct-4", "dct", "fourier", "spatial", "spatial", "spatial"]
    before = torch.get_rng_state()
    assert set(everything().bases(SHAPE)) == set(bases)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mixture_is_deterministic() -> None:
    a, b = (everything().sample(64, SHAPE, LIMITS, keyed_generator("m")) for _ in range(2))
    for (cov, rows), (other, other_rows) in zip(a, b, strict=True):
        assert torch.equal(rows, other_rows)
        assert torch.equal(cov.log_variance, other.log_variance)


def test_components_are_drawn_by_weight() -> None:
    mixture = Mixture((Component(3.0, Isotropic()), Component(1.0, GaussianBlurs())))
    parts = {cov.basis: len(rows) for cov, rows in mixture.sample(4000, SMALL, LIMITS, keyed_generator("w"))}
    assert ALARM < binom.cdf(parts["spatial"], 4000, 0.75) < 1 - ALARM


def test_every_basis_reaches_the_largest_isotropic_covariance() -> None:
    """A share of the draws of each basis is c·I, with log c uniform up to log λ_max."""
    mixture = everything(path=1.0, isotropic=0.3)
    for cov, _ in mixture.sample(20000, (3, *SMALL_TILED[1:]), LIMITS, keyed_generator("isotropic")):
        flat = cov.log_variance[is_isotropic(cov.log_variance)][:, 0, 0, 0].double()
        assert len(flat) > 0.2 * cov.batch
        assert float(flat.max()) > math.log(LIMITS.maximum) - 0.02 * log_uniform_cdf(LIMITS)[1]
        assert float(flat.min()) < math.log(LIMITS.minimum) + 0.02 * log_uniform_cdf(LIMITS)[1]


def test_by_default_every_basis_has_isotropic_draws() -> None:
    mixture = Mixture((Component(1.0, GaussianBlurs(1.0, 2.0)),))
    ((cov, _),) = mixture.sample(4000, SMALL_TILED, LIMITS, keyed_generator("default"))
    assert binom.sf(int(is_isotropic(cov.log_variance).sum()), 4000, 0.04) < 1 - ALARM


@dataclass(frozen=True)
class _Fixed:
    """Always the same Σ_T."""

    kind: ClassVar[str] = "fixed"
    log_variance: Tensor

    def sample(
        self, n: int, shape: Shape, limits: VarianceRange, generator: torch.Generator | None = None
    ) -> Covariance:
        return SpatialCovariance(self.log_variance.expand(n, -1, -1, -1).contiguous(), shape[0])


@pytest.mark.parametrize("path", [0.0, 0.6, 1.0])
def test_draws_lie_on_the_geometric_path_to_the_floor(path: float) -> None:
    """log λ = (1−t) log λ_T + t log λ_min with one t for the whole image: uniform with probability `path`, else 0."""
    low, scale = log_uniform_cdf(LIMITS)
    target = low + scale * (0.2 + 0.8 * torch.rand(1, 1, 4, 8, generator=keyed_generator("target")))
    mixture = Mixture((Component(1.0, _Fixed(target)),), path=path, isotropic=0.0)
    ((cov, _),) = mixture.sample(3000, SMALL_TILED, LIMITS, keyed_generator("path"))
    remaining = ((cov.log_variance - low) / (target - low)).flatten(1)  # 1 − t
    assert float((remaining - remaining.mean(1, keepdim=True)).abs().max()) < 1e-5
    t = 1 - remaining.double().mean(1)
    moved = t > 1e-6
    if path == 0:
        assert not bool(moved.any())
    else:
        assert ALARM <= binom.cdf(int(moved.sum()), 3000, min(path, 0.9999)) <= 1 - ALARM * (path < 1)
        assert kstest(t[moved].numpy(), "uniform").pvalue > ALARM


# --- configurations ----------------------------------------------------------------------------------------------------------------


def test_a_configuration_survives_json() -> None:
    mixture = Mixture(
        (
            Component(0.5, Patches((1, 2, 7))),
            Component(0.25, GaussianBlurs(0.2, 2.0, "reflecting")),
            Component(0.25, HalfMasks("vertical", 2, 5)),
        ),
        path=0.3,
        isotropic=0.1,
    )
    again = Mixture.from_config(json.loads(json.dumps(mixture.to_config())))
    assert again == mixture
    assert Mixture.from_config(everything().to_config()) == everything()


def test_the_registry_holds_every_kind() -> None:
    assert {type(d) for d in DISTRIBUTIONS.values()} == set(KINDS.values())


def test_unknown_kinds_and_options_are_named() -> None:
    config = everything().to_config()
    with pytest.raises(ValueError, match=r"'squares'.*box.*patches"):
        Mixture.from_config({**config, "components": [{"weight": 1.0, "kind": "squares"}]})
    with pytest.raises(ValueError, match=r"'box' has no option side"):
        Mixture.from_config({**config, "components": [{"weight": 1.0, "kind": "box", "side": 3}]})


def test_capped_blurs_are_cut_at_a_level_of_their_own() -> None:
    """Every λ is the smaller of σ²/|h|² and a level above σ²; half of the draws have such a level."""
    limits = VarianceRange(1e-6, 1e3)
    blurs = GaussianBlurs(narrowest=1.5, capped=0.5)
    drawn = blurs.sample(400, (1, 16, 16), limits, keyed_generator("capped")).log_variance[:, 0]
    top, quietest = drawn.amax(dim=(1, 2)), drawn.amin(dim=(1, 2))
    free = top > math.log(limits.maximum) - 1e-4
    assert 0.4 < free.double().mean() < 0.65
    assert bool((top >= quietest).all())
    flat = (drawn == top[:, None, None]).double().mean(dim=(1, 2))
    assert bool((flat[~free] > 0.2).all())  # the tops are flat: those widths tell nothing of high frequencies
    with pytest.raises(ValueError, match="share of capped blurs"):
        GaussianBlurs(capped=1.5)


# --- masks and blurs for photographs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["boxes", "strokes"])
def test_masks_for_photographs_hide_a_part_and_leave_a_part(name: str) -> None:
    """Two levels, and neither everything nor nothing inside, for nearly all draws."""
    cov = draw(DISTRIBUTIONS[name], 300, (3, 48, 64))
    lowest = cov.log_variance.amin(dim=(1, 2, 3), keepdim=True)
    shares = (cov.log_variance > lowest).double().mean(dim=(1, 2, 3))
    levels = torch.tensor([len(each.unique()) for each in cov.log_variance])
    assert int((levels == 2).sum()) > 280
    assert 0.02 < float(shares.median()) < 0.98


def test_a_bayer_pattern_shows_one_colour_at_each_pixel_and_green_twice_as_often() -> None:
    cov = draw(BayerPatterns(), 40, (3, 8, 8))
    assert cov.log_variance.shape == (40, 3, 8, 8)
    for each in cov.log_variance:
        counts = [(each == level).sum(dim=(1, 2)).tolist() for level in each.unique()]
        assert sorted(counts) == sorted([[16, 32, 16], [48, 32, 48]])
        seen = each == each[0, 0, 0]
        rare = seen if int(seen.sum()) == 64 else ~seen
        assert torch.equal(rare.sum(dim=0), torch.ones(8, 8, dtype=torch.long))


def test_defocus_is_the_transfer_of_a_disc() -> None:
    """|h|² from the variances against a disc of many small steps."""
    limits = VarianceRange(1e-12, 1e12)
    cov = draw(DefocusBlurs(2.0, 2.0, 1e-11), 1, (1, 32, 32), limits)
    gain = torch.exp(0.5 * (cov.log_variance[0, 0, 0, 0] - cov.log_variance[0, 0]))
    steps = (torch.arange(-2, 2, 0.01) + 0.005).double()
    disc = (steps[:, None].square() + steps[None].square() <= 4).double()
    for frequency in (1, 5, 11):
        wave = torch.cos(2 * math.pi * frequency / 32 * steps)
        expected = (disc * wave[None]).sum() / disc.sum()
        assert float(gain[0, frequency]) == pytest.approx(abs(float(expected)), abs=2e-3)


def test_motion_blur_keeps_the_mean_and_no_more_than_it() -> None:
    cov = draw(MotionBlurs(), 50, (1, 32, 32), VarianceRange(1e-6, 1e9))
    excess = cov.log_variance - cov.log_variance[:, :, :1, :1]
    assert float(excess.min()) > -1e-3
    assert float(excess.amax(dim=(1, 2, 3)).median()) > 2
