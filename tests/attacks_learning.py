"""Adversarial cases for memories, duality gaps and compiled networks, against long double."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

import measureformer as mf
from attacks import Attack, Case, decades, share_of
from measureformer.errors import MeasureformerError

LONG = np.longdouble


def modern_attack(dtype: Any) -> Attack:
    """The theorems of a retrieval, for the exact updates of the very numbers that are stored."""
    families = (
        "ordinary",
        "stored",
        "any scale",
        "rank one",
        "near duplicates",
        "spread weights",
        "long",
        "one pattern",
    )

    def attack(seed: int) -> list[Case]:
        rng = np.random.default_rng([seed, 41])
        family, n, d = str(rng.choice(families)), int(rng.integers(2, 7)), int(rng.integers(1, 5))
        X, weights = rng.normal(size=(n, d)), rng.uniform(0.5, 2, n)
        beta, noise = 10.0 ** rng.uniform(-2, 3), 10.0 ** -rng.uniform(0, 8)
        match family:
            case "stored":
                X = np.eye(max(n, d))[:n] * rng.uniform(1, 3, (n, 1)) + 0.01 * rng.normal(size=(n, max(n, d)))
                beta = 10.0 ** rng.uniform(0.5, 2.5)
            case "any scale":
                power = 10.0 ** rng.uniform(-decades(dtype) / 2.2, decades(dtype) / 2.2)
                X, beta = X * power, beta / power**2
            case "rank one":
                X = X[:, :1] * rng.normal(size=d)
            case "near duplicates":
                X = X[rng.integers(0, 2, n)] * (1 + 10.0 ** -rng.uniform(3, 16, (n, 1)))
            case "spread weights":
                weights = 10.0 ** rng.uniform(-30, 0, n)
            case "long":
                X, beta = X * 1e4, 10.0 ** rng.uniform(-8, 6)
            case "one pattern":
                X, weights = X[:1], weights[:1]
        X = X.astype(dtype)
        query = X[rng.integers(len(X))] * dtype(1 + noise) + (
            noise * np.abs(X).max() * rng.normal(size=X.shape[1])
        ).astype(dtype)
        try:
            memory = mf.memory.Modern.store(X, dtype(beta), weights=weights.astype(dtype))
            found = memory.retrieve(query).certificate
        except MeasureformerError:
            return [Case(family, None)]
        shares = _theorems(rng, memory, query.astype(dtype), found)
        worst = max(shares, key=lambda name: -1 if shares[name] != shares[name] else shares[name])
        if any(share != share for share in shares.values()):
            return [Case(family + " NaN", np.nan)]
        return [Case(family + (f" {worst}" if shares[worst] > 1 else ""), shares[worst])]

    return attack


def _theorems(rng: np.random.Generator, memory: Any, query: np.ndarray, found: Any) -> dict[str, float]:
    X, log_a = (np.asarray(part).astype(LONG) for part in (memory.patterns, memory.mu.log_weights))
    beta, x = np.asarray(memory.beta).astype(LONG), X[int(found.nearest)]
    others = X - x

    def update(moved: np.ndarray) -> np.ndarray:
        """f(x + moved) − x, without cancellation."""
        logits = beta * (others @ (x + moved)) + log_a
        p = np.exp(logits - logits.max())
        return p @ others / p.sum()

    def length(vector: np.ndarray) -> np.longdouble:
        return np.sqrt(np.sum(vector**2))

    start = query.astype(LONG) - x
    first = state = update(start)
    for _ in range(300):
        state = update(state)
    shares = {"one step": share_of(length(first), found.one_step_bound)}
    if np.isfinite(found.error_bound):
        shares["error"] = share_of(length(state), found.error_bound)
    settled = length(update(state) - state) <= 1e-17 * length(x)
    if settled and length(start - state) > 1e-12 * length(x) and np.isfinite(found.contraction):
        # the fixed point is known to the precision of long double
        far = length(first - state)
        shares["contraction"] = share_of(far - LONG(1e-17) * length(x), found.contraction * length(start - state))
    radius = np.asarray(found.radius).astype(LONG)
    if found.stored and np.isfinite(radius):
        direction = rng.normal(size=len(x)).astype(LONG)
        shares["stored"] = share_of(length(update(direction / length(direction) * radius)), radius)
    return shares


def dense_attack(seed: int) -> list[Case]:
    """Fields of an exponential memory with their error bounds."""
    rng = np.random.default_rng([seed, 42])
    n, d = int(rng.choice([3, 17])), int(rng.choice([5, 60, 300]))
    family = str(rng.choice(["random", "duplicates", "one bit apart"]))
    X = rng.choice([-1, 1], (n, d))
    if family == "duplicates":
        X = X[rng.integers(0, 2, n)]
    if family == "one bit apart":
        X = np.repeat(X[:1], n, 0)
        X[np.arange(n), np.arange(n) % d] *= -1
    state = np.where(rng.uniform(size=d) < 0.1, rng.choice([-1, 0, 1]), X[0]).astype(float)
    memory = mf.memory.Dense.store(X)
    felt, error = memory.fields(state)
    s = state.astype(LONG)
    p = np.exp((X @ s) - (X @ s).max())
    truth = np.cosh(s) * (p @ X.astype(LONG) / p.sum()) - np.sinh(s)
    shares = [share_of(np.abs(felt - truth), np.broadcast_to(error, truth.shape))]
    found, aligned = memory.certificate(state), (s * truth).min()
    # what is said to be a fixed point is one up to the bound, and what is not said to be one is none
    if (state != 0).all():
        shares.append(
            share_of(max(-aligned, LONG(0)), 2 * error) if found.fixed else share_of(aligned, 0 * error + 1e-300)
        )
    return [Case(family, max(shares))]


def svm_attack(seed: int) -> list[Case]:
    """The lower value of the least norm, against the best of all active sets."""
    rng = np.random.default_rng([seed, 43])
    families = ("ordinary", "any scales", "cancellation", "rank one", "nearly dependent", "duplicates", "inseparable")
    family, n, T, d = str(rng.choice(families)), int(rng.integers(1, 3)), 3, int(rng.integers(2, 5))
    X, z = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    match family:
        case "any scales":
            X, z = X * 10.0 ** rng.uniform(-150, 150), z * 10.0 ** rng.uniform(-150, 150, (n, 1))
        case "cancellation":
            X = X + 10.0 ** rng.uniform(0, 8) * rng.normal(size=d)
        case "rank one":
            X = X[..., :1] * rng.normal(size=d)
        case "nearly dependent":
            X = X[..., :1] * rng.normal(size=d) + 10.0 ** -rng.uniform(1, 9) * X
        case "duplicates":
            X[:, 2] = X[:, 1]
        case "inseparable":
            X[:, 0] = (X[:, 1] + X[:, 2]) / 2 + 10.0 ** -rng.uniform(2, 17) * X[:, 0]
    try:
        problem = mf.implicit_bias.Problem(X, z, np.ones(n), np.ones(d))
        found = problem.svm(tokens=[0] * n)
    except MeasureformerError:
        return [Case(family, None)]
    keys, queries = (np.asarray(part).astype(LONG) for part in (problem.keys, problem.z))
    rows = [np.multiply.outer(keys[i, 0] - keys[i, t], queries[i]).ravel() for i in range(n) for t in (1, 2)]
    truth = _least_norm(np.stack(rows))
    shares = [share_of(found.lower, truth)]
    if found.feasible:
        # the gap says how far the norm can be above the least one
        shares.append(
            share_of(np.linalg.norm(found.W.astype(LONG)) * (1 - 4e-16) - truth, LONG(found.gap) * (1 + 1e-15))
        )
    return [Case(family + (" lower" if shares[0] > 1 else ""), max(shares))]


def _least_norm(A: np.ndarray) -> np.longdouble:
    """min |w| with A w ≥ 1; infinite if there is none."""
    sizes = np.sqrt(np.sum(A**2, axis=1))
    if (sizes == 0).any():
        return LONG(np.inf)
    units, best = A / sizes[:, None], LONG(np.inf)
    for count in range(1, len(A) + 1):
        for own in combinations(range(len(A)), count):
            gram, right = units[list(own)] @ units[list(own)].T, 1 / sizes[list(own)]
            solved = _solved(gram, right)
            if solved is None or (solved < 0).any():
                continue
            w = solved @ units[list(own)]
            if (units @ w >= (1 - LONG(1e-16)) / sizes).all():
                best = min(best, np.sqrt(np.sum(w**2)))
    return best


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Gauss with pivots, in long double; None where the matrix is singular to its precision."""
    a = np.concatenate([matrix, right[:, None]], axis=1)
    for i in range(len(a)):
        pivot = i + int(np.abs(a[i:, i]).argmax())
        if abs(a[pivot, i]) < 1e-17:
            return None
        a[[i, pivot]] = a[[pivot, i]]
        for j in range(len(a)):
            if j != i:
                a[j] -= a[j, i] / a[i, i] * a[i]
    return a[:, -1] / np.diag(a[:, :-1])


def compiled_attack(seed: int) -> list[Case]:
    """Compiled polynomials on measures in a box, at its corners, in its middle and anywhere."""
    rng = np.random.default_rng([seed, 44])
    family, d = str(rng.choice(["ordinary", "small box", "large box", "far box", "long product"])), 2
    centre, half = rng.normal(size=d), 10.0 ** rng.uniform(-1, 0.5)
    match family:
        case "small box":
            half = 10.0 ** -rng.uniform(2, 100)
            centre = centre * rng.choice([0.0, half])
        case "large box":
            half = 10.0 ** rng.uniform(1, 30)
        case "far box":
            centre = centre * 10.0 ** rng.uniform(1, 5)
    A = 0.3 * rng.normal(size=(2, d, d)) / max(half, 1) ** 2
    c, u, v = (rng.normal(size=(2, *shape)) for shape in ((), (d,), (d,)))
    blocks = [mf.universality.Block(A[i], None, c[i], u[i], v[i]) for i in range(2)]
    e = blocks[0] * blocks[1] ** (3 if family == "long product" else 1) * float(rng.normal()) + blocks[1]
    try:
        net = mf.universality.compile(e, mf.Box(centre - half, centre + half), cells=int(rng.choice([4, 16])))
        low, high = np.asarray(net.domain.low), np.asarray(net.domain.high)
        draw = rng.choice([0.0, 0.5, 1.0], (9, d)) if rng.uniform() < 0.5 else rng.uniform(size=(9, d))
        points = np.clip(low + draw * (high - low), low, high)
        mu = mf.Discrete.weighted(points[:5], rng.uniform(0.1, 1, 5))
        found = np.asarray(net(mu, points[5:])).astype(LONG)
    except MeasureformerError:
        return [Case(family, None)]
    truth = _expression(e, np.asarray(mu.points), np.asarray(mu.log_weights), points[5:])
    return [Case(family, share_of(np.sqrt(np.sum((found - truth) ** 2, axis=1)), LONG(net.error_bound)))]


def _expression(e: Any, points: np.ndarray, log_weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The value of a polynomial in blocks, in long double."""
    A, b, c, u, v = (np.asarray(leaf).astype(LONG) for leaf in e.factors)
    points, log_weights, x = (part.astype(LONG) for part in (points, log_weights, x))
    values = []
    for i in range(len(b)):
        logits = (x @ A[i].T + b[i]) @ points.T + log_weights
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        values.append(x @ u[i] + (p @ (points @ v[i] + c[i])) / p.sum(axis=1))
    blocks = np.stack([*values, np.ones_like(values[0])])
    return np.prod(blocks[np.asarray(e.index)], axis=1).T @ np.asarray(e.coefficients).astype(LONG)
