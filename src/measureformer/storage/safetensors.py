"""Safetensors files, read and written with NumPy alone.

The file is eight bytes with the length of a JSON header, the header, and the tensors one after the other. Files are
memory-mapped: only the header is read until a tensor is used. A header may come from anywhere, so everything it says is
checked against the file before a view of it is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from measureformer.errors import CheckpointError, DtypeError

LONGEST_HEADER = 100_000_000
"""Bytes, as in the reference implementation."""

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
_NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
_ALIGNMENT = 8


def to_safetensors(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with these arrays and metadata; wide types come first, so that all are aligned."""
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    names, end = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)), 0
    for name in names:
        array, start = arrays[name], end
        if array.dtype not in _NAMES:
            raise DtypeError(
                got=f"{name} of dtype {array.dtype}", need=f"one of {', '.join(DTYPES)}", do="Convert it before saving."
            )
        end += array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % _ALIGNMENT)
    return b"".join([len(raw).to_bytes(8, "little"), raw, *(arrays[name].tobytes() for name in names)])


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Copies of all tensors of the file by name, and its metadata."""
    tensors, metadata = _open(path)
    return {name: np.array(tensor) for name, tensor in tensors.items()}, metadata


def open_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of the file by name, as a read-only view into the mapped file."""
    return _open(path)[0]


def _open(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    size = path.stat().st_size
    if size < 8:
        raise damaged(path, f"{size} bytes", "at least the 8 bytes that hold the length of the header")
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(size - 8, LONGEST_HEADER):
            raise damaged(path, f"a header of {length} bytes in a file of {size}", "a header that fits into the file")
        header = _header(path, stream.read(length))
    start = 8 + length
    metadata = header.pop("__metadata__", None)
    spans = {name: _span(path, name, entry) for name, entry in header.items()}
    _require_tiling(path, spans, size - start)
    data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    tensors = {
        name: data[start + low : start + high].view(dtype).reshape(shape)
        for name, (dtype, shape, low, high) in spans.items()
    }
    return tensors, metadata if isinstance(metadata, dict) else {}


Span = tuple[np.dtype[Any], tuple[int, ...], int, int]


def _header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        if not raw.startswith(b"{"):
            raise ValueError("no { at the beginning")
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"a header that is not JSON ({error})", "a JSON object") from None
    if not isinstance(header, dict):
        raise damaged(path, f"a header that is a JSON {type(header).__name__}", "a JSON object")
    return cast(dict[str, Any], header)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name that occurs twice")
    return found


def _span(path: Path, name: str, entry: Any) -> Span:
    """dtype, shape, first and last byte of a tensor, as its entry says."""
    wrong = damaged(path, f"the entry {str(entry)[:80]} of tensor {name[:60]!r}", "dtype, shape and two data_offsets")
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise wrong
    shape, offsets = entry["shape"], entry["data_offsets"]
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise wrong
    if len(offsets) != 2 or len(shape) > 32:
        raise wrong
    if entry["dtype"] not in DTYPES:
        raise CheckpointError(
            got=f"tensor {name[:60]!r} of type {str(entry['dtype'])[:20]!r} in {path.name}",
            need=f"one of {', '.join(DTYPES)}",
            do="Store the tensor as F32, F16 or BF16.",
        )
    dtype = np.dtype(DTYPES[entry["dtype"]])
    low, high = offsets
    if high - low != math.prod(shape) * dtype.itemsize:
        raise damaged(path, f"{high - low} bytes for tensor {name[:60]!r} of shape {shape}", "as many as the shape has")
    return dtype, tuple(shape), low, high


def _require_tiling(path: Path, spans: dict[str, Span], size: int) -> None:
    """Tensors follow one another without gaps and overlaps, up to the end of the file."""
    end = 0
    for name, (_, _, low, high) in sorted(spans.items(), key=lambda item: item[1][2:]):
        if low != end:
            fault = "overlaps the one before" if low < end else "leaves a gap"
            raise damaged(path, f"tensor {name[:60]!r}, which {fault}", "tensors one after the other")
        end = high
    if end != size:
        raise damaged(path, f"{size} bytes of data for tensors of {end}", "a file that ends with its last tensor")


def damaged(path: Path, got: str, need: str) -> CheckpointError:
    """The refusal of a file that is not what its name says."""
    return CheckpointError(
        got=f"{got}, in {path.name}", need=need, do="The file is truncated or damaged: copy it again from its source."
    )
