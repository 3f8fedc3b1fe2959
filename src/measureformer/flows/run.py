"""The second way to solve a flow: a Python loop around some steps at a time, for runs that are saved, resumed, spread
over devices, or whose attention follows plans for a grid. What lies between two calls is small and complete.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from measureformer.flows.flow_map import refuse_failure
from measureformer.flows.follow import Follower, Held
from measureformer.flows.integrate import NO_STEPS_LEFT, NOT_FINITE, SUCCESS, Solved
from measureformer.flows.saved import Folder, opened
from measureformer.flows.schedule import Schedule
from measureformer.flows.settings import Settings
from measureformer.flows.velocity import Depthwise
from measureformer.numerics.arrays import is_elsewhere, is_spread, on_device
from measureformer.parallel.mesh import TOKENS, mesh_of, over, placed
from measureformer.parallel.progress import bar
from measureformer.storage.lock import only_writer

CALL = 0.5
"""Seconds that one call of the compiled program should last: rarely enough to cost nothing, and then Ctrl-C works."""
PAUSE = 5.0
"""Seconds between two writes: what a process that is killed has to do again."""
CHUNK = 1 << 26
"""Bytes of points that are written even before, and that one call keeps at most."""


class Stand(NamedTuple):
    """How far a run has come: all that the next step needs."""

    state: Any
    held: Held | None
    """What the plans for a grid were made for."""
    reached: int = 0
    """How many of the times after the start."""
    since: int = 0
    """Adaptive steps since the last of them, rejected ones included."""
    segment: int = 0
    """Which of the segments of equal steps."""
    code: int = SUCCESS
    error: float = 0.0
    """Largest error bound of attention in any velocity so far, if it follows plans."""


class Record(NamedTuple):
    """Where the run stands, and points that are not yet on disk. In one object: Ctrl-C must not come in between."""

    stand: Stand
    pending: tuple[Any, ...] = ()
    taken: int = 0


class Leg(NamedTuple):
    """A part that is solved by one problem: everything in adaptive steps, or a segment of equal steps."""

    problem: Any
    offset: float
    unit: float
    """The time is offset + unit · (that of the problem)."""
    piece: int | None
    """Which of the layers; None if that depends on the time."""
    outputs: int
    """How many of the times are reached in it."""


class Run:
    """From the start of a schedule to its end, some steps at a time; rows stay spread over a mesh, if there is one."""

    def __init__(self, layers: Depthwise, mu: Any, schedule: Schedule, settings: Settings, mesh: Mesh | None) -> None:
        self.layers, self.mu, self.settings, self.mesh, self.equal = layers, mu, settings, mesh, bool(schedule.most)
        # in the precision of the points, as the compiled programs see them
        self.start, *times = (np.asarray(t, mu.points.dtype) for t in (schedule.start, *schedule.times))
        self.times = np.stack(times)
        self.jumps = tuple(np.asarray(t, mu.points.dtype) for t in schedule.jumps)
        self.legs = self._legs(schedule)
        self.follower = None if settings.tol is None else Follower(layers, mu, float(settings.tol))
        # of times in one call: all of them or what fits, a power of two
        size = max(1, min(1 << (len(times) - 1).bit_length(), CHUNK // max(1, mu.points.nbytes)))
        self.window = 1 << (size.bit_length() - 1)

    def _legs(self, schedule: Schedule) -> list[Leg]:
        from measureformer.flows.steps import Problem

        same, dtype = (self.layers, self.mu, self.settings), self.mu.points.dtype
        if not self.equal:
            return [
                Leg(Problem(*same, self.start, self.times[-1], self.jumps, None, None), 0.0, 1.0, None, len(self.times))
            ]
        legs, ends, offset = list[Leg](), {int(end) for end in schedule.ends}, float(schedule.start)
        for i, (step, count, piece) in enumerate(zip(schedule.steps, schedule.counts, schedule.pieces, strict=True)):
            segment = np.asarray(offset, dtype), np.asarray(step, dtype), np.asarray(piece)
            problem = Problem(*same, np.asarray(0, dtype), np.asarray(count, dtype), (), segment, None)
            legs.append(Leg(problem, offset, float(step), int(piece), int(i in ends)))
            offset += float(step) * int(count)
        return legs

    def leg(self, stand: Stand) -> Leg:
        return self.legs[min(stand.segment, len(self.legs) - 1)]

    def begin(self, stand: Stand | None = None, points: Any = None) -> Stand:
        """Before the first step of a leg; by default of the first one."""
        from measureformer.flows import steps

        if stand is None:
            held = None if self.follower is None else Held(self.mu.points, np.asarray(0), np.asarray(0))
            stand, points = Stand(None, held), self.mu.points
        # which plans there are changes nothing here, and would only compile another program
        problem = self.leg(stand).problem._replace(plans=None if self.follower is None else ())
        return stand._replace(state=steps.begin(problem, points, self.mesh))

    def done(self, stand: Stand) -> bool:
        return stand.code != SUCCESS or stand.reached == len(self.times)

    def go(self, stand: Stand, budget: int) -> tuple[Stand, list[Any], int]:
        """`budget` steps, or up to the end of a leg: the new stand, points at times reached, and steps taken."""
        from measureformer.flows import steps

        leg, plans = self.leg(stand), None
        if self.follower is not None:
            plans = self.follower.plans(stand.held, np.asarray(self.time(stand), self.times.dtype))
        problem = leg.problem._replace(plans=plans)
        ahead = np.asarray(problem.stop)[None]
        if not self.equal:
            ahead = self.times[stand.reached :][: self.window]
            ahead = np.pad(ahead, (0, self.window - len(ahead)), mode="edge")
        state, ending = steps.advance(problem, stand.state, stand.since, ahead, budget, self.mesh)
        arrived = int(np.isfinite(np.asarray(ending.times)).sum()) if ending.ok else 0
        count = min(arrived, leg.outputs, len(self.times) - stand.reached)
        found = [self.layers.settled(_row(ending.found, i)) for i in range(count)]
        reached, since = stand.reached + count, int(ending.since)
        if not self.equal and reached < len(self.times) and self.times[reached] <= np.asarray(state.begin):
            # more times than one call keeps were passed: it is made again for the others
            return stand._replace(reached=reached), found, 0
        code = NO_STEPS_LEFT if since == self.settings.limit and not self.equal else SUCCESS
        new = stand._replace(
            state=state,
            reached=reached,
            since=0 if self.equal else since,
            segment=stand.segment + (self.equal and arrived > 0),
            code=code if ending.ok else NOT_FINITE,
            error=max(stand.error, float(ending.error)),
        )
        if stand.segment < new.segment < len(self.legs):
            new = self.begin(new, state.points)
        return self._again(new, ending), found, int(ending.taken)

    def _again(self, stand: Stand, ending: Any) -> Stand:
        """With what to try next, if the last step has left the cells of the plans."""
        if self.follower is None or ending.covered:
            return stand
        state = stand.state
        held = self.follower.next(stand.held, state.points, self.piece(stand))
        if held is not None:
            return stand._replace(held=held)
        if self.equal:
            self.follower.refuse_long(self.leg(stand).unit)
        shorter = state.begin + (state.end - state.begin) / 2
        if not shorter > state.begin:
            return stand._replace(code=NOT_FINITE)
        return stand._replace(state=state._replace(end=shorter))

    def time(self, stand: Stand) -> float:
        """The time that has been reached."""
        leg = self.leg(stand)
        return leg.offset + leg.unit * float(stand.state.begin)

    def piece(self, stand: Stand) -> int:
        """Which of the layers comes next."""
        piece = self.leg(stand).piece
        return int(np.searchsorted(self.jumps, self.time(stand), side="right")) if piece is None else piece

    def possible(self, stand: Stand) -> bool:
        """Whether a run can have come to these counts, which may be anybody's."""
        if stand.held is not None and (self.follower is None or not self.follower.knows(stand.held)):
            return False
        if not 0 <= stand.reached <= len(self.times) or not 0 <= stand.segment <= len(self.legs):
            return False
        if self.equal:
            reached = sum(leg.outputs for leg in self.legs[: stand.segment])
            return stand.since == 0 and stand.reached == reached and stand.code in (SUCCESS, NOT_FINITE)
        codes = (NO_STEPS_LEFT if stand.since == self.settings.limit else SUCCESS, NOT_FINITE)
        return 0 <= stand.since <= self.settings.limit and stand.segment == 0 and stand.code in codes

    def placed(self, array: np.ndarray) -> Any:
        """An array of the state where it belongs."""
        if self.mesh is None:
            return on_device(array)
        from measureformer.flows.steps import axes_of

        return placed(array, over(self.mesh, *axes_of(array.shape, self.mu.points.shape)))


def travel(
    layers: Depthwise, initial: Any, schedule: Schedule, settings: Settings, save: Any
) -> tuple[Float[Array, "k n d"], float]:
    """The points at the start and at the times of the schedule, in the folder `save` too if there is one.

    And the largest error bound of attention on a grid, 0 without one.
    """
    mesh = mesh_of(initial) if is_spread(initial) else None
    run = Run(layers, initial if mesh is not None else initial.padded(), schedule, settings, mesh)
    folder = None if save is None else opened(save, layers, initial, schedule, settings)
    with nullcontext() if folder is None else only_writer(folder.path):
        record = _driven(run, folder, initial.n)
    stand, points = record.stand, _joined(initial, schedule, record, folder, mesh)
    if stand.code != SUCCESS:
        # equal steps are known to be good at the times only, adaptive ones after each
        moment = schedule.moments[stand.reached] if schedule.most else stand.state.begin
        last = _row(points, stand.reached) if schedule.most else stand.state.points
        last = last if mesh is not None else on_device(np.asarray(last)[: initial.n])
        refuse_failure(
            Solved(None, on_device(np.asarray(stand.code)), moment, None), initial.with_points(last), settings
        )
    return points, stand.error


def _joined(
    initial: Any, schedule: Schedule, record: Record, folder: Folder | None, mesh: Any
) -> Float[Array, "k n d"]:
    """All points, which are on disk or in memory."""
    if mesh is not None and folder is None:
        return _stacked((initial.points, *record.pending), over(mesh, None, TOKENS))
    if folder is None:
        parts = [np.asarray(points)[None] for points in record.pending]
    else:
        parts = folder.points(record.stand.reached, initial.points.shape, initial.points.dtype)
    joined = np.concatenate([np.asarray(initial.points)[None], *parts])
    return on_device(joined) if mesh is None else placed(joined, over(mesh, None, TOKENS))


@eqx.filter_jit
def _stacked(states: tuple[Array, ...], place: Any) -> Array:
    return jax.lax.with_sharding_constraint(jax.numpy.stack(states), place)


# axis 0 holds the times; the rows of axis 1 stay where they are
_row = jax.jit(lambda points, i: points[i])


def _driven(run: Run, folder: Folder | None, rows: int) -> Record:
    """The whole run. What is saved is saved whatever happens, and not kept in memory."""
    record = written = Record(_resumed(run, folder, rows))
    # workers take the same steps in every call; the clock of each would tell it something else
    together = is_elsewhere(run.mu)
    saved, budget, warm = time.monotonic(), run.settings.limit if together else 1, False
    first, last = float(run.start), float(run.times[-1])
    with bar("flow", last - first, shown=jax.process_index() == 0) as show:
        try:
            while not run.done(record.stand):
                began = time.monotonic()
                record = _further(run, record, budget, None if run.mesh is not None and folder is None else rows)
                now = time.monotonic()
                t = run.time(record.stand)
                show(t - first, f"t = {t:.4g} of {last:g}")
                if warm and not together:
                    budget = max(1, min(4 * budget, int(CALL * record.taken / max(now - began, 1e-9))))
                warm = True  # the first call has compiled the program
                if folder is not None and (now - saved >= PAUSE or _bytes(record) >= CHUNK):
                    record = written = _kept(folder, record)
                    saved = now
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_farewell(run, folder, record.stand)) from None
        finally:
            if folder is not None and record is not written:
                record = _kept(folder, record)
    return record


def _farewell(run: Run, folder: Folder | None, stand: Stand) -> str:
    reached = f"interrupted at t = {run.time(stand):.6g} of {float(run.times[-1]):g}"
    if folder is None:
        return f'{reached}; nothing is kept. With save="folder" the same call would resume it.'
    return f"{reached}, which is saved in {folder.path}: the same call resumes it."


def _resumed(run: Run, folder: Folder | None, rows: int) -> Stand:
    begun = run.begin()  # costs no velocity
    stand = None if folder is None else folder.stand(begun, run.possible)
    if folder is None or stand is None:
        return begun
    # a file that is missing is better noticed now than after the last step
    folder.points(stand.reached, (rows, run.mu.dim), run.mu.points.dtype, read=False)
    state, held = jax.tree.map(run.placed, (stand.state, stand.held))
    return stand._replace(state=state, held=held)


def _further(run: Run, record: Record, budget: int, rows: int | None) -> Record:
    stand, found, taken = run.go(record.stand, budget)
    points = found if rows is None else [np.asarray(points)[:rows] for points in found]
    return Record(stand, (*record.pending, *points), taken)


def _kept(folder: Folder, record: Record) -> Record:
    folder.write(record.stand, list(record.pending))
    return Record(record.stand)


def _bytes(record: Record) -> int:
    return sum(points.nbytes for points in record.pending)
