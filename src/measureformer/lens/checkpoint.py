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
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from measureformer.errors import CheckpointError
from measureformer.lens.gguf import Packed, open_gguf
from measureformer.numerics.types import ArrayLike, PathLike
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.safetensors import damaged, open_safetensors

INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".cpkt", ".pkl")
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
        self._tensors = dict(tensors)
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
    if not path.exists():
        raise CheckpointError(
            got=f"{str(path)!r}, which is not there",
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
    folder, file = (path, _weights_in(path)) if path.is_dir() else (path.parent, path)
    source = path.name
    if file.name == INDEX:
        tensors = _shards(folder)
    elif file.suffix == ".safetensors":
        tensors = open_safetensors(file)
    elif file.suffix == ".gguf":
        source, (metadata, tensors) = file.name, open_gguf(file)
        config = metadata if config is None else config
    elif file.suffix in PICKLES:
        source, tensors = file.name, _unpickled(file)
    else:
        raise CheckpointError(
            got=f"the file {file.name}",
            need="a .safetensors or .gguf file, or a folder",
            do="Give the folder of the model, with config.json and model.safetensors.",
        )
    return Checkpoint(tensors, _read_config(folder) if config is None else config, source=source, folder=folder)


def _weights_in(folder: Path) -> Path:
    """The file in a folder that holds the weights, or says which files hold them."""
    for name in (INDEX, "model.safetensors"):
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.safetensors"))
    if len(found) > 1:
        raise CheckpointError(
            got=f"{len(found)} safetensors files in {folder.name} and no {INDEX}",
            need="an index that says which file holds what",
            do="Give the path of one of the files, or add the index.",
        )
    found += [*sorted(folder.glob("*.gguf")), *sorted(one for one in folder.iterdir() if one.suffix in PICKLES)]
    if not found:
        raise CheckpointError(
            got=f"folder {folder.name} without weights",
            need=f"model.safetensors, {INDEX} with its shards, or a .gguf file",
            do="Give the folder that holds config.json and the weights.",
        )
    return found[0]


def _shards(path: Path) -> dict[str, np.ndarray]:
    """All tensors of the files that the index names, each of which must lie in the folder itself."""
    found = _read_json(path / INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in cast(dict[str, Any], found).values()):
        raise damaged(path / INDEX, "no weight_map from names to files", "one")
    weights = cast(dict[str, str], found)
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


def _unpickled(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a torch file, a pickle: torch opens it, for its weights only; refused without torch."""
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
    # a state dictionary, or the first dictionary in a tuple
    if isinstance(body, (tuple, list)):
        body = next((part for part in cast(list[Any], body) if isinstance(part, dict)), {})
    if isinstance(body, dict):
        body = cast(dict[str, Any], body)
        found = cast(dict[str, Any], body["state_dict"] if isinstance(body.get("state_dict"), dict) else body)
        return {str(k): value.float().numpy() for k, value in found.items() if isinstance(value, torch.Tensor)}
    return {}


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
