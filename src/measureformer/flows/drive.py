"""The second driver of `flow`: a Python loop, for runs that are saved, resumed, spread over devices, or on a grid."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, SpreadError
from measureformer.flows.adaptive import AdaptiveWalk
from measureformer.flows.equal import EqualWalk
from measureformer.flows.flow_map import Depthwise, refuse_failure
from measureformer.flows.follow import Following
from measureformer.flows.integrate import LIMIT, Settings, Solved
from measureformer.flows.saved import KINDS, Folder
from measureformer.flows.schedule import Schedule
from measureformer.flows.walk import AbstractWalk, Stand
from measureformer.numerics.arrays import is_elsewhere, is_spread, on_device
from measureformer.parallel.mesh import TOKENS, mesh_of, over, placed
from measureformer.parallel.progress import bar
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.lock import only_writer

CALL = 0.5
"""Seconds that one call of the compiled program should last: rarely enough to cost nothing, and then Ctrl-C works."""
PAUSE = 5.0
"""Seconds between two writes: what a process that is killed has to do again."""
CHUNK = 1 << 26
"""Bytes of points that are written even before."""


class Record(NamedTuple):
    """Where the walk stands, and points that are not yet on disk. In one object: Ctrl-C must not come in between."""

    stand: Stand
    pending: tuple[Any, ...] = ()
    taken: int = 0


def travel(
    layers: Depthwise, initial: Any, plan: Schedule, settings: Settings, save: Any
) -> tuple[Float[Array, "k n d"], float]:
    """The points at the start and at the times of the plan, in the folder `save` too if there is one.

    And the largest error bound of attention on a grid, 0 without one.
    """
    mesh = mesh_of(initial) if is_spread(initial) else None
    start = initial if mesh is not None else initial.padded()
    walk = (EqualWalk if plan.most else AdaptiveWalk)(layers, start, plan, settings, mesh)
    walk = walk if settings.tol is None else Following(walk)
    folder = None if save is None else opened(save, layers, initial, plan, settings)
    with nullcontext() if folder is None else only_writer(folder.path):
        record = _driven(walk, folder, initial.n)
    moment, points = walk.valid(record.stand)
    points = points if mesh is not None else on_device(np.asarray(points)[: initial.n])
    refuse_failure(
        Solved(None, on_device(np.asarray(record.stand.code)), moment, None), initial.with_points(points), settings
    )
    return _joined(initial, plan, record, folder, mesh), record.stand.error


def _joined(initial: Any, plan: Schedule, record: Record, folder: Folder | None, mesh: Any) -> Float[Array, "k n d"]:
    """All points, which are on disk or in memory."""
    if mesh is not None and folder is None:
        return _stacked((initial.points, *record.pending), over(mesh, None, TOKENS))
    if folder is None:
        parts = [np.asarray(points)[None] for points in record.pending]
    else:
        parts = folder.points(len(plan.times), initial.points.shape, initial.points.dtype)
    joined = np.concatenate([np.asarray(initial.points)[None], *parts])
    return on_device(joined) if mesh is None else placed(joined, over(mesh, None, TOKENS))


@eqx.filter_jit
def _stacked(states: tuple[Array, ...], place: Any) -> Array:
    return jax.lax.with_sharding_constraint(jax.numpy.stack(states), place)


def opened(save: Any, layers: Depthwise, initial: Any, plan: Schedule, settings: Settings) -> Folder:
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
        "settings": fingerprint((settings, plan.most, [int(c) for c in plan.counts])),
        "times": [float(t) for t in (plan.start, *plan.times)],
        "layers": len(layers.maps),
        "solver": settings.solver,
        "rtol": float(settings.rtol),
        "atol": float(settings.atol),
        "tol": None if settings.tol is None else float(settings.tol),
        "steps": _steps(plan),
    }
    folder = Folder.at(save)
    if folder is None:
        return Folder.create(save, about, initial)
    folder.refuse_other(about)
    return folder


def _steps(plan: Schedule) -> int | None:
    """Equal steps between consecutive times."""
    return sum(int(count) for count in plan.counts) // len(plan.times) if plan.most else None


def _driven(walk: AbstractWalk, folder: Folder | None, rows: int) -> Record:
    """The whole walk. What is saved is saved whatever happens, and not kept in memory."""
    record = written = Record(_resumed(walk, folder, rows))
    # workers take the same steps in every call; the clock of each would tell it something else
    together = is_elsewhere(walk.mu)
    saved, budget, warm = time.monotonic(), LIMIT if together else 1, False
    first, last = float(walk.plan.start), float(walk.times[-1])
    with bar("flow", last - first, shown=jax.process_index() == 0) as show:
        try:
            while not walk.done(record.stand):
                began = time.monotonic()
                record = _further(walk, record, budget, None if walk.mesh is not None and folder is None else rows)
                now = time.monotonic()
                t = walk.time(record.stand)
                show(t - first, f"t = {t:.4g} of {last:g}")
                if warm and not together:
                    budget = max(1, min(4 * budget, int(CALL * record.taken / max(now - began, 1e-9))))
                warm = True  # the first call has compiled the program
                if folder is not None and (now - saved >= PAUSE or _bytes(record) >= CHUNK):
                    record = written = _kept(folder, record)
                    saved = now
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_farewell(walk, folder, record.stand)) from None
        finally:
            if folder is not None and record is not written:
                record = _kept(folder, record)
    return record


def _farewell(walk: AbstractWalk, folder: Folder | None, stand: Stand) -> str:
    reached = f"interrupted at t = {walk.time(stand):.6g} of {float(walk.times[-1]):g}"
    if folder is None:
        return f'{reached}; nothing is kept. With save="folder" a flow goes on where it was interrupted.'
    return f"{reached}, which is saved in {folder.path}: the same call goes on from there."


def _resumed(walk: AbstractWalk, folder: Folder | None, rows: int) -> Stand:
    begun = walk.start()  # costs no velocity
    stand = None if folder is None else folder.stand(begun.state, walk.possible)
    if folder is None or stand is None:
        return begun
    # a file that is missing is better noticed now than after the last step
    folder.points(stand.reached, (rows, walk.mu.dim), walk.mu.points.dtype, read=False)
    return stand._replace(state=jax.tree.map(walk.placed, stand.state))


def _further(walk: AbstractWalk, record: Record, budget: int, rows: int | None) -> Record:
    went = walk.go(record.stand, budget)
    found = went.found if rows is None else [np.asarray(points)[:rows] for points in went.found]
    return Record(went.stand, (*record.pending, *found), went.taken)


def _kept(folder: Folder, record: Record) -> Record:
    folder.write(record.stand, list(record.pending))
    return Record(record.stand)


def _bytes(record: Record) -> int:
    return sum(points.nbytes for points in record.pending)
