"""What `linverse data` lists: every data set known by name, and where it is on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linverse.data.benchmark_pictures import benchmark_pictures_home
from linverse.data.catalogue import KNOWN, digits_location, locate
from linverse.data.cifar import locate_cifar
from linverse.data.photographs import INDEX, photographs_home, read_index


@dataclass(frozen=True)
class Description:
    """One line of `linverse data`."""

    name: str
    title: str
    training: int  # training images
    images: str  # how many (training + held out), of which shape
    licence: str
    location: Path | None  # None: not on this machine

    @property
    def present(self) -> bool:
        """Whether it can be loaded now."""
        return self.location is not None


def describe() -> tuple[Description, ...]:
    """All sets known by name."""
    idx_sets = [
        Description(known.name, known.title, 60_000, known.images, known.licence, locate(known))
        for known in KNOWN.values()
    ]
    digits = "1,500 + 297 of 1×8×8"
    return (
        *idx_sets,
        Description("cifar10", "tiny photographs", 50_000, "50,000 + 10,000 of 3×32×32", "none stated", locate_cifar()),
        Description("digits", "small handwritten digits", 1500, digits, "BSD-3-Clause", digits_location()),
        _photographs(),
        Description(
            "test-pictures", "to compare on", 0, "20, any size", "per file", _indexed(benchmark_pictures_home())
        ),
    )


def _photographs() -> Description:
    home = _indexed(photographs_home())
    index = None if home is None else read_index(home)
    training, held_out = (304, 28) if index is None else (len(index.of("train")), len(index.of("test")))
    images = f"{training} + {held_out}, any size"
    return Description("photographs", "photographs under free licences", training, images, "free, per file", home)


def _indexed(home: Path) -> Path | None:
    return home if (home / INDEX).is_file() else None
