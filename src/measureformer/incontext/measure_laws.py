"""`measure_laws`: how far a trained model is from a map of measures (order, repetition, moves, many examples)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.incontext.models import InContextModel
from measureformer.incontext.observe import errors_of
from measureformer.incontext.tasks import AbstractTask, Prompts
from measureformer.incontext.train import check_points
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key

LONGEST = 128
"""Prompts are padded to at most this many examples: attention is quadratic in them."""


@dataclass(frozen=True)
class MeasureLaws:
    """How the answer changes with the prompt: root mean square change over root mean square of the answers."""

    permuted: float
    """With the examples in another order: 0 for a map of measures."""
    repeated: float
    """With every example twice: 0 for a map of measures."""
    moves: Float[np.ndarray, " s"]
    """How far one of the examples is moved."""
    slopes: Float[np.ndarray, " s"]
    """Change of the answer over the W_1 distance of the prompts: bounded for a Lipschitz map."""
    examples: Float[np.ndarray, " l"]
    """Numbers of examples, also beyond those of training."""
    errors: Float[np.ndarray, " l"]
    """Normalised error after that many."""
    gaps: Float[np.ndarray, " m"]
    """Change of the answer from n to 2n examples: tends to 0 if the answer converges as n grows."""


@checked
def measure_laws(
    model: InContextModel, task: AbstractTask, key: Key, *, examples: int = 10, doublings: int = 3, prompts: int = 256
) -> MeasureLaws:
    """How much a model's answer depends on order and repetition, and whether it converges with many examples.

    Arguments:
        model: the model; with positions, it reads only as many examples as they allow.
        task: the task of the prompts, in the model's dimension.
        key: randomness of the prompts.
        examples: examples of the prompts that are permuted, repeated and moved.
        doublings: how often this number is doubled for the limit.
        prompts: number of prompts.

    Ref         furuya2024, Section 2.

    >>> import jax, numpy as np, measureformer as mf
    >>> small = mf.Architecture(width=8, layers=1, heads=2)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 2, small, reading="measure", dtype=np.float64)
    >>> task = mf.incontext.tasks.linear(2)
    >>> laws = mf.incontext.measure_laws(model, task, jax.random.key(1), examples=4, doublings=1)
    >>> laws.permuted < 1e-12, laws.repeated < 1e-12, laws.examples.tolist()
    (True, True, [4.0, 8.0])
    """
    k = positive_int(examples, "examples")
    check_points(model, 2 * k + 1)
    most = 2 ** positive_int(doublings, "doublings") * k
    if model.positions is not None:
        most = min(most, model.positions.shape[0] // 2 - 1)
    return laws_on(model, task.sample(key, prompts, most + 1, dtype=model.read_in.dtype), task, k)


def laws_on(model: InContextModel, drawn: Prompts, task: AbstractTask, k: int) -> MeasureLaws:
    """`measure_laws` on given prompts whose last entry is the question; k examples are permuted, repeated, moved.

    Prompts of up to `LONGEST` examples are padded to one length with unseen examples, so that one program answers all.
    """
    x, y = np.asarray(drawn.x[:, :-1]), np.asarray(drawn.y[:, :-1])
    query, answer, most = np.asarray(drawn.x[:, -1]), np.asarray(drawn.y[:, -1]), x.shape[1]

    def ask(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        count = x.shape[1]
        behind = ((0, 0), (0, max(min(most, LONGEST) - count, 0)))
        padded = np.pad(x, (*behind, (0, 0)), mode="edge"), np.pad(y, behind, mode="edge")
        return np.asarray(answers_after(model, *padded, query, np.asarray(count)))

    plain = ask(x[:, :k], y[:, :k])
    size = max(float(np.sqrt((plain**2).mean())), 1e-300)
    change = lambda one, other: float(np.sqrt(((one - other) ** 2).mean()) / size)  # noqa: E731
    backwards = change(plain, ask(x[:, :k][:, ::-1], y[:, :k][:, ::-1]))
    turned = change(plain, ask(np.roll(x[:, :k], 1, axis=1), np.roll(y[:, :k], 1, axis=1)))
    twice = ask(*(np.repeat(entry[:, :k], 2, axis=1) for entry in (x, y)))
    moves = np.array([1.0, 0.1, 0.01])
    slopes = [change(plain, ask(_moved(x[:, :k], step), y[:, :k])) / (step / k) for step in moves]
    lengths = [k * 2**i for i in range(most.bit_length()) if k * 2**i <= most]
    found = [ask(x[:, :n], y[:, :n]) for n in lengths]
    return MeasureLaws(
        max(backwards, turned),
        change(plain, twice),
        moves,
        np.array(slopes),
        np.array(lengths, float),
        np.array([float(errors_of(row, answer, task).mean()) for row in found]),
        np.array([change(one, other) for one, other in itertools.pairwise(found)]),
    )


def _moved(x: np.ndarray, step: float) -> np.ndarray:
    moved = x.copy()
    moved[:, 0, 0] += step
    return moved


@jax.jit
def answers_after(model: InContextModel, x: Any, y: Any, query: Any, count: Any) -> Float[Array, " b"]:
    """The prediction at one question (b, d) after the first `count` of the examples x (b, n, d), y (b, n)."""
    n = x.shape[1]
    if model.reading == "measure":
        log_weights = jnp.where(jnp.arange(n) < count, 0, -jnp.inf).astype(x.dtype)
        return model.at(x, y, jnp.broadcast_to(log_weights, y.shape), query[:, None])[:, 0]
    # the question follows the examples and does not see what comes later
    room = jnp.concatenate([x, query[:, None]], axis=1), jnp.concatenate([y, jnp.zeros_like(y[:, :1])], axis=1)
    return model.predictions(room[0].at[:, count].set(query), room[1])[:, count]
