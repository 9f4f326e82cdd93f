"""√(I − A) v for a symmetric A with eigenvalues in [0, b], b < 1, from products with A: Chebyshev's polynomial on that interval.

    √(1 − a) ≈ Σ_k c_k T_k(2a/b − 1),   T_{k+1}(t) = 2tT_k(t) − T_{k−1}(t),
with an error that falls like r^{−k}, r = s + √(s² − 1), s = 2/b − 1: 10⁻⁷ takes 10 products for b = ½ and 25 for b = 0.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor


def root_of_complement(matrix: Callable[[Tensor], Tensor], v: Tensor, bound: float, tolerance: float = 1e-7) -> Tensor:
    """√(I − A) v, `bound` ≥ ‖A‖.

    >>> import torch
    >>> a = torch.tensor([0.0, 0.25, 0.36], dtype=torch.float64)
    >>> root_of_complement(lambda v: a * v, torch.ones_like(a), 0.5)
    tensor([1.0000, 0.8660, 0.8000], dtype=torch.float64)
    """
    if not 0 < bound < 1:
        raise ValueError(f"the eigenvalues of A must lie between 0 and a bound below 1; got the bound {bound}")
    s = 2 / bound - 1
    degree = max(2, math.ceil(math.log(1 / tolerance) / math.log(s + math.sqrt(s * s - 1))))
    nodes = np.polynomial.chebyshev.chebpts1(degree + 1)
    weights = np.polynomial.chebyshev.chebfit(nodes, np.sqrt(1 - bound * (nodes + 1) / 2), degree)

    def shifted(u: Tensor) -> Tensor:
        return (2 / bound) * matrix(u) - u

    before, now = v, shifted(v)
    total = float(weights[0]) * before + float(weights[1]) * now
    for weight in weights[2:]:
        before, now = now, 2 * shifted(now) - before
        total = total + float(weight) * now
    return total
