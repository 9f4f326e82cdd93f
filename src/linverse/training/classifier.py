"""Training of the digit classifier: cross-entropy on shifted digits, a few epochs, a minute or two on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linverse.models.classifier import DigitClassifier
from linverse.rng import keyed_generator, keyed_seed
from linverse.store.card import Card, data_facts
from linverse.training.batches import batch_indices
from linverse.training.loop import parameter_count


def shifted(x: Tensor, generator: torch.Generator, most: int = 2) -> Tensor:
    """Every image moved by up to `most` pixels, each by its own amount, with zeros at the border."""
    padded = torch.nn.functional.pad(x, (most,) * 4)
    rows = torch.randint(2 * most + 1, (len(x), 1), generator=generator) + torch.arange(x.shape[2])
    columns = torch.randint(2 * most + 1, (len(x), 1), generator=generator) + torch.arange(x.shape[3])
    index = torch.arange(len(x))[:, None, None]
    return padded[index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train_classifier(
    images: Any,
    held_out: Any,
    folder: Path,
    *,
    epochs: int = 6,
    batch: int = 128,
    seed: int = 0,
    report: Callable[[str], None] = print,
) -> DigitClassifier:
    """Train on an image set with labels, save model and card under `folder`."""
    torch.manual_seed(keyed_seed(seed, "classifier"))
    model = DigitClassifier()
    steps = epochs * len(images) // batch
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for step in range(steps):
        indices = batch_indices(seed, step, batch, len(images))
        x = shifted(images.batch(indices), keyed_generator(seed, "shift", step))
        loss = torch.nn.functional.cross_entropy(model(x), images.labels[indices].long(), label_smoothing=0.05)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % (len(images) // batch) == 0:
            report(f"epoch {(step + 1) * batch // len(images)}: loss {float(loss.detach()):.4f}")
    model.eval()
    error = test_error(model, held_out)
    report(f"test error {100 * error:.2f} %")
    title, licence = data_facts("mnist")
    card = Card(
        name="mnist-classifier",
        about="the paper's classifier of digits: three convolutions",
        data="mnist",
        title=title,
        licence=licence,
        parameters=parameter_count(model),
        epochs=epochs,
        batch=batch,
        seed=seed,
        test_error=error,
        limits="names one centred digit of 28×28, white on black; whatever it is shown, it names a digit",
    )
    card.attach_to(model)
    model.save_pretrained(folder)
    return model


def test_error(model: DigitClassifier, images: Any) -> float:
    """Share of held-out digits that are named wrongly."""
    predicted = model.predict(images.batch(torch.arange(len(images))))
    return float((predicted != images.labels).double().mean())
