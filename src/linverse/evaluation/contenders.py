"""Who takes part: methods by name, and a user's own solvers.

A method is written NAME or NAME:setting=value,… with NAME one of `linverse.baselines.METHODS`, a Python entry point of the group
`linverse.methods`, or `package.module:function` (settings after another colon). A user's function is called like ours,
    function(model, degradation, y_raw, generator, **settings) → Solution, or just the samples [B, C, H, W],
and says by an attribute `needs` ("energy", "score", "palette" or "nothing") which model it wants; the energy if it does not say.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from torch import Tensor

from linverse.baselines import METHODS, Needs, Solution

ENTRY_POINTS = "linverse.methods"
TRUTH = "truth"
NEEDS: tuple[Needs, ...] = ("energy", "score", "palette", "nothing")
POSITIONAL = 4  # model, degradation, y_raw, generator


@dataclass(frozen=True)
class Contender:
    """A solver with its settings: `given` by the user, `settings` all of them with their defaults."""

    label: str
    solve: Callable[..., Solution | Tensor]
    needs: Needs
    given: dict[str, Any]
    settings: dict[str, Any]

    @property
    def function(self) -> str:
        """The full name of the function."""
        return f"{self.solve.__module__}.{getattr(self.solve, '__qualname__', type(self.solve).__qualname__)}"

    @property
    def source(self) -> str | None:
        """A hash of the file of a user's own solver: results of an earlier version are not to be taken for those of this one."""
        if self.solve.__module__.partition(".")[0] == "linverse":
            return None
        path = getattr(sys.modules.get(self.solve.__module__), "__file__", None)
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if path else None


def parse_contender(text: str) -> Contender:
    """`NAME[:setting=value,…]` or `package.module:function[:setting=value,…]`."""
    name, _, rest = text.partition(":")
    points = named_entry_points()
    if name in METHODS:
        method = METHODS[name]
        return _contender(text, method.solve, method.needs, rest)
    if name in points:
        function = load_function(points[name].load, f"method {name}")
        return _contender(text, function, needs_of(function, name), rest)
    attribute, _, settings = rest.partition(":")
    if not attribute or "=" in attribute:
        known = ", ".join([*METHODS, *points])
        raise ValueError(f"there is no method {name!r}; there are {known}, or your own as package.module:function")
    function = import_function(name, attribute)
    return _contender(text, function, needs_of(function, text), settings)


def named_entry_points() -> dict[str, EntryPoint]:
    """Solvers that installed packages offer."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def import_function(module: str, attribute: str, what: str = "method") -> Callable[..., Any]:
    """A function of a module that can be imported from here or from the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:  # a script of the user's own lies where the command was typed
        sys.path.insert(0, here)
    return load_function(lambda: getattr(importlib.import_module(module), attribute), f"{what} {module}:{attribute}")


def load_function(load: Callable[[], Any], what: str) -> Callable[..., Any]:
    """A function out of a user's own code; whatever that code does when it is imported, the error says whose it is."""
    try:
        function = load()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{what} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"{what} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ValueError(f"{what} is a {type(function).__name__}, not a function")
    found: Callable[..., Any] = function
    return found


def needs_of(function: Callable[..., Any], name: str) -> Needs:
    """Which model a user's function wants."""
    wanted = getattr(function, "needs", "energy")
    for needs in NEEDS:
        if wanted == needs:
            return needs
    raise ValueError(f"method {name}: its attribute `needs` is {wanted!r}; it can be {', '.join(NEEDS)}")


def _contender(text: str, solve: Callable[..., Any], needs: Needs, rest: str) -> Contender:
    given = parse_settings(rest, text)
    defaults, open_ended = default_settings(solve)
    unknown = given.keys() - defaults.keys()
    if unknown and not open_ended:
        accepted = ", ".join(f"{key}={value}" for key, value in defaults.items()) or "none"
        raise ValueError(f"method {text}: no setting {', '.join(sorted(unknown))}; the settings are {accepted}")
    for key in given.keys() & defaults.keys():
        check_kind(text, key, given[key], defaults[key])
    return Contender(text, solve, needs, given, defaults | given)


def check_kind(method: str, key: str, value: Any, default: Any) -> None:
    """Refuse a word where the default is a number, and so on: it would only fail once the work has begun."""
    kinds: dict[type, tuple[tuple[type, ...], str]] = {
        bool: ((bool,), "true or false"),
        int: ((int,), "a whole number"),
        float: ((int, float), "a number"),
        str: ((str,), "a word"),
    }
    if value is None or type(default) not in kinds:
        return
    accepted, words = kinds[type(default)]
    if type(value) not in accepted:
        raise ValueError(f"method {method}: {key} is {words} (default: {default}); got {value!r}")


def default_settings(solve: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """The keyword settings of a solver with their defaults, and whether it takes any others."""
    parameters = list(inspect.signature(solve).parameters.values())
    keyword = [p for p in parameters[POSITIONAL:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    defaults = {p.name: None if p.default is p.empty else p.default for p in keyword}
    return defaults, any(p.kind is p.VAR_KEYWORD for p in parameters)


def parse_settings(text: str, where: str) -> dict[str, Any]:
    """`a=1,b=0.5,c=true,d=word` → their values."""
    out: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ValueError(f"method {where}: settings are written name=value,…; got {pair!r}")
        out[key.strip()] = parse_value(value.strip())
    return out


def parse_value(text: str) -> Any:
    """A whole number, a number, true, false, none, or the text itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
