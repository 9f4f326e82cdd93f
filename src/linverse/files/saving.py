"""A model on disk: weights (safetensors), a configuration (JSON) that says which kind of model it is, and a manifest of both.

Folders follow the conventions of the Hugging Face hub (`save_pretrained`, `from_pretrained`, `push_to_hub`). Beside the weights lie the
model's attachments: its card, a page for people, its licence, held-out images (`store` knows what they mean); they travel with it as they
are. The manifest holds the size and sha256 of what decides the answers: a file that was cut short or changed since is refused by name.
The hub's own client is asked only for what is on the hub (extra `hub`): folders need none of it.
Loading is strict and reads safetensors only: nothing is unpickled, no weight is missing, and every bit is what was saved.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from linverse.extras import require
from linverse.files import file_digest, json_bytes, make_folder, read_object, write_together

WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
CARD, PAGE, LICENCE, REFERENCE = "card.json", "README.md", "LICENSE", "reference.safetensors"
PRECISIONS = {"F64", "F32", "F16", "BF16"}  # of weights, in the words of safetensors
ATTACHMENTS = (CARD, PAGE, LICENCE, REFERENCE)
PLAIN_PAGE = """---
library_name: linverse
---
# {name}

A model of linverse, saved without a card: `linverse.load` takes its folder, or its id on the hub.
"""


class ModelFileError(ValueError):
    """A folder does not hold the model that was asked for, or not as it was saved."""


# --- the manifest --------------------------------------------------------------------------------------------------------------


def _recorded(folder: Path) -> tuple[str, ...]:
    """The files that a manifest speaks of: reference images only where there are some."""
    return (WEIGHTS, CONFIG, REFERENCE) if (folder / REFERENCE).is_file() else (WEIGHTS, CONFIG)


def manifest_of(contents: Mapping[str, bytes]) -> bytes:
    """A record of the size and sha256 of the weights, of the configuration and of the reference images."""
    files = {
        name: {"bytes": len(contents[name]), "sha256": hashlib.sha256(contents[name]).hexdigest()}
        for name in (WEIGHTS, CONFIG, REFERENCE)
        if name in contents
    }
    return json_bytes({"files": files})


def check_manifest(folder: Path) -> None:
    """Refuse a folder whose files are not those that were saved."""
    missing = [name for name in (WEIGHTS, CONFIG, MANIFEST) if not (folder / name).is_file()]
    if missing:
        raise ModelFileError(f"{folder} has no {', '.join(missing)}: it is not a model saved by linverse")
    recorded = read_object(folder / MANIFEST, ModelFileError).get("files")
    if not isinstance(recorded, dict):
        raise ModelFileError(f"{folder / MANIFEST} lists no files: it was changed; fetch the model again")
    if REFERENCE in recorded and not (folder / REFERENCE).is_file():
        raise ModelFileError(f"{folder} has no {REFERENCE}, which was saved with the model; fetch it again")
    for name in _recorded(folder):
        if not isinstance(recorded.get(name), dict):
            raise ModelFileError(f"{folder / MANIFEST} says nothing of {name}: it was changed; fetch the model again")
        _check_file(folder / name, recorded[name])


def _check_file(path: Path, recorded: dict[str, Any]) -> None:
    size, expected = path.stat().st_size, recorded.get("bytes")
    if size != expected:
        raise ModelFileError(
            f"{path} has {size} bytes where {expected} were saved: it was cut short or changed; fetch the model again"
        )
    digest = file_digest(path)
    if digest != recorded.get("sha256"):
        raise ModelFileError(
            f"{path} is not the file that was saved: its sha256 is {digest}, the manifest says {recorded.get('sha256')}; "
            "fetch the model again"
        )


# --- models --------------------------------------------------------------------------------------------------------------------


class HubModel:
    """What a module needs to be saved and loaded: `config` of the class `config_type`, which has a `kind`, `to_dict` and `from_dict`.

    `attachments` are whole files that travel with the weights, by their names.
    """

    config_type: ClassVar[type[Any]]
    config: Any
    attachments: Mapping[str, bytes] = MappingProxyType({})

    def attach(self, name: str, content: bytes | None) -> None:
        """Let a file travel with the model, or (None) no longer."""
        if name not in ATTACHMENTS:
            raise ValueError(f"a model carries {', '.join(ATTACHMENTS)}; got {name!r}")
        others = {key: value for key, value in self.attachments.items() if key != name}
        self.attachments = others if content is None else others | {name: content}

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Save the model, and all that travels with it, in a folder; a model without a page gets one of a few lines."""
        folder = Path(save_directory)
        make_folder(folder)
        self._save_pretrained(folder)
        if not (folder / PAGE).exists():
            (folder / PAGE).write_text(PLAIN_PAGE.format(name=folder.resolve().name), encoding="utf-8")

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Save the model",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Put the files of `save_pretrained` on the hub, in one commit, whose address is returned; `owner/name` is made if need be."""
        client = require("huggingface_hub", "hub").HfApi(token=token)
        place = client.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / place
            self.save_pretrained(saved)
            commit = client.upload_folder(
                repo_id=place,
                repo_type="model",
                folder_path=saved,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
            )
        return str(commit)

    def _save_pretrained(self, save_directory: Path) -> None:
        """All files or none: a disk that is full leaves the model that was there before."""
        from safetensors.torch import save

        assert isinstance(self, nn.Module)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        contents = {WEIGHTS: save(weights, {"format": "pt"}), CONFIG: json_bytes(self.config.to_dict())}
        contents |= {name: self.attachments[name] for name in ATTACHMENTS if name in self.attachments}
        write_together(save_directory, contents | {MANIFEST: manifest_of(contents)})
        for name in set(ATTACHMENTS) - contents.keys():
            (save_directory / name).unlink(missing_ok=True)  # of another model

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        map_location: str = "cpu",
        **model_kwargs: Any,
    ) -> Self:
        """A model from a folder, or from the hub by its id; always strict."""
        if model_kwargs:
            raise TypeError(f"the configuration travels with the weights; {', '.join(model_kwargs)} cannot be given")
        folder = Path(pretrained_model_name_or_path).expanduser()
        if not folder.is_dir():
            folder = download(
                str(pretrained_model_name_or_path),
                force_download=force_download,
                token=token,
                cache_dir=cache_dir,
                local_files_only=local_files_only,
                revision=revision,
            )
        return cls.from_folder(folder, map_location)

    @classmethod
    def from_folder(cls, folder: Path, map_location: str = "cpu") -> Self:
        """The model that a folder holds, bit for bit, in evaluation mode, with frozen weights (`requires_grad_(True)` to train it on)."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        build: Any = cls  # a module that takes its configuration, and no more
        check_manifest(folder)
        config = read_config(folder, cls.config_type)
        check_weights(folder / WEIGHTS, cls, config)
        # the first weights are drawn and thrown away: leave the user's random stream alone
        with torch.random.fork_rng(devices=[]):
            model = build(config)
        assert isinstance(model, cls)
        assert isinstance(model, nn.Module)
        try:
            # assigned, not copied: weights of another precision keep it
            model.load_state_dict(load_file(folder / WEIGHTS, device=map_location), strict=True, assign=True)
        except (RuntimeError, SafetensorError) as error:
            raise ModelFileError(f"{folder / WEIGHTS} does not fit its configuration: {error}") from error
        model.attachments = {name: (folder / name).read_bytes() for name in ATTACHMENTS if (folder / name).is_file()}
        return model.to(map_location, memory_format=torch.channels_last).eval().requires_grad_(False)


def check_weights(path: Path, cls: type[Any], config: Any) -> None:
    """Refuse weights that are not those of the configuration, by names and sizes, before either takes any memory."""
    from safetensors import SafetensorError, safe_open

    try:
        with torch.device("meta"):  # shapes without numbers
            model = cls(config)
        with safe_open(path, framework="pt") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  # no mapping
            kinds = {file.get_slice(name).get_dtype() for name in found}
    except (RuntimeError, SafetensorError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{path} does not fit its configuration: {error}") from error
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            here, there = (f"{v[name]}" if name in v else "absent" for v in (found, wanted))
            raise ModelFileError(f"{path} does not fit its configuration: {name} is {here}, and should be {there}")
    if not kinds <= PRECISIONS:
        raise ModelFileError(f"{path} holds {', '.join(sorted(kinds - PRECISIONS))}; weights are floating point")


def read_config(folder: Path, config_type: type[Any]) -> Any:
    """The configuration of a saved model; another kind of model is refused."""
    data = read_object(folder / CONFIG, ModelFileError)
    kind = data.get("kind")
    if kind != config_type.kind:
        raise ModelFileError(f"{folder} holds a model of the kind {kind!r}, where {config_type.kind!r} was asked for")
    try:
        return config_type.from_dict(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder / CONFIG} does not describe a model of this version: {error}") from error


def download(repo_id: str, **options: Any) -> Path:
    """The folder of a model of the hub, in its cache."""
    hub, refused = require("huggingface_hub", "hub"), require("huggingface_hub.errors", "hub").HFValidationError
    try:
        return Path(hub.snapshot_download(repo_id, allow_patterns=[WEIGHTS, CONFIG, MANIFEST, *ATTACHMENTS], **options))
    except (OSError, refused) as error:
        raise ModelFileError(
            f"there is no folder {repo_id!r}, and the hub gave no model of that name: {error}"
        ) from error


def hash_weights(model: nn.Module) -> str:
    """The hash of a model's weights."""
    return hash_tensors(model.state_dict())


def hash_tensors(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over the names, shapes, types and bytes of tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(array.shape)} {array.dtype}\n".encode())
        digest.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
