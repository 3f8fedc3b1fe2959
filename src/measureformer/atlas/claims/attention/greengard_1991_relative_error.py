"""The error of the grid is relative, for every query, however small its normaliser; a Gaussian expansion's is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.attention import Grid, GridPlan, attend
from measureformer.attention.grid import Costs

TOL = 1e-8


@dataclass(frozen=True)
class Config:
    n: int = 4000
    queries: int = 200


def _problem(key: Key, config: Config, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Queries in [−10, 10] and keys in [0, reach]: with reach 10, normalisers from about 1 to e^{100}."""
    rng = generator(key)
    return np.sort(rng.uniform(-10, 10, config.queries)), rng.uniform(0, reach, config.n)


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
    # so few tokens would be summed one by one if that were not made expensive
    plan = GridPlan.make(q, k, tol=TOL, costs=Costs(pair=1.0))
    out = attend(q, k, np.zeros_like(k), method=Grid(plan=plan))
    return np.asarray(out.log_normalizer)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    q, k = _problem(key, config, 1.0 if variant == "short-keys" else 10.0)
    exact = _exact(q, k)
    log_z = (_by_gaussians if variant == "fourier-series" else _on_grid)(q, k)
    checks = (
        Check("largest difference of log Z among the queries", np.ptp(exact), low=80.0, rejected_by="short-keys"),
        Check("worst relative error of Z", np.abs(log_z - exact).max(), high=TOL, rejected_by="fourier-series"),
    )
    figure = _figure(config, q, log_z - exact, _by_gaussians(q, k) - exact) if variant == "claim" else None
    return Outcome(checks, figure)


def _figure(config: Config, q: np.ndarray, grid: np.ndarray, gaussians: np.ndarray) -> Figure:
    right, wrong = (np.maximum(np.abs(error), 1e-17) for error in (grid, gaussians))
    return Figure(
        "Relative error of the normaliser",
        "query",
        "error of log Z",
        (
            Series("on the grid", q, right, "points", role="measured"),
            Series("control: Fourier series of Gaussians", q, wrong, "points", role="control"),
            Series("what was asked for", (-10, 10), (TOL, TOL), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"{config.n} keys in [0, 10]: Z grows from about 1 to e^100 from left to right.",
    )


claim = Claim(
    name="greengard-1991-relative-error",
    title="A relative error for every query",
    kind="construction",
    statement=(
        "Real exponentials are interpolated with a relative error, so log Z(q) is within the tolerance for all "
        "queries, also for those whose normaliser is e^{100} times smaller than that of others."
    ),
    hypotheses=("positive weights", "dimension at most 3"),
    reference="greengard1991, Section 2",
    measure=measure,
    controls={
        "fourier-series": "A Fourier series of Gaussians, as in fast Gauss and NUFFT methods: its error is absolute.",
        "short-keys": "Keys in [0, 1]: no normaliser is much smaller than the others.",
    },
    quick=Config(),
    full=Config(n=100000, queries=1000),
)
