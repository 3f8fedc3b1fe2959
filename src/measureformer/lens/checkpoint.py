"""`Checkpoint`: the weights of a model and its configuration, from a folder, a file or a dictionary.

Nothing is loaded before it is asked for: files are mapped into memory, quantised tensors are unpacked one at a time,
and half precision becomes float32 on the way out. No pickle is opened, and nothing is fetched from anywhere.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from measureformer.errors import CheckpointError
from measureformer.lens.gguf import Packed, open_gguf
from measureformer.lens.torch_files import PICKLES, open_torch, torch_files
from measureformer.numerics.types import ArrayLike, PathLike
from measureformer.storage.files import require_file
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.safetensors import damaged, open_safetensors

INDICES = "model.safetensors.index.json", "pytorch_model.bin.index.json"
LARGEST_JSON = 64 << 20
"""Bytes of a configuration or an index; a tokenizer may be larger."""


class Checkpoint:
    """Tensors by name, and what the model's configuration says.

    Arguments:
        tensors: arrays, or packed tensors, by name.
        config: what config.json says.
        source: where the tensors come from, in words: never a path of this machine.
        folder: where a tokenizer may lie beside the weights.

    >>> import numpy as np
    >>> checkpoint = Checkpoint({"weight": np.eye(2, dtype=np.float16)}, {"model_type": "mine"})
    >>> checkpoint.tensor("weight").dtype, checkpoint.config["model_type"]
    (dtype('float32'), 'mine')
    """

    def __init__(
        self,
        tensors: Mapping[str, Any],
        config: Mapping[str, object],
        *,
        source: str = "a dictionary",
        folder: Path | None = None,
    ) -> None:
        self._tensors = _unwrapped(tensors)
        self.config: dict[str, Any] = dict(config)  # JSON
        self.source = source
        self.folder = folder

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

    @cached_property
    def fingerprint(self) -> str:
        """Of all names, shapes and bytes; reads the whole file, once."""
        found: dict[str, str] = {}
        for name in sorted(self._tensors):
            found[name] = fingerprint(self._tensors[name])
            _forget(self._tensors[name])
        return fingerprint(found)

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
        found = entry.rows() if isinstance(entry, Packed) else _taken(entry, _floats(entry, name))
        return self._finite(found, name)

    def rows(self, name: str, index: Any) -> np.ndarray:
        """Some rows of a table, without reading the others."""
        entry = self.entry(name)
        found = entry.rows(index) if isinstance(entry, Packed) else _floats(entry[index], name)
        return self._finite(found, name)

    def _finite(self, found: np.ndarray, name: str) -> np.ndarray:
        if count := found.size - np.count_nonzero(np.isfinite(found)):
            raise CheckpointError(
                got=f"{count} entries of tensor {name} in {self.source} that are NaN or infinite",
                need="finite weights",
                do="Training diverged, or a conversion to half precision overflowed: take an earlier checkpoint.",
            )
        return found

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


def _unwrapped(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors without the prefixes that compiled and data-parallel modules of torch add to every name."""
    found = {name.replace("_orig_mod.", ""): tensor for name, tensor in tensors.items()}
    while found and all(name.startswith("module.") for name in found):
        found = {name.removeprefix("module."): tensor for name, tensor in found.items()}
    return found if len(found) == len(tensors) else dict(tensors)


def _taken(entry: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Numbers of their own: the pages of a mapped file would stay in memory beside what is made of them."""
    if getattr(entry, "_mmap", None) is None:
        return found
    found = np.array(found)
    _forget(entry)
    return found


def _forget(entry: Any) -> None:
    """Let go of the pages of a mapped file, which are read again when they are used."""
    pages = getattr(entry.data if isinstance(entry, Packed) else entry, "_mmap", None)
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


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


Source: TypeAlias = PathLike | Mapping[str, ArrayLike] | Checkpoint


def open_checkpoint(source: Source, config: Mapping[str, object] | None = None) -> Checkpoint:
    """Open the weights and the configuration of a model; nothing is loaded yet.

    Arguments:
        source: a folder in Hugging Face layout, a .safetensors or .gguf file, or a dictionary of arrays.
        config: what config.json says; needed for a dictionary, and replaces the file otherwise.
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
        return Checkpoint(source, config)
    path = Path(source)
    if not os.path.exists(path):  # Path.exists raises for names that are too long
        raise CheckpointError(
            got=f"{str(path)[:300]!r}, which is not there",
            need="a folder or a file with weights",
            do="Nothing is downloaded: give the path of a model on this disk.",
        )
    try:
        return _opened(path, config)
    except OSError as error:
        raise CheckpointError(
            got=f"'{error.strerror or error}' for {path.name}",
            need="files that can be read",
            do="Check the permissions.",
        ) from None


def _opened(path: Path, config: Mapping[str, object] | None) -> Checkpoint:
    if not path.is_dir():
        require_file(path)
    folder, (files, wanted) = (path, _weights_in(path)) if path.is_dir() else (path.parent, ([path], set[str]()))
    source, kind = path.name, files[0].suffix
    if kind == ".safetensors":
        tensors: dict[str, Any] = {name: one for file in files for name, one in open_safetensors(file).items()}
    elif kind == ".gguf":
        source, (metadata, tensors) = files[0].name, open_gguf(files[0])
        config = metadata if config is None else config
    elif kind in PICKLES:
        source, tensors = path.name if path.is_dir() else files[0].name, open_torch(files)
    else:
        raise CheckpointError(
            got=f"the file {files[0].name}",
            need="a .safetensors or .gguf file, or a folder",
            do="Give the folder of the model, with config.json and model.safetensors.",
        )
    if missing := sorted(wanted - set(tensors)):
        what = f"{len(missing)} tensors that no shard has, such as {missing[0][:60]!r}"
        raise damaged(folder, what, "all that the index names")
    return Checkpoint(tensors, _read_config(folder) if config is None else config, source=source, folder=folder)


def _weights_in(folder: Path) -> tuple[list[Path], set[str]]:
    """The files in a folder that hold the weights, and the tensors that an index promises.

    They are those of the index, or the only file of its kind.
    """
    for name in (INDICES[0], "model.safetensors", INDICES[1]):
        if (folder / name).is_file():
            if name not in INDICES:
                return [folder / name], set()
            weights = _weight_map(folder / name)
            return [folder / file for file in sorted(set(weights.values()))], set(weights)
    kinds = sorted(folder.glob("*.safetensors")), sorted(folder.glob("*.gguf")), torch_files(folder)
    found = next(filter(None, kinds), [])
    if not found:
        raise CheckpointError(
            got=f"folder {folder.name} without weights",
            need=f"model.safetensors, {INDICES[0]} with its shards, or a .gguf file",
            do="Give the folder that holds config.json and the weights.",
        )
    shard = re.search(r"-of-0*([0-9]+)$", found[0].stem)
    if len(found) > 1 or (shard is not None and shard[1] != "1"):
        names = ", ".join(path.name for path in found[:4]) + ", …" * (len(found) > 4)
        index = {".safetensors": INDICES[0], ".gguf": ""}.get(found[0].suffix, INDICES[1])
        raise CheckpointError(
            got=f"{names} in {folder.name}{index and f' and no {index}'}",
            need=f"one file with all weights{index and ', or an index that says which file holds what'}",
            do=f"Give the path of one of the files{index and ', or add the index'}.",
        )
    return found, set()


def _weight_map(index: Path) -> dict[str, str]:
    """The file of each tensor, which must lie in the folder itself."""
    found = _read_json(index).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in cast(dict[str, Any], found).values()):
        raise damaged(index, "no weight_map from names to files", "one")
    weights, kind = cast(dict[str, str], found), index.name.split(".")[-3]
    for name in sorted(set(weights.values())):
        # a name with a separator could lead anywhere on the disk
        if Path(name).name != name or "\\" in name or not name.endswith(f".{kind}"):
            raise CheckpointError(
                got=f"the shard {name[:80]!r} in {index.name}",
                need=f"the plain name of a .{kind} file in the same folder",
                do="Do not trust this checkpoint: an index has no reason to point elsewhere.",
            )
        if not (index.parent / name).is_file():
            raise CheckpointError(
                got=f"no file {name}, which {index.name} names", need="every shard", do="Copy the missing files too."
            )
    if not weights:
        raise damaged(index, "a weight_map of nothing", "one with all tensors")
    return weights


def _read_config(path: Path) -> dict[str, Any]:
    if not (path / "config.json").is_file():
        raise CheckpointError(
            got=f"no config.json in {path.name}",
            need="the configuration of the model beside its weights",
            do="Copy it there, or pass config={…} yourself.",
        )
    return _read_json(path / "config.json")


def _read_json(path: Path) -> dict[str, Any]:
    require_file(path)
    if path.stat().st_size > LARGEST_JSON:
        raise damaged(path, f"{path.stat().st_size} bytes", f"at most {LARGEST_JSON}")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"text that is not JSON ({str(error)[:80]})", "a JSON object") from None
    if not isinstance(body, dict):
        raise damaged(path, f"a JSON {type(body).__name__}", "a JSON object")
    return cast(dict[str, Any], body)
