"""A flow as a folder: a JSON description, the initial measure, points at times, and the state to resume from.

    flow.json               fingerprints, times, settings; written once
    initial.safetensors     the measure
    points-000001.…         points at the times from number 1 on; the next file continues where this one ends
    state.safetensors       points, solver and control after the last step on disk

Writes are atomic. The state is written after the points it belongs to and counts the times that were reached, so that
the folder is consistent at whatever moment the process dies.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from measureformer.errors import CheckpointError, DtypeError, SavedRunError, SpreadError
from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings, control_numbers, settings_from
from measureformer.flows.velocity import Depthwise
from measureformer.measures import Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import is_elsewhere, on_device
from measureformer.numerics.types import PathLike
from measureformer.storage.files import write_atomically
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.safetensors import open_safetensors, to_safetensors

FORMAT = 1
MOST_LAYERS = 10**6
KINDS = {"Discrete": Discrete, "SpaceTime": SpaceTime}
_FIELDS = {
    "format": int,
    "velocity": str,
    "measure": str,
    "times": list,
    "kind": str,
    "layers": int,
    "solver": str,
    "control": (dict, type(None)),
    "limit": int,
    "tol": (float, type(None)),
    "steps": (int, type(None)),
}
_COUNTS = ("reached", "since", "segment", "code")


class Folder:
    """A saved flow on disk. `about` is what its JSON says."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about

    @staticmethod
    def at(path: PathLike) -> Folder | None:
        """The flow in this folder, None if there is none yet; refused if there is something else."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise _refused(path, "is a file", "a folder", "Name another one.")
        file = path / "flow.json"
        if not file.exists():
            return None
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise _damaged(file, f"cannot be read ({type(error).__name__})") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise _damaged(file, f"is not of the format {FORMAT}")
        wrong = [name for name, kind in _FIELDS.items() if not isinstance(about.get(name), kind)]
        wrong += ["kind"] if about.get("kind") not in list(KINDS) else []
        if not wrong:
            good = {
                "times": all(isinstance(t, float) for t in about["times"]),
                "layers": 1 <= about["layers"] <= MOST_LAYERS,
                "steps": about["steps"] is None or about["steps"] >= 1,
                "solver": settings_from(about) is not None,
            }
            wrong = [name for name, right in good.items() if not right]
        if wrong:
            raise _damaged(file, f"has no good entry {wrong[0]!r}")
        return Folder(path, about)

    @staticmethod
    def create(path: PathLike, about: dict[str, Any], initial: AbstractAtomic) -> Folder:
        """A new folder, or a new flow in an empty one."""
        folder = Folder(Path(path), {"format": FORMAT, "kind": type(initial).__name__, **about})
        folder._write("initial", {name: getattr(initial, name) for name in _fields(initial)})
        text = json.dumps(folder.about, indent=1) + "\n"
        write_atomically(folder.path / "flow.json", text.encode(), do=_OTHER)
        return folder

    def refuse_other(self, about: dict[str, Any]) -> None:
        """Refuse to resume a flow that is not the one in the folder."""
        for name in ("velocity", "measure", "times", "layers", "solver", "control", "limit", "tol", "steps"):
            if self.about[name] != about[name]:
                raise self.other(name if name in ("velocity", "measure", "times") else "settings")

    def other(self, what: str) -> SavedRunError:
        return SavedRunError(
            got=f"{self.path}, which holds the flow of {'other' if what.endswith('s') else 'another'} {what}",
            need="the folder of the same flow, or a new one",
            do="Name another folder, or delete this one.",
        )

    def write(self, stand: Any, points: list[np.ndarray]) -> None:
        """Points at the last times that were reached, then how to go on from there."""
        if points:
            self._write(_part(stand.reached - len(points) + 1), {"points": np.stack(points)})
        leaves = {f"{i:03d}": leaf for i, leaf in enumerate(jax.tree.leaves((stand.state, stand.held)))}
        counts = np.array([getattr(stand, name) for name in _COUNTS], np.int64)
        self._write("state", {"counts": counts, "error": np.array([stand.error]), **leaves})

    def stand(self, like: Any, possible: Callable[[Any], bool]) -> Any:
        """The last stand as NumPy arrays in the structure and shapes of `like`; None before the first write."""
        file = self._file("state")
        if not file.exists():
            return None
        expected, structure = jax.tree.flatten((like.state, like.held))
        arrays, names = _opened(file), [f"{i:03d}" for i in range(len(expected))]
        if sorted(arrays) != sorted([*names, "counts", "error"]):
            raise _damaged(file, "has other arrays than this flow")
        leaves = [
            np.array(_array(file, arrays, name, a.shape, a.dtype)) for name, a in zip(names, expected, strict=True)
        ]
        counts = [int(c) for c in _array(file, arrays, "counts", (len(_COUNTS),), np.int64)]
        error = float(_array(file, arrays, "error", (1,), np.float64)[0])
        state, held = jax.tree.unflatten(structure, leaves)
        stand = like._replace(state=state, held=held, error=error, **dict(zip(_COUNTS, counts, strict=True)))
        if not possible(stand):
            raise _damaged(file, f"counts {', '.join(map(str, counts))}, which this flow cannot have come to")
        return stand

    def reached(self) -> int:
        """Number of times after the start that are on disk."""
        file = self._file("state")
        if not file.exists():
            return 0
        reached = int(_array(file, _opened(file), "counts", (len(_COUNTS),), np.int64)[0])
        if not 0 <= reached < len(self.about["times"]):
            raise _damaged(file, "counts more times than there are")
        return reached

    def error(self) -> float:
        """The largest error bound of attention until then."""
        file = self._file("state")
        return float(_array(file, _opened(file), "error", (1,), np.float64)[0])

    def initial(self) -> AbstractAtomic:
        """The measure at the first time."""
        file = self._file("initial")
        kind = KINDS[self.about["kind"]]
        names = sorted(_fields(kind))
        arrays = _opened(file)
        if sorted(arrays) != names:
            raise _damaged(file, f"is no {self.about['kind']}")
        shape = _shape(arrays, "points")
        if len(shape) != 2 or 0 in shape:
            raise _damaged(file, f"holds points of shape {shape}")
        points = np.array(arrays["points"])
        others = [name for name in names if name != "points"]
        given = {name: np.array(_array(file, arrays, name, shape[:1], points.dtype)) for name in others}
        return kind(points=on_device(points), **{name: on_device(array) for name, array in given.items()})

    def points(self, reached: int, shape: tuple[int, ...], dtype: Any, *, read: bool = True) -> list[np.ndarray]:
        """Points at these times, file by file; with `read=False` only looks whether all is there."""
        found, count = [], 0
        while count < reached:
            file = self._file(_part(count + 1))
            arrays = _opened(file)
            length = (*_shape(arrays, "points"), 0)[0]
            if length == 0:
                raise _damaged(file, "holds no points")
            part = _array(file, arrays, "points", (length, *shape), dtype)
            count += length
            if read:
                found.append(np.array(part[: length - max(0, count - reached)]))
        return found

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def _write(self, name: str, arrays: dict[str, Any]) -> None:
        write_atomically(self._file(name), to_safetensors(arrays), do=_OTHER)


_OTHER = "Name another folder with save, or make room."


def _fields(measure: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(measure)]


def _part(first: int) -> str:
    return f"points-{first:06d}"


def _opened(file: Path) -> dict[str, np.ndarray]:
    """Arrays of the file by name, as views into it: what is kept must be copied."""
    try:
        return open_safetensors(file)
    except (CheckpointError, OSError) as error:
        raise _damaged(file, f"cannot be read ({' '.join(str(error).split())[:80]})") from error


def _shape(arrays: dict[str, np.ndarray], name: str) -> tuple[int, ...]:
    """Of the array of this name; () if there is none."""
    return arrays[name].shape if name in arrays else ()


def _array(file: Path, arrays: dict[str, np.ndarray], name: str, shape: Any, dtype: Any) -> np.ndarray:
    if name not in arrays or _shape(arrays, name) != tuple(shape):
        raise _damaged(file, f"has {name} of shape {_shape(arrays, name)} instead of {tuple(shape)}")
    if arrays[name].dtype != dtype:
        raise _damaged(file, f"has {name} in {arrays[name].dtype} instead of {np.dtype(dtype)}")
    return arrays[name]


def _damaged(file: Path, what: str) -> SavedRunError:
    return _refused(file, what, "a file that mf.flow has written", "Run the flow again, into a new folder.")


def _refused(path: Path, what: str, need: str, do: str) -> SavedRunError:
    return SavedRunError(got=f"{path}, which {what}", need=need, do=do)


def opened(save: Any, layers: Depthwise, initial: Any, schedule: Schedule, settings: Settings) -> Folder:
    """The folder of this flow, with the part that is done; refused if it holds another one."""
    if is_elsewhere(initial):
        raise SpreadError(
            got="save for a measure that lies on several machines",
            need="a measure in one process",
            do="Leave save out, and let each worker write what it needs of the trajectory.",
        )
    if type(initial) not in KINDS.values():
        raise DtypeError(
            got=f"save for a {type(initial).__name__}", need=f"one of {', '.join(KINDS)}", do="Leave save out."
        )
    about = {
        "velocity": fingerprint(layers),
        "measure": fingerprint(initial),
        "times": schedule.moments.tolist(),
        "layers": len(layers.maps),
        "solver": type(settings.solver).__name__,
        "control": control_numbers(settings),
        "limit": settings.limit,
        "tol": None if settings.tol is None else float(settings.tol),
        "steps": _steps(schedule),
    }
    folder = Folder.at(save)
    if folder is None:
        return Folder.create(save, about, initial)
    folder.refuse_other(about)
    return folder


def _steps(schedule: Schedule) -> int | None:
    """Equal steps between consecutive times."""
    return sum(int(count) for count in schedule.counts) // len(schedule.times) if schedule.most else None
