"""`Folder`: where a training is saved, so that an interrupted one ends with the same bits as one that was not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import CheckpointError, SavedRunError
from measureformer.numerics.arrays import on_device
from measureformer.numerics.types import PathLike
from measureformer.storage.files import write_atomically
from measureformer.storage.safetensors import read_safetensors, to_safetensors

FORMAT = 2
"""Version of the files in a folder."""

DO = "Choose another folder, or make room."
RECORD = "record "


class Folder(NamedTuple):
    """What is trained in `problem.json`, the last state in `state.safetensors`.

    The state is one file, and names the problem again: it is whole, or the one before it is still there.
    """

    path: Path
    name: str
    """Fingerprint of the problem."""

    @staticmethod
    def at(path: PathLike, about: dict[str, Any], arrays: Iterable[Any] = ()) -> Folder:
        """The folder, new or of the same problem; refused, with the difference, if it holds another one.

        `about` is what is trained, as JSON; `arrays` are the data and first weights, of which a fingerprint is kept.
        """
        folder = Path(path)
        digest = hashlib.sha256()
        # functions are no arrays, and their addresses differ from process to process: `about` has their names
        for leaf in (_plain(leaf) for leaf in arrays if hasattr(leaf, "dtype")):
            digest.update(f"{leaf.dtype}{leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
        about = {"format": FORMAT, **about, "data": digest.hexdigest()}
        text = json.dumps(about, indent=1)
        file = folder / "problem.json"
        if not file.exists():
            write_atomically(file, text.encode(), do=DO)
        elif (found := read_json(file)) != json.loads(text):
            raise SavedRunError(
                got=f"{folder}, which holds another training ({_differences(found, json.loads(text))})",
                need="a new folder, or one of the same data, key and settings",
                do="Choose another folder, or delete this one.",
            )
        return Folder(folder, hashlib.sha256(text.encode()).hexdigest())

    def write(self, state: Any, losses: np.ndarray, records: dict[str, np.ndarray]) -> None:
        entries = {**_named(state), "losses": losses}
        entries |= {RECORD + name: np.ascontiguousarray(values) for name, values in records.items()}
        data = to_safetensors(entries, {"problem": self.name})
        write_atomically(self.path / "state.safetensors", data, do=DO)

    def read(self, state: Any, losses: np.ndarray) -> tuple[Any, np.ndarray, dict[str, np.ndarray]]:
        """The saved state, losses and records; those that are given if nothing is saved yet."""
        file = self.path / "state.safetensors"
        if not file.exists():
            return state, losses, {}
        found, metadata = read_tensors(file)
        wanted = _named(state)
        alike = all(
            name in found and (found[name].shape, found[name].dtype) == (leaf.shape, leaf.dtype)
            for name, leaf in wanted.items()
        )
        if metadata.get("problem") != self.name or not alike or "losses" not in found:
            raise damaged(file, "is not a state of the training in problem.json")
        leaves = [on_device(found[name]) for name in wanted]
        return jax.tree.unflatten(jax.tree.structure(state), leaves), found["losses"], _records(found)


def read_records(path: PathLike) -> dict[str, np.ndarray]:
    """What was observed in the training that is saved there, by name; nothing if nothing was."""
    return _records(read_tensors(Path(path) / "state.safetensors")[0])


def _records(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(RECORD): values for name, values in found.items() if name.startswith(RECORD)}


def read_tensors(file: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file, or a refusal."""
    try:
        return read_safetensors(file)
    except OSError as error:
        raise damaged(file, f"cannot be read ({error})") from error
    except CheckpointError as error:
        raise damaged(file, f"cannot be read ({error.got})") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file that training wrote, or a refusal."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SavedRunError(
            got=f"no training in {file.parent}",
            need=f"a folder with {file.name}, as training leaves it",
            do="Train first, with `measureformer incontext train` or `measureformer text train`, or name its folder.",
        ) from error
    except (OSError, ValueError) as error:
        raise damaged(file, f"cannot be read ({error})") from error
    if not isinstance(body, dict):
        raise damaged(file, "is not what training writes")
    return cast(dict[str, Any], body)


def damaged(file: Path, what: str) -> SavedRunError:
    return SavedRunError(
        got=f"{file}, which {what}", need="the files of an earlier training", do="Delete the folder, or choose another."
    )


def _named(state: Any) -> dict[str, np.ndarray]:
    """The leaves of the state by their place in it, in the order of the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _plain(leaf: Any) -> np.ndarray:
    """An array, or a random key as its numbers."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> str:
    """What differs between two descriptions, by name and with both values; fingerprints by name alone."""
    said: list[str] = []
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            inner = _differences(cast(dict[str, Any], old), cast(dict[str, Any], new), f"{prefix}{name}.")
            said += [inner] if inner else []
        elif old != new:
            said.append("other data" if name == "data" else f"{prefix}{name} {old!r} there, {new!r} here")
    return ", ".join(said)
