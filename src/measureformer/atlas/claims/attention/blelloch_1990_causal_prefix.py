"""Causal attention by prefix sums of moments: every query sees exactly its past, also at the borders of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import attend
from measureformer.attention.grid.causal import BLOCK
from measureformer.figures.figure import Figure, Series

TOL = 1e-8


@dataclass(frozen=True)
class Config:
    blocks: int = 6
    ties: int = 3
    """Tokens with the same time."""


@lru_cache(maxsize=2)
def _found(entropy: int, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, and errors of log Z against sums in long double: over what is seen, and over what stands before."""
    rng, n = np.random.default_rng(entropy), config.blocks * BLOCK[1] + 5
    times = np.sort(rng.integers(1, n // config.ties, n)).astype(float)
    times[0] = 0
    q, k, log_weights = rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-1.5, 1.5, (n, 1)), rng.normal(size=n)
    asked = times + 0.5
    log_z = np.asarray(attend(q, k, k, log_weights, times=(asked, times), method="grid", tol=TOL).log_normalizer)
    errors = []
    for visible in (times[None, :] <= asked[:, None], np.arange(n)[None, :] < np.arange(n)[:, None] + 1):
        logits = np.multiply.outer(*(a[:, 0].astype(np.longdouble) for a in (q, k))) + log_weights
        logits = np.where(visible, logits, -np.inf)
        top = logits.max(axis=1)
        errors.append(np.abs(log_z - top - np.log(np.exp(logits - top[:, None]).sum(axis=1))).astype(float))
    return times, errors[0], errors[1]


def _checks(errors: np.ndarray) -> tuple[Check, ...]:
    edges = np.concatenate(
        [np.arange(i * BLOCK[1] - 1, i * BLOCK[1] + 2) for i in range(1, len(errors) // BLOCK[1] + 1)]
    )
    return (
        Check("worst error of log Z, all queries", float(errors.max()), high=TOL),
        Check("worst error of log Z at borders of blocks", float(errors[edges].max()), high=TOL),
    )


def _run(key: Any, config: Config) -> Outcome:
    _, right, wrong = _found(int(generator(key).integers(2**32)), config)
    place = tuple(float(i) for i in range(len(right)))
    figure = Figure(
        "Causal attention by prefix sums",
        "token",
        "error of log Z",
        (
            Series("what lies not later", place, tuple(np.maximum(right, 1e-17).tolist()), "points"),
            Series(
                "control: what stands before in the list", place, tuple(np.maximum(wrong, 1e-17).tolist()), "points"
            ),
        ),
        yscale="log",
        caption=f"Blocks of {BLOCK[1]} keys, about {config.ties} tokens at each time.",
    )
    return Outcome(_checks(right), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_found(int(generator(key).integers(2**32)), config)[2]))


claim = Claim(
    name="blelloch-1990-causal-prefix",
    title="Causal attention by prefix sums",
    statement=(
        "A query at time t gets the normaliser of all keys with times s ≤ t, from moments of the whole blocks before "
        "and single keys of one block, within the tolerance: also at the borders of blocks and where times tie."
    ),
    hypotheses=("dimension 1 or 2", "positive weights"),
    reference="blelloch1990, Section 1",
    run=_run,
    control=_control,
    control_statement="The order of the list instead of the order of time, which differ where times tie.",
    quick=Config(),
    full=Config(blocks=60),
)
