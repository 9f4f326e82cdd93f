"""The paper's digit classifier (appendix C): a convolutional network of three layers with ReLU, to judge restored digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from linverse.files.saving import HubModel
from linverse.models.config import ModelConfig


@dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """Sizes of the classifier."""

    kind: ClassVar[str] = "classifier"
    classes: int = 10
    width: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.classes <= 10_000 or not 1 <= self.width <= 1024:
            raise ValueError(
                f"a classifier has 1 to 10000 classes and a width of 1 to 1024; got {self.classes} and {self.width}"
            )


class DigitClassifier(nn.Module, HubModel):
    """[B, 1, 28, 28] in [0, 1] → [B, classes] logits."""

    config_type = ClassifierConfig

    def __init__(self, config: ClassifierConfig | None = None) -> None:
        super().__init__()
        self.config = config or ClassifierConfig()
        width, classes = self.config.width, self.config.classes
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(3),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(36 * width, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    @torch.no_grad()
    def predict(self, x: Tensor, chunk: int = 512) -> Tensor:
        """[B] class numbers."""
        return torch.cat([self(part).argmax(dim=1) for part in x.split(chunk)])
