"""The metrics of a unit's pictures, one value per image, and their features for the Fréchet distance.

What the perceptual networks make of the true images is the same for every method and every task, and half of the work: it is kept, one
entry per metric and batch, as long as it fits into `KEPT_BYTES` (0.5 MB per image of 28×28). A restored value is the same bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from linverse.evaluation.measures import choose_features
from linverse.evaluation.plan import Plan, Unit
from linverse.metrics import METRICS, PREPARED, Against, Features

PSNR_CAP = 100.0  # dB: of equal images it is infinite, which no mean and no file can hold
KEPT_BYTES = 1 << 29


@dataclass
class Scorer:
    """Scores restorations against the true images of a plan."""

    plan: Plan
    budget: int = KEPT_BYTES
    kept: dict[tuple[str, int], Against] = field(default_factory=dict, init=False)

    def __call__(self, unit: Unit, pictures: Tensor) -> dict[str, Tensor]:
        """[B] of each metric of the plan, for pictures [B, C, H, W] in [0, 1]."""
        values = {name: self._score(name, unit, pictures) for name in self.plan.setting.metrics}
        if "PSNR" in values:
            values["PSNR"] = values["PSNR"].clamp_max(PSNR_CAP)
        return values

    @cached_property
    def features(self) -> Features:
        """Those of the plan."""
        return choose_features(self.plan)

    def _score(self, name: str, unit: Unit, pictures: Tensor) -> Tensor:
        if name not in PREPARED:
            return METRICS[name].function(pictures, self.plan.images(unit))
        known = self.kept.get((name, unit.batch))
        if known is None:
            known = PREPARED[name](self.plan.images(unit))
            if known.bytes + sum(entry.bytes for entry in self.kept.values()) <= self.budget:
                self.kept[name, unit.batch] = known
        return known(pictures)
