"""Safetensors files as NumPy arrays. The package `safetensors` checks a file; its tensors are then views of it.

A header may come from anywhere. That the package accepts it means that tensors lie one after the other, without gaps,
up to the end of the file, and are as large as their shapes say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from measureformer.errors import CheckpointError, DtypeError
from measureformer.storage.files import require_file
from measureformer.storage.fingerprint import fingerprint

DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jax.dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
SEAL = "sha256"
"""Entry of the metadata that says what the file must hold."""


def to_safetensors(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with these arrays and metadata."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    for name, array in arrays.items():
        if array.dtype not in map(np.dtype, DTYPES.values()):
            raise DtypeError(
                got=f"{name} of dtype {array.dtype}", need=f"one of {', '.join(DTYPES)}", do="Convert it before saving."
            )
    return save(arrays, None if metadata is None else dict(metadata))


def sealed(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> bytes:
    """The same with a fingerprint of names, arrays and metadata, which `read_sealed` compares."""
    return to_safetensors(tensors, {**metadata, SEAL: _seal(tensors, metadata)})


def read_sealed(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """As `read_safetensors`, of a file that `sealed` made; refused if one bit of it has changed since."""
    tensors, metadata = read_safetensors(path)
    if metadata.pop(SEAL, None) != _seal(tensors, metadata):
        raise damaged(path, "contents that are not those that were written", "a whole file")
    return tensors, metadata


def _seal(tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> str:
    arrays = [(name, np.asarray(tensors[name], order="C")) for name in sorted(tensors)]
    return fingerprint((arrays, sorted(metadata.items())))


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Copies of all tensors of the file by name, and its metadata."""
    tensors, metadata = _open(path)
    return {name: np.array(tensor) for name, tensor in tensors.items()}, metadata


def open_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of the file by name, as a read-only view into the mapped file."""
    return _open(path)[0]


def _open(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    require_file(path)
    try:
        with safe_open(path, framework="np") as checked:
            metadata: dict[str, str] = checked.metadata() or {}
        data = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(data[8:start].tobytes(), object_pairs_hook=_unique)
        header.pop("__metadata__", None)
        return {name: _view(path, name, data[start:], entry) for name, entry in header.items()}, metadata
    # ValueError: sizes that NumPy does not have
    except (SafetensorError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise damaged(path, f"data that are not safetensors ({str(error)[:120]})", "a whole file") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # the package reads the last of two entries of one name
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name that occurs twice")
    return found


def _view(path: Path, name: str, data: np.ndarray, entry: dict[str, Any]) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise CheckpointError(
            got=f"tensor {name[:60]!r} of type {entry['dtype']!r} in {path.name}",
            need=f"one of {', '.join(DTYPES)}",
            do="Store the tensor as F32, F16 or BF16.",
        )
    low, high = entry["data_offsets"]
    return data[low:high].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])


def damaged(path: Path, got: str, need: str) -> CheckpointError:
    """The refusal of a file that is not what its name says."""
    return CheckpointError(
        got=f"{got}, in {path.name}", need=need, do="The file is truncated or damaged: copy it again from its source."
    )
