"""A device is there, or an error says which are; with a GPU in the machine its names are known."""

from __future__ import annotations

import pytest
import torch

import linverse as lv
from linverse import devices
from linverse.devices import check_device, use_threads
from linverse.training.loop import make_accelerator


def test_the_cpu_is_there() -> None:
    assert check_device("cpu") == check_device(torch.device("cpu")) == torch.device("cpu")
    assert {p.device.type for p in lv.load("mnist", device="cpu").parameters()} == {"cpu"}


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "", "cuda:-1"])
def test_what_is_not_there_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(ValueError, match=f"there is no device '{name}' here; this machine has cpu"):
        lv.load("mnist", device=name)


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """A machine that seems to have so many GPUs; the list of those that were chosen."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    return chosen


def test_gpus_have_names_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    assert devices.devices() == ["cpu", "cuda", "cuda:0", "cuda:1"]
    assert check_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(
        ValueError, match="there is no device 'cuda:2' here; this machine has cpu, cuda, cuda:0, cuda:1"
    ):
        check_device("cuda:2")
    with pytest.raises(ValueError, match="there is no device 'mps' here"):
        check_device("mps")


def test_training_takes_the_device_that_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_accelerator("cpu").device == torch.device("cpu")
    with pytest.raises(ValueError, match="there is no device 'gpu' here"):
        make_accelerator("gpu")
    asked: list[bool] = []

    class Double:
        num_processes = 1

        def __init__(self, *, mixed_precision: str, cpu: bool) -> None:
            asked.append(cpu)

    monkeypatch.setattr("accelerate.Accelerator", Double)
    chosen = gpus(monkeypatch, 2)
    for device in ("cpu", "", "cuda", "cuda:1"):
        make_accelerator(device)
    assert (asked, chosen) == ([True, False, False, False], [1])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="leave out --device cuda:1"):
        make_accelerator("cuda:1")


@pytest.mark.parametrize("count", [0, -1, 1025, 10**9])
def test_threads_beyond_all_machines_are_refused_before_their_memory_is_asked_for(count: int) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match=f"threads are from 1 to 1024; got {count}"):
        use_threads(count)
    assert torch.get_num_threads() == before
