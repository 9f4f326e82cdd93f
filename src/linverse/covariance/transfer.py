"""Transfer functions: the eigenvalues h of a blur in the Fourier and DCT bases.

Fourier (periodic boundary): h(k) = Σ_j g_j e^{−2πi k·j/N}, complex; |h| is even in k.
DCT (half-sample symmetric boundary): h(k) = g₀ + 2Σ_{j>0} g_j cos(π k j/N) per axis, real and signed, for kernels that are even
in each axis. A Gaussian is a product of one-dimensional kernels, so its h is an outer product in both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gaussian_taps(std: Tensor, radius: int) -> Tensor:
    """[n] standard deviations → [n, 2·radius + 1] sampled Gaussians of unit sum; a std of 0 is the identity."""
    offsets = torch.arange(-radius, radius + 1, dtype=std.dtype, device=std.device)
    width = std.clamp_min(1e-6)[:, None]
    return torch.softmax(-0.5 * (offsets / width).square(), dim=1)


def even_transfer(taps: Tensor, n: int, boundary: str) -> Tensor:
    """[m, 2r + 1] even one-dimensional kernels → [m, n] real transfer functions."""
    radius = taps.shape[1] // 2
    step = 2 * math.pi if boundary == "periodic" else math.pi
    offsets = torch.arange(-radius, radius + 1, dtype=taps.dtype, device=taps.device)
    index = torch.arange(n, dtype=taps.dtype, device=taps.device)
    return taps @ torch.cos(step * offsets[:, None] * index[None, :] / n)


def gaussian_transfer(std: Tensor, size: tuple[int, int], boundary: str, radius: int | None = None) -> Tensor:
    """[n] standard deviations (pixels) → [n, H, W] transfer functions of the Gaussian blur."""
    rows, columns = (
        even_transfer(gaussian_taps(std, (n - 1) // 2 if radius is None else min(radius, (n - 1) // 2)), n, boundary)
        for n in size
    )
    return rows[:, :, None] * columns[:, None, :]


def kernel_transfer(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """[h, w] kernel centred at (h//2, w//2) → [H, W] complex transfer function, periodic boundary."""
    height, width = size
    if kernel.shape[0] > height or kernel.shape[1] > width:
        raise ValueError(
            f"the blur kernel is {kernel.shape[0]}×{kernel.shape[1]}, larger than the {height}×{width} image: "
            "give a smaller kernel (fewer taps, a smaller size) or larger images"
        )
    padded = kernel.new_zeros(size)
    padded[: kernel.shape[0], : kernel.shape[1]] = kernel
    centred = torch.roll(padded, (-(kernel.shape[0] // 2), -(kernel.shape[1] // 2)), dims=(0, 1))
    return torch.fft.fft2(centred)


def symmetric_transfer(kernel: Tensor, size: tuple[int, int], tolerance: float = 1e-6) -> Tensor:
    """[h, w] kernel → [H, W] real transfer function for reflecting boundaries, or an error that says why there is none."""
    if any(n % 2 == 0 for n in kernel.shape):
        raise ValueError(
            f"a reflecting boundary diagonalises kernels of odd length only; this one is {tuple(kernel.shape)}. "
            'Use boundary="periodic".'
        )
    scale = float(kernel.abs().max())
    if any(float((kernel - kernel.flip(axis)).abs().max()) > tolerance * scale for axis in (0, 1)):
        raise ValueError(
            "a reflecting boundary diagonalises kernels that are even in each axis only; this one is not (a motion blur, "
            'say). Use boundary="periodic".'
        )
    if any(k // 2 >= n for k, n in zip(kernel.shape, size, strict=True)):
        raise ValueError(f"the blur kernel {tuple(kernel.shape)} reaches past the {size[0]}×{size[1]} image")
    rows = even_transfer(kernel.mT.contiguous(), size[0], "reflecting")  # [w, H]
    return even_transfer(rows.mT.contiguous(), size[1], "reflecting")
