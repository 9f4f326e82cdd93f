"""deepinv's Physics as our Degradation, and back.

An operator is recognised by what it does, not by its name: if it leaves random images alone it is denoising, if it multiplies them by 0
and 1 a mask, if it is the convolution with its own response to one pixel a periodic blur, if it takes the means of boxes
super-resolution; all of these are diagonal in a basis that our models know. That is proof against the traps of names: deepinv's BlurFFT
keeps half of the frequencies and the phase apart, its even kernels shift by a pixel, its Downsampling is not a Fourier operator. Any other
linear operator becomes a `LinearOperator`: its posterior is sampled from A and Aᵀ alone. Aᵀ is the derivative of A, because deepinv's own
adjoints are not always exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from linverse.degradations import Blur, Degradation, Denoising, Inpainting, SuperResolution
from linverse.degradations.masks import Masking
from linverse.degradations.operators import LinearOperator, transposed
from linverse.interop.libraries import load_deepinv
from linverse.rng import keyed_generator

dinv = load_deepinv()
ImageShape = tuple[int, int, int]
AGREEMENT = 1e-5  # of two operators on images in [0, 1]: deepinv computes in float32


# --- from deepinv -------------------------------------------------------------------------------------------------------------------


def from_physics(physics: Any, shape: ImageShape | None = None) -> Degradation:
    """Our form of a deepinv operator on images of `shape` [C, H, W] (default: what the operator says itself).

    >>> import torch, deepinv
    >>> noise = deepinv.physics.GaussianNoise(0.05)
    >>> from_physics(deepinv.physics.Inpainting((1, 4, 4), mask=torch.eye(4)[None], noise_model=noise))
    Inpainting(4×4 mask, 25 % measured, sigma=0.05)
    """
    if not isinstance(physics, dinv.physics.LinearPhysics):
        raise ValueError(f"{type(physics).__name__} is not linear: linverse takes deepinv's LinearPhysics")
    if isinstance(physics, DegradationPhysics):
        return physics.degradation
    shape = shape or _own_shape(physics)
    sigma = gaussian_sigma(physics)
    x = torch.rand(2, *shape, generator=keyed_generator("physics"))
    with torch.no_grad():
        seen = physics.A(x)
        for candidate in _candidates(physics, x, seen, sigma):
            if float((candidate.operator(x) - seen).abs().max()) < AGREEMENT:
                return candidate
    return LinearOperator(physics.A, lambda r: transposed(physics.A, r, shape), sigma)


def gaussian_sigma(physics: Any) -> float:
    """σ of its noise; an error where it is not Gaussian, or not the same for all images."""
    noise = physics.noise_model
    if isinstance(noise, dinv.physics.ZeroNoise):
        return 0.0
    sigma = getattr(noise, "sigma", None)
    if not isinstance(noise, dinv.physics.GaussianNoise) or sigma is None:
        raise ValueError(f"the operator's noise is {type(noise).__name__}; linverse takes GaussianNoise or ZeroNoise")
    values = torch.as_tensor(sigma).unique()
    if len(values) != 1:
        raise ValueError("the operator's noise has several sigmas; linverse takes one for all images")
    return float(f"{float(values):.7g}")  # deepinv keeps it in float32: 0.05, not 0.0500000007


def _own_shape(physics: Any) -> ImageShape:
    size = getattr(physics, "img_size", None) or getattr(physics, "imsize", None)
    if size is None or len(size) != 3:
        raise ValueError(f"{type(physics).__name__} does not say the size of its images; give shape=(C, H, W)")
    return tuple(size)


def _candidates(physics: Any, x: Tensor, seen: Any, sigma: float) -> Iterator[Degradation]:
    """What the operator may be, judged by the shape of its data."""
    if not isinstance(seen, Tensor) or seen.ndim != 4:
        return
    (height, width), small = x.shape[2:], seen.shape[2:]
    if seen.shape == x.shape:
        yield Denoising(sigma)
        ones = physics.A(torch.ones_like(x))[0]
        if bool(((ones == 0) | (ones == 1)).all()) and bool(ones.any()):
            yield Inpainting(ones > 0, sigma)
        pixel = torch.zeros_like(x[:1])
        pixel[..., height // 2, width // 2] = 1
        response = physics.A(pixel)[0, 0]
        if bool(response.any()):
            yield Blur(response, sigma)
    elif min(small) > 0 and height % small[0] == 0 and height // small[0] == width / small[1] and small[0] < height:
        yield SuperResolution(height // small[0], sigma)


# --- to deepinv ---------------------------------------------------------------------------------------------------------------------


def to_physics(degradation: Degradation, shape: ImageShape) -> Any:
    """deepinv's form of one of our degradations on images of `shape` [C, H, W]: Denoising, Inpainting, or a decomposable operator.

    >>> import linverse as lv
    >>> type(to_physics(lv.Box(side=2, sigma=0.1), (1, 4, 4))).__name__
    'Inpainting'
    """
    noise = dinv.physics.GaussianNoise(degradation.sigma)
    if isinstance(degradation, Denoising) and degradation.sigma_map is None:
        return dinv.physics.Denoising(noise)
    if isinstance(degradation, Masking):  # deepinv masks the noise too, so that its solvers see no data that is none
        mask = degradation.mask_for(shape[1:]).float().expand(-1, shape[0], -1, -1)
        return dinv.physics.Inpainting(shape, mask=mask, noise_model=noise)
    return DegradationPhysics(degradation, shape)


class _Noise(dinv.physics.NoiseModel):  # type: ignore[name-defined]
    """Noise that is not white: a map, a spectrum."""

    def __init__(self, degradation: Degradation) -> None:
        super().__init__()
        self.degradation = degradation

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return self.degradation.add_noise(x, self.rng)


class DegradationPhysics(dinv.physics.DecomposablePhysics):  # type: ignore[name-defined]
    """One of our degradations as deepinv's A = U diag(s) Vᵀ: V our basis Q, s = |h|, Uᵀ what takes raw data to coefficients."""

    def __init__(self, degradation: Degradation, shape: ImageShape) -> None:
        white = type(degradation).add_noise is Degradation.add_noise
        noise = dinv.physics.GaussianNoise(degradation.sigma) if white else _Noise(degradation)
        blank = degradation.operator(torch.zeros(1, *shape))
        seen = degradation.encode(blank)
        super().__init__(img_size=shape, mask=seen.gain.clone(), noise_model=noise)
        self.degradation, self.template, self.raw_shape = degradation, seen.template, blank.shape[1:]

    def A(self, x: Tensor, **_: Any) -> Tensor:
        return self.degradation.operator(x)

    def V(self, x: Tensor, **_: Any) -> Tensor:
        return self.template.synthesis(x)

    def V_adjoint(self, x: Tensor) -> Tensor:
        return self.template.analysis(x)

    def U_adjoint(self, x: Tensor, **_: Any) -> Tensor:
        return self.degradation.encode(x).coefficients

    def U(self, x: Tensor) -> Tensor:
        """The transpose of `U_adjoint`, which is linear: its gradient."""
        with torch.enable_grad():
            raw = x.new_zeros(len(x), *self.raw_shape).requires_grad_()
            (back,) = torch.autograd.grad(self.U_adjoint(raw), raw, x, create_graph=x.requires_grad)
        return back
