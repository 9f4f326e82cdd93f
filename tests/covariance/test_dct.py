"""The DCT of large pictures by Fourier transforms, against products of matrices."""

from __future__ import annotations

import pytest
import torch

from linverse.covariance.dct import LARGEST_PRODUCT, dct2, dct_matrix, inverse_dct2


@pytest.mark.parametrize(
    "size", [(LARGEST_PRODUCT + 1, 5), (4, LARGEST_PRODUCT + 2), (LARGEST_PRODUCT + 2, LARGEST_PRODUCT + 1)]
)
def test_fourier_transforms_give_what_matrices_give(size: tuple[int, int]) -> None:
    x = torch.randn(2, 1, *size, dtype=torch.float64, requires_grad=True)
    rows, columns = (dct_matrix(n, torch.float64, torch.device("cpu")) for n in size)
    z = dct2(x)
    torch.testing.assert_close(z, rows @ x @ columns.mT, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(inverse_dct2(z), x, rtol=1e-10, atol=1e-10)
    weights = torch.randn_like(z)
    (gradient,) = torch.autograd.grad((z * weights).sum(), x)
    torch.testing.assert_close(gradient, inverse_dct2(weights), rtol=1e-10, atol=1e-10)
