from __future__ import annotations

import pytest
import torch
from problems import prior
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import COVARIANCES, plain_evaluate, random_covariance, same_evaluation
from linverse.analytic import GaussianMixture
from linverse.covariance import FourierCovariance
from linverse.degradations import GaussianBlur
from linverse.energy import evaluate
from linverse.posterior import Posterior
from linverse.rng import keyed_generator
from linverse.sampling import MALA, ProbabilityFlowHeun, sample
from linverse.sampling.evaluator import Evaluator
from oracles import random_spd
from tiny import FORMS, tiny_energy


@pytest.mark.parametrize("family", COVARIANCES)
@pytest.mark.parametrize("shared", [True, False])
def test_the_mixtures_own_derivatives_are_those_of_its_energy(family: str, shared: bool) -> None:
    """The exact moments against automatic differentiation: one Σ a row, one Σ for all rows as a view, and one as a batch of 1."""
    generator = keyed_generator("moments")
    shape, dim = (2, 2, 2), 8
    means = torch.randn(3, dim, generator=generator, dtype=torch.float64)
    energy = GaussianMixture(torch.tensor([0.5, 0.2, 0.3]), means, random_spd(generator, 3, dim, 0.3), shape)
    cov = random_covariance(family, shape, batch=4, shared=shared)
    y = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    alone = cov[:1].expand(4)
    apart = cov.with_log_variance(alone.log_variance.contiguous())
    for mine, plain in ((cov, cov), (alone, apart), (cov[:1], apart)):
        exact, expected = evaluate(energy, y, mine), plain_evaluate(energy, y, plain)
        same_evaluation(exact, expected, atol=1e-10)
    torch.testing.assert_close(energy(y, alone), energy(y, apart))
    posterior = energy.posterior(y, cov[:1])
    torch.testing.assert_close(posterior.mean, energy.posterior(y, apart).mean)
    assert posterior.sample(3, generator).shape == (4, 3, *shape)


def test_an_eye_looks_in_the_eigenbasis_and_counts() -> None:
    energy, _ = prior(3)
    cov = random_covariance("fourier", (1, 2, 4), batch=1)
    evaluator = Evaluator(energy, cov)
    x = energy.sample(3, keyed_generator("x"))
    here = evaluator(cov.analysis(x), cov.log_variance)
    seen = evaluate(energy, x, cov.expand(3))
    torch.testing.assert_close(cov.synthesis(here.mean), seen.mean)
    torch.testing.assert_close(here.cov_score, seen.cov_score)
    torch.testing.assert_close(here.energy, seen.energy)
    assert evaluator.evaluations == 1
    kept = here.where(torch.tensor([True, False, True]), evaluator(cov.analysis(x) + 1, cov.log_variance))
    assert torch.equal(kept.z[0], here.z[0])
    assert not torch.equal(kept.z[1], here.z[1])
    assert torch.equal(kept.energy[::2], here.energy[::2])


class Transforms(TorchDispatchMode):
    """Counts Fourier transforms of a batch (or of two pictures for each of it) as they are carried out, forwards and in gradients.

    Those of a Gaussian base (its mean image, its components) are of other numbers of images, and not counted.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.of_samples = batch, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.of_samples += "_fft_" in func.__name__ and args[0].shape[0] in (self.batch, 2 * self.batch)
        return func(*args, **(kwargs or {}))


# transforms of an evaluation: one synthesis for the network and one analysis of its gradient; bounded energies look at the pixels once
# more, to keep U above what images in [0, 1] allow
UNBOUNDED, BOUNDED = 2, 3


@pytest.mark.parametrize("steps", [3, 9])
@pytest.mark.parametrize("kind", ["predictor", "corrector", "flow"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
def test_the_sampler_changes_the_basis_only_within_evaluations(form: tuple[str, str], kind: str, steps: int) -> None:
    """Besides, y is analysed once in the beginning and the samples are synthesised once in the end."""
    energy, batch = tiny_energy((1, 8, 8), form), 7
    energy.constant.fill_(1e12)  # far above the bound, which would be differentiated too
    cov = FourierCovariance(torch.linspace(-4, 4, 64, dtype=torch.float64).reshape(1, 1, 8, 8))
    y = torch.rand(batch, 1, 8, 8, generator=keyed_generator("count"), dtype=torch.float64)
    predictor, corrector = ProbabilityFlowHeun() if kind == "flow" else None, MALA(0.1) if kind == "corrector" else None
    with Transforms(batch) as counted:
        result = sample(energy, y, cov, steps, predictor, corrector=corrector, generator=keyed_generator("noise"))
    changes = BOUNDED if energy.bounded else UNBOUNDED
    assert counted.of_samples == changes * result.evaluations + 2


def test_a_posterior_stays_in_the_basis() -> None:
    """From a measurement to samples: the lift changes no basis, one-shot answers share an evaluation."""
    energy = tiny_energy((1, 8, 8), ("inner-product", "space-frequency"))
    measurement = GaussianBlur(1.0, 0.1).measure(torch.rand(3, 1, 8, 8, dtype=torch.float64), keyed_generator("v"))
    with Transforms(3) as counted:
        posterior = Posterior(energy, measurement)
        assert counted.of_samples == 0
        posterior.std(), posterior.evidence(), posterior.evaluate()
        assert counted.of_samples == 2
        posterior.mean()
        assert counted.of_samples == 3
    with Transforms(6) as counted:
        result = posterior.draw(2, 4, generator=keyed_generator("noise"))
    assert counted.of_samples == 2 * result.evaluations + 2  # the samples, and their means half-way
