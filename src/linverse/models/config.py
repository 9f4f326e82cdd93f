"""Configurations of models as JSON: dataclasses whose unknown keys, other types and absurd sizes are refused, before anything is built."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from types import UnionType
from typing import Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from linverse.models.networks.unet import UNetConfig

MOST_CHANNELS, LARGEST_SIDE = 64, 1 << 14


def check_shape(shape: tuple[int, int | None, int | None]) -> None:
    """Refuse what is no [C, H, W] of pictures; None is any height or width."""
    channels, *sides = shape
    if not 1 <= channels <= MOST_CHANNELS or not all(side is None or 1 <= side <= LARGEST_SIDE for side in sides):
        raise ValueError(
            f"shape is [channels, height, width], at most {MOST_CHANNELS} channels and {LARGEST_SIDE} pixels a side; got {shape}"
        )


@dataclass(frozen=True)
class ModelConfig:
    """What a model is: everything but its weights. `kind` names it in a file."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, also of its JSON; unknown keys, other kinds and other types are refused."""
        if data.get("kind", cls.kind) != cls.kind:
            raise ValueError(f"this configures a model of the kind {data['kind']!r}, not {cls.kind!r}")
        values = {key: value for key, value in data.items() if key != "kind"}
        if "backbone" in {f.name for f in fields(cls)}:
            backbone = values.get("backbone")
            if not isinstance(backbone, dict):
                raise ValueError(f"backbone is an object of sizes; got {backbone!r:.60}")
            values["backbone"] = UNetConfig(**known_fields(backbone, UNetConfig))
        return cls(**known_fields(values, cls))


def known_fields(data: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass, each of its type, lists as tuples."""
    unknown = data.keys() - {f.name for f in fields(cls)}
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    values = {key: as_tuples(value) for key, value in data.items()}
    types = get_type_hints(cls)
    for name, value in values.items():
        if not is_of(value, types[name]):
            accepted = str(types[name]).replace("typing.", "").removeprefix("<class '").removesuffix("'>")
            raise ValueError(f"{name} is {accepted}; got {value!r:.60}")
    return values


def as_tuples(value: Any) -> Any:
    """Lists as tuples, also within lists."""
    return tuple(as_tuples(one) for one in value) if isinstance(value, list) else value


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is of an annotated type: numbers (finite ones), words, tuples of them, unions and literals."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(is_of(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = inner[:1] * len(value) if inner[-1:] == (...,) else inner
        return len(each) == len(value) and all(is_of(v, k) for v, k in zip(value, each, strict=True))
    if origin is dict:
        return isinstance(value, dict) and all(is_of(k, inner[0]) and is_of(v, inner[1]) for k, v in value.items())
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)
