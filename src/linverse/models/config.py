"""Configurations of models as JSON: dataclasses whose unknown keys are refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from linverse.models.networks.unet import UNetConfig


@dataclass(frozen=True)
class ModelConfig:
    """What a model is: everything but its weights. `kind` names it in a file."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`, also of its JSON; unknown keys and other kinds are refused."""
        if data.get("kind", cls.kind) != cls.kind:
            raise ValueError(f"this configures a model of the kind {data['kind']!r}, not {cls.kind!r}")
        values = known_fields({key: value for key, value in data.items() if key != "kind"}, cls)
        values["backbone"] = UNetConfig(**known_fields(data["backbone"], UNetConfig))
        return cls(**values)


def known_fields(data: dict[str, Any], cls: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass, lists as tuples."""
    unknown = data.keys() - {f.name for f in fields(cls)}
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
