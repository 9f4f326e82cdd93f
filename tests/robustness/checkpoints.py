"""Training states that were damaged: the same state, the one before with a word, or an error; never another one."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import torch

from linverse.training.checkpoint import PREVIOUS, STATE, CheckpointError, TrainingState, read_state, write_state
from robustness.cases import Wrong


def state_at(step: int) -> TrainingState:
    weights = {"w": torch.full((40,), float(step)), "b": torch.arange(7.0) + step}
    return TrainingState(step, float(step), "{}", weights, weights, {"state": {0: {"m": torch.full((3,), step)}}}, "d")


def damaged_state(dice: random.Random, folder: Path) -> str:
    """Flip, cut, overwrite or remove bytes of the newest state, and sometimes of the one before."""
    for step in (1, 2):
        write_state(folder, state_at(step))
    damaged = dice.sample((STATE, PREVIOUS), dice.choice((1, 1, 1, 2)))
    for name in damaged:
        damage(dice, folder / name)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state = read_state(folder)
    except CheckpointError:
        if len(damaged) < 2:
            raise Wrong(f"{damaged[0]} was damaged, the other one was not, and neither was read") from None
        return "refused"
    if state is None:
        return "gone"
    expected = state_at(state.step)
    same = all(torch.equal(state.model[k], v) and torch.equal(state.ema[k], v) for k, v in expected.model.items())
    if not same or (state.step, state.config, state.data) != (expected.step, "{}", "d"):
        raise Wrong(f"another state was read from a damaged {damaged}")
    if state.step == 1 and (folder / STATE).exists() and not caught:
        raise Wrong("the state before was taken without a word")
    return "the newest" if state.step == 2 else "the one before"


def damage(dice: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    place, how = dice.randrange(len(content)), dice.choice(("flip", "flip", "flip", "cut", "zeros", "grow", "gone"))
    if how == "flip":
        content[place] ^= 1 << dice.randrange(8)
    elif how == "zeros":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes({"cut": content[:place], "grow": content + b"x"}.get(how, content)))
