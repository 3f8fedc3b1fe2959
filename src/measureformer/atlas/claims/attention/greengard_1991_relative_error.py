"""The error of the grid is relative, for every query, however small its normaliser; a Gaussian expansion's is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import Grid, Plan, attend
from measureformer.attention.grid import Costs
from measureformer.figures.figure import Figure, Series

TOL = 1e-8


@dataclass(frozen=True)
class Config:
    n: int = 4000
    queries: int = 200


def _problem(key: Any, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Queries in [−10, 10] and keys in [0, 10]: normalisers from about 1 to e^{100}."""
    rng = generator(key)
    return np.sort(rng.uniform(-10, 10, config.queries)), rng.uniform(0, 10, config.n)


def _exact(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    logits = np.multiply.outer(q.astype(np.longdouble), k.astype(np.longdouble))
    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def _by_gaussians(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """log Z from e^{qk} = e^{q²/2} e^{k²/2} e^{−(q−k)²/2} with a Fourier series of the Gaussian, absolute error 1e-12.

    Centred and scaled to the same width first, which leaves the product of the widths, 50.
    """
    scale, middle = np.sqrt(2.0), 5.0
    x, y = q / scale, (k - middle) * scale
    period, modes = 60.0, 80
    frequency = 2 * np.pi / period * np.arange(-modes, modes + 1)
    coefficient = np.sqrt(2 * np.pi) / period * np.exp(-(frequency**2) / 2)
    weights = np.exp(y**2 / 2 - y.max() ** 2 / 2)
    moments = np.exp(-1j * np.multiply.outer(frequency, y)) @ weights
    gaussian = (np.exp(1j * np.multiply.outer(x, frequency)) @ (coefficient * moments)).real
    return np.log(np.maximum(gaussian, 1e-300)) + x**2 / 2 + y.max() ** 2 / 2 + q * middle


def _on_grid(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    q, k = q[:, None], k[:, None]
    # so few tokens would be summed one by one, unless that is made dear
    plan = Plan.make(q, k, tol=TOL, costs=Costs(pair=1.0))
    out = attend(q, k, np.zeros_like(k), method=Grid(plan=plan))
    return np.asarray(out.log_normalizer)


def _checks(log_z: np.ndarray, exact: np.ndarray) -> tuple[Check, ...]:
    return (
        Check("largest difference of log Z among the queries", float(exact.max() - exact.min()), low=80.0),
        Check("worst relative error of Z", float(np.abs(log_z - exact).max()), high=TOL),
    )


def _run(key: Any, config: Config) -> Outcome:
    q, k = _problem(key, config)
    exact = _exact(q, k)
    found = {"on the grid": _on_grid(q, k), "control: Fourier series of Gaussians": _by_gaussians(q, k)}
    lines = [
        Series(name, tuple(q.tolist()), tuple(np.maximum(np.abs(z - exact), 1e-17).astype(float).tolist()), "points")
        for name, z in found.items()
    ]
    asked = Series("what was asked for", (-10.0, 10.0), (TOL, TOL), "dashed")
    figure = Figure(
        "Relative error of the normaliser",
        "query",
        "error of log Z",
        (*lines, asked),
        yscale="log",
        caption=f"{config.n} keys in [0, 10]: Z grows from about 1 to e^100 from left to right.",
    )
    return Outcome(_checks(found["on the grid"], exact), figure)


def _control(key: Any, config: Config) -> Outcome:
    q, k = _problem(key, config)
    return Outcome(_checks(_by_gaussians(q, k), _exact(q, k)))


claim = Claim(
    name="greengard-1991-relative-error",
    title="A relative error for every query",
    statement=(
        "Real exponentials are interpolated with a relative error, so log Z(q) is within the tolerance for all "
        "queries, also for those whose normaliser is e^{100} times smaller than that of others."
    ),
    hypotheses=("positive weights", "dimension at most 3"),
    reference="greengard1991, Section 2",
    run=_run,
    control=_control,
    control_statement="A Fourier series of Gaussians, as in fast Gauss and NUFFT methods: its error is absolute.",
    quick=Config(),
    full=Config(n=100000, queries=1000),
)
