"""The shape of the prior around an image: tangent directions and curvature, from the energy (paper §5, left to the future).

At y = x + σn the denoiser's Jacobian J = ∂E[x|y]/∂y = I − σ²∇²U is the posterior covariance over σ²: symmetric, with eigenvalues near 1
along directions in which images go on (tangents) and near 0 along those in which they end. Its largest eigenvectors come from
products with ∇²U alone (subspace iteration), its trace, the local dimension, from random probes. Three things are checked:
    curvature    σ²·(second difference of U) is 1 − eigenvalue along a tangent, less than along a random direction
    translation  moving the picture by a pixel is a tangent: how much of it lies in the tangent space of the image, and of another
    dimension    it falls with the noise: more noise, fewer directions can be told
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.covariance import identity
from linverse.energy import fixed_shape
from linverse.evaluation.models import held_out, load_energy
from linverse.experiments.cache import Cache
from linverse.experiments.claims import Claim, Condition, interval_metrics, interval_of, mean_interval
from linverse.experiments.framework import ExperimentResult
from linverse.experiments.tables import ResultTable
from linverse.files.saving import hash_weights
from linverse.models.energies.learned import LearnedEnergy
from linverse.progress import Progress
from linverse.rng import keyed_generator, normal_like

CLAIMS = (
    Claim(
        "U is less curved along tangents than along random directions",
        (Condition("curvature of tangents less random", "below"),),
    ),
    Claim(
        "a translation of the picture lies in its tangent space more than in another's",
        (Condition("translation in its own tangents less another's", "above"),),
    ),
    Claim(
        "the local dimension falls with the noise",
        (Condition("local dimension, strongest noise less weakest", "below"),),
    ),
)


@dataclass(frozen=True)
class LocalGeometryOptions:
    """The model and its images."""

    model: str = "fashion-mnist"
    """the energy: a bundled name or a folder"""
    data: str = "fashion-mnist"


@dataclass(frozen=True)
class LocalGeometrySetting:
    """Images, tangents of each, iterations, probes of the trace, noise levels (tangents are of the second)."""

    images: int = 24
    tangents: int = 8
    iterations: int = 12
    probes: int = 8
    sigmas: tuple[float, ...] = (0.03, 0.1, 0.3)
    shown: int = 4
    seed: int = 0


FULL = LocalGeometrySetting()
QUICK = replace(FULL, images=2, tangents=3, iterations=2, probes=2, shown=2)


@dataclass(frozen=True)
class Geometry:
    """Of one image: y, tangents [k, C, H, W] with eigenvalues [k], curvatures along them and along random ones, dimension by σ."""

    y: Tensor
    tangents: Tensor
    eigenvalues: Tensor
    curvature: Tensor
    random_curvature: Tensor
    dimension: Tensor


def jacobian_products(energy: LearnedEnergy, y: Tensor, sigma: float, v: Tensor) -> Tensor:
    """Jv = v − σ²∇²U(y)v for directions v [k, C, H, W] at one y [1, C, H, W]."""
    cov = identity("spatial", y.shape[1:], y).isotropic(sigma**2).expand(len(v))
    with torch.enable_grad():
        leaf = y.expand_as(v).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(energy(leaf, cov).sum(), leaf, create_graph=True)
        (product,) = torch.autograd.grad((gradient * v).sum(), leaf)
    return v - sigma**2 * product


def orthonormal(v: Tensor) -> Tensor:
    """An orthonormal set with the same span."""
    return torch.linalg.qr(v.flatten(1).double().mT).Q.mT.reshape(v.shape).to(v)


def tangents_at(
    energy: LearnedEnergy, y: Tensor, sigma: float, setting: LocalGeometrySetting, seed: int
) -> tuple[Tensor, Tensor]:
    """The largest eigenvectors of J and their eigenvalues, by subspace iteration with a Rayleigh–Ritz step at the end."""
    v = orthonormal(normal_like(y.expand(setting.tangents, -1, -1, -1), keyed_generator(seed, "tangents")))
    for _ in range(setting.iterations):
        v = orthonormal(jacobian_products(energy, y, sigma, v))
    image = jacobian_products(energy, y, sigma, v).flatten(1).double()
    small = v.flatten(1).double() @ image.mT
    values, turn = torch.linalg.eigh(0.5 * (small + small.mT))
    order = values.argsort(descending=True)
    return (turn.mT[order] @ v.flatten(1).double()).reshape(v.shape).to(v), values[order]


@torch.no_grad()
def curvatures(energy: LearnedEnergy, y: Tensor, sigma: float, v: Tensor) -> Tensor:
    """σ²vᵀ∇²Uv by second differences of step σ/2 along unit directions v, [k]."""
    cov = identity("spatial", y.shape[1:], y).isotropic(sigma**2)
    step = 0.5 * sigma
    ends = [energy(y + sign * step * v, cov.expand(len(v))) for sign in (1, -1)]
    return (ends[0] + ends[1] - 2 * energy(y, cov)) * (sigma / step) ** 2


def local_dimension(energy: LearnedEnergy, y: Tensor, sigma: float, probes: int, seed: int) -> float:
    """tr J by random signs."""
    generator = keyed_generator(seed, "probes", f"{sigma:g}")
    signs = torch.randint(0, 2, (probes, *y.shape[1:]), generator=generator).to(y) * 2 - 1
    return float((signs * jacobian_products(energy, y, sigma, signs)).flatten(1).sum(dim=1).mean())


def look(energy: LearnedEnergy, x: Tensor, number: int, setting: LocalGeometrySetting) -> Geometry:
    """All of one image [1, C, H, W]."""
    noise = normal_like(x, keyed_generator(setting.seed, "local-geometry", number))
    sigma = setting.sigmas[1]
    y = x + sigma * noise
    tangents, values = tangents_at(energy, y, sigma, setting, number)
    others = orthonormal(normal_like(tangents, keyed_generator(setting.seed, "directions", number)))
    dimension = [local_dimension(energy, x + s * noise, s, setting.probes, number) for s in setting.sigmas]
    along, across = (curvatures(energy, y, sigma, v).double() for v in (tangents, others))
    return Geometry(y, tangents, values, along, across, torch.tensor(dimension, dtype=torch.float64))


def translations(x: Tensor) -> Tensor:
    """Unit directions of moving each image by a pixel, down and right, [N, 2, d]."""
    moves = [0.5 * (x.roll(1, dims=dim) - x.roll(-1, dims=dim)).flatten(1).double() for dim in (2, 3)]
    moved = torch.stack(moves, dim=1)
    return moved / moved.norm(dim=2, keepdim=True)


def share_inside(moves: Tensor, tangents: Tensor) -> float:
    """Of unit vectors [2, d], the mean share that lies in the span of orthonormal tangents."""
    return float((moves @ tangents.flatten(1).double().mT).square().sum(dim=1).mean())


def metrics_of(found: list[Geometry], x: Tensor, setting: LocalGeometrySetting) -> dict[str, float]:
    """Means over images."""
    out: dict[str, float] = {}
    curved, plain = (
        torch.stack([getattr(g, name).mean() for g in found]) for name in ("curvature", "random_curvature")
    )
    out |= interval_metrics("curvature of tangents", mean_interval(curved))
    out |= interval_metrics("curvature of random directions", mean_interval(plain))
    out |= interval_metrics("curvature of tangents less random", mean_interval(curved - plain))
    moves = translations(x)
    own = torch.tensor([share_inside(moves[i], g.tangents) for i, g in enumerate(found)])
    other = torch.tensor([share_inside(moves[i], found[i - 1].tangents) for i in range(len(found))])
    out |= interval_metrics("translation in its own tangents", mean_interval(own))
    out |= interval_metrics("translation in another's tangents", mean_interval(other))
    out |= interval_metrics("translation in its own tangents less another's", mean_interval(own - other))
    out["translation by chance"] = setting.tangents / x[0].numel()
    out |= interval_metrics("largest eigenvalue", mean_interval(torch.stack([g.eigenvalues[0] for g in found])))
    dimension = torch.stack([g.dimension for g in found])
    for number, sigma in enumerate(setting.sigmas):
        out |= interval_metrics(f"local dimension at σ = {sigma:g}", mean_interval(dimension[:, number]))
    change = dimension[:, -1] - dimension[:, 0]
    return out | interval_metrics("local dimension, strongest noise less weakest", mean_interval(change))


def run(out: Path, quick: bool, progress: Progress, options: LocalGeometryOptions) -> ExperimentResult:
    """Image by image."""
    setting = QUICK if quick else FULL
    energy = load_energy(options.model)
    x = held_out(options.data, setting.images, fixed_shape(energy)).x
    weights = {"model": hash_weights(energy)}
    cache = Cache.of("local-geometry", out, Geometry)
    made_from: dict[str, Any] = weights | asdict(options) | asdict(setting)
    found = []
    for number in range(len(x)):
        make = partial(look, energy, x[number : number + 1], number, setting)
        found.append(cache.get(str(number), made_from, make))
        progress("images", number + 1, len(x))
    metrics = metrics_of(found, x, setting)
    paper = {
        "source": "section 5, local geometry of the prior",
        "claims": [],
        "figures": {},
        "departures": ["the paper proposes this and shows no experiment; the claims are ours"],
    }
    rows = tuple((name, interval_of(metrics, name)) for name in metrics if f"{name}_low" in metrics)
    tables = (ResultTable("Around held-out images", ("quantity", "mean over images"), rows),)
    picture = x[: setting.shown], found[: setting.shown], setting
    return ExperimentResult(metrics, paper, picture, asdict(setting), weights, {"seed": setting.seed}, CLAIMS, tables)
