"""`shifted`: a task with prompts unlike those of training."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.incontext.task import Task, rotation
from measureformer.numerics import lapack

SAMPLED = 2**13
"""Prompts, of four points each, from which the mean square of labels is estimated where the law of inputs changes."""
ORTHOGONAL = "orthogonal query"
"""The variant whose question is 0 once the examples span the whole space."""


def _skewed(key: Any, z: Any) -> Any:
    scales = 1 / jnp.arange(1, z.shape[1] + 1).astype(z.dtype)
    # normalised so that E|x|² = d stays
    scales = scales * jnp.sqrt(z.shape[1] / jnp.sum(scales**2))
    return z * scales @ rotation(key, z.shape[1], z.dtype)


def _subspace(key: Any, z: Any) -> Any:
    half = max(z.shape[1] // 2, 1)
    cut = jnp.where(jnp.arange(z.shape[1]) < half, math.sqrt(z.shape[1] / half), 0).astype(z.dtype)
    return z * cut @ rotation(key, z.shape[1], z.dtype)


def _orthant(key: Any, z: Any) -> Any:
    signs = jax.random.rademacher(key, (z.shape[1],), dtype=z.dtype)
    return jnp.abs(z) * signs


def _repeated(key: Any, x: Any) -> Any:
    """After i examples, one of them is asked again; before the first, x itself."""
    places = jnp.arange(x.shape[0])
    chosen = jnp.floor(jax.random.uniform(key, (x.shape[0],), x.dtype) * places).astype(int)
    return x[chosen]


def _orthogonal(key: Any, x: Any) -> Any:
    """After i examples, the part of x_i that is orthogonal to them, with the length of x_i; 0 when they span all."""
    q, _ = lapack.qr(x.T)  # the first i columns span the first i rows
    rest = jnp.zeros_like(x)
    columns = q.T
    length = jnp.linalg.norm(x, axis=1, keepdims=True)
    return rest.at[: columns.shape[0]].set(columns * length[: columns.shape[0]])


class _Scaled(eqx.Module):
    of: Any
    factor: Float[Array, ""]

    def __call__(self, key: Any, x: Any) -> Any:
        return self.factor.astype(x.dtype) * (x if self.of is None else self.of(key, x))


def shifted(task: Task) -> dict[str, Task]:
    """Variants of a task with prompts unlike those of training, by name.

    Inputs on a skewed ellipsoid, in a random half subspace or in a random orthant; a question orthogonal to the
    examples (0 after d of them), or equal to one of them; inputs or labels 1/3, 1/2, 2, 3 times as large; noisy labels.
    Errors are divided by the mean square of labels, which is estimated from samples where the law of inputs changes.

    Arguments:
        task: the task of training.

    Ref         garg2022, Section 4.

    >>> import measureformer as mf
    >>> from measureformer.incontext.shifted import shifted
    >>> sorted(shifted(mf.incontext.tasks.linear(4)))[:3]
    ['half subspace', 'inputs × 0.333', 'inputs × 0.5']
    """
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(
            got=f"a {type(task).__name__}", need="a Task, with laws of inputs and functions", do="Shift it by hand."
        )
    same: dict[str, Any] = {
        "function": task.function,
        "inputs": task.inputs,
        "query": task.query,
        "noise": 0.0 if task.noise is None else float(task.noise),
        "scale": float(task.scale),
        "loss": task.loss,
    }
    change = lambda **fields: Task(task.dim, **{**same, **fields})  # noqa: E731
    found = {
        "skewed inputs": change(inputs=_skewed),
        "half subspace": change(inputs=_subspace),
        "orthant": change(inputs=_orthant),
    }
    factors = (1 / 3, 1 / 2, 2.0, 3.0)
    found |= {f"inputs × {c:.3g}": change(inputs=_Scaled(task.inputs, jnp.asarray(c))) for c in factors}
    growth = _growth(task, list(found.values()))
    found = {
        name: eqx.tree_at(lambda t: t.scale, other, task.scale * by)
        for (name, other), by in zip(found.items(), growth, strict=True)
    }
    found |= {ORTHOGONAL: change(query=_orthogonal), "repeated query": change(query=_repeated)}
    found |= {"noisy labels": change(noise=1.0)}
    for c in factors:
        times = _Scaled(task.function, jnp.asarray(c))
        found[f"labels × {c:.3g}"] = change(function=times, scale=float(task.scale) * c**2)
    return found


def _growth(task: Task, others: list[Task]) -> np.ndarray:
    """E y² of other inputs over that of the task, from samples of the same functions; 1 if they do not contradict it.

    Where f(cx) = c^p f(x) the same functions at the same inputs give c^{2p} without any error.
    """
    squares = np.asarray(_squares([task, *others], jax.random.key(0)))
    ratio = squares[1:].mean(axis=1) / squares[0].mean()
    noise = (squares[1:] - ratio[:, None] * squares[0]).std(axis=1) / (squares[0].mean() * math.sqrt(SAMPLED))
    return np.where(np.abs(ratio - 1) <= 4 * noise, 1.0, ratio)


@eqx.filter_jit
def _squares(tasks: list[Task], key: Any) -> Array:
    """The mean square of answers of each prompt (tasks, prompts), all from the same keys."""
    keys = jax.random.split(key, SAMPLED)
    one = lambda task: jax.vmap(lambda k: jnp.mean(task.prompt(k, 4, jnp.float32).answers ** 2))(keys)  # noqa: E731
    return jnp.stack([one(task) for task in tasks])
