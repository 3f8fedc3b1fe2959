"""One loop for all training: an objective `(weights, key, step) -> loss`, an optimiser, chunks of steps, saved or not.

The objective is a PyTree that can be called: its arrays (data, a task) are arguments of the compiled program, the rest
is part of it. Fresh data come from `key`, which depends on the seed and the number of the step only, so that a resumed
training draws what it would have drawn. Meanwhile all weights lie in one vector: an optimiser is then a few operations
instead of a few for each array, which is faster to compile and to run.

If the process has several devices, each takes a part of the batch (`training/devices.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from measureformer.numerics.arrays import common_dtype
from measureformer.parallel.progress import bar
from measureformer.storage.folder import RunFolder
from measureformer.training.devices import PARTS, everywhere, here, shared_over

RUNNING, LOSS_REACHED, GRADIENT_VANISHED, NOT_FINITE = range(4)
STOPPED = {LOSS_REACHED: "loss", GRADIENT_VANISHED: "gradient", RUNNING: "steps"}

LONGEST = 1024
"""Most steps between two looks at the clock."""

SHARE = 0.05
"""Largest share of the time that goes into saving."""


@runtime_checkable
class Settings(Protocol):
    """How to train; hashable, since it is part of the program."""

    @property
    def steps(self) -> int: ...

    @property
    def tol(self) -> float | None:
        """Training ends when the loss is at most this, or its gradient vanishes; with None it does neither."""
        ...

    @property
    def optimizer(self) -> Any:
        """Of optax."""
        ...


class State(NamedTuple):
    """Where training stands; in the loop, weights are one vector."""

    weights: Any
    optimizer: Any
    good: Any
    """The last weights with a finite loss."""
    done: Array
    """Updates so far."""
    code: Array


@dataclass
class Run:
    """A training under way: its state, the loss before each step (and after the last), and what was observed."""

    state: State
    template: Any
    """Arrays of the shapes of the weights."""
    losses: np.ndarray
    records: dict[str, np.ndarray] = field(default_factory=dict)
    """Name ↦ an entry for each look; "step" tells when they were."""

    @property
    def weights(self) -> Any:
        return _unraveled(self.template, here(self.state.weights))

    @property
    def good(self) -> Any:
        """The last weights with a finite loss."""
        return _unraveled(self.template, here(self.state.good))

    @property
    def done(self) -> int:
        """Updates so far."""
        return int(self.state.done)

    @property
    def stopped(self) -> str:
        """Why it ended: the "loss" is at most tol, the "gradient" vanished, or no "steps" were left."""
        return STOPPED[int(self.state.code)]

    @property
    def failed(self) -> bool:
        """Whether the loss stopped being finite."""
        return int(self.state.code) == NOT_FINITE


class Observer(NamedTuple):
    """A look at the weights every so many steps: `look(weights)` gives named numbers or arrays."""

    look: Callable[[Any], dict[str, Any]]
    every: int


class Program(NamedTuple):
    """All of a training but its state."""

    objective: Any
    settings: Settings
    key: Any
    template: Any
    """Arrays of the shapes of the weights."""
    mesh: Mesh | None
    """The devices that share the batch out; None if one has all of it."""


def prepared(objective: Any, settings: Settings, key: Any, weights: Any) -> Program:
    """The program of a training, with its arrays on all devices that take part."""
    mesh = shared_over(objective)
    return everywhere(Program(objective, settings, key, weights, mesh), mesh)


def started(weights: Any, settings: Settings) -> State:
    """The state before the first update."""
    zero = jnp.zeros((), int)
    return State(weights, settings.optimizer.init(weights), weights, zero, zero)


def updated(
    state: State, objective: Any, settings: Settings, key: Any, more: Any = True, *, shared: bool = False
) -> tuple[State, Array]:
    """The state after one update, and the loss before it. Ended training, and `more` = False, leave it as it is.

    Pure JAX; goes through jit and vmap. If the objective is `shared`, it is that of a part of the batch, on one of the
    devices that do the same at the same time.
    """
    import optax

    fresh = jax.random.fold_in(key, state.done)
    value, slope = jax.value_and_grad(objective)(state.weights, fresh, state.done)
    if shared:
        value, slope = jax.lax.pmean((value, slope), PARTS)
    changes, memory = settings.optimizer.update(slope, state.optimizer, state.weights)
    size = optax.tree.norm(slope)
    finite = jnp.isfinite(value) & jnp.isfinite(size)
    code = jnp.full((), RUNNING)
    if settings.tol is not None:
        # no direction leads down any more: in rounding, the loss would change by its last digits only
        flat = size <= float(np.sqrt(np.finfo(value.dtype).eps)) * value
        code = jnp.where(flat, GRADIENT_VANISHED, code)
        code = jnp.where(value <= settings.tol, LOSS_REACHED, code)
    code = jnp.where(finite, code, NOT_FINITE).astype(state.code.dtype)
    go = (code == RUNNING) & more
    keep = lambda new, old: jax.tree.map(lambda a, b: jnp.where(go, a, b), new, old)  # noqa: E731
    good = jax.tree.map(lambda a, b: jnp.where(finite, a, b), state.weights, state.good)
    weights = keep(optax.apply_updates(state.weights, changes), state.weights)
    return State(weights, keep(memory, state.optimizer), good, state.done + go, code), value


def trained(
    weights: Any,
    objective: Any,
    settings: Settings,
    key: Any,
    *,
    folder: RunFolder | None = None,
    observer: Observer | None = None,
    last: bool = True,
) -> Run:
    """Chunk after chunk of steps, each about a second long; what is saved is whole whenever the user interrupts.

    With `last`, the loss after the last step is computed too, on the data that the next step would have seen.
    """
    state = _started(weights, settings)
    run = Run(state, weights, np.zeros(0, common_dtype(weights)))
    if folder is not None:
        run.state, run.losses, run.records = folder.read(state, run.losses)
    # whether training has ended is found again by the next look at the loss
    run.state = run.state._replace(code=jnp.zeros_like(run.state.code))
    # a state that was saved at its last step has one more loss than updates
    run.losses = run.losses[: int(run.state.done)]
    program = prepared(objective, settings, key, weights)
    run.state = everywhere(run.state, program.mesh)
    with bar("training", settings.steps) as show:
        _advance(run, program, show=show, saver=_Saver(folder), observer=observer, last=last)
    # a file has them in the order of their names
    run.records = dict(sorted(run.records.items()))
    return run


def _advance(
    run: Run,
    program: Program,
    *,
    show: Callable[[float, str], None],
    saver: _Saver,
    observer: Observer | None,
    last: bool,
) -> None:
    length = 8
    while int(run.state.code) == RUNNING:
        done = int(run.state.done)
        _observe(run, observer, done)
        left = program.settings.steps - done
        if left <= 0 and not last:
            break
        count, begun = min(length, max(left, 1)), time.perf_counter()
        if observer is not None and left > 0:
            count = min(count, observer.every - done % observer.every)
        run.state, values = _chunk(run.state, program, np.asarray(count), np.asarray(left > 0))
        # the last loss of all was followed by no update
        known = int(run.state.done) + (left <= 0 or int(run.state.code) != RUNNING)
        run.losses = np.concatenate([run.losses, np.asarray(values)[: known - len(run.losses)]])
        if len(run.losses):
            show(int(run.state.done), f"loss {float(run.losses[-1]):.3g}")
        if left <= 0:
            break
        saver.write(run)
        spent = time.perf_counter() - begun
        length = min(2 * length, LONGEST) if spent < 0.5 else max(length // 2, 1) if spent > 2 else length
    saver.write(run, now=True)


def _observe(run: Run, observer: Observer | None, done: int) -> None:
    if observer is None or done % observer.every or done in run.records.get("step", ()):
        return
    for name, value in {"step": done, **observer.look(run.weights)}.items():
        entry = np.asarray(value)[None]
        run.records[name] = np.concatenate([run.records[name], entry]) if name in run.records else entry


class _Saver:
    """Saves at most so often that it takes a small share of the time."""

    def __init__(self, folder: RunFolder | None) -> None:
        self.folder, self.next = folder, 0.0

    def write(self, run: Run, *, now: bool = False) -> None:
        begun = time.perf_counter()
        if self.folder is None or (begun < self.next and not now):
            return
        self.folder.write(run.state, run.losses, run.records)
        ended = time.perf_counter()
        self.next = ended + (ended - begun) / SHARE


@eqx.filter_jit
def _started(weights: Any, settings: Settings) -> State:
    return started(ravel_pytree(weights)[0], settings)


@eqx.filter_jit
def _unraveled(template: Any, vector: Array) -> Any:
    return ravel_pytree(template)[1](vector)


@eqx.filter_jit
def _chunk(state: State, program: Program, count: Any, more: Any) -> tuple[State, Array]:
    """At most `count` updates, and the losses before them. Any count is the same program, so the bits do not depend
    on where a training was cut into chunks."""
    if program.mesh is None:
        return _walked(state, program, count, more)
    arrays, rest = eqx.partition((state, program, count, more), eqx.is_array)
    same = PartitionSpec()
    # every device holds all, and moves by the same mean slope: the states stay equal to the last bit
    together = jax.shard_map(
        lambda given: _walked(*eqx.combine(given, rest)),
        mesh=program.mesh,
        in_specs=(same,),
        out_specs=same,
        check_vma=False,
    )
    return together(arrays)


def _walked(state: State, program: Program, count: Any, more: Any) -> tuple[State, Array]:
    objective, mesh = program.objective, program.mesh
    shaped = ravel_pytree(program.template)[1]

    def flat(vector: Array, key: Any, step: Any) -> Array:
        if mesh is None:
            return objective(shaped(vector), key, step)
        return objective.part(shaped(vector), key, step, jax.lax.axis_index(PARTS), mesh.size)

    def running(carry: tuple[Any, State, Array]) -> Array:
        return (carry[0] < count) & (carry[1].code == RUNNING)

    def one(carry: tuple[Any, State, Array]) -> tuple[Any, State, Array]:
        i, state, values = carry
        state, value = updated(state, flat, program.settings, program.key, more, shared=mesh is not None)
        return i + 1, state, values.at[i].set(value)

    start = jnp.zeros((), int), state, jnp.zeros(LONGEST, common_dtype(program.template))
    return jax.lax.while_loop(running, one, start)[1:]
