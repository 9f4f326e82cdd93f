"""Second derivatives are torch's own, to the last digits; where they do not apply torch's are taken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linverse.models.networks import twice
from linverse.models.networks.twice import Conv2d, bounded, join, round_products, silu, twice_differentiable


def network(layers: list[Conv2d], x: Tensor) -> Tensor:
    """U = Σ of something that bends: its gradient hangs on the input and on all weights."""
    h = x
    for layer in layers:
        h = silu(bounded(layer(h)))
        h = join([h[:, 1:], h[:, :1] * h.mean()])
    return h.pow(3).sum()


def score_matching_gradients(layers: list[Conv2d], x: Tensor, *, ours: bool) -> tuple[Tensor, ...]:
    """∂/∂(x, θ) of ‖∂U/∂x‖² + U."""
    x = x.clone().requires_grad_()
    with twice_differentiable(ours):
        energy = network(layers, x)
    (score,) = torch.autograd.grad(energy, x, create_graph=True)
    return torch.autograd.grad(score.square().sum() + energy, [x, *(p for layer in layers for p in layer.parameters())])


@pytest.fixture
def layers() -> list[Conv2d]:
    torch.manual_seed(0)
    return [Conv2d(2, 5, 3, padding=1).double(), Conv2d(5, 4, 4, 2, 1).double(), Conv2d(4, 3, 1).double()]


def test_they_are_torchs_own(layers: list[Conv2d]) -> None:
    x = torch.randn(3, 2, 8, 6, dtype=torch.float64)
    mine, theirs = (score_matching_gradients(layers, x, ours=ours) for ours in (True, False))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert all(float(a.abs().max()) > 1e-6 for a in mine)


def test_they_are_used_where_asked_for_and_only_there(layers: list[Conv2d], monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    apply = twice._Convolution.apply
    monkeypatch.setattr(twice._Convolution, "apply", lambda *inputs: used.append(1) or apply(*inputs))
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    score_matching_gradients(layers, x, ours=False)
    with twice_differentiable(), torch.autocast("cpu", dtype=torch.bfloat16):
        layers[0](x)
    assert not used
    score_matching_gradients(layers, x, ours=True)
    assert len(used) == len(layers)


def test_a_third_derivative_is_refused(layers: list[Conv2d]) -> None:
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    with twice_differentiable():
        energy = network(layers, x)
    (score,) = torch.autograd.grad(energy, x, create_graph=True)
    (bent,) = torch.autograd.grad(score.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        bent.sum().backward()


def test_values_and_first_derivatives_are_those_of_torch(layers: list[Conv2d]) -> None:
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    plain = nn.Conv2d(2, 5, 3, padding=1).double()
    plain.load_state_dict(layers[0].state_dict())
    wanted = torch.autograd.grad(F.silu(plain(x)).sum(), [x, plain.weight, plain.bias])
    with twice_differentiable():
        out = silu(layers[0](x))
    torch.testing.assert_close(out, F.silu(plain(x)))
    torch.testing.assert_close(torch.autograd.grad(out.sum(), [x, *layers[0].parameters()]), wanted)


def test_rounded_products_change_all_derivatives_by_their_rounding_alone(layers: list[Conv2d]) -> None:
    """Eight bits of each factor: a few thousandths of what comes out, and not nothing."""
    x = torch.randn(3, 2, 8, 6, dtype=torch.float64)
    exact = score_matching_gradients(layers, x, ours=True)
    for layer in layers:
        round_products(layer)
    for ours in (True, False):
        for a, b in zip(score_matching_gradients(layers, x, ours=ours), exact, strict=True):
            assert a.dtype == torch.float64
            assert 1e-4 < float((a - b).norm() / b.norm()) < 0.03
