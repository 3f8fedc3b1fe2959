"""Measuring what things cost on this machine: a few small runs, once, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.grid.costs import Costs, cache_file, keep, stored
from measureformer.attention.grid.grid import on_grid
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.attention.streaming import stream

KEYS = 65536
QUERIES = 256
NODES = (4, 12)


@lru_cache(maxsize=1)
def calibrated() -> Costs:
    """The costs in the user's cache folder, or measured now and stored there."""
    path = cache_file()
    found = stored(path)
    if found is None:
        found = measured()
        keep(path, found)
    return found


def measured() -> Costs:
    """Seconds per unit of work, from runs of some milliseconds each; compiling them takes longer."""
    rng = np.random.default_rng(0)
    x, v, zeros = rng.uniform(-1, 1, (KEYS, 2)), rng.normal(size=(KEYS, 2)), np.zeros(KEYS)
    points, values, times = jnp.asarray(x), jnp.asarray(v), jnp.arange(float(KEYS))
    streamed = jax.jit(lambda q, t, s: stream(None, Queries(q, t), Keys(points, values, jnp.asarray(zeros), s)))
    pair = _seconds(lambda: streamed(points[:QUERIES], None, None)) / (QUERIES * KEYS)
    masked = _seconds(lambda: streamed(points[-QUERIES:], times[-QUERIES:], times)) / (QUERIES * KEYS)
    point, moment = _per_point(x, points, values, jnp.asarray(zeros))
    size = 512
    square, wide = jnp.asarray(rng.normal(size=(size, size))), jnp.asarray(rng.normal(size=(size, 3 * size)))
    product = _seconds(lambda: _product(square, wide)) / (3.0 * size**3)
    default = Costs()
    return Costs(pair, point, moment, default.node, product, default.box, masked)


@jax.jit
def _product(a: Any, b: Any) -> Any:
    return a @ b


def _per_point(x: np.ndarray, points: Any, values: Any, zeros: Any) -> tuple[float, float]:
    """Seconds per point, planning included, and per point and moment and column: two grids, two unknowns."""
    found = []
    for p in NODES:

        def run(p: int = p) -> Any:
            plan = plan_of_shape(x, x, np.zeros(KEYS), (4, 4), (p, p))
            return on_grid(plan, points, points, values, zeros, True)

        found.append(_seconds(run) / (2 * KEYS))
    columns = 1 + values.shape[1]
    moment = max((found[1] - found[0]) / ((NODES[1] ** 2 - NODES[0] ** 2) * columns), 1e-11)
    return max(found[0] - moment * NODES[0] ** 2 * columns, 1e-9), moment


def _seconds(run: Callable[[], Any]) -> float:
    jax.block_until_ready(run())
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run())
        best = min(best, time.perf_counter() - start)
    return float(best)
