"""The certificate of the grid, against long double and without slack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import Grid, attend
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.figures.figure import Figure, Series

CELLS, NODES = (2,), (22,)
RADII = {"large radius: interpolation decides": (2.9, 3.2), "small radius: rounding decides": (0.3, 1.5)}


@dataclass(frozen=True)
class Config:
    n: int = 2000
    queries: int = 64
    problems: int = 4


def _exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention on the line in long double, straight from the definition."""
    q, k, v, log_weights = (a.astype(np.longdouble) for a in (q, k, v, log_weights))
    logits = np.multiply.outer(q[:, 0], k[:, 0]) + log_weights
    top = logits.max(axis=1, keepdims=True)
    p = np.exp(logits - top)
    total = p.sum(axis=1, keepdims=True)
    return p @ v / total, (top + np.log(total))[:, 0]


@lru_cache(maxsize=2)
def _found(entropy: int, config: Config) -> dict[str, np.ndarray]:
    """Worst errors over their bounds for each problem: values, log Z, and log Z by a bound without rounding terms."""
    rng, found = np.random.default_rng(entropy), {}
    for name, radii in RADII.items():
        rows = []
        for radius in np.linspace(*radii, config.problems):
            q, k = rng.uniform(-radius, radius, (config.queries, 1)), rng.uniform(-radius, radius, (config.n, 1))
            v, log_weights = rng.normal(size=(config.n, 2)), 3 * rng.normal(size=config.n)
            plan = plan_of_shape(q, k, log_weights, CELLS, NODES)
            out = attend(q, k, v, log_weights, method=Grid(plan=plan))
            values, log_z = _exact(q, k, v, log_weights)
            error = np.linalg.norm(np.asarray(out.values) - values, axis=1) / np.asarray(out.error_bound)
            log_error = np.abs(np.asarray(out.log_normalizer) - log_z)
            bare = -np.log1p(-float(np.asarray(plan.boxes.interpolation)[0]))
            rows.append([error.max(), (log_error / np.asarray(out.log_normalizer_error)).max(), log_error.max() / bare])
        found[name] = np.array(rows, float)
    return found


def _checks(found: dict[str, np.ndarray], columns: slice) -> tuple[Check, ...]:
    return tuple(
        Check(f"{name}: worst error over its bound", float(rows[:, columns].max()), high=1.0)
        for name, rows in found.items()
    )


def _run(key: Any, config: Config) -> Outcome:
    found = _found(int(generator(key).integers(2**32)), config)
    places = tuple(float(i + 1) for i in range(config.problems))
    large, small = found.values()
    figure = Figure(
        "Errors of the grid over their certificates",
        "problem",
        "worst error / bound",
        (
            Series("large radius: log Z", places, tuple(large[:, 1].tolist()), "points"),
            Series("small radius: log Z", places, tuple(small[:, 1].tolist()), "points"),
            Series("control: small radius, bound without rounding", places, tuple(small[:, 2].tolist()), "points"),
            Series("the bound", (places[0], places[-1]), (1.0, 1.0), "dashed"),
        ),
        yscale="log",
        caption=f"float64 against long double, {config.n} keys on the line.",
    )
    return Outcome(_checks(found, slice(0, 2)), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_found(int(generator(key).integers(2**32)), config), slice(2, 3)))


claim = Claim(
    name="trefethen-2019-grid-certificate",
    title="The certificate of the grid holds",
    statement=(
        "For all queries, keys, values and log-weights on the line: values and log-normaliser computed on a grid of "
        "Chebyshev nodes differ from the exact ones by at most the bounds that come with them."
    ),
    hypotheses=(
        "every operation is correct to one unit roundoff, exp and log to four",
        "every point lies in its cell of the plan",
    ),
    reference="trefethen2019, Theorem 8.2",
    run=_run,
    control=_control,
    control_statement="The bound of interpolation alone, without the terms for rounding.",
    quick=Config(),
    full=Config(problems=60),
)
