"""The training loop: one command starts a run, the same command resumes it, bit for bit.

The loss is the forward pass of the wrapped module, so that the gradients taken inside it and DDP live together; the moving average
wraps the energy. Everything random is keyed by (seed, step).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from linverse.devices import check_bfloat16, check_device
from linverse.extras import require
from linverse.memory import check_memory
from linverse.models.bases import CropSource, ImageSource, Source
from linverse.models.denoiser import Denoiser
from linverse.models.energies.learned import LearnedEnergy
from linverse.models.losses import NoisyBatch
from linverse.models.networks.twice import round_products
from linverse.rng import keyed_generator, keyed_seed
from linverse.training.batches import batch_indices, draw_parts, training_parts
from linverse.training.checkpoint import TrainingState, read_state, write_state
from linverse.training.config import OptimiserConfig, TrainConfig
from linverse.training.interruption import StopRequest
from linverse.training.muon import MuonAdamW
from linverse.training.progress import Reporter
from linverse.training.sources import fingerprint
from linverse.training.warm_start import TakenOver, source_model, take_over

if TYPE_CHECKING:
    from accelerate import Accelerator

Trainable = LearnedEnergy | Denoiser  # what a run can train: it owns its network and its loss


class NonFiniteLossError(RuntimeError):
    """Training met a loss that is not a number."""


def build_model(config: TrainConfig, images: Source | None) -> Trainable:
    """A model with its initial weights, which depend on the seed alone, and what it takes over from the images themselves, if any."""
    check_size(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(config.seed, "weights"))
        model = config.model.build()
    if images is not None:
        model.fit(images)
    return model.double() if config.double else model


def check_size(config: TrainConfig) -> None:
    """Refuse a model that does not fit into memory with its gradient, its average and the optimiser's two moments, before it is built."""
    with torch.device("meta"):  # shapes without numbers
        values = sum(value.numel() for value in config.model.build().state_dict().values())
    each = 5 * (8 if config.double else 4)
    check_memory(each * values, f"training a model of {values:,} weights", "make its backbone smaller")


def build_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    """AdamW, or Muon for the convolutions and AdamW for the rest; each group remembers its peak rate."""
    options: dict[str, Any] = {"betas": config.betas, "weight_decay": config.weight_decay}
    optimiser: torch.optim.Optimizer
    if config.kind == "muon":
        optimiser = MuonAdamW(model, config.rate, config.muon_rate, muon_decay=config.muon_decay, **options)
    else:
        optimiser = torch.optim.AdamW(model.parameters(), config.rate, **options)
    for group in optimiser.param_groups:
        group["initial_lr"] = group["lr"]
    return optimiser


def make_accelerator(device: str = "") -> Accelerator:
    """accelerate's view of the processes, on a device by name, or on the machine's GPUs if it has any, else on its CPU.

    Without a GPU it must be told of CPUs, or each of several processes would train alone.
    """
    kind: type[Accelerator] = require("accelerate", "train").Accelerator
    place = check_device(device) if device else None
    if place is not None and place.type != "cpu" and place.index is not None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                f"several processes were launched, each takes a device of its own: leave out --device {device}"
            )
        torch.accelerator.set_device_index(place.index)
    on_cpu = place.type == "cpu" if place is not None else not torch.accelerator.is_available()
    accelerator = kind(mixed_precision="no", cpu=on_cpu)
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched != accelerator.num_processes:
        raise RuntimeError(
            f"{launched} processes were launched, but accelerate joins {accelerator.num_processes}: they would overwrite each "
            "other's run; see `accelerate env`"
        )
    return accelerator


def use_bfloat16(model: Trainable, device: torch.device) -> None:
    """Let the backbone, and it alone, compute in bfloat16: y, the transforms and the sums over pixels do not survive eight bits.

    On a processor only the factors of its convolutions are rounded: the rest would not be faster.
    """
    check_bfloat16(device)
    network = model.backbone
    if device.type == "cpu":
        round_products(network)
        return
    network.forward = torch.autocast(device.type, dtype=torch.bfloat16)(network.forward)


def ema_update(decay: float) -> Any:
    """An exponential moving average that forgets its start quickly: decay_n = min(decay, (1+n)/(10+n))."""

    def update(averages: list[Tensor], values: list[Tensor], count: Tensor | int) -> None:
        n = int(count)
        torch._foreach_lerp_(averages, values, 1 - min(decay, (1 + n) / (10 + n)))

    return update


class Trainer:
    """One run in one folder."""

    def __init__(
        self,
        config: TrainConfig,
        train: Source,
        held_out: ImageSource,
        folder: Path,
        *,
        other_data: bool = False,
        device: str = "",
    ) -> None:
        """Images that are not those with which the run began are refused, unless `other_data` are welcome."""
        self.config, self.folder = config, folder
        self.train_images, self.held_out = train, held_out
        self.accelerator = make_accelerator(device)
        state = read_state(folder)
        model = build_model(config, train if state is None else None)
        self.taken_over: TakenOver | None = None
        if state is None and config.start_from:
            source = source_model(config.start_from, type(model))
            self.taken_over = take_over(model, source, refit=config.refit_base)
        self.ema = AveragedModel(model, multi_avg_fn=ema_update(config.optimiser.ema)).to(self.accelerator.device)
        optimiser = build_optimiser(model, config.optimiser)
        if config.precision == "bf16":
            use_bfloat16(model, self.accelerator.device)
        self.loss, self.optimiser = self.accelerator.prepare(model.loss(config.loss), optimiser)
        self.model = model
        self.step, self.seconds = 0, 0.0
        self.data = fingerprint(train)
        if state is not None:
            self._resume(state, other_data)

    # --- state -----------------------------------------------------------------------------------------------------------

    def _resume(self, state: TrainingState, other_data: bool) -> None:
        check_same_run(state.config, self.config, self.folder)
        if state.data not in ("", self.data) and not other_data:  # states of earlier versions do not know theirs
            raise ValueError(
                f"the training images of {self.config.data} are not those with which the run in {self.folder} began; bring those back, "
                "give another --out folder, or go on with these by --other-data"
            )
        self.model.load_state_dict(state.model)
        self.ema.load_state_dict(state.ema)
        self.optimiser.load_state_dict(state.optimiser)
        self.step, self.seconds = state.step, state.seconds

    def save(self) -> None:
        """Write the state (main process only)."""
        if not self.accelerator.is_main_process:
            return
        state = TrainingState(
            self.step,
            self.seconds,
            self.config.to_json(),
            self.model.state_dict(),
            self.ema.state_dict(),
            self.optimiser.state_dict(),
            self.data,
        )
        write_state(self.folder, state)

    def keep_average(self) -> None:
        """Save the averaged model of this step, for comparisons at equal steps (main process only)."""
        if self.accelerator.is_main_process:
            self.averaged.save_pretrained(self.folder / "kept" / f"step-{self.step:06d}")

    # --- steps -----------------------------------------------------------------------------------------------------------

    def run(
        self, reporter: Reporter, stop: StopRequest | None = None, preview: Callable[[Trainer], None] | None = None
    ) -> None:
        """Train to the last step, or until a stop is requested, with checkpoints, evaluations and previews on the way."""
        saved = time.monotonic()
        while self.step < self.config.steps and not (stop and stop.requested):
            start = time.monotonic()
            metrics = self.train_step()
            self.seconds += time.monotonic() - start
            reporter.step(self.step, self.seconds, metrics)
            if self.step % self.config.evaluate_every == 0 or self.step == self.config.steps:
                reporter.evaluation(self.step, self.seconds, self.evaluate())
            if preview and self.config.preview_every and self.step % self.config.preview_every == 0:
                preview(self)
            if self.config.keep_every and self.step % self.config.keep_every == 0:
                self.keep_average()
            if time.monotonic() - saved > self.config.checkpoint_seconds or self.step == self.config.steps:
                self.save()
                saved = time.monotonic()

    def train_step(self) -> dict[str, float]:
        """One optimiser step; returns the terms of the loss."""
        config, accelerator = self.config, self.accelerator
        torch.manual_seed(keyed_seed(config.seed, "dropout", self.step, accelerator.process_index))
        parts = training_parts(
            config, self.train_images, self.step, accelerator.process_index, accelerator.num_processes
        )
        for group in self.optimiser.param_groups:
            group["lr"] = group["initial_lr"] * config.optimiser.share_at(self.step, config.steps)
        loss, terms = self.loss([part.to(accelerator.device) for part in parts], progress=self.step / config.steps)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NonFiniteLossError(self._describe_failure(value, parts))
        self._backward(loss)
        norm = float(accelerator.clip_grad_norm_(self.model.parameters(), config.optimiser.clip))
        if not math.isfinite(norm):
            raise NonFiniteLossError(self._describe_failure(norm, parts))
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.ema.update_parameters(self.model)
        self.step += 1
        return {"loss": value, "gradient": norm, **{key: float(term) for key, term in terms.items()}}

    def _backward(self, loss: Tensor) -> None:
        """Gradients of the weights and of nothing else: those of y and λ, which the loss was differentiated by, would cost a tenth more.

        (DDP waits for all that a backward pass may reach.)
        """
        alone = self.accelerator.num_processes == 1
        self.accelerator.backward(loss, **({"inputs": list(self.model.parameters())} if alone else {}))

    def _describe_failure(self, value: float, parts: list[NoisyBatch]) -> str:
        spans = []
        for part in parts:
            low, high = (float(v.exp()) for v in part.cov.log_variance.aminmax())
            spans.append(f"{len(part.x)} {part.cov.basis} with λ in [{low:.2g}, {high:.2g}]")
        good = read_state(self.folder)
        last = "none" if good is None else f"step {good.step} in {self.folder}"
        return (
            f"loss or gradient is {value} at step {self.step}, in a batch of {'; '.join(spans)}{self._images_of_step()}. "
            f"Last good checkpoint: {last}"
        )

    def _images_of_step(self) -> str:
        config, source = self.config, self.train_images
        if isinstance(source, CropSource):
            return ""
        images = batch_indices(config.seed, self.step, config.batch, len(source)).tolist()
        return f"; its images are {', '.join(map(str, images))}"

    # --- evaluation ------------------------------------------------------------------------------------------------------

    def held_out_parts(self, images: int, chunk: int = 64) -> list[list[NoisyBatch]]:
        """Fixed noise on held-out images, in chunks."""
        config = self.config
        batches = []
        for start in range(0, min(images, len(self.held_out)), chunk):
            x = self.held_out.batch(torch.arange(start, min(start + chunk, images, len(self.held_out))))
            generator = keyed_generator("held-out", start)
            parts = draw_parts(config, x.double() if config.double else x, generator)
            batches.append([part.to(self.accelerator.device) for part in parts])
        return batches

    def evaluate(self) -> dict[str, float]:
        """The loss of the averaged weights on held-out images."""
        loss = self.averaged.loss(self.config.loss)
        totals: dict[str, float] = {}
        batches = self.held_out_parts(self.config.evaluation_images)
        for parts in batches:
            value, terms = loss(parts, create_graph=False)
            for key, term in {"loss": value.detach(), **terms}.items():
                totals[key] = totals.get(key, 0.0) + float(term) / len(batches)
        return totals

    @property
    def averaged(self) -> Trainable:
        """The model with the moving average of the weights."""
        module = self.ema.module.eval()
        assert isinstance(module, LearnedEnergy | Denoiser)
        return module


def check_same_run(stored: str, config: TrainConfig, folder: Path) -> None:
    """A folder holds one run: going on with another configuration is refused (more steps are fine)."""
    free = {
        "steps",
        "checkpoint_seconds",
        "evaluate_every",
        "preview_every",
        "keep_every",
        "evaluation_images",
        "self_test_images",
        "reference_images",
        "precision",  # what a machine is good at
        "start_from",  # the weights at the first step: a run that goes on has its own
        "refit_base",
    }
    before, now = json.loads(stored), json.loads(config.to_json())
    changed = [key for key in now if key not in free and before.get(key) != now[key]]
    if changed:
        raise ValueError(
            f"{folder} holds a run with another {', '.join(changed)}; give another --out folder, or the same options to resume it"
        )


def parameter_count(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in model.parameters())
