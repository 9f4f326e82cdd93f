"""The trainer: batches by (seed, step), checkpoints, resuming bit for bit, failures that lose nothing, schedules, presets."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from linverse.data import load_images
from linverse.devices import check_bfloat16
from linverse.files.lock import FolderInUse, FolderLock
from linverse.models.denoiser import Denoiser, DenoiserConfig
from linverse.models.energies.learned import EnergyConfig, LearnedEnergy
from linverse.rng import keyed_generator
from linverse.store import hub
from linverse.store.card import Card, data_facts
from linverse.training.batches import batch_indices, training_parts
from linverse.training.checkpoint import PREVIOUS, STATE, CheckpointError, TrainingState, read_state, write_state
from linverse.training.config import OptimiserConfig, TrainConfig
from linverse.training.finish import finish
from linverse.training.interruption import StopRequest
from linverse.training.limits import limits
from linverse.training.loop import NonFiniteLossError, Trainer, build_model, ema_update, parameter_count
from linverse.training.muon import orthogonalised
from linverse.training.presets import PRESETS
from linverse.training.preview import Preview, preview
from linverse.training.progress import Reporter
from linverse.training.run import run as run_training
from linverse.training.run import start
from linverse.training.sources import fingerprint
from tiny import BACKBONE, DIGITS_FLAGS, Pictures, digits_config, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


def make_trainer(folder: Path, config: TrainConfig | None = None, images: Pictures | None = None) -> Trainer:
    config = config or tiny_config()
    images = images or Pictures(shape=config.model.shape)
    held_out = replace(images, count=16, seed=1)
    return Trainer(config, images, held_out, folder)


def run(trainer: Trainer, stop: StopRequest | None = None) -> Trainer:
    with Reporter(trainer.folder, trainer.config.steps, trainer.step, tensorboard=False) as reporter:
        trainer.run(reporter, stop)
    return trainer


def assert_same_state(left: Trainer, right: Trainer) -> None:
    """Weights, averages and the optimiser's moments, bit for bit."""
    assert left.step == right.step
    for name in ("model", "ema"):
        ours, theirs = (getattr(trainer, name).state_dict() for trainer in (left, right))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), name
    ours, theirs = (trainer.optimiser.state_dict()["state"] for trainer in (left, right))
    assert ours.keys() == theirs.keys()
    assert all(ours[k].keys() == theirs[k].keys() and ours[k] for k in ours)
    assert all(torch.equal(ours[k][name], theirs[k][name]) for k in ours for name in ours[k])


# --- batches ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "size"), [(4, 12), (5, 12), (7, 3), (12, 12)])
def test_every_epoch_is_a_permutation_of_its_own(batch: int, size: int) -> None:
    epochs = 5
    steps = -(-epochs * size // batch)
    order = torch.cat([batch_indices(3, step, batch, size) for step in range(steps)])[: epochs * size]
    rows = order.reshape(epochs, size)
    assert all(sorted(row.tolist()) == list(range(size)) for row in rows)
    assert size < 4 or len({tuple(row.tolist()) for row in rows}) == epochs
    assert size < 4 or not torch.equal(rows[0], torch.arange(size))


def same_parts(left: list[object], right: list[object]) -> bool:
    def tensors(parts: list[object]) -> list[Tensor]:
        return [t for p in parts for t in (p.x, p.cov.log_variance, p.noise)]  # type: ignore[attr-defined]

    ours, theirs = tensors(left), tensors(right)
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    config, images = tiny_config(flips=True), Pictures()
    fifth = training_parts(config, images, 5)
    training_parts(config, images, 2)
    torch.rand(7)
    assert same_parts(fifth, training_parts(config, images, 5))  # type: ignore[arg-type]
    assert not same_parts(fifth, training_parts(config, images, 6))  # type: ignore[arg-type]
    assert not same_parts(fifth, training_parts(replace(config, seed=1), images, 5))  # type: ignore[arg-type]


@pytest.mark.parametrize("condition", ["none", "inpainting", "deblurring"])
def test_processes_share_a_batch_without_changing_it(condition: str) -> None:
    model = replace(tiny_config().model, shape=(1, 12, 12))  # a blur's kernel must fit
    config, images = tiny_config(model=model, condition=condition, flips=True, batch=12), Pictures(shape=model.shape)

    def rows(processes: int) -> dict[str, tuple[Tensor, ...]]:
        """Every sample by its noise, which is its own."""
        found = {}
        for rank in range(processes):
            for part in training_parts(config, images, 4, rank, processes):
                for row in range(len(part.x)):
                    given = () if part.condition is None else (part.condition[row],)
                    key = str(part.noise[row].flatten()[:3].tolist())
                    found[key] = (part.x[row], part.cov.log_variance[row], part.noise[row], *given)
        return found

    whole = rows(1)
    assert len(whole) == 12
    for processes in (2, 3):
        shared = rows(processes)
        assert shared.keys() == whole.keys()
        assert all(torch.equal(a, b) for key in whole for a, b in zip(whole[key], shared[key], strict=True))


def test_half_of_the_images_are_mirrored() -> None:
    images = Pictures(count=400)
    originals = {image.numpy().tobytes() for image in images.batch(torch.arange(400))}
    parts = training_parts(tiny_config(batch=400, flips=True), images, 0)
    mirrored = sum(image.numpy().tobytes() not in originals for part in parts for image in part.x)
    assert abs(mirrored - 200) < 5 * 10  # five standard deviations of a fair coin


def test_a_batch_must_divide_among_processes() -> None:
    with pytest.raises(ValueError, match="batch of 6 cannot be shared by 4 processes"):
        training_parts(tiny_config(), Pictures(), 0, 0, 4)


# --- checkpoints -------------------------------------------------------------------------------------------------------------------


def state_at(step: int, size: int = 10) -> TrainingState:
    weights = {"w": torch.full((size,), float(step))}
    return TrainingState(step, 1.5 * step, "{}", weights, weights, {"state": {0: {"step": torch.tensor(step)}}})


def test_a_state_comes_back_as_it_went(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    for step in (1, 2):
        write_state(tmp_path, state_at(step))
    back = read_state(tmp_path)
    assert back is not None
    assert (back.step, back.seconds, back.config) == (2, 3.0, "{}")
    assert torch.equal(back.model["w"], torch.full((10,), 2.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([STATE, PREVIOUS])


def test_a_write_that_fails_leaves_the_last_state(tmp_path: Path) -> None:
    """A real failure: the kernel refuses files of more than 64 kB, as it does on a full disk."""
    write_state(tmp_path, state_at(7))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=rf"cannot write the checkpoint .*{STATE}.*Last good one: .*{STATE}"):
            write_state(tmp_path, state_at(8, size=1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == [STATE]  # no remains of the attempt
    back = read_state(tmp_path)
    assert back is not None
    assert back.step == 7


def test_a_write_killed_between_the_renames_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path, state_at(7))
    replace_file = Path.replace

    def die(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError("killed")
        return replace_file(self, target)

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(CheckpointError, match="killed"):
        write_state(tmp_path, state_at(8))
    back = read_state(tmp_path)
    assert back is not None
    assert back.step == 7


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_state_falls_back_to_the_one_before(tmp_path: Path, share: float) -> None:
    for step in (1, 2):
        write_state(tmp_path, state_at(step))
    newest = tmp_path / STATE
    content = newest.read_bytes()
    newest.write_bytes(content[: int(share * len(content))])
    with pytest.warns(UserWarning, match="going on from step 1 .* because of .*state.pt"):
        back = read_state(tmp_path)
    assert back is not None
    assert back.step == 1
    (tmp_path / PREVIOUS).write_bytes(content[:100])
    with pytest.raises(CheckpointError, match="no checkpoint can be read"):
        read_state(tmp_path)


def test_no_flipped_byte_is_ever_taken_for_a_state(tmp_path: Path) -> None:
    """Ten at random and one in every part of the file: always the state before, with a word."""
    for step in (1, 2):
        write_state(tmp_path, state_at(step))
    newest = tmp_path / STATE
    content = newest.read_bytes()
    generator = random.Random(0)
    for place in (0, 30, 60, 100, len(content) - 1, *(generator.randrange(len(content)) for _ in range(10))):
        newest.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        with pytest.warns(UserWarning, match="going on from step 1 .* because of .*state.pt"):
            back = read_state(tmp_path)
        assert back is not None
        assert back.step == 1
    write_state(tmp_path, state_at(3))  # the damaged one does not take the place of the good one
    newest.unlink()
    back = read_state(tmp_path)
    assert back is not None
    assert back.step == 1


def test_a_state_of_an_earlier_version_is_read_with_a_word(tmp_path: Path) -> None:
    state = {key: value for key, value in vars(state_at(4)).items() if key != "data"}
    torch.save(state, tmp_path / STATE)
    with pytest.warns(UserWarning, match="earlier version, without a hash"):
        back = read_state(tmp_path)
    assert back is not None
    assert (back.step, back.data) == (4, "")
    write_state(tmp_path, state_at(5))
    newest = read_state(tmp_path)
    assert newest is not None
    assert newest.step == 5
    assert (tmp_path / PREVIOUS).exists()


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, ("exploded",))


def test_nothing_in_a_state_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / STATE).write_bytes(pickle.dumps(_Bomb(), protocol=2))
    with pytest.raises(CheckpointError):
        read_state(tmp_path)
    torch.save({"step": _Bomb()}, tmp_path / STATE)
    with pytest.raises(CheckpointError):
        read_state(tmp_path)
    assert not (tmp_path / "exploded").exists()


# --- resuming --------------------------------------------------------------------------------------------------------------------


def test_a_run_may_begin_with_isotropic_noise_alone() -> None:
    config = replace(tiny_config(), isotropic_first=3)
    images = Pictures(shape=config.model.shape)
    spans = []
    for step in range(6):
        logs = [part.cov.log_variance.flatten(1) for part in training_parts(config, images, step)]
        spans.append(max(float((log.amax(1) - log.amin(1)).max()) for log in logs))
    assert spans[:3] == [0.0, 0.0, 0.0]
    assert max(spans[3:]) > 1


def test_ten_steps_are_five_and_five(tmp_path: Path) -> None:
    config = tiny_config(model=replace(tiny_config().model, backbone=replace(BACKBONE, dropout=0.3)))
    whole = run(make_trainer(tmp_path / "whole", config))
    half = run(make_trainer(tmp_path / "parts", config), _StopAt(5))
    assert half.step == 5
    half.save()
    again = make_trainer(tmp_path / "parts", config)
    assert again.step == 5
    assert again.seconds == half.seconds
    assert_same_state(run(again), whole)


class _StopAt(StopRequest):
    """Asks for a stop after so many questions."""

    def __init__(self, steps: int) -> None:
        self.left = steps + 1

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_evaluating_on_the_way_changes_nothing(tmp_path: Path) -> None:
    config = tiny_config(model=replace(tiny_config().model, backbone=replace(BACKBONE, dropout=0.3)), steps=4)
    quiet, busy = (
        run(make_trainer(tmp_path / str(every), replace(config, evaluate_every=every))) for every in (1000, 1)
    )
    assert_same_state(quiet, busy)
    assert quiet.evaluate() == busy.evaluate() == busy.evaluate()  # without dropout


def test_a_preview_shows_what_the_model_can_do_and_changes_nothing(tmp_path: Path) -> None:
    config = tiny_config(model=replace(tiny_config().model, backbone=replace(BACKBONE, dropout=0.3)), steps=4)
    seen: list[Preview] = []
    with Reporter(tmp_path / "looked at", 4, 0, tensorboard=False) as reporter:
        trainer = make_trainer(tmp_path / "looked at", replace(config, preview_every=2))
        trainer.run(reporter, preview=lambda trainer: seen.append(preview(trainer)))
    assert_same_state(trainer, run(make_trainer(tmp_path / "unseen", config)))
    assert len(seen) == 2
    first, last = seen
    assert last.pictures.shape == (5, 8, 1, 8, 8)
    assert 0 <= float(last.pictures.min()) < float(last.pictures.max()) <= 1
    assert not torch.equal(first.pictures[0], last.pictures[0])  # other weights, other samples
    truth, hidden = last.pictures[1], last.pictures[2]
    assert torch.equal(truth, trainer.held_out.batch(torch.arange(8)))
    assert torch.equal(hidden == truth, ~(hidden == 0.5))
    assert set(last.numbers()) == {"entropy", "bias", "slope", "ratio", "heat", "agreement"}
    last.save(tmp_path / "samples" / "sheet.png")
    with Image.open(tmp_path / "samples" / "sheet.png") as sheet:
        assert sheet.size == (2 * 8 * 8, 2 * 5 * 8)


@pytest.mark.slow
def test_a_run_killed_at_any_moment_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """A real SIGKILL while `linverse train` writes its state after every step; then five more steps here."""
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "linverse", "train", "digits", "--out", str(folder), "--no-tensorboard"]
    command += [*DIGITS_FLAGS, "--threads", "1", "--steps", "100000", "--checkpoint-seconds", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        wait_for_step(folder, 5, process)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    resumed = digits_trainer(folder)
    assert resumed.step >= 5
    config = replace(resumed.config, steps=resumed.step + 5)
    resumed, whole = digits_trainer(folder, config.steps), digits_trainer(tmp_path / "whole", config.steps)
    assert_same_state(run(resumed), run(whole))


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        state = read_state(folder)
        if state is not None and state.step >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"no state of step {step} appeared (exit code {process.returncode})")


def digits_trainer(folder: Path, steps: int = 100_000) -> Trainer:
    train, held_out = (load_images("digits", split) for split in ("train", "test"))
    return Trainer(digits_config(steps), train, held_out, folder)


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    make_trainer(tmp_path).save()
    changed = {
        "seed": tiny_config(seed=1),
        "batch": tiny_config(batch=12),
        "loss": tiny_config(loss=replace(tiny_config().loss, objective="single")),
        "model": tiny_config(model=replace(tiny_config().model, maximum=1e1)),
        "covariances": tiny_config(covariances=replace(tiny_config().covariances, path=0.1)),
    }
    for name, config in changed.items():
        with pytest.raises(ValueError, match=f"holds a run with another {name}.*--out"):
            make_trainer(tmp_path, config)
    make_trainer(tmp_path, tiny_config(steps=99, evaluate_every=7))  # going on for longer is fine


def test_a_run_does_not_go_on_with_other_images_unasked(tmp_path: Path) -> None:
    config, images = tiny_config(), Pictures(seed=3)
    make_trainer(tmp_path, config, images).save()
    with pytest.raises(ValueError, match=r"training images of pictures are not those .* --other-data"):
        make_trainer(tmp_path, config, replace(images, seed=4))
    again = make_trainer(tmp_path, config, images)
    goes_on = Trainer(config, replace(images, seed=4), again.held_out, tmp_path, other_data=True)
    assert goes_on.data != again.data
    old = read_state(tmp_path)
    assert old is not None
    write_state(tmp_path, replace(old, data=""))  # of an earlier version, which did not know its images
    make_trainer(tmp_path, config, replace(images, seed=4))


def test_a_set_knows_its_pixels() -> None:
    images = load_images("digits", "test")
    assert images.digest == load_images("digits", "test").digest == fingerprint(images)
    changed = replace(images, images=images.images.clone())
    changed.images[7, 0, 3, 3] ^= 1
    assert changed.digest != images.digest
    assert images.subset(range(10)).digest != images.digest


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    config = digits_config(1)
    with start(config, tmp_path), pytest.raises(RuntimeError, match=rf"process {os.getpid()} on .* is at work in"):
        run_training(config, tmp_path, tensorboard=False)
    with start(config, tmp_path) as trainer:  # it was released
        assert trainer.step == 0


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from linverse.files.lock import FolderLock; lock = FolderLock(Path(sys.argv[1]))"
    code += "; print('held', flush=True); import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(FolderInUse, match=f"process {process.pid}"):
        FolderLock(tmp_path)
    process.kill()
    process.communicate()
    FolderLock(tmp_path).release()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_saves_as_sigterm_does(tmp_path: Path, number: signal.Signals) -> None:
    trainer = make_trainer(tmp_path)
    with StopRequest() as stop:
        os.kill(os.getpid(), number)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGHUP)  # a closing terminal sends two
        run(trainer, stop)
    assert trainer.step == 0
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)  # nohup means it
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, ignored)


def test_a_signal_ends_a_run_between_two_steps(tmp_path: Path) -> None:
    trainer, steps = make_trainer(tmp_path), []
    train_step = trainer.train_step

    def interrupted() -> dict[str, float]:
        if trainer.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        steps.append(trainer.step)
        return train_step()

    trainer.train_step = interrupted  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        run(trainer, stop)
        assert signal.getsignal(signal.SIGINT) is before  # a second Ctrl-C is not caught
    assert steps == [0, 1, 2, 3]  # the step under way was finished
    assert trainer.step == 4
    reference = make_trainer(tmp_path / "other")
    run(reference, _StopAt(4))
    assert_same_state(trainer, reference)


# --- failures --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Poisoned(Pictures):
    """Images of which one is not a number once training has begun; whole batches, as a base is fitted to, are sound."""

    bad: int = 0

    def batch(self, indices: Tensor) -> Tensor:
        images = super().batch(indices)
        if len(indices) < self.count:
            images[indices == self.bad] = torch.nan
        return images


def test_a_loss_that_is_not_finite_stops_with_the_facts(tmp_path: Path) -> None:
    config = tiny_config(checkpoint_seconds=0.0)
    bad = int(batch_indices(config.seed, 3, config.batch, 40)[2])
    earlier = torch.cat([batch_indices(config.seed, step, config.batch, 40) for step in range(3)])
    assert bad not in earlier
    trainer = make_trainer(tmp_path, config, Poisoned(bad=bad))
    with pytest.raises(NonFiniteLossError) as caught:
        run(trainer)
    message = str(caught.value)
    assert "nan at step 3" in message
    assert f"{bad}, " in message
    assert f"Last good checkpoint: step 3 in {tmp_path}" in message
    for part in training_parts(config, Pictures(), 3):
        assert f"{len(part.x)} {part.cov.basis} with λ in [" in message
    assert trainer.step == 3
    assert all(p.isfinite().all() for p in trainer.model.parameters())
    healthy = make_trainer(tmp_path, config)
    assert_same_state(trainer, healthy)


def test_a_gradient_that_is_not_finite_stops_before_it_is_used(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    before = [p.clone() for p in trainer.model.parameters()]
    next(trainer.model.parameters()).register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(NonFiniteLossError, match=r"at step 0.*Last good checkpoint: none"):
        trainer.train_step()
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_a_full_disk_stops_the_run_and_keeps_the_last_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(tmp_path)
    run(trainer, _StopAt(2)).save()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    trainer.config = replace(trainer.config, checkpoint_seconds=0.0)
    with pytest.raises(CheckpointError, match=r"No space left on device.*Last good one"):
        run(trainer)
    monkeypatch.undo()
    assert make_trainer(tmp_path).step == 2


# --- optimisation ----------------------------------------------------------------------------------------------------------------


def test_the_learning_rate_warms_up_and_decays() -> None:
    linear = OptimiserConfig(warmup=10, decay="linear", decay_share=0.25)
    shares = [linear.share_at(step, 100) for step in range(100)]
    assert shares[:10] == pytest.approx([(s + 1) / 10 for s in range(10)])
    assert shares[10:75] == [1.0] * 65
    assert shares[75:] == pytest.approx([(100 - s) / 25 for s in range(75, 100)])
    assert shares[-1] > 0
    root = OptimiserConfig(warmup=0, decay="inverse-sqrt", decay_steps=100)
    assert [root.share_at(step, 0) for step in (0, 99, 399)] == pytest.approx([1.0, 1.0, 0.5])
    flat = OptimiserConfig(warmup=2, decay="none")
    assert [flat.share_at(step, 4) for step in range(4)] == pytest.approx([0.5, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_step_uses_the_rate_of_its_number(tmp_path: Path, kind: str) -> None:
    trainer = make_trainer(tmp_path, muon_config() if kind == "muon" else tiny_config())
    optimiser = trainer.config.optimiser
    peaks = [optimiser.rate] + ([optimiser.muon_rate] if kind == "muon" else [])
    for step in range(3):
        trainer.train_step()
        share = optimiser.share_at(step, trainer.config.steps)
        assert share < 1 or step > 2
        assert [group["lr"] for group in trainer.optimiser.param_groups] == pytest.approx([p * share for p in peaks])


def muon_config() -> TrainConfig:
    """Wide enough for a few convolutions to be Muon's."""
    backbone = replace(BACKBONE, channels=16, multipliers=(1,), attention_levels=(), style="compact", middle=1)
    model = replace(tiny_config().model, backbone=backbone)
    return tiny_config(model=model, optimiser=OptimiserConfig(kind="muon", warmup=4))


def test_muon_resumes_bit_for_bit_and_takes_its_share(tmp_path: Path) -> None:
    whole, half = (run(make_trainer(tmp_path / n, muon_config()), _StopAt(steps)) for n, steps in (("a", 4), ("b", 2)))
    half.save()
    assert_same_state(run(make_trainer(tmp_path / "b", muon_config()), _StopAt(2)), whole)
    kinds = [set(state) for state in whole.optimiser.state_dict()["state"].values()]
    assert {"step", "momentum"} in kinds
    assert {"step", "exp_avg", "exp_avg_sq"} in kinds


@pytest.mark.parametrize("shape", [(16, 40), (40, 16), (16, 16)])
def test_muon_s_update_is_nearly_orthogonal(shape: tuple[int, int]) -> None:
    """orth(USVᵀ) has the same U and V and singular values near 1."""
    matrix = torch.randn(shape, generator=keyed_generator("muon"), dtype=torch.float64)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.mT @ orthogonalised(matrix) @ right.mT
    values = inner.diagonal()
    assert 0.6 < float(values.min()) < float(values.max()) < 1.3
    torch.testing.assert_close(inner, values.diag(), atol=1e-8, rtol=0)
    torch.testing.assert_close(orthogonalised(1e-9 * matrix), orthogonalised(matrix))


def test_dropout_is_drawn_afresh_at_every_step(tmp_path: Path) -> None:
    trainer, seeds = make_trainer(tmp_path), []
    for _ in range(3):
        trainer.train_step()
        seeds.append(torch.initial_seed())
    assert len(set(seeds)) == 3


def test_gradients_are_clipped(tmp_path: Path) -> None:
    config = tiny_config(optimiser=OptimiserConfig(clip=1e-3, warmup=1))
    trainer = make_trainer(tmp_path, config)
    metrics = trainer.train_step()
    assert metrics["gradient"] > 1e-3
    moments = [state["exp_avg"] for state in trainer.optimiser.state_dict()["state"].values()]
    size = float(torch.stack([m.square().sum() for m in moments]).sum().sqrt()) / (1 - config.optimiser.betas[0])
    assert size == pytest.approx(1e-3, rel=1e-3)


def test_the_moving_average_forgets_its_start_quickly() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    average = AveragedModel(model, multi_avg_fn=ema_update(0.5))
    expected, values = 0.0, [3.0, -1.0, 4.0, 1.0, 5.0]
    for n, value in enumerate(values):
        model.weight.data.fill_(value)
        average.update_parameters(model)
        decay = min(0.5, (1 + n) / (10 + n))
        expected = value if n == 0 else decay * expected + (1 - decay) * value
        assert average.module.weight.item() == pytest.approx(expected)


def test_initial_weights_depend_on_the_seed_alone(tmp_path: Path) -> None:
    images = Pictures()
    torch.manual_seed(1)
    first = build_model(tiny_config(), images).state_dict()
    torch.manual_seed(2)
    again, other = (build_model(tiny_config(seed=s), images).state_dict() for s in (0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_training_learns(tmp_path: Path) -> None:
    """Held-out images: both terms fall below those of the Gaussian that the network starts as."""
    model = replace(tiny_config().model, backbone=replace(BACKBONE, channels=8, style="compact"))
    optimiser = OptimiserConfig(rate=3e-3, warmup=10, ema=0.9)
    config = tiny_config(model=model, steps=50, batch=16, optimiser=optimiser, evaluation_images=16)
    trainer = make_trainer(tmp_path, config)
    before = trainer.evaluate()
    after = run(trainer).evaluate()
    assert after["dsm"] < 0.9 * before["dsm"]
    assert after["csm"] < before["csm"]


@pytest.mark.parametrize(("condition", "channels"), [("none", 0), ("inpainting", 2), ("deblurring", 1)])
def test_denoisers_train_too(tmp_path: Path, condition: str, channels: int) -> None:
    model = DenoiserConfig((1, 12, 12), 1e-4, 1e2, channels, BACKBONE)
    covariances = PRESETS["fashion-mnist-score"][1].covariances
    config = tiny_config(model=model, covariances=covariances, condition=condition, steps=3)
    trainer = run(make_trainer(tmp_path, config))
    assert isinstance(trainer.averaged, Denoiser)
    seen = preview(trainer)
    assert (seen.pictures.shape, seen.numbers()) == ((3, 8, 1, 12, 12), {})
    card = finish(trainer, tmp_path / "model", "denoiser")
    assert not card.self_test
    assert card.held_out["dsm"] > 0
    assert isinstance(hub.load_denoiser(tmp_path), Denoiser)


def computes_bfloat16() -> bool:
    """Some machines announce units for it and stop at their first instruction."""
    try:
        check_bfloat16(torch.device("cpu"))
    except ValueError:
        return False
    return True


def test_bfloat16_touches_the_backbone_only(tmp_path: Path) -> None:
    """The loss stays within the backbone's rounding; weights, moments and the noise stay in float32."""
    plain = make_trainer(tmp_path / "plain", tiny_config())
    run(plain, _StopAt(3)).save()
    if not computes_bfloat16():
        with pytest.raises(ValueError, match="cannot compute in bfloat16"):
            make_trainer(tmp_path / "narrow", tiny_config(precision="bf16"))
        return
    narrow = make_trainer(tmp_path / "narrow", tiny_config(precision="bf16"))
    narrow.model.load_state_dict(plain.model.state_dict())
    narrow.step = plain.step
    exact, rounded = plain.train_step(), narrow.train_step()
    assert rounded["loss"] == pytest.approx(exact["loss"], rel=0.02)
    assert rounded["loss"] != exact["loss"]
    assert all(p.dtype == torch.float32 for p in narrow.model.parameters())


# --- the end of a run --------------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_a_model_with_its_card(tmp_path: Path) -> None:
    trainer = run(make_trainer(tmp_path, tiny_config(steps=2)))
    card = finish(trainer, tmp_path / "model", "tiny")
    kept = Card.decode((tmp_path / "model" / "card.json").read_bytes())
    assert json.dumps(kept.to_dict()) == json.dumps(card.to_dict())
    energy = hub.load(tmp_path)  # the folder of the run will do
    averaged = trainer.averaged.state_dict()
    assert all(torch.equal(value, averaged[key]) for key, value in energy.state_dict().items() if key != "constant")
    assert float(averaged["constant"]) == 0.0  # a run that goes on is not changed by its end
    assert float(energy.constant) == card.constant != 0.0
    assert card.parameters == parameter_count(energy)
    assert set(card.self_test) == {
        "entropy",
        "agreement",
        "bias",
        "slope",
        "ratio",
        "heat",
        "floor",
        "partition",
        "bands",
    }
    assert {row[0] for row in card.bands} >= {"white noise 0.1", "pink noise 0.1 (unseen)"}
    assert any("floor" in test for test, _, _ in card.tests)
    assert TrainConfig.from_dict(card.training) == trainer.config


def test_the_card_is_a_page_too(tmp_path: Path) -> None:
    """Written for people: data and licence, budget, self-tests, limits; nothing left to fill in."""
    trainer = run(make_trainer(tmp_path, tiny_config(steps=2)))
    finish(trainer, tmp_path / "model", "fashion-mnist")
    page = (tmp_path / "model" / "README.md").read_text()
    for said in (
        "# fashion-mnist",
        PRESETS["fashion-mnist"][0],
        "| steps | 2 |",
        "normalisation error",
        "**Limits.** It knows grey",
    ):
        assert said in page
    assert "More Information Needed" not in page
    assert data_facts("fashion-mnist")[1] == "MIT"
    assert data_facts("folder:mine") == ("", "")


def test_the_card_warns_of_densities_that_nothing_normalised() -> None:
    warned = {name for name, (_, config) in PRESETS.items() if "densities" in limits(config)}
    assert warned == {"fashion-mnist-single"}


# --- presets ---------------------------------------------------------------------------------------------------------------------

presets = pytest.mark.parametrize("name", PRESETS)


@presets
def test_presets_survive_json(name: str) -> None:
    config = PRESETS[name][1]
    assert TrainConfig.from_dict(json.loads(config.to_json())) == config
    kind = DenoiserConfig if isinstance(config.model, DenoiserConfig) else EnergyConfig
    assert kind.from_dict(json.loads(json.dumps(config.model.to_dict()))) == config.model


@presets
def test_presets_build_and_know_the_bases_they_train_on(name: str) -> None:
    config = PRESETS[name][1]
    with torch.device("meta"):
        model = Denoiser(config.model) if isinstance(config.model, DenoiserConfig) else LearnedEnergy(config.model)
    assert parameter_count(model) > 10_000
    assert set(config.covariances.bases(config.sample_shape)) == set(config.model.bases)
    assert config.model.backbone.divisor <= min(config.sample_shape[1:])


def test_the_paper_s_celeba_model_has_about_seventy_million_parameters() -> None:
    config = PRESETS["celeba-64"][1].model
    with torch.device("meta"):
        count = parameter_count(LearnedEnergy(config))
    assert 60e6 < count < 80e6


def test_unknown_fields_of_a_configuration_are_refused() -> None:
    data = tiny_config().model.to_dict()
    with pytest.raises(ValueError, match="EnergyConfig has no field colour"):
        EnergyConfig.from_dict({**data, "colour": 1})
    with pytest.raises(ValueError, match="UNetConfig has no field depth"):
        EnergyConfig.from_dict({**data, "backbone": {**data["backbone"], "depth": 1}})
    with pytest.raises(ValueError, match="kind 'energy', not 'denoiser'"):
        DenoiserConfig.from_dict(data)


def test_the_time_left_is_told_by_the_latest_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was slow before it was interrupted says how fast it is now."""
    now = 0.0
    monkeypatch.setattr("linverse.training.progress.time.monotonic", lambda: now)
    with Reporter(tmp_path, 1000, 500, tensorboard=False) as reporter:
        for step in range(501, 541):
            now += 2.0
            reporter.step(step, 1e6 + now, {"dsm": 0.5})
    line = capsys.readouterr().out.splitlines()[0]
    assert line == "step 531/1000  dsm 0.5000  0.50 steps/s  16 min left"
