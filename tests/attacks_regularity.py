"""Adversarial cases for `local_lipschitz` and for the normalisations, against derivatives in long double."""

from __future__ import annotations

from typing import Any

import numpy as np

import measureformer as mf
from attacks import Attack, Case, decades, share_of
from measureformer.errors import MeasureformerError

LONG = np.longdouble
STEP = LONG("1e-2000")
"""A complex step: the imaginary part of f(x + ih) is h f'(x), and nothing is subtracted."""
D, MANY = 3, 48


def evaluated(G: Any, x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The token map of G at tokens (n, d) with weights p, in complex long double."""

    def number(leaf: Any) -> np.ndarray:
        return np.asarray(leaf).astype(LONG)

    match type(G).__name__:
        case "Compose":
            for layer in reversed(G.maps):
                x = evaluated(layer, x, p)
            return x
        case "Residual":
            return x + number(G.step) * evaluated(G.map, x, p)
        case "Linear":
            return x @ number(G.matrix).T + (0 if G.bias is None else number(G.bias))
        case "LayerNorm":
            centred = x - x.mean(axis=1, keepdims=True)
            variance = (centred**2).mean(axis=1, keepdims=True) + number(G.eps)
            return number(G.weight) * centred / np.sqrt(variance) + number(G.bias)
        case "RMSNorm":
            return number(G.weight) * x / np.sqrt((x**2).mean(axis=1, keepdims=True) + number(G.eps))
        case "UnitNorm":
            return number(G.scale) * x / np.sqrt((x**2).sum(axis=1, keepdims=True)) + number(G.shift)
        case "MLP":
            hidden = x @ number(G.W1).T + number(G.b1)
            hidden = np.where(hidden.real > 0, hidden, 0)
            return hidden @ number(G.W2).T + number(G.b2) + (x if G.skip else 0)
        case "Attention":
            Q, K, V, W = (number(leaf)[0] for leaf in (G.Q, G.K, G.V, G.W))
            logits = number(G.scale) * (x @ Q.T) @ (x @ K.T).T
            weights = p * np.exp(logits - logits.real.max(axis=1, keepdims=True))
            return (weights @ (x @ V.T) / weights.sum(axis=1, keepdims=True)) @ W.T
        case name:
            raise NotImplementedError(name)


def constant(G: Any, mu: Any) -> np.longdouble:
    """The norm in L²(mu) of the derivative of the token map, in long double."""
    points = np.asarray(mu.points).astype(LONG)
    log_p = np.asarray(mu.log_weights).astype(LONG)
    points, log_p = points[log_p > -np.inf], log_p[log_p > -np.inf]
    p = np.exp(log_p - log_p.max())
    root = np.sqrt(p / p.sum())
    columns = []
    for i, j in np.ndindex(*points.shape):
        moved = points.astype(np.clongdouble)
        moved[i, j] += 1j * STEP
        columns.append(((root[:, None] * evaluated(G, moved, p)).imag / STEP / root[i]).ravel())
    J = np.stack(columns, axis=1)
    size = np.abs(J).max()
    if size == 0:
        return size
    J = J / size
    vectors = np.linalg.svd(J.astype(np.float64))[2][: min(3, J.shape[1])].astype(LONG)
    found = LONG(0)
    for v in vectors:
        for _ in range(8):
            v = J.T @ (J @ (v / np.sqrt(v @ v)))
        v = v / np.sqrt(v @ v)
        found = max(found, np.sqrt(np.sum((J @ v) ** 2)))
    return found * size


def layer(rng: np.random.Generator, name: str, scale: float, dtype: Any, d: int = D) -> Any:
    def draw(*shape: int) -> np.ndarray:
        return (scale * rng.normal(size=shape)).astype(dtype)

    match name:
        case "attention":
            return mf.Attention.head(draw(2, d), draw(2, d), draw(d, d))
        case "block":
            return mf.Residual(layer(rng, "attention", scale, dtype, d))
        case "linear":
            # nearly singular
            return mf.Linear(draw(d, 1) @ draw(1, d) + dtype(10.0 ** -rng.uniform(0, 4)) * draw(d, d))
        case "layernorm":
            return mf.LayerNorm(draw(d), draw(d), eps=dtype(rng.choice([1e-5, 1e-12])))
        case "rmsnorm":
            return mf.RMSNorm(draw(d))
        case "unitnorm":
            return mf.UnitNorm(draw(d), draw(d))
        case _:
            return mf.MLP(draw(4, d), draw(4), draw(d, 4), draw(d), skip=False, activation="relu")


CHAINS = (
    ("layernorm", "linear"),
    ("attention", "layernorm"),
    ("unitnorm", "block"),
    ("block", "block", "rmsnorm"),
    ("mlp", "layernorm", "linear"),
    ("attention",),
    ("layernorm",),
    ("unitnorm",),
)
CLOUDS = ("ordinary", "nearly one point", "far away", "any scales", "spread weights", "duplicates", "rank one", "large")
CLOUDS += ("denormals", "many dimensions")


def tokens(rng: np.random.Generator, family: str, dtype: Any, *, logits: bool) -> Any:
    """A cloud; where `logits` are taken of it, they stay small enough for the reference to have correct digits."""
    n, reach = int(rng.integers(1, 7)), decades(dtype)
    # every entry of the derivative costs the reference an evaluation
    n, d = (min(n, 2), MANY) if family == "many dimensions" else (n, D)
    x, log_weights = rng.normal(size=(n, d)), np.zeros(n)
    match family:
        case "denormals":
            x = x * float(np.finfo(dtype).tiny) * 10.0 ** -rng.uniform(-2, 3, (n, 1))
        case "nearly one point":
            x = rng.normal(size=d) + 10.0 ** -rng.uniform(1, 6) * x
        case "far away":
            x = x + 10.0 ** rng.uniform(0, 2 if logits else 5)
        case "any scales":
            x = x * 10.0 ** rng.uniform(-reach / 4, 1 if logits else reach / 4)
        case "spread weights":
            log_weights = rng.uniform(-690, 690, n)
        case "duplicates":
            x = x[rng.integers(0, n, n)]
        case "rank one":
            x = x[:, :1] * rng.normal(size=d) + 1e-5 * x
        case "large":
            x = 10.0 ** rng.uniform(0, 2) * x
    return mf.Discrete(np.asarray(x, dtype), np.asarray(log_weights, dtype))


def lipschitz_attack(dtype: Any, chains: Any = CHAINS) -> Attack:
    def attack(seed: int) -> list[Case]:
        rng = np.random.default_rng([seed, 21])
        chain, family = chains[seed % len(chains)], str(rng.choice(CLOUDS))
        d = MANY if family == "many dimensions" else D
        # logits of many coordinates are larger
        scale = 10.0 ** rng.uniform(-1, 1) * (D / d) ** 0.5
        G = layer(rng, chain[0], scale, dtype, d)
        for name in chain[1:]:
            G = G @ layer(rng, name, scale, dtype, d)
        mu = tokens(rng, family, dtype, logits=chain[-1] in ("attention", "block"))
        name = f"{family}, {' @ '.join(chain)}"
        try:
            found = mf.local_lipschitz(G, mu)
        except MeasureformerError:
            return [Case(name, None)]
        truth = constant(G, mu)
        shares = [share_of(found.lower, truth), share_of(truth, found.upper)]
        # a lower value that converged is the constant itself
        if found.converged:
            shares.append(share_of(truth - found.lower, found.residual + CLOSE[dtype] * truth))
        return [
            Case(
                f"{name} {['lower', 'upper', 'converged'][int(np.argmax(shares))]}" if max(shares) > 1 else family,
                max(shares),
            )
        ]

    return attack


CLOSE = {np.float32: 1e-3, np.float64: 1e-5}
"""How far below the constant a converged value may be, relatively: the tolerance and the rounding term."""


def norm_attack(dtype: Any) -> Attack:
    """UnitNorm, RMSNorm and LayerNorm of rows at any scale are what their formulas say, up to rounding."""

    def attack(seed: int) -> list[Case]:
        rng, unit = np.random.default_rng([seed, 22]), float(np.finfo(dtype).eps)
        d, reach = int(rng.choice([2, 5, 300])), np.log10(float(np.finfo(dtype).max))
        x = rng.normal(size=(8, d)) * 10.0 ** rng.uniform(-reach + 2, reach - 1, (8, 1))
        family = str(rng.choice(["gaussian", "one entry", "any scales"]))
        if family == "one entry":
            x[:, 1:] *= 10.0 ** -rng.uniform(0, 12)
        elif family == "any scales":
            x *= 10.0 ** -rng.uniform(0, reach, x.shape)
        x, one = x.astype(dtype), np.ones(d, dtype)
        # XLA's programs take denormals for 0
        x[np.abs(x) < np.finfo(dtype).tiny] = 0
        eps = dtype(rng.choice([0, 1e-30, 1e-5]))
        cases = []
        for G in (mf.UnitNorm(one), mf.RMSNorm(one, eps=eps), mf.LayerNorm(one, eps=eps)):
            name = f"{type(G).__name__}, {family}"
            try:
                found = np.asarray(G(mf.Discrete.dirac(np.ones(d, dtype)), x))
            except MeasureformerError:
                # one vector without a direction is enough for a refusal
                cases += [Case(name, None)] * len(x)
                continue
            p = np.ones(len(x), LONG)
            truth = evaluated(G, x.astype(LONG), p)
            rows = x.astype(LONG)
            if isinstance(G, mf.LayerNorm):
                # the mean is rounded in units of the largest entry
                spread = np.abs(rows - rows.mean(axis=1, keepdims=True)).max(axis=1, keepdims=True)
                condition = np.abs(rows).max(axis=1, keepdims=True) / np.maximum(spread, np.finfo(dtype).tiny)
            else:
                condition = LONG(1)
            bound = unit * (d + 16) * (np.abs(truth) + condition * np.abs(truth).max(axis=1, keepdims=True))
            bound += 4 * float(np.finfo(dtype).tiny)
            cases += [Case(name, share_of(*row)) for row in zip(np.abs(found - truth), bound, strict=True)]
        return cases

    return attack
