"""GGUF files, memory-mapped; quantised tensors are unpacked when they are used.

The header is read here, with every length checked against the file, because a reader that believes the counts of a
hostile file can be made to loop for ever. What the quantised blocks mean is left to the package `gguf`.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measureformer.errors import CheckpointError, need
from measureformer.storage.files import require_file
from measureformer.storage.safetensors import damaged

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_TENSORS, MOST_ENTRIES, MOST_AXES = 1 << 20, 1 << 16, 8

# types of metadata: the code that struct unpacks, for those of fixed size
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Packed:
    """A tensor in the file: its bytes, one row after the other, and what they mean."""

    data: np.ndarray
    kind: int
    shape: tuple[int, ...]

    def rows(self, index: Any = slice(None)) -> np.ndarray:
        """These rows as float32."""
        chosen = np.ascontiguousarray(self.data[index])
        gguf = package()
        flat = gguf.quants.dequantize(chosen.reshape(-1, chosen.shape[-1]), gguf.GGMLQuantizationType(self.kind))
        return np.asarray(flat, np.float32).reshape(*chosen.shape[:-1], self.shape[-1])


def package() -> Any:
    """The package `gguf`."""
    need("gguf.quants", "lens")
    return need("gguf", "lens")


class _Walk:
    """Reads values from the mapped file one after the other; nothing beyond its end is ever touched."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise damaged(self.path, f"a length of {count} bytes at byte {self.at}", "lengths that fit into the file")
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def count(self, most: int, what: str) -> int:
        number = self.scalar("Q")
        if number > most:
            raise damaged(self.path, f"{number} {what}", f"at most {most}")
        return number

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind in SCALARS:
            return self.scalar(SCALARS[kind])
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            raise damaged(self.path, f"metadata of type {kind}", "a type from 0 to 12")
        inner, count = self.scalar("I"), self.scalar("Q")
        if inner in SCALARS:
            code = SCALARS[inner]
            raw = self.take(count * struct.calcsize(code))
            return np.frombuffer(raw, np.dtype(code).newbyteorder("<")).tolist()
        # each string takes at least its length of 8 bytes, so the count is bounded by the file
        if inner != STRING or count > (len(self.data) - self.at) // 8:
            raise damaged(self.path, f"an array of {count} values of type {inner}", "numbers or strings that fit")
        return [self.string() for _ in range(count)]


def open_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Packed]]:
    """Metadata and tensors of the file."""
    require_file(path)
    if path.stat().st_size < 24:
        raise damaged(path, f"{path.stat().st_size} bytes", "a GGUF header")
    data = np.memmap(path, np.uint8, "r")
    walk = _Walk(path, data)
    magic, version = walk.take(4), walk.scalar("I")
    if magic != MAGIC or version not in VERSIONS:
        raise CheckpointError(
            got=f"{path.name} that begins with {magic!r}, version {version}",
            need=f"GGUF of version {' or '.join(map(str, VERSIONS))}, little-endian",
            do="Convert it again with a current converter.",
        )
    tensors, entries = walk.count(MOST_TENSORS, "tensors"), walk.count(MOST_ENTRIES, "entries of metadata")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        name = walk.string()
        metadata[name] = walk.value(walk.scalar("I"))
    found = [_entry(walk) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not (0 < alignment <= 1 << 16) or alignment & (alignment - 1):
        raise damaged(path, f"an alignment of {alignment!r}", "a power of two")
    start = -(-walk.at // alignment) * alignment
    packed: dict[str, Packed] = {}
    end = 0
    for name, shape, kind, offset in sorted(found, key=lambda entry: entry[3]):
        if name in packed or offset < end:
            fault = "has the name of another" if name in packed else "overlaps the one before"
            raise damaged(
                path, f"tensor {name[:60]!r}, which {fault}", "tensors one after the other, each with its name"
            )
        packed[name] = _packed(path, data, start, (name, shape, kind, offset))
        end = offset + packed[name].data.nbytes
    return metadata, packed


Entry = tuple[str, tuple[int, ...], int, int]


def _entry(walk: _Walk) -> Entry:
    name, axes = walk.string(), walk.scalar("I")
    if not 0 < axes <= MOST_AXES:
        raise damaged(walk.path, f"tensor {name[:60]!r} with {axes} axes", f"1 to {MOST_AXES}")
    # the file names the fastest axis first
    shape = tuple(walk.scalar("Q") for _ in range(axes))[::-1]
    return name, shape, walk.scalar("I"), walk.scalar("Q")


def _packed(path: Path, data: np.ndarray, start: int, entry: Entry) -> Packed:
    name, shape, kind, offset = entry
    gguf = package()
    try:
        block, bytes_per_block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise damaged(path, f"tensor {name[:60]!r} of type {kind}", "a type that the package gguf knows") from None
    if shape[-1] % block:
        raise damaged(path, f"tensor {name[:60]!r} with rows of {shape[-1]}", f"a multiple of {block}")
    per_row = shape[-1] // block * bytes_per_block
    size = math.prod(shape[:-1]) * per_row
    if size == 0 or start + offset + size > len(data):
        raise damaged(path, f"tensor {name[:60]!r} of {size} bytes at {offset}", "tensors that lie inside the file")
    rows = data[start + offset : start + offset + size].reshape(*shape[:-1], per_row)
    return Packed(rows, kind, shape)
