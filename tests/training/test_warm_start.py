"""Starting a run from the weights of another model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from linverse.cli import main
from linverse.covariance import SpatialCovariance
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.models.networks.unet import UNetConfig
from linverse.store.card import Card, card_of
from linverse.store.hub import load
from linverse.training.checkpoint import read_state
from linverse.training.loop import Trainer, check_same_run
from linverse.training.run import describe_start
from linverse.training.warm_start import fine_tuning, source_model, take_over
from tiny import DIGITS_FLAGS, Pictures, awaken, tiny_config

COMPACT = UNetConfig(
    channels=4, multipliers=(1, 2), blocks=1, embedding=4, stem=2, stem_channels=4, style="compact", middle=1
)


def spectral(channels: int, seed: int = 0) -> LearnedEnergy:
    energy = LearnedEnergy(EnergyConfig((channels, None, None), parameterisation="spectral", backbone=COMPACT)).double()
    awaken(energy, seed)
    energy.fit(Pictures(shape=(channels, 16, 16), seed=seed))
    return energy.eval()


def learned_part(energy: LearnedEnergy, x: Tensor, log_variance: float = -4.0) -> Tensor:
    """R: the network's sum over pixels, fed with the same estimates whatever the base."""
    form = energy.form
    cov = SpatialCovariance(torch.full((len(x), 1, *x.shape[2:]), log_variance, dtype=x.dtype), channels=x.shape[1])
    mean = torch.full_like(x, 0.4)
    return form.run([form.inputs(0.3 * (x - mean), x, mean, cov, x.new_ones(1))], twice=False)[0]


def test_a_grey_model_starts_as_the_colour_model_on_grey_pictures() -> None:
    """R_grey(x) = R_colour(x, x, x)/3."""
    colour, grey = spectral(3), spectral(1, seed=1)
    colour.form.base.log_prior.copy_(grey.form.base.log_prior)
    colour.form.base.log_power.copy_(grey.form.base.log_power.expand_as(colour.form.base.log_power))
    x = Pictures(2, (1, 16, 16)).batch(torch.arange(2)).double()
    before = learned_part(grey, x)
    taken = take_over(grey, colour)
    expected = learned_part(colour, x.expand(-1, 3, -1, -1)) / 3
    torch.testing.assert_close(learned_part(grey, x), expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(before, expected)
    assert not taken.afresh
    assert set(taken.folded) == {f"form.network.{n}" for n in ("enter_full.weight", "exit.weight", "exit.bias")}


def test_the_base_of_other_colours_is_left_as_fitted() -> None:
    grey = spectral(1, seed=1)
    before = {name: b.clone() for name, b in grey.form.base.named_buffers()}
    assert not take_over(grey, spectral(3)).base_kept
    assert all(torch.equal(b, before[name]) for name, b in grey.form.base.named_buffers())


def test_a_colour_model_starts_from_a_grey_one_and_comes_back() -> None:
    grey = spectral(1)
    colour, again = spectral(3, seed=1), spectral(1, seed=2)
    take_over(colour, grey)
    take_over(again, colour)
    for (name, a), b in zip(grey.named_parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, msg=name)


@pytest.mark.parametrize("refit", [False, True])
def test_the_same_model_is_taken_over_whole_and_its_base_unless_refitted(refit: bool) -> None:
    source, model = spectral(3), spectral(3, seed=1)
    source.constant.fill_(7.0)
    fitted = model.form.base.log_power.clone()
    taken = take_over(model, source, refit=refit)
    assert taken.base_kept is not refit
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), source.parameters(), strict=True))
    assert torch.equal(model.form.base.log_power, fitted if refit else source.form.base.log_power)
    assert float(model.constant) == 0.0


def test_what_does_not_fit_starts_afresh_and_is_named() -> None:
    wide = replace(COMPACT, stem_channels=8)
    model = LearnedEnergy(EnergyConfig((3, None, None), parameterisation="spectral", backbone=wide)).double()
    before = model.form.network.enter_full.weight.clone()
    taken = take_over(model, spectral(3))
    assert "form.network.enter_full.weight" in taken.afresh
    assert torch.equal(model.form.network.enter_full.weight, before)
    assert "form.network.enter_full.weight" in taken.describe("photographs")
    assert "form.network.bottom.0.conv0.weight" in taken.same


def test_networks_that_share_nothing_are_refused() -> None:
    other = LearnedEnergy(EnergyConfig((1, 8, 8), parameterisation="inner-product", embedding="two-branch"))
    with pytest.raises(ValueError, match="their networks differ"):
        take_over(spectral(3), other)


def test_a_run_starts_from_a_folder_and_from_an_unfinished_run(tmp_path: Path) -> None:
    images = Pictures()
    first = Trainer(tiny_config(), images, images, tmp_path / "first")
    (tmp_path / "first").mkdir()
    first.train_step()
    first.train_step()
    first.save()
    first.averaged.save_pretrained(tmp_path / "saved")
    for source in (tmp_path / "first", tmp_path / "saved"):
        config = tiny_config(start_from=str(source), seed=5)
        second = Trainer(config, images, images, tmp_path / "second")
        expected = dict(first.averaged.named_parameters())
        assert all(torch.equal(p, expected[name]) for name, p in second.model.named_parameters())
        assert "starts from" in describe_start(second, "x")
        # the average starts there too
        assert all(torch.equal(p, expected[name]) for name, p in second.averaged.named_parameters())
    assert type(source_model(str(tmp_path / "first"), LearnedEnergy)) is LearnedEnergy


def test_a_run_goes_on_without_the_model_it_came_from() -> None:
    check_same_run(tiny_config(start_from="gone").to_json(), tiny_config(), Path("run"))
    with pytest.raises(ValueError, match="another seed"):
        check_same_run(tiny_config(seed=1).to_json(), tiny_config(), Path("run"))


def test_fine_tuning_is_the_models_own_training_made_shorter_and_gentler(tmp_path: Path) -> None:
    full = tiny_config(steps=50, crops=(8, 16))
    model = full.model.build()
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="name a preset"):
        fine_tuning(str(tmp_path))
    Card("mine", training=full.to_dict()).attach_to(model)
    model.save_pretrained(tmp_path)
    config = fine_tuning(str(tmp_path))
    assert config.start_from == str(tmp_path)
    assert (config.data, config.model, config.covariances) == (full.data, full.model, full.covariances)
    assert (config.steps, config.crops) == (5, (16,))
    assert config.optimiser.rate == pytest.approx(full.optimiser.rate / 3)


def test_the_command_fine_tunes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["train", "digits", "--out", str(tmp_path / "first"), "--no-tensorboard", *DIGITS_FLAGS, "--steps=10"]
    main([*first, "--reference-images=0"])
    main(["train", "--from", str(tmp_path / "first"), "--out", str(tmp_path / "second"), "--no-tensorboard"])
    said = " ".join(capsys.readouterr().out.split())
    assert "its Gaussian base is kept" in said
    state = read_state(tmp_path / "second")
    assert state is not None
    assert state.step == 1


def test_no_steps_make_the_constant_and_the_card_of_a_models_weights_anew(tmp_path: Path) -> None:
    run = [*DIGITS_FLAGS, "--no-tensorboard", "--reference-images=0"]
    main(["train", "digits", "--out", str(tmp_path / "first"), *run, "--steps=3"])
    first = load(str(tmp_path / "first" / "model"))
    first.constant.add_(100.0)
    first.save_pretrained(tmp_path / "off")
    main(["train", "digits", "--from", str(tmp_path / "off"), "--out", str(tmp_path / "again"), *run, "--steps=0"])
    again = load(str(tmp_path / "again" / "model"))
    expected = dict(first.named_parameters())
    assert all(torch.equal(p, expected[name]) for name, p in again.named_parameters())
    assert float(again.constant) == pytest.approx(float(first.constant) - 100.0, abs=1e-3)
    card = card_of(again)
    assert card is not None
    assert card.steps == 0
    assert card.started_from == "off"
    assert card.self_test
