"""A training run as a file: YAML (or JSON) that `linverse train FILE` reads and `linverse train PRESET --write FILE` writes.

A file holds all of a `TrainConfig`, the distribution over covariances included, or the name of a `preset` and what differs from it:

    preset: cifar10
    steps: 20000
    model: {backbone: {channels: 64}}
    covariances:
      path: 0.5
      components:
      - {weight: 0.5, kind: box, smallest: 4, largest: 28}
      - {weight: 0.5, kind: gaussian-blur}

Sections are merged key by key; a list (of components, crops, channels' multipliers) takes the place of the preset's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from linverse.extras import require
from linverse.files import write_whole
from linverse.training.config import TrainConfig
from linverse.training.presets import PRESETS

ENDINGS = (".yaml", ".yml", ".json")
EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def is_config_file(name: str) -> bool:
    """Whether an argument of `linverse train` means a file."""
    return name.lower().endswith(ENDINGS)


def write_config(config: TrainConfig, path: Path) -> None:
    """All of a configuration; JSON where the file's name says so."""
    if not is_config_file(path.name):
        raise ValueError(f"a configuration is a file that ends in {', '.join(ENDINGS)}; got {path}")
    text = config.to_json()
    if path.suffix.lower() != ".json":
        yaml = require("yaml", "train")
        text = yaml.safe_dump(_plain(config.to_dict()), sort_keys=False, allow_unicode=True, width=120)
    write_whole(path, (text + "\n" if not text.endswith("\n") else text).encode())


def read_config(path: Path) -> TrainConfig:
    """The configuration of a file; what is wrong with it is said by the name of the key."""
    yaml = require("yaml", "train")
    try:
        data = _numbers(yaml.safe_load(path.read_text(encoding="utf-8")))  # JSON is YAML, too, but for its numbers
    except FileNotFoundError:
        raise ValueError(
            f"there is no configuration {path}; `linverse train PRESET --write {path}` makes one"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read as a configuration: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(
            f"{path} holds no configuration: keys and values are needed, as `linverse train PRESET --write` writes"
        )
    preset = data.pop("preset", None)
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"{path}: there is no preset {preset!r}; there are {', '.join(PRESETS)}")
    base = None if preset is None else _plain(PRESETS[preset][1].to_dict())
    merged = data if base is None else _merge(base, data, str(path))
    try:
        return TrainConfig.from_dict(merged)
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}; name a preset, or give all keys") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _plain(value: Any) -> Any:
    """Tuples as lists, all the way down."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _numbers(value: Any) -> Any:
    """YAML takes 1e-6 for a word: all such words are numbers here."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value


def _merge(base: dict[str, Any], changes: dict[str, Any], where: str) -> dict[str, Any]:
    """The preset's keys with those of the file in their place."""
    unknown = [str(key) for key in changes if key not in base]
    if unknown:
        raise ValueError(f"{where}: there is no {', '.join(unknown)} here; there are {', '.join(base)}")
    out = dict(base)
    for key, value in changes.items():
        out[key] = _changed(base[key], value, f"{where}: {key}")
    return out


def _changed(before: Any, after: Any, where: str) -> Any:
    if isinstance(before, dict):
        if not isinstance(after, dict):
            raise ValueError(f"{where} is a section of keys and values; got {after!r}")
        return _merge(before, after, where)
    if type(before) in (int, float, bool) and after is not None and not isinstance(after, int | float):
        raise ValueError(f"{where} is a number; got {after!r}")
    return after
