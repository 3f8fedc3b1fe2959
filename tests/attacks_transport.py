"""Adversarial cases for `wasserstein_bracket`, against closed forms and enumerations in long double."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

import measureformer as mf
from attacks import Attack, Case, decades, share_of
from measureformer.errors import MeasureformerError

LONG = np.longdouble
KINDS = ("line", "rank one", "dirac", "matching", "translation")
SHAPES = ("ordinary", "far away", "tiny", "huge", "denormals", "nearly equal", "duplicates", "spread weights")


def lengths(moves: np.ndarray) -> np.ndarray:
    return np.sqrt(np.sum(moves**2, axis=-1))


def on_line(x: np.ndarray, a: np.ndarray, y: np.ndarray, b: np.ndarray, p: float) -> np.longdouble:
    """∫|x − y|^p along the monotone coupling of normalised weights."""
    order_x, order_y = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    x, a, y, b = x[order_x], a[order_x].copy(), y[order_y], b[order_y].copy()
    i = j = 0
    total = LONG(0)
    while i < len(x) and j < len(y):
        mass = min(a[i], b[j])
        total += mass * np.abs(x[i] - y[j]) ** LONG(p)
        a[i] -= mass
        b[j] -= mass
        i, j = (i + 1, j) if a[i] <= b[j] else (i, j + 1)
    return total


def distance(kind: str, clouds: Any, p: float) -> np.longdouble:
    """W_p of normalised measures in long double; the clouds are points and weights, twice."""
    x, a, y, b = clouds
    a, b = a / a.sum(), b / b.sum()
    if kind == "line":
        return on_line(x[:, 0], a, y[:, 0], b, p) ** (1 / LONG(p))
    if kind == "rank one":
        # multiples of one vector whose entries are powers of two: exact
        scale = lengths((x / np.where(x[:, :1] == 0, 1, x[:, :1]))[np.argmax(x[:, 0] != 0)])
        return on_line(x[:, 0], a, y[:, 0], b, p) ** (1 / LONG(p)) * scale
    if kind == "dirac":
        return (a @ lengths(x - y[0]) ** LONG(p)) ** (1 / LONG(p))
    costs = lengths(x[:, None] - y[None]) ** LONG(p)
    rows = np.arange(len(x))
    return (min(costs[rows, list(order)].sum() for order in permutations(rows)) / len(x)) ** (1 / LONG(p))


def bracket_attack(dtype: Any) -> Attack:
    def attack(seed: int) -> list[Case]:
        rng = np.random.default_rng([seed, 31])
        kind, family = str(rng.choice(KINDS)), str(rng.choice(SHAPES))
        p = float(rng.choice([1.0, 1.5, 2.0, 3.0, 7.0]))
        n, m, d = (int(rng.integers(1, 30)) for _ in range(3))
        d = 1 if kind == "line" else 1 + d % 4
        info = np.finfo(dtype)
        if kind in ("matching", "translation"):
            n = m = 1 + n % 5
        m = 1 if kind == "dirac" else m
        x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d)) * 10.0 ** rng.uniform(-3, 3)
        if kind == "translation":
            y = x + rng.normal(size=d)
        scale = 1.0
        match family:
            case "far away":
                shift = 10.0 ** rng.uniform(0, 8) * rng.normal(size=d)
                x, y = x + shift, y + shift
            case "tiny":
                scale = 10.0 ** -rng.uniform(decades(dtype) / 2, decades(dtype))
            case "huge":
                scale = float(info.max) / 10.0 ** rng.uniform(0.5, 5)
                x, y = (points / max(np.abs(x).max(), np.abs(y).max()) for points in (x, y))
            case "denormals":
                scale = float(info.tiny) * 10.0 ** rng.uniform(-5, 1)
            case "nearly equal" if n == m:
                y = x * (1 + 10.0 ** -rng.uniform(5, 16))
            case "duplicates":
                x, y = x[rng.integers(0, max(1, n // 4), n)], y[rng.integers(0, max(1, m // 4), m)]
        x, y = ((points * scale).astype(dtype) for points in (x, y))
        if kind == "rank one":
            # the smallest powers that keep every entry a normal number
            powers = 2.0 ** rng.integers(-3, 1, d)
            powers[0] = 1
            x, y = (points[:, :1] * powers.astype(dtype) for points in (x, y))
            if np.abs(np.concatenate([x, y]))[np.concatenate([x, y]) != 0].min(initial=1) < 64 * float(info.tiny):
                return []
        log_weights = [np.zeros(n), np.zeros(m)]
        if kind not in ("matching", "translation"):
            spread = 690 if family == "spread weights" else 1
            log_weights = [rng.uniform(-spread, spread, size) for size in (n, m)]
        log_weights = [weights - np.logaddexp.reduce(weights) for weights in log_weights]
        total = float(rng.uniform(-600, 600)) if family == "spread weights" and dtype == np.float64 else 0.0
        mu, nu = (mf.Discrete(points, (w + total).astype(dtype)) for points, w in zip((x, y), log_weights, strict=True))
        try:
            found = mf.wasserstein_bracket(mu, nu, p)
        except MeasureformerError:
            return [Case(f"{kind}, {family}", None)]
        clouds = [
            part.astype(LONG) for mu_ in (mu, nu) for part in (np.asarray(mu_.points), np.asarray(mu_.probabilities()))
        ]
        mass = np.exp(np.asarray(mu.log_weights).astype(LONG)).sum()
        truth = distance("matching" if kind == "translation" else kind, clouds, p) * mass ** (1 / LONG(p))
        lower, upper = (np.asarray(value).astype(LONG) for value in (found.lower, found.upper))
        shares = share_of(lower, truth), share_of(truth, upper)
        return [Case(f"{kind}, {family}" + (" lower" if shares[0] > 1 else ""), max(shares))]

    return attack
