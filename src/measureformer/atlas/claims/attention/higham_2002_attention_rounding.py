"""The error bound that comes with every answer, on logits chosen to break it, against long double."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.attention import Streaming, attend
from measureformer.attention.rounding import EXP, SLACK

UNIT = float(np.finfo(np.float32).eps) / 2
DIM, FEW = 4, 16
FAMILIES = ("one heavy key, many light ones", "all logits equal", "large logits that cancel", "random")


@dataclass(frozen=True)
class Config:
    n: int = 32768
    queries: int = 8


def _problems(key: Key, config: Config) -> dict[str, tuple[np.ndarray, ...]]:
    """q, k, v and log-weights in float32, for each family."""
    rng, n, m = generator(key), config.n, config.queries
    k, v = rng.normal(size=(n, DIM)), rng.normal(size=(n, 2))
    flat, zeros = np.zeros((m, DIM)), np.zeros(n)
    # each light key adds less than half a unit in the last place of 1: a sum in order of the keys stays at 1
    light = np.full(n, np.log(0.9 * UNIT))
    light[0] = 0
    first = np.zeros((n, 2))
    first[0] = 1
    # a large common part of all keys, orthogonal to the queries: logits of order 1 are sums of terms of about 10⁴, and
    # with few keys their errors are neither averaged nor hidden by those of the sums
    far = np.array([3e3, -2e3, 1e3, 2e3])
    along = rng.normal(size=(m, DIM))
    along -= (along @ far)[:, None] * far / (far @ far)
    problems = {
        FAMILIES[0]: (flat, k, first, light),
        FAMILIES[1]: (flat, k, v, zeros),
        FAMILIES[2]: (along, k[:FEW] + far, v[:FEW], zeros[:FEW]),
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


def _without_logits(v: np.ndarray, log_z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both bounds as if the logits were exact: the terms of exponentials and of sums over keys alone."""
    rho = np.expm1(3 * (EXP + 2) * UNIT + (len(v) + 2) * UNIT / (1 - (len(v) + 2) * UNIT))
    values = np.full(len(log_z), (2 * rho / (1 - rho) + 4 * UNIT) * np.linalg.norm(v, axis=1).max())
    return SLACK * values, SLACK * (rho / (1 - rho) + 5 * UNIT * np.abs(log_z))


@once
def _shares(key: Key, config: Config) -> dict[str, np.ndarray]:
    """Worst errors over their bounds for each variant: families in rows, values and log-normaliser in columns."""
    found: dict[str, list[list[float]]] = {"claim": [], "exact-logits": []}
    for arrays in _problems(key, config).values():
        # with one query in a block the product may be a plain sum in order of the keys, the worst that may happen
        out = attend(*arrays, method=Streaming(block=(1, config.n)))
        values, log_z = _exact(*arrays)
        errors = np.linalg.norm(np.asarray(out.values) - values, axis=1), np.abs(np.asarray(out.log_normalizer) - log_z)
        bounds = {
            "claim": (np.asarray(out.error_bound), np.asarray(out.log_normalizer_error)),
            "exact-logits": _without_logits(arrays[2], log_z.astype(float)),
        }
        for variant, limits in bounds.items():
            found[variant].append([float((e / limit).max()) for e, limit in zip(errors, limits, strict=True)])
    return {variant: np.array(rows) for variant, rows in found.items()}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    shares = _shares(key, config)
    checks = tuple(
        Check(f"{what}: worst error over its bound, all families", worst, high=1.0, rejected_by="exact-logits")
        for what, worst in zip(("values", "log-normaliser"), shares[variant].max(axis=0), strict=True)
    )
    return Outcome(checks, _figure(config, shares) if variant == "claim" else None)


def _figure(config: Config, shares: dict[str, np.ndarray]) -> Figure:
    places = np.arange(1, len(FAMILIES) + 1)
    right, wrong = (np.maximum(shares[variant], 1e-9) for variant in ("claim", "exact-logits"))
    return Figure(
        "Rounding errors over their proven bounds",
        "family: " + ", ".join(f"{i} {name}" for i, name in zip(places, FAMILIES, strict=True)),
        "worst error / bound",
        (
            Series("values", places, right[:, 0], "points", role="measured"),
            Series("log-normaliser", places, right[:, 1], "points", role="measured"),
            Series("control: values, bound without logits", places, wrong[:, 0], "points", role="control"),
            Series("the bound", (1, len(FAMILIES)), (1, 1), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"float32 against long double, {config.n} keys ({FEW} in family 3), {config.queries} queries.",
    )


claim = Claim(
    name="higham-2002-attention-rounding",
    title="The error bound of attention holds",
    kind="theorem",
    statement=(
        "For all queries, keys, values and log-weights: the computed values differ from the exact ones by at most the "
        "error bound that comes with them, in the Euclidean norm, and the log-normaliser by at most its own."
    ),
    hypotheses=("every operation is correct to one unit roundoff, exp and log to four", "no product overflows"),
    reference="higham2002, Sections 3.1 and 4.2",
    measure=measure,
    controls={"exact-logits": "The bound without the term for the rounding of the logits."},
    quick=Config(),
    full=Config(n=262144),
)
