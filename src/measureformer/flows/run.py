"""The second way to solve a flow: a Python loop around some steps at a time, for runs that are saved, resumed, spread
over devices, or whose attention follows plans for a grid. What lies between two calls is small and complete.
"""

from __future__ import annotations

import time
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


class Run:
    """From the start of a schedule to its end, some steps at a time; rows stay spread over a mesh, if there is one."""

    def __init__(self, layers: Depthwise, mu: Any, schedule: Schedule, settings: Settings, mesh: Mesh | None) -> None:
        self.layers, self.mu, self.schedule, self.settings, self.mesh = layers, mu, schedule, settings, mesh
        self.dtype = mu.points.dtype
        # in the precision of the points, as the compiled programs see them
        self.start, *times = (np.asarray(t, self.dtype) for t in (schedule.start, *schedule.times))
        self.times = np.stack(times)
        self.jumps = tuple(np.asarray(t, self.dtype) for t in schedule.jumps)
        self.follower = None if settings.tol is None else Follower(layers, mu, float(settings.tol))
        # a number of times that fits, and a power of two
        size = max(1, min(1 << (len(times) - 1).bit_length(), CHUNK // max(1, mu.points.nbytes)))
        self.window = 1 << (size.bit_length() - 1)

    def begin(self) -> Stand:
        """Before the first step."""
        from measureformer.flows import steps

        held = None if self.follower is None else Held(self.mu.points, np.asarray(0), np.asarray(0))
        stand = Stand(None, held)
        return stand._replace(state=steps.begin(self.problem(stand), self.mu.points, self.mesh))

    def done(self, stand: Stand) -> bool:
        return stand.code != SUCCESS or stand.reached == len(self.times)

    def problem(self, stand: Stand, plans: Any = None) -> Any:
        """What comes next."""
        from measureformer.flows.steps import Problem

        schedule, same = self.schedule, (self.layers, self.mu, self.settings)
        watched = () if self.follower is not None and plans is None else plans
        if not schedule.most:
            return Problem(*same, self.start, self.times[-1], self.jumps, None, watched)
        i = min(stand.segment, len(schedule.steps) - 1)
        zero, count = np.asarray(0, self.dtype), np.asarray(schedule.counts[i], self.dtype)
        segment = np.asarray(self._elapsed(i), self.dtype), np.asarray(schedule.steps[i], self.dtype)
        return Problem(*same, zero, count, (), (*segment, np.asarray(schedule.pieces[i])), watched)

    def go(self, stand: Stand, budget: int) -> tuple[Stand, list[Any], int]:
        """`budget` steps, or up to the end of a segment: the new stand, points at times reached, and steps taken."""
        from measureformer.flows import steps

        plans = None
        if self.follower is not None:
            plans = self.follower.plans(stand.held, np.asarray(self.time(stand), self.dtype))
        problem = self.problem(stand, plans)
        ahead = np.asarray(problem.stop)[None] if self.schedule.most else self.times[stand.reached :][: self.window]
        ahead = np.pad(ahead, (0, 0 if self.schedule.most else self.window - len(ahead)), mode="edge")
        state, ending = steps.advance(problem, stand.state, stand.since, ahead, budget, self.mesh)
        bound, taken = max(stand.error, float(ending.error)), int(ending.taken)
        if self.schedule.most:
            return self._counted(stand._replace(error=bound), state, ending), self._found(stand, ending), taken
        found = self._found(stand, ending)
        reached = stand.reached + len(found)
        if reached < len(self.times) and self.times[reached] <= np.asarray(state.begin):
            # more times than one call keeps were passed: it is made again for the others
            return stand._replace(reached=reached), found, 0
        since = int(ending.since)
        code = SUCCESS if ending.ok else NOT_FINITE
        code = NO_STEPS_LEFT if since == self.settings.limit else code
        new = stand._replace(state=state, reached=reached, since=since, code=code, error=bound)
        return self._again(new, ending), found, taken

    def _found(self, stand: Stand, ending: Any) -> list[Any]:
        """The points at the times that were reached."""
        if self.schedule.most and stand.segment != int(self.schedule.ends[stand.reached]):
            return []
        count = int(np.isfinite(np.asarray(ending.times)).sum()) if ending.ok else 0
        count = min(count, len(self.times) - stand.reached)
        return [self.layers.settled(_row(ending.found, i)) for i in range(count)]

    def _counted(self, stand: Stand, state: Any, ending: Any) -> Stand:
        """After a part of a segment of equal steps, or all of it."""
        from measureformer.flows import steps

        i, at_time = stand.segment, stand.segment == int(self.schedule.ends[stand.reached])
        if not np.isfinite(np.asarray(ending.times)).all():
            return self._again(stand._replace(state=state), ending)
        if at_time and not ending.ok:
            return stand._replace(state=state, code=NOT_FINITE)
        new = stand._replace(segment=i + 1, reached=stand.reached + at_time)
        return new._replace(state=steps.begin(self.problem(new), state.points, self.mesh))

    def _again(self, stand: Stand, ending: Any) -> Stand:
        """With what to try next, if the last step has left the cells of the plans."""
        if self.follower is None or ending.covered:
            return stand
        held = self.follower.next(stand.held, stand.state.points, self.piece(stand))
        if held is not None:
            return stand._replace(held=held)
        state = stand.state
        shorter = state.begin + (state.end - state.begin) / 2
        if self.schedule.most:
            self.follower.refuse_long(float(self.schedule.steps[stand.segment]))
        if not shorter > state.begin:
            return stand._replace(code=NOT_FINITE)
        return stand._replace(state=state._replace(end=shorter))

    def time(self, stand: Stand) -> float:
        """The time that has been reached."""
        if not self.schedule.most:
            return float(stand.state.begin)
        i = min(stand.segment, len(self.schedule.steps) - 1)
        inside = float(stand.state.begin) if stand.segment == i else float(self.schedule.counts[i])
        return self._elapsed(i) + float(self.schedule.steps[i]) * inside

    def _elapsed(self, segment: int) -> float:
        pairs = zip(self.schedule.steps[:segment], self.schedule.counts, strict=False)
        return float(self.schedule.start) + sum(float(step) * int(count) for step, count in pairs)

    def piece(self, stand: Stand) -> int:
        """Which of the layers comes next."""
        if self.schedule.most:
            return int(self.schedule.pieces[min(stand.segment, len(self.schedule.pieces) - 1)])
        return int(np.searchsorted([float(t) for t in self.jumps], self.time(stand), side="right"))

    def possible(self, stand: Stand) -> bool:
        """Whether a run can have come to these counts, which may be anybody's."""
        if stand.held is not None and not self.follower_knows(stand.held):
            return False
        if not 0 <= stand.reached <= len(self.times):
            return False
        if not self.schedule.most:
            codes = (NO_STEPS_LEFT if stand.since == self.settings.limit else SUCCESS, NOT_FINITE)
            return 0 <= stand.since <= self.settings.limit and stand.segment == 0 and stand.code in codes
        # the first segment after each of the times, and the end
        firsts = [0, *(int(end) + 1 for end in self.schedule.ends), len(self.schedule.steps) + 1]
        within = firsts[stand.reached] <= stand.segment < firsts[stand.reached + 1]
        return within and stand.since >= 0 and stand.code in (SUCCESS, NOT_FINITE)

    def follower_knows(self, held: Held) -> bool:
        return self.follower is not None and self.follower.knows(held)

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
