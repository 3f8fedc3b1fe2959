"""A flow in a `RunFolder`: what is solved, the initial measure, points at times, and the state to resume from.

    problem.json            fingerprints, times, settings; written once
    initial.safetensors     the measure
    points-000001.…         points at the times from number 1 on; the next file continues where this one ends
    state.safetensors       points, solver and control after the last step on disk

The state is written after the points it belongs to and counts the times that were reached, so that the folder is
consistent at whatever moment the process dies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from measureformer.errors import DtypeError, SpreadError
from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings, control_numbers
from measureformer.flows.velocity import Depthwise
from measureformer.measures import Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import is_elsewhere, on_device
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.folder import RunFolder, damaged, named_leaves, read_tensors

KINDS = {"Discrete": Discrete, "SpaceTime": SpaceTime}
_COUNTS = ("reached", "since", "segment", "code")


def described(layers: Depthwise, initial: Any, schedule: Schedule, settings: Settings) -> dict[str, Any]:
    """What is solved, as JSON."""
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
    return {
        "velocity": fingerprint(layers),
        "measure": fingerprint(initial),
        "kind": type(initial).__name__,
        "times": schedule.moments.tolist(),
        "layers": len(layers.maps),
        "steps": sum(map(int, schedule.counts)) // len(schedule.times) if schedule.most else None,
        "solver": type(settings.solver).__name__,
        "control": control_numbers(settings),
        "limit": settings.limit,
        "tol": None if settings.tol is None else float(settings.tol),
    }


def write_initial(folder: RunFolder, initial: AbstractAtomic) -> None:
    """The measure, unless it is there."""
    if not (folder.path / "initial.safetensors").exists():
        folder.write_tensors("initial", {name: getattr(initial, name) for name in _fields(initial)})


def read_initial(folder: RunFolder, kind: str) -> AbstractAtomic:
    """The measure at the first time."""
    found, names = _read(folder, "initial"), _fields(KINDS[kind])
    shape = found["points"].shape if "points" in found else ()
    alike = sorted(found) == sorted(names) and len({array.dtype for array in found.values()}) == 1
    if not alike or len(shape) != 2 or 0 in shape or any(found[n].shape != shape[:1] for n in names if n != "points"):
        raise damaged(folder.path / "initial.safetensors", f"is no {kind}")
    return KINDS[kind](**{name: on_device(found[name]) for name in names})


def write(folder: RunFolder, stand: Any, points: list[np.ndarray]) -> None:
    """Points at the last times that were reached, then how to go on from there."""
    if points:
        folder.write_tensors(_part(stand.reached - len(points) + 1), {"points": np.stack(points)})
    folder.write_tensors("state", _leaves(stand))


def read_stand(folder: RunFolder, like: Any, possible: Callable[[Any], bool]) -> Any:
    """The last stand as NumPy arrays in the structure and shapes of `like`; None before the first write."""
    if not (folder.path / "state.safetensors").exists():
        return None
    wanted = _leaves(like)
    found = _read(folder, "state", wanted)
    leaves = [found[name] for name in wanted]
    state, held = jax.tree.unflatten(jax.tree.structure((like.state, like.held)), leaves[:-2])
    counts = dict(zip(_COUNTS, map(int, found["counts"]), strict=True))
    stand = like._replace(state=state, held=held, error=float(found["error"]), **counts)
    if not possible(stand):
        shown = ", ".join(map(str, counts.values()))
        raise damaged(folder.path / "state.safetensors", f"counts {shown}, which this flow cannot have come to")
    return stand


def read_reached(folder: RunFolder, most: int) -> tuple[int, float]:
    """How many of the `most` times after the start are on disk, and the largest error bound of attention until then."""
    if not (folder.path / "state.safetensors").exists():
        return 0, 0.0
    found = _read(folder, "state", {"counts": np.zeros(len(_COUNTS), np.int64), "error": np.zeros(())})
    if not 0 <= (reached := int(found["counts"][0])) <= most:
        raise damaged(folder.path / "state.safetensors", "counts more times than there are")
    return reached, float(found["error"])


def read_points(folder: RunFolder, reached: int, shape: tuple[int, ...], dtype: Any) -> Iterator[np.ndarray]:
    """Points at this many times after the start, file by file."""
    count = 0
    while count < reached:
        name = _part(count + 1)
        points = _read(folder, name).get("points", np.zeros(0))
        if not points.size or (points.shape[1:], points.dtype) != (shape, dtype):
            there, wanted = f"{points.shape} in {points.dtype}", ", ".join(map(str, shape))
            file = folder.path / f"{name}.safetensors"
            raise damaged(file, f"has points of shape {there} instead of (k, {wanted}) in {dtype}")
        count += len(points)
        yield points[: len(points) - max(0, count - reached)]


def _leaves(stand: Any) -> dict[str, np.ndarray]:
    counts = np.array([getattr(stand, name) for name in _COUNTS], np.int64)
    return {**named_leaves((stand.state, stand.held)), "counts": counts, "error": np.array(stand.error, np.float64)}


def _fields(measure: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(measure)]


def _part(first: int) -> str:
    return f"points-{first:06d}"


def _read(folder: RunFolder, name: str, like: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    file = folder.path / f"{name}.safetensors"
    found, metadata = read_tensors(file, like, seal=True)
    if metadata.get("problem") != folder.name:
        raise damaged(file, "belongs to another run than that in problem.json")
    for other, leaf in (like or {}).items():
        if found[other].dtype != leaf.dtype:
            raise damaged(file, f"has {other} in {found[other].dtype} instead of {leaf.dtype}")
    return found
