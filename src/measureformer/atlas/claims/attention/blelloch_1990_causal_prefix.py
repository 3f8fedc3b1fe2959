"""Causal attention by prefix sums of moments: every query sees exactly its past, also at the borders of blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.attention import attend
from measureformer.attention.grid.causal import BLOCK

TOL = 1e-8


@dataclass(frozen=True)
class Config:
    blocks: int = 6
    ties: int = 3
    """Tokens with the same time."""


@once
def _errors(key: Key, config: Config) -> dict[str, np.ndarray]:
    """Errors of log Z for each query against sums in long double, over the keys that each variant sees."""
    rng, n = np.random.default_rng(generator(key).integers(2**32)), config.blocks * BLOCK[1] + 5
    times = np.sort(rng.integers(1, n // config.ties, n)).astype(float)
    times[0] = 0
    q, k, log_weights = rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-1.5, 1.5, (n, 1)), rng.normal(size=n)
    asked = times + 0.5
    log_z = np.asarray(attend(q, k, k, log_weights, times=(asked, times), method="grid", tol=TOL).log_normalizer)
    logits = np.multiply.outer(*(a[:, 0].astype(np.longdouble) for a in (q, k))) + log_weights
    found = {}
    for variant, visible in (("claim", times <= asked[:, None]), ("order-of-list", np.tri(n, dtype=bool))):
        seen = np.where(visible, logits, -np.inf)
        top = seen.max(axis=1)
        found[variant] = np.abs(log_z - top - np.log(np.exp(seen - top[:, None]).sum(axis=1))).astype(float)
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _errors(key, config)
    errors = found[variant]
    borders = range(BLOCK[1], len(errors), BLOCK[1])
    edges = np.concatenate([np.arange(i - 1, i + 2) for i in borders])
    checks = (
        Check("worst error of log Z, all queries", errors.max(), high=TOL, rejected_by="order-of-list"),
        Check("worst error of log Z at borders of blocks", errors[edges].max(), high=TOL, rejected_by="order-of-list"),
    )
    return Outcome(checks, _figure(config, found) if variant == "claim" else None)


def _figure(config: Config, found: dict[str, np.ndarray]) -> Figure:
    right, wrong = (np.maximum(found[variant], 1e-17) for variant in ("claim", "order-of-list"))
    place = np.arange(len(right))
    return Figure(
        "Causal attention by prefix sums",
        "token",
        "error of log Z",
        (
            Series("all that is not later", place, right, "points", role="measured"),
            Series("control: all that stands before in the list", place, wrong, "points", role="control"),
        ),
        yscale="log",
        caption=f"Blocks of {BLOCK[1]} keys, about {config.ties} tokens at each time.",
    )


claim = Claim(
    name="blelloch-1990-causal-prefix",
    title="Causal attention by prefix sums",
    kind="construction",
    statement=(
        "A query at time t gets the normaliser of all keys with times s ≤ t, from moments of the whole blocks before "
        "and single keys of one block, within the tolerance: also at the borders of blocks and where times tie."
    ),
    hypotheses=("dimension 1 or 2", "positive weights"),
    reference="blelloch1990, Section 1",
    measure=measure,
    controls={"order-of-list": "The order of the list instead of the order of time: they differ where times tie."},
    quick=Config(),
    full=Config(blocks=60),
)
