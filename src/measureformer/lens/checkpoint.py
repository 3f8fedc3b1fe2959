"""`Checkpoint`: the weights of a model and its configuration, from a folder, a file or a dictionary.

Nothing is loaded before it is asked for: files are mapped into memory, quantised tensors are unpacked one at a time,
and half precision becomes float32 on the way out. No pickle is opened, and nothing is fetched from anywhere.
"""

from __future__ import annotations

import importlib
import json
import mmap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from measureformer.errors import CheckpointError
from measureformer.lens.gguf import Packed, open_gguf
from measureformer.storage.safetensors import damaged, open_safetensors

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".cpkt", ".pkl")
LARGEST_JSON = 64 << 20
"""Bytes of a configuration or an index; a tokenizer may be larger."""


class Checkpoint:
    """Tensors by name, and what the model's configuration says.

    >>> import numpy as np
    >>> checkpoint = Checkpoint({"weight": np.eye(2, dtype=np.float16)}, {"model_type": "mine"})
    >>> checkpoint.tensor("weight").dtype, checkpoint.config["model_type"]
    (dtype('float32'), 'mine')
    """

    def __init__(
        self, tensors: Mapping[str, Any], config: Mapping[str, Any], *, source: str = "a dictionary", folder: Any = None
    ) -> None:
        self._tensors = dict(tensors)
        self.config = dict(config)
        self.source = source
        """Where it came from, in words: never a path of this machine."""
        self.folder: Path | None = folder
        """Where a tokenizer may lie beside the weights."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.entry(name).shape)

    @property
    def size(self) -> int:
        """Numbers in all tensors together."""
        return sum(int(np.prod(tensor.shape)) for tensor in self._tensors.values())

    def require(self, name: str, shape: tuple[int | None, ...]) -> None:
        """Refuse a tensor whose shape is not the one that the configuration implies."""
        found = self.shape(name)
        if len(found) != len(shape) or any(b is not None and a != b for a, b in zip(found, shape, strict=True)):
            wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
            raise CheckpointError(
                got=f"tensor {name} of shape {found} in {self.source}",
                need=f"shape {wanted}, as the configuration says",
                do="The configuration and the weights belong to different models: take both from one place.",
            )

    def tensor(self, name: str, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
        """The tensor as float32 (float64 stays), with its shape checked."""
        if shape is not None:
            self.require(name, shape)
        entry = self.entry(name)
        return entry.rows() if isinstance(entry, Packed) else _taken(entry, _floats(entry, name))

    def rows(self, name: str, index: Any) -> np.ndarray:
        """Some rows of a table, without reading the others."""
        entry = self.entry(name)
        return entry.rows(index) if isinstance(entry, Packed) else _floats(entry[index], name)

    def entry(self, name: str) -> Any:
        """The tensor as it is stored: an array, or packed rows."""
        if name not in self._tensors:
            near = sorted(known for known in self._tensors if known.rpartition(".")[0] == name.rpartition(".")[0])
            there = near or sorted(self._tensors)
            raise CheckpointError(
                got=f"no tensor {name} in {self.source}",
                need="all weights of the model",
                do=f"It has {len(self._tensors)} tensors, such as {', '.join(there[:4]) or 'none'}.",
            )
        return self._tensors[name]


def _taken(entry: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Numbers of their own: the pages of a mapped file would stay in memory beside what is made of them."""
    pages = getattr(entry, "_mmap", None)
    if pages is None or not hasattr(mmap, "MADV_DONTNEED"):
        return found
    found = np.array(found)
    pages.madvise(mmap.MADV_DONTNEED)
    return found


def _floats(array: Any, name: str) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind in "fV" or array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    raise CheckpointError(
        got=f"tensor {name} of type {array.dtype}",
        need="floating-point weights",
        do="Integer weights of other quantisations are not read: convert the model to float16, or to GGUF.",
    )


def open_checkpoint(source: Any, config: Mapping[str, Any] | None = None) -> Checkpoint:
    """A checkpoint from a folder in Hugging Face layout, a .safetensors or .gguf file, or a dictionary of arrays.

    `config` is needed for a dictionary; for a file it replaces the config.json beside it.
    """
    if isinstance(source, Checkpoint):
        return source
    if isinstance(source, Mapping):
        if config is None:
            raise CheckpointError(
                got="a dictionary of arrays without a config",
                need="the configuration of the model",
                do='Pass config={"model_type": "gpt2", …}, as in its config.json.',
            )
        return Checkpoint(cast(Mapping[str, Any], source), config)
    path = Path(source)
    if not path.exists():
        raise CheckpointError(
            got=f"{str(path)!r}, which is not there",
            need="a folder or a file with weights",
            do="Nothing is downloaded: give the path of a model on this disk.",
        )
    try:
        return _folder(path, config) if path.is_dir() else _file(path, config)
    except OSError as error:
        raise CheckpointError(
            got=f"'{error.strerror or error}' for {path.name}",
            need="files that can be read",
            do="Check the permissions.",
        ) from None


def _folder(path: Path, config: Mapping[str, Any] | None) -> Checkpoint:
    if (path / INDEX).is_file():
        tensors = _shards(path)
    else:
        found = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.gguf"))
        if not found:
            if legacy := sorted(entry for entry in path.iterdir() if entry.suffix in PICKLES):
                return _pickled(legacy[0], config)
            raise CheckpointError(
                got=f"folder {path.name} without weights",
                need=f"model.safetensors, {INDEX} with its shards, or a .gguf file",
                do="Give the folder that holds config.json and the weights.",
            )
        chosen = next((file for file in found if file.name == "model.safetensors"), found[0])
        if chosen.suffix == ".gguf":
            return _file(chosen, config)
        if len(found) > 1 and chosen.name != "model.safetensors":
            raise CheckpointError(
                got=f"{len(found)} safetensors files in {path.name} and no {INDEX}",
                need="an index that says which file holds what",
                do="Give the path of one of the files, or add the index.",
            )
        tensors = open_safetensors(chosen)
    config = _read_config(path) if config is None else config
    return Checkpoint(tensors, config, source=path.name, folder=path)


def _file(path: Path, config: Mapping[str, Any] | None) -> Checkpoint:
    if path.suffix == ".gguf":
        metadata, packed = open_gguf(path)
        return Checkpoint(packed, metadata if config is None else config, source=path.name, folder=path.parent)
    if path.suffix in PICKLES:
        return _pickled(path, config)
    if path.suffix != ".safetensors":
        raise CheckpointError(
            got=f"the file {path.name}",
            need="a .safetensors or .gguf file, or a folder",
            do="Give the folder of the model, with config.json and model.safetensors.",
        )
    tensors = open_safetensors(path)
    config = _read_config(path.parent) if config is None else config
    return Checkpoint(tensors, config, source=path.name, folder=path.parent)


def _shards(path: Path) -> dict[str, np.ndarray]:
    """All tensors of the files that the index names, each of which must lie in the folder itself."""
    weights = _read_json(path / INDEX).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise damaged(path / INDEX, "no weight_map from names to files", "one")
    tensors: dict[str, np.ndarray] = {}
    for name in sorted(set(weights.values())):
        # a name with a separator could lead anywhere on the disk
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise CheckpointError(
                got=f"the shard {name[:80]!r} in {INDEX}",
                need="the plain name of a .safetensors file in the same folder",
                do="Do not trust this checkpoint: an index has no reason to point elsewhere.",
            )
        if not (path / name).is_file():
            raise CheckpointError(
                got=f"no file {name}, which {INDEX} names", need="every shard", do="Copy the missing files too."
            )
        tensors |= open_safetensors(path / name)
    if missing := sorted(set(weights) - set(tensors)):
        raise damaged(path / INDEX, f"{len(missing)} tensors that no shard has, such as {missing[0][:60]!r}", "all")
    return tensors


def _read_config(path: Path) -> dict[str, Any]:
    if not (path / "config.json").is_file():
        raise CheckpointError(
            got=f"no config.json in {path.name}",
            need="the configuration of the model beside its weights",
            do="Copy it there, or pass config={…} yourself.",
        )
    return _read_json(path / "config.json")


def _read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > LARGEST_JSON:
        raise damaged(path, f"{path.stat().st_size} bytes", f"at most {LARGEST_JSON}")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"text that is not JSON ({str(error)[:80]})", "a JSON object") from None
    if not isinstance(body, dict):
        raise damaged(path, f"a JSON {type(body).__name__}", "a JSON object")
    return cast(dict[str, Any], body)


def _pickled(path: Path, config: Mapping[str, Any] | None) -> Checkpoint:
    """A torch file, which is a pickle: by torch itself if it is here, with weights only; refused otherwise."""
    _refuse_bomb(path)
    try:
        torch = cast(Any, importlib.import_module("torch"))
    except ImportError:
        raise CheckpointError(
            got=f"{path.name}, a pickle, which can run any program when it is opened",
            need="safetensors, or the package torch, which can open it for its weights only",
            do='Where torch is installed: python -c "import torch, safetensors.torch as s; '
            f"w = torch.load('{path.name}', weights_only=True); "
            "s.save_file({k: v.clone() for k, v in w.items()}, 'model.safetensors')\"",
        ) from None
    try:
        body = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or hostile pickle makes torch raise
        raise damaged(path, f"a file that torch does not open ({str(error).splitlines()[0][:80]})", "weights") from None
    return Checkpoint(
        {name: value.float().numpy() for name, value in _tensors_in(body, torch)},
        _read_config(path.parent) if config is None else config,
        source=path.name,
        folder=path.parent,
    )


def _refuse_bomb(path: Path) -> None:
    """Torch files are archives whose members are not compressed: one that grows when it is opened is no torch file."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise damaged(path, f"an archive that cannot be read ({str(error)[:80]})", "weights") from None
    if unpacked > path.stat().st_size:
        raise CheckpointError(
            got=f"{path.name} of {path.stat().st_size} bytes, which would unpack to {unpacked}",
            need="an archive that is not compressed",
            do="Do not trust this file: torch does not write such archives.",
        )


def _tensors_in(body: Any, torch: Any) -> list[tuple[str, Any]]:
    """Named tensors of a state dictionary, or of the first dictionary in a tuple."""
    if isinstance(body, (tuple, list)):
        body = next((part for part in body if isinstance(part, dict)), {})
    if isinstance(body, dict) and isinstance(body.get("state_dict"), dict):
        body = body["state_dict"]
    found = body.items() if isinstance(body, dict) else ()
    return [(str(name), value) for name, value in found if isinstance(value, torch.Tensor)]
