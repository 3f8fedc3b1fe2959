"""Which rows a formula sees. By default only atoms with mass, and behind a mask only those that are not later.

`evaluate` of a map is called with padded measures, with passive tokens, and under `Causal` with measures of which every
query sees another part. A formula that reads `mu.log_weights` and `mu.visible(t)` itself can say so with `all_rows`;
every other one is guarded here, so that it is right without knowing about any of this.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import is_traced, on_device

Formula = TypeVar("Formula", bound=Callable[..., Array])
Measure = TypeVar("Measure", bound=AbstractAtomic)

ENTRIES = 1 << 21
"""Numbers in the contexts of the masked queries that are evaluated at once."""
_MARK = "_sees_all_rows"


def all_rows(evaluate: Formula) -> Formula:
    """Declare that a formula `evaluate(mu, x, t)` gives rows of zero mass no influence and masks by `mu.visible(t)`.

    It is then called with padding and passive tokens among the atoms, and once for all queries of a causal map. Only
    this formula is meant: a subclass that writes its own declares it again.
    """
    setattr(evaluate, _MARK, True)
    return evaluate


def guarded(evaluate: Formula) -> Formula:
    """The formula, called with atoms that have mass and are visible only; as it is if it declares `all_rows`."""
    if hasattr(evaluate, _MARK):
        return evaluate

    @functools.wraps(evaluate)
    def guard(self: Any, mu: Any, x: Any, t: Any) -> Any:
        if not isinstance(mu, AbstractAtomic):
            return evaluate(self, mu, x, t)
        masked = mu.visible(t) is not None
        if is_traced(self, mu, x, t):
            return _by_query(evaluate, self, mu, x, t) if masked else evaluate(self, massive(mu), x, t)
        return _in_numpy(evaluate, self, mu, x, t) if masked else evaluate(self, _kept(mu, True), x, t)

    setattr(guard, _MARK, False)
    return guard  # pyright: ignore[reportReturnType] it has the signature of the formula


def declares_all_rows(kind: type) -> bool:
    """Whether the formula of this class is called without the guard."""
    return getattr(kind.evaluate, _MARK)


def massive(mu: Measure) -> Measure:
    """The same measure with mass in every row, under `jit`: the first atom with mass is split, and empty rows get a
    part each. Their number is not known there, so they cannot be left out."""
    empty = mu.log_weights == -math.inf
    first = jnp.argmin(empty)
    index = jnp.where(empty, first, jnp.arange(mu.n))
    parts = jnp.log1p(jnp.sum(empty).astype(mu.log_weights.dtype))
    log_weights = mu.log_weights[index] - jnp.where(index == first, parts, 0)
    return mu.rows(index).with_log_weights(log_weights)


def _by_query(evaluate: Any, G: Any, mu: Any, x: Array, t: Array) -> Array:
    """Every query with the measure that it meets; zeros where it meets nothing."""

    def one(query: tuple[Array, Array]) -> Array:
        point, time = query
        sigma = mu.seen_at(time)
        some = jnp.any(sigma.log_weights > -math.inf)
        # without anything in sight all is shown, so that neither the value nor its derivative is NaN
        sigma = massive(sigma.with_log_weights(jnp.where(some, sigma.log_weights, mu.log_weights)))
        return jnp.where(some, evaluate(G, sigma, point[None], time[None])[0], 0)

    together = max(1, ENTRIES // max(1, mu.n * mu.dim))
    return jax.lax.map(one, (x, t), batch_size=min(together, x.shape[0]))


def _in_numpy(evaluate: Any, G: Any, mu: Any, x: Any, t: Any) -> Array:
    times, values = np.asarray(t), {}
    for time in np.unique(times):
        rows = np.flatnonzero(times == time)
        seen = _kept(mu.sigma, np.asarray(mu.times) <= time)
        found = np.asarray(evaluate(G, seen, on_device(np.asarray(x)[rows]), on_device(times[rows])))
        values |= dict(zip(rows.tolist(), found, strict=True))
    return on_device(np.stack([values[i] for i in range(len(times))]))


def _kept(mu: Measure, visible: Any) -> Measure:
    kept = (np.asarray(mu.log_weights) > -np.inf) & visible
    return mu if kept.all() else mu.rows(np.flatnonzero(kept))
