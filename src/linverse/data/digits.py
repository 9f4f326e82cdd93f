"""scikit-learn's handwritten digits: 1 797 grey images of 8×8 in 17 levels, x = v/16; no download.

A fixed 1 500 are for training, the other 297 are held out: those whose numbers come first in the order of a hash, because the
images lie in the file writer by writer and the last 297 would be other people's digits.
"""

from __future__ import annotations

import numpy as np
import torch

from linverse.data.images import ImageSet
from linverse.data.split import check_split
from linverse.extras import require
from linverse.rng import keyed_seed

COUNT = 1797
HELD_OUT = 297
WHITE = 16


def load_digits(split: str = "train") -> ImageSet:
    """The digits of one split, white = 16."""
    check_split(split)
    digits = require("sklearn.datasets", "train").load_digits()
    order = sorted(range(COUNT), key=lambda number: keyed_seed("digits", number))
    rows = np.array(sorted(order[:HELD_OUT] if split == "test" else order[HELD_OUT:]))
    images = torch.from_numpy(digits.images[rows].astype(np.uint8))[:, None]
    labels = torch.from_numpy(digits.target[rows].astype(np.int64))
    return ImageSet("digits", images, labels, split, WHITE, notes=("scikit-learn's 8×8 digits",))
