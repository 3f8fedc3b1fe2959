"""The error bound that comes with every answer, on logits chosen to break it, against long double."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import Streaming, attend
from measureformer.attention.rounding import EXP, SLACK
from measureformer.figures.figure import Figure, Series

UNIT = float(np.finfo(np.float32).eps) / 2
DIM = 4
FAMILIES = ("one heavy key, many light ones", "all logits equal", "large logits that cancel", "random")


@dataclass(frozen=True)
class Config:
    n: int = 32768
    queries: int = 8


def _problems(key: Any, config: Config) -> dict[str, tuple[np.ndarray, ...]]:
    """q, k, v and log-weights in float32, for each family."""
    rng, n, m = generator(key), config.n, config.queries
    k, v = rng.normal(size=(n, DIM)), rng.normal(size=(n, 2))
    flat, zeros = np.zeros((m, DIM)), np.zeros(n)
    # each light key adds less than half a unit in the last place of 1: a sum in order of the keys stays at 1
    light = np.full(n, np.log(0.9 * UNIT))
    light[0] = 0
    first = np.zeros((n, 2))
    first[0] = 1
    # a large common part of all keys makes logits of about 10⁴ whose differences are of order 1
    far = np.array([3e3, -2e3, 1e3, 2e3])
    along = rng.normal(size=(m, DIM)) + 0.003 * far
    problems = {
        FAMILIES[0]: (flat, k, first, light),
        FAMILIES[1]: (flat, k, v, zeros),
        FAMILIES[2]: (along, k + far, v, zeros),
        FAMILIES[3]: (3 * rng.normal(size=(m, DIM)), k, v, 5 * rng.normal(size=n)),
    }
    return {name: tuple(a.astype(np.float32) for a in arrays) for name, arrays in problems.items()}


def _exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention in long double, straight from the definition."""
    q, k, v, log_weights = (a.astype(np.longdouble) for a in (q, k, v, log_weights))
    logits = q @ k.T + log_weights
    top = logits.max(axis=1, keepdims=True)
    p = np.exp(logits - top)
    total = p.sum(axis=1, keepdims=True)
    return p @ v / total, (top + np.log(total))[:, 0]


def _without_sums(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, log_weights: np.ndarray, log_z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both bounds as if the sums over keys were exact: the terms of exponents and exponentials alone."""
    extent = 2 * (np.linalg.norm(q, axis=1) * np.linalg.norm(k, axis=1).max() + np.abs(log_weights).max())
    rho = np.expm1(((DIM + 2) / 2 + 4) * UNIT * extent + 3 * (EXP + 2) * UNIT)
    values = (2 * rho / (1 - rho) + 4 * UNIT) * np.linalg.norm(v, axis=1).max()
    return SLACK * values, SLACK * (rho / (1 - rho) + 5 * UNIT * (np.abs(log_z) + 1.5 * extent))


def _shares(key: Any, config: Config) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each family the worst error over its bound, of values and log-normaliser: the bound, and the false one."""
    found = {}
    for name, arrays in _problems(key, config).items():
        # with one query in a block the product is a plain sum in order of the keys, the worst that may happen
        out = attend(*arrays, method=Streaming(block=(1, config.n)))
        values, log_z = _exact(*arrays)
        errors = (
            np.linalg.norm(np.asarray(out.values) - values, axis=1),
            np.abs(np.asarray(out.log_normalizer) - log_z),
        )
        bounds = np.asarray(out.error_bound), np.asarray(out.log_normalizer_error)
        q, k, v, log_weights = arrays
        false = _without_sums(q, k, v, log_weights, log_z.astype(float))
        found[name] = tuple(
            np.array([(error / limit).max() for error, limit in zip(errors, limits, strict=True)], float)
            for limits in (bounds, false)
        )
    return found


def _checks(shares: dict[str, tuple[np.ndarray, np.ndarray]], which: int) -> tuple[Check, ...]:
    worst = np.max([found[which] for found in shares.values()], axis=0)
    return tuple(
        Check(f"{what}: worst error over its bound, all families", float(share), high=1.0)
        for what, share in zip(("values", "log-normaliser"), worst, strict=True)
    )


def _run(key: Any, config: Config) -> Outcome:
    shares = _shares(key, config)
    places = tuple(float(i + 1) for i in range(len(FAMILIES)))

    def series(label: str, which: int, what: int) -> Series:
        return Series(label, places, tuple(max(float(shares[f][which][what]), 1e-9) for f in FAMILIES), "points")

    figure = Figure(
        "Rounding errors over their proven bounds",
        "family: " + ", ".join(f"{i + 1} {name}" for i, name in enumerate(FAMILIES)),
        "worst error / bound",
        (
            series("values", 0, 0),
            series("log-normaliser", 0, 1),
            series("control: values, bound without sums", 1, 0),
            Series("the bound", (places[0], places[-1]), (1.0, 1.0), "dashed"),
        ),
        yscale="log",
        caption=f"float32 against long double, {config.n} keys, {config.queries} queries in each family.",
    )
    return Outcome(_checks(shares, 0), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_shares(key, config), 1))


claim = Claim(
    name="higham-2002-attention-rounding",
    title="The error bound of attention holds",
    statement=(
        "For all queries, keys, values and log-weights: the computed values differ from the exact ones by at most the "
        "error bound that comes with them, in the Euclidean norm, and the log-normaliser by at most its own."
    ),
    hypotheses=(
        "every operation is correct to one unit roundoff, exp and log to four",
        "no product overflows",
    ),
    reference="higham2002, Sections 3.1 and 4.2",
    run=_run,
    control=_control,
    control_statement="The bound without the term for the rounding of the sums over keys.",
    quick=Config(),
    full=Config(n=262144),
)
