"""`descend_all`: train many problems at once, recorded on a logarithmic grid of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError, ShapeError
from measureformer.implicit_bias import risk as _risk
from measureformer.implicit_bias.problem import Problem
from measureformer.implicit_bias.svm import SVM, Norm
from measureformer.numerics.arrays import finite, floats, host, positive_int, prng_key
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.checked import check_fields, checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Count, Key

Method = Literal["gd", "ngd", "polyak", "momentum", "adam", "sign"]
Start: TypeAlias = ArrayLike | tuple[ArrayLike, ArrayLike] | None
"""W (k, q), or a pair of K (k, rank) and Q (q, rank)."""
RATES = {"gd": 1.0, "ngd": 0.1, "polyak": 1.0, "momentum": 1.0, "adam": 0.01, "sign": 0.01}
RUNNING, GRADIENT_VANISHED, NOT_FINITE, INFIMUM = range(4)
REASONS = ("steps", "gradient", "not finite", "infimum")
GRID = 16
"""Recorded steps per factor of ten."""


@dataclass(frozen=True)
class Descent:
    """How to train: the method, its rate η, and whether W is one matrix or a product KQᵀ.

    Arguments:
        method: one of the list below.
        rate: η > 0; by default 1 for "gd", "polyak" and "momentum", 0.1 for "ngd", 0.01 for "adam" and "sign".
        momentum: decay of the mean of gradients in "momentum" and "adam", in [0, 1).
        eps: added to the denominator of "adam", at least 0.
        infimum: least loss, for "polyak"; by default that of a linear head.
        rank: train K (k, rank) and Q (q, rank) with W = KQᵀ; by default W itself.

    - "gd": W ← W − η∇L. - "ngd": W ← W − η∇L/‖∇L‖, for K and Q each by its own norm.
    - "polyak": W ← W − η (L(W) − infimum)/(2‖∇L‖²) ∇L. - "momentum": V ← `momentum`·V + ∇L, W ← W − ηV.
    - "adam": decays `momentum` and 0.999. - "sign": W ← W − η sign ∇L.

    >>> import measureformer as mf
    >>> mf.implicit_bias.Descent("ngd", rank=10).step
    0.1
    """

    method: Method = "ngd"
    rate: float | None = None
    momentum: float = 0.9
    eps: float = 1e-8
    infimum: float | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.method not in RATES:
            raise OptionError(got=f"method = {self.method!r}", need=f"one of {', '.join(RATES)}", do='Try "ngd".')
        if not (0 < self.step < np.inf and 0 <= self.momentum < 1 and self.eps >= 0):
            raise OptionError(
                got=f"rate = {self.rate}, momentum = {self.momentum}, eps = {self.eps}",
                need="rate > 0, 0 ≤ momentum < 1 and eps ≥ 0",
                do="Leave them out for the usual ones.",
            )
        if self.rank is not None:
            positive_int(self.rank, "rank")

    @property
    def step(self) -> float:
        """The rate η."""
        return RATES[self.method] if self.rate is None else float(self.rate)


@dataclass(frozen=True)
class Run:
    """One training run at g recorded `steps`: 0, 1, 2, … and then 16 per factor of ten.

    >>> import jax, measureformer as mf
    >>> problem = mf.implicit_bias.random_problems("orthonormal", jax.random.key(0))
    >>> run = problem.descend("ngd", 300, jax.random.key(1))
    >>> run.stopped, run.selected[-1].tolist(), bool(mf.implicit_bias.misalignment(run.W[-1], problem.svm().W) < 1e-2)
    ('steps', [0, 0, 0, 0], True)
    """

    problem: Problem
    method: Descent
    steps: np.ndarray
    """(g,)"""
    W: np.ndarray
    """(g, k, q)"""
    factors: tuple[np.ndarray, np.ndarray] | None
    """K (g, k, rank) and Q (g, q, rank), if W = KQᵀ."""
    stopped: str
    """Why it ended: "steps"; "gradient" if the gradient underflows or is lost in rounding; "infimum" if a Polyak step
    is 0; "not finite" if the next state would not be finite."""

    @cached_property
    def norm(self) -> np.ndarray:
        """‖W‖_F, (g,)."""
        return np.linalg.norm(self.W, axis=(1, 2))

    @property
    def direction(self) -> np.ndarray:
        """W/‖W‖_F, (g, k, q); zero where W is zero."""
        return self.W / np.where(self.norm > 0, self.norm, 1)[:, None, None]

    @cached_property
    def _measured(self) -> tuple[np.ndarray, np.ndarray]:
        # padded, so that a new number of recorded steps compiles nothing
        values = _measured(self.problem, pad_rows(self.W, bucket(len(self.W))))
        return tuple(np.asarray(value)[: len(self.W)] for value in values)  # pyright: ignore[reportReturnType]

    @property
    def loss(self) -> np.ndarray:
        """(g,)"""
        return self._measured[0]

    @property
    def attention(self) -> np.ndarray:
        """Softmax probabilities, (g, n, T)."""
        return self._measured[1]

    @property
    def selected(self) -> np.ndarray:
        """The most attended token of each example, (g, n)."""
        return self.attention.argmax(axis=2)

    def at(self, step: int) -> int:
        """Index of the last record up to this step."""
        return int(np.searchsorted(self.steps, step, side="right")) - 1

    def margins(self, tokens: ArrayLike | None = None) -> np.ndarray:
        """`Problem.margins` of each W, (g, n, T); for the tokens selected at the end by default."""
        tokens = self.selected[-1] if tokens is None else tokens
        return np.stack([self.problem.margins(W, tokens) for W in self.W])

    def svm(self, norm: Norm = "frobenius") -> SVM:
        """The SVM of the tokens selected at the end."""
        return self.problem.svm(self.selected[-1], norm)


class State(NamedTuple):
    """State of the training."""

    parameters: tuple[Array, ...]
    """(W,), or (K, Q)."""
    memories: tuple[tuple[Array, ...], ...]
    """Moments that the method keeps, each of the shapes of the parameters."""
    done: Array
    code: Array


class Numbers(NamedTuple):
    """Settings that are arguments of the compiled program, so that a new rate compiles nothing."""

    rate: Any
    momentum: Any
    eps: Any
    infimum: Any


MEMORIES = {"momentum": 1, "adam": 2}


@checked
def descend_all(
    problems: Sequence[Problem],
    method: Method | Descent,
    steps: Count,
    key: Key | None = None,
    *,
    starts: Sequence[Start] | np.ndarray | Array | None = None,
) -> list[Run]:
    """Train several problems of one shape together, in one compiled program.

    Arguments:
        problems: at least one, all with the same n, T, d, head and loss.
        method: "gd", "ngd", "polyak", "momentum", "adam", "sign", or a `Descent` with settings.
        steps: number of steps; a run whose gradient is lost in rounding ends earlier, see `Run.stopped`.
        key: randomness of the starts, needed without `starts`.
        starts: for each problem W (k, q), or a pair (K, Q); by default entries are uniform in ±1/√q, as in a linear
            layer of PyTorch.

    A new number of problems or steps compiles nothing, a new shape does.

    >>> import jax, measureformer as mf
    >>> problems = mf.implicit_bias.random_problems("random", jax.random.key(0), count=4)
    >>> runs = mf.implicit_bias.descend_all(problems, "ngd", 100, jax.random.key(1))
    >>> [bool(run.loss[-1] < run.loss[0]) for run in runs]
    [True, True, True, True]
    """
    method = method if isinstance(method, Descent) else Descent(method)
    steps, problems = positive_int(steps, "steps"), list(problems)
    structures = {jax.tree.structure(problem) for problem in problems}
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(problem)) for problem in problems}
    if len(structures) != 1 or len(shapes) != 1:
        raise ShapeError(
            got=f"{len(problems)} problems of {len(shapes)} shapes and {len(structures)} kinds",
            need="at least one, all with the same n, T, d, head and loss",
            do="Train those of one shape together.",
        )
    if method.method == "polyak" and method.infimum is None:
        problems[0].check_linear("a Polyak step")
    parameters = _starts(problems, method, key, starts)
    count, grid = len(problems), _grid(steps)
    size = bucket(count) if count > 16 else 1 << (count - 1).bit_length()
    leaves = [[np.asarray(leaf) for leaf in jax.tree.leaves(problem)] for problem in problems]
    stacked = [pad_rows(np.stack(group), size) for group in zip(*leaves, strict=True)]
    batch = jax.tree.unflatten(structures.pop(), stacked)
    gaps = np.zeros(bucket(len(grid)), np.int32)
    gaps[: len(grid) - 1] = np.diff(grid)
    given = (method.step, method.momentum, method.eps, method.infimum)
    numbers = Numbers(*(None if number is None else np.asarray(number, parameters[0].dtype) for number in given))
    found = _descended(batch, tuple(pad_rows(part, size) for part in parameters), gaps, method.method, numbers)
    recorded, done, code = jax.tree.map(np.asarray, found)
    return [
        _run(problem, method, grid, tuple(part[: len(grid), i] for part in recorded), int(done[i]), int(code[i]))
        for i, problem in enumerate(problems)
    ]


def _grid(steps: int) -> np.ndarray:
    powers = 10 ** np.arange(0, np.log10(steps) + 1 / GRID, 1 / GRID)
    return np.unique([0, *np.minimum(np.round(powers), steps).astype(int), steps])


def _starts(problems: list[Problem], method: Descent, key: Key | None, starts: Any) -> tuple[np.ndarray, ...]:
    """Parameters with the problems as first axis."""
    (k, q), dtype = problems[0].shape, problems[0].X.dtype
    shapes = [(k, q)] if method.rank is None else [(k, method.rank), (q, method.rank)]
    if starts is None:
        if key is None:
            raise OptionError(got="no key and no start", need="one of them", do="Pass jax.random.key(seed).")
        rng = generator(prng_key(key))
        width = 1 / np.sqrt(q)
        return tuple(rng.uniform(-width, width, (len(problems), *shape)).astype(dtype) for shape in shapes)
    starts = [start if isinstance(start, tuple) else (start,) for start in starts]
    parts = [[np.asarray(host(floats(part, "start")), dtype) for part in start] for start in starts]
    if len(parts) != len(problems) or any([part.shape for part in start] != shapes for start in parts):
        raise ShapeError(
            got=f"{len(parts)} starts of shapes {[[part.shape for part in start] for start in parts[:1]]}",
            need=f"{len(problems)} of {shapes}",
            do="A matrix W for each problem, or with a rank a tuple (K, Q).",
        )
    for part in (part for start in parts for part in start):
        finite(part, "start")
    return tuple(np.stack(group) for group in zip(*parts, strict=True))


def _run(
    problem: Problem, method: Descent, grid: np.ndarray, parts: tuple[np.ndarray, ...], done: int, code: int
) -> Run:
    # a run that ended early repeats its last state in the later records
    last = int(np.searchsorted(grid, done)) + 1
    steps = np.append(grid[: last - 1], done)
    parts = tuple(part[:last] for part in parts)
    W = parts[0] if method.rank is None else parts[0] @ parts[1].swapaxes(1, 2)
    return Run(problem, method, steps, W, None if method.rank is None else (parts[0], parts[1]), REASONS[code])


@eqx.filter_jit
def _descended(problems: Problem, parameters: tuple[Any, ...], gaps: Any, method: Method, numbers: Numbers) -> Any:
    """Parameters after each gap of steps, with the records as first axis, then how many steps were done, and why."""

    def one(problem: Problem, noise: Array, state: State) -> State:
        return _stepped(problem, noise, state, method, numbers)

    def through(state: State, gap: Array) -> tuple[State, tuple[Array, ...]]:
        state = jax.lax.fori_loop(0, gap, lambda _, s: jax.vmap(one)(problems, noise, s), state)
        return state, state.parameters

    noise = jax.vmap(_risk.rounding)(problems)

    parameters = jax.tree.map(jnp.asarray, parameters)
    memories = (jax.tree.map(jnp.zeros_like, parameters),) * MEMORIES.get(method, 0)
    none = jnp.zeros(len(parameters[0]), int)
    state, records = jax.lax.scan(through, State(parameters, memories, none, none), gaps)
    records = jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), parameters, records)
    return records, state.done, state.code


def _stepped(problem: Problem, noise: Array, state: State, method: Method, numbers: Numbers) -> State:
    def value(parameters: tuple[Array, ...]) -> tuple[Array, Array]:
        return _risk.risk_and_rest(problem, _product(parameters))

    slope, rest = jax.grad(value, has_aux=True)(state.parameters)
    change, memories, stuck = _change(problem, state, slope, method, numbers)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(part)) for part in slope]))
    # reject a step after which logits could overflow
    total = sum(jnp.sum(jnp.abs(part)) for part in change)
    possible = (total < float(jnp.finfo(largest.dtype).max) ** 0.5) & jnp.isfinite(largest)
    code = jnp.where(stuck, INFIMUM, RUNNING)
    # where numbers are denormal or lost in rounding, the direction of the gradient is noise
    floor = 1e3 * float(jnp.finfo(largest.dtype).tiny) + jnp.sum(noise * rest)
    code = jnp.where(largest <= floor, GRADIENT_VANISHED, code)
    code = jnp.where(possible, code, NOT_FINITE)
    code = jnp.where(state.code == RUNNING, code, state.code).astype(state.code.dtype)
    go = code == RUNNING
    parameters = tuple(a - jnp.where(go, b, 0) for a, b in zip(state.parameters, change, strict=True))
    memories = jax.tree.map(lambda a, b: jnp.where(go, a, b), memories, state.memories)
    return State(parameters, memories, state.done + go, code)


def _product(parameters: tuple[Array, ...]) -> Array:
    return parameters[0] if len(parameters) == 1 else parameters[0] @ parameters[1].T


def _change(
    problem: Problem, state: State, slope: tuple[Array, ...], name: Method, numbers: Numbers
) -> tuple[Any, Any, Any]:
    """The change to subtract from the parameters, the new moments, and whether a Polyak step is at the infimum."""
    rate, decay = numbers.rate, numbers.momentum
    if name == "gd":
        return tuple(rate * part for part in slope), (), False
    if name == "sign":
        return tuple(rate * jnp.sign(part) for part in slope), (), False
    if name == "ngd":
        return tuple(rate * part / _norm(part) for part in slope), (), False
    if name == "polyak":
        W = _product(state.parameters)
        above = _risk.excess(problem, W) if numbers.infimum is None else _risk.risk(problem, W) - numbers.infimum
        size = _norm(jnp.concatenate([part.reshape(-1) for part in slope]))
        # two divisions: the square of the norm would underflow first
        return tuple(rate * (above / (2 * size)) * (part / size) for part in slope), (), above <= 0
    if name == "momentum":
        first = tuple(decay * old + part for old, part in zip(state.memories[0], slope, strict=True))
        return tuple(rate * part for part in first), (first,), False
    other = 0.999
    first = tuple(decay * old + (1 - decay) * part for old, part in zip(state.memories[0], slope, strict=True))
    second = tuple(other * old + (1 - other) * part**2 for old, part in zip(state.memories[1], slope, strict=True))
    count = (state.done + 1).astype(slope[0].dtype)
    a, b = 1 - decay**count, 1 - other**count
    change = tuple(rate * (m / a) / (jnp.sqrt(s / b) + numbers.eps) for m, s in zip(first, second, strict=True))
    return change, (first, second), False


def _norm(array: Array) -> Array:
    """The Euclidean norm, also where squares underflow; 1 for zero."""
    largest = jnp.max(jnp.abs(array))
    safe = jnp.where(largest > 0, largest, 1)
    return jnp.where(largest > 0, safe * jnp.sqrt(jnp.sum((array / safe) ** 2)), 1)


@eqx.filter_jit
def _measured(problem: Problem, W: Any) -> tuple[Array, Array]:
    def one(W: Array) -> tuple[Array, Array]:
        return _risk.risk(problem, W), _risk.probabilities(_risk.logits(problem, W))

    return jax.lax.map(one, W)
