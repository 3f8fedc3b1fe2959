"""`RunFolder`: where a computation is saved, so that an interrupted one ends with the same bits as one that was not."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from measureformer.errors import CheckpointError, SavedRunError
from measureformer.numerics.arrays import on_device
from measureformer.numerics.types import PathLike
from measureformer.storage.files import require_file, write_atomically
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.lock import only_writer
from measureformer.storage.safetensors import read_safetensors, read_sealed, sealed

FORMAT = 4
"""Version of the files in a folder."""

RECORD = "record "


class RunFolder(NamedTuple):
    """What is computed is described in `problem.json`; results lie beside it, each written at once.

    Each file names the problem again, so that none is taken for a result of another one. The state of a training is one
    file: it is whole, or the one before it is still there.
    """

    path: Path
    name: str
    """Fingerprint of the problem."""

    @staticmethod
    @contextmanager
    def of(path: PathLike | None, about: Mapping[str, Any], data: Iterable[Any] = ()) -> Generator[RunFolder | None]:
        """The folder, new or of the same problem, held against other writers; None without a path.

        Refused, with the difference, if it holds another problem. `about` is what is computed, as JSON; of the arrays
        among `data` a fingerprint is kept.
        """
        if path is None:
            yield None
            return
        folder = Path(path)
        # functions are no arrays, and what they close over may have no content: `about` has their names
        mark = fingerprint([leaf for leaf in data if hasattr(leaf, "dtype")])
        text = json.dumps({"format": FORMAT, **about, "data": mark}, indent=1)
        with only_writer(folder):
            file = folder / "problem.json"
            if not file.exists():
                write_atomically(file, text.encode())
            elif (found := read_json(file)) != json.loads(text):
                raise SavedRunError(
                    got=f"{folder}, which holds another run ({_differences(found, json.loads(text))})",
                    need="a new folder, or one of the same data, key and settings",
                    do="Choose another folder, or delete this one.",
                )
            yield RunFolder(folder, fingerprint(text))

    @staticmethod
    def existing(path: Path) -> tuple[RunFolder, dict[str, Any]]:
        """The folder of a computation, to be read, and what its `problem.json` says."""
        about = read_json(file := path / "problem.json")
        return RunFolder(path, fingerprint(file.read_text(encoding="utf-8"))), about

    def part(self, name: str, make: Callable[[], Any]) -> Any:
        """The JSON value in `name.json`; made, and written, if it is not there, cut off, or of another problem."""
        file = self.path / f"{name}.json"
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            require_file(file)
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["problem"] == self.name and found["sha256"] == fingerprint(json.dumps(found["value"])):
                return found["value"]
        made = make()
        body = {"problem": self.name, "value": made, "sha256": fingerprint(json.dumps(made))}
        write_atomically(file, json.dumps(body).encode())
        return made

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """The array in `name.safetensors`; None if it is not there, damaged, or of another problem or shape."""
        with suppress(OSError, CheckpointError):
            tensors, metadata = read_sealed(self.path / f"{name}.safetensors")
            found = tensors.get("array")
            if found is not None and found.shape == shape and metadata.get("problem") == self.name:
                return found
        return None

    def write_array(self, name: str, array: np.ndarray) -> None:
        self.write_tensors(name, {"array": array})

    def write_tensors(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays of this problem to `name.safetensors`, sealed."""
        write_atomically(self.path / f"{name}.safetensors", sealed(arrays, {"problem": self.name}))

    def write(self, state: Any, losses: np.ndarray, records: dict[str, np.ndarray]) -> None:
        """Save the state of a training."""
        entries = {**named_leaves(state), "losses": losses}
        entries |= {RECORD + name: np.ascontiguousarray(values) for name, values in records.items()}
        self.write_tensors("state", entries)

    def read(self, state: Any, losses: np.ndarray) -> tuple[Any, np.ndarray, dict[str, np.ndarray]]:
        """The saved state, losses and records; those that are given if nothing is saved yet."""
        file = self.path / "state.safetensors"
        if not file.exists():
            return state, losses, {}
        found, metadata = read_tensors(file, seal=True)
        wanted = named_leaves(state)
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
    return _records(read_tensors(Path(path) / "state.safetensors", seal=True)[0])


def _records(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(RECORD): values for name, values in found.items() if name.startswith(RECORD)}


def read_tensors(
    file: Path, like: Mapping[str, Any] | None = None, *, seal: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file, or a refusal.

    Arrays of `like` must be there in its shapes. With `seal` the file must be as it was written, to the last bit.
    """
    try:
        found, metadata = read_sealed(file) if seal else read_safetensors(file)
    except OSError as error:
        raise damaged(file, f"cannot be read ({error})") from error
    except CheckpointError as error:
        raise damaged(file, f"cannot be read ({error.got})") from error
    for name, leaf in (like or {}).items():
        if name not in found or found[name].shape != leaf.shape:
            there = f"of shape {found[name].shape}" if name in found else "missing"
            raise damaged(file, f"has {name} {there}, and needs it of shape {leaf.shape}")
    return found, metadata


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file that training wrote, or a refusal."""
    try:
        require_file(file)
        body = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SavedRunError(
            got=f"no training in {file.parent}",
            need=f"a folder with {file.name}, as training leaves it",
            do="Train first, with `measureformer incontext train` or `measureformer text train`, or name its folder.",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(file, f"cannot be read ({error})") from error
    if not isinstance(body, dict):
        raise damaged(file, "is not what training writes")
    return cast(dict[str, Any], body)


def damaged(file: Path, what: str) -> SavedRunError:
    return SavedRunError(
        got=f"{file}, which {what}", need="the files of an earlier run", do="Delete the folder, or choose another."
    )


def named_leaves(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree by their place in it, in its order."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> str:
    """What differs between two descriptions, by name and with both values; fingerprints and lists by name alone."""
    said: list[str] = []
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            inner = _differences(cast(dict[str, Any], old), cast(dict[str, Any], new), f"{prefix}{name}.")
            said += [inner] if inner else []
        elif old != new:
            digests = isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == 64
            unsaid = digests or (isinstance(old, list) and isinstance(new, list))
            said.append(f"other {prefix}{name}" if unsaid else f"{prefix}{name} {old!r} there, {new!r} here")
    return ", ".join(said)
