"""The certificate of the grid, against long double and without slack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.attention import Grid, GridPlan, attend
from measureformer.attention.grid.grid import on_grid
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.numerics.arrays import on_device
from measureformer.numerics.buckets import bucket, pad_axis, pad_log_weights
from measureformer.numerics.types import ArrayLike

CELLS, NODES = (2,), (22,)
OUTSIDE = 1.5
CONTROLS = {
    "without-rounding": "The bound of interpolation alone, without the terms for rounding.",
    "outside-the-cells": "Queries half as far out again as those that the plan was made for, with the same bounds.",
}
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


def _unrefused(
    plan: GridPlan, q: np.ndarray, k: np.ndarray, v: np.ndarray, log_weights: np.ndarray
) -> tuple[Array, Array]:
    """Values and log Z as `attend` computes them, also for queries outside their cells, which it refuses."""
    rows = bucket(len(k))
    padded = (
        pad_axis(q, bucket(len(q)), 0),
        pad_axis(k, rows, 0),
        pad_axis(v, rows, 0),
        pad_log_weights(log_weights, rows),
    )
    # as `attend` does it, so that its programs are used again
    with jax.ensure_compile_time_eval():
        values, _, log_z, _ = on_grid(plan, *map(on_device, padded), fresh=True)
    return values[: len(q)], log_z[: len(q)]


def _worst(answer: Iterable[ArrayLike], exact: Iterable[np.ndarray], bounds: Iterable[ArrayLike]) -> list[float]:
    """Worst errors over their bounds, of values and log Z."""
    errors = [np.asarray(found) - truth for found, truth in zip(answer, exact, strict=True)]
    sizes = np.linalg.norm(errors[0], axis=1), np.abs(errors[1])
    return [float((size / np.asarray(bound)).max()) for size, bound in zip(sizes, bounds, strict=True)]


@once
def _shares(key: Key, config: Config) -> dict[str, dict[str, np.ndarray]]:
    """For each variant and range of radii: what `_worst` says of each problem."""
    rng = np.random.default_rng(generator(key).integers(2**32))
    found = {variant: {name: np.zeros((config.problems, 2)) for name in RADII} for variant in ("claim", *CONTROLS)}
    for name, radii in RADII.items():
        for i, radius in enumerate(np.linspace(*radii, config.problems)):
            q, k = rng.uniform(-radius, radius, (config.queries, 1)), rng.uniform(-radius, radius, (config.n, 1))
            v, log_weights = rng.normal(size=(config.n, 2)), 3 * rng.normal(size=config.n)
            plan = plan_of_shape(q, k, log_weights, CELLS, NODES)
            out = attend(q, k, v, log_weights, method=Grid(plan=plan))
            answer, bounds = (out.values, out.log_normalizer), (out.error_bound, out.log_normalizer_error)
            bare = -np.log1p(-np.asarray(plan.boxes.interpolation)[0])
            inside, far = _exact(q, k, v, log_weights), (OUTSIDE * q, k, v, log_weights)
            found["claim"][name][i] = _worst(answer, inside, bounds)
            found["without-rounding"][name][i] = _worst(answer, inside, (bounds[0], bare))
            found["outside-the-cells"][name][i] = _worst(_unrefused(plan, *far), _exact(*far), bounds)
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _shares(key, config)
    rejected_by = ("outside-the-cells",), ("outside-the-cells", "without-rounding")
    checks = tuple(
        Check(f"{name}: worst error over its bound", shares.max(), high=1.0, rejected_by=controls)
        for (name, shares), controls in zip(found[variant].items(), rejected_by, strict=True)
    )
    return Outcome(checks, _figure(config, found) if variant == "claim" else None)


def _figure(config: Config, found: dict[str, dict[str, np.ndarray]]) -> Figure:
    places = np.arange(1, config.problems + 1)
    large, small = (shares[:, 1] for shares in found["claim"].values())
    _, bare = (shares[:, 1] for shares in found["without-rounding"].values())
    return Figure(
        "Errors of the grid over their certificates",
        "problem",
        "worst error / bound",
        (
            Series("large radius: log Z", places, large, "points", role="measured"),
            Series("small radius: log Z", places, small, "points", role="measured"),
            Series("control: small radius, bound without rounding", places, bare, "points", role="control"),
            Series("the bound", (1, config.problems), (1, 1), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"float64 against long double, {config.n} keys on the line.",
    )


claim = Claim(
    name="trefethen-2019-grid-certificate",
    title="The certificate of the grid holds",
    kind="theorem",
    statement=(
        "For all queries, keys, values and log-weights on the line: values and log-normaliser computed on a grid of "
        "Chebyshev nodes differ from the exact ones by at most the bounds that come with them."
    ),
    hypotheses=(
        "every operation is correct to one unit roundoff, exp and log to four",
        "every point lies in its cell of the plan",
    ),
    reference="trefethen2019, Theorem 8.2",
    measure=measure,
    controls=CONTROLS,
    quick=Config(),
    full=Config(problems=60),
)
