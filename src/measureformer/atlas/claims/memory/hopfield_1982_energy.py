"""The energy never rises: classical in exact integers, dense, modern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import floats, signs
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Classical, Dense, Modern, Polynomial, Retrieval


@dataclass(frozen=True)
class Config:
    dim: int = 32
    patterns: int = 64
    queries: int = 200


def _found(key: Any, config: Config, *, synchronous: bool) -> dict[str, Retrieval]:
    rng = generator(key)
    X, queries = signs(rng, config.patterns, config.dim), signs(rng, config.queries, config.dim)
    classical = Classical.store(X).retrieve(queries, mode="synchronous" if synchronous else "asynchronous")
    return {
        "classical": classical,
        "dense, z³": Dense.store(X, interaction=Polynomial(3)).retrieve(queries),
        "dense, e^z": Dense.store(X).retrieve(queries),
        "modern": Modern.store(X, 0.1).retrieve(queries),
    }


def _checks(found: dict[str, Retrieval]) -> tuple[Check, ...]:
    checks: list[Check] = []
    for name, part in found.items():
        rises = np.diff(part.trace.energies, axis=0).max(initial=-np.inf)
        # integers have no rounding errors; logarithms of sums have some
        allowed = 0.0 if name in ("classical", "dense, z³") else 1e-12 * float(np.abs(part.trace.energies).max())
        checks.append(Check(f"{name}: largest rise of the energy", float(rises), high=allowed))
    settled = float(found["classical"].trace.converged.mean())
    return (*checks, Check("classical: share of queries that end in a fixed point", settled, low=1.0))


def _share_left(part: Retrieval) -> np.ndarray:
    """How much of the way down is left after each update, on average."""
    energies = part.trace.energies
    down = energies[0] - energies[-1]
    return np.mean((energies[:, down > 0] - energies[-1, down > 0]) / down[down > 0], axis=1)


def _run(key: Any, config: Config) -> Outcome:
    found = _found(key, config, synchronous=False)
    series = []
    for name, part in found.items():
        left = _share_left(part)[:12]
        series.append(Series(name, floats(np.arange(len(left))), floats(left)))
    figure = Figure(
        "Energy on the way to a fixed point",
        "updates of all bits",
        "share of the way down that is left",
        tuple(series),
        caption=(
            f"{config.patterns} random patterns of {config.dim} bits, {config.queries} random queries, asynchronous "
            "updates; the modern memory at β = 0.1."
        ),
    )
    return Outcome(_checks(found), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_found(key, config, synchronous=True)))


claim = Claim(
    name="hopfield-1982-energy",
    title="The energy never rises",
    statement=(
        "For symmetric couplings with w_ll ≥ 0, every asynchronous update keeps or lowers E = −½ξᵀWξ, exactly, and "
        "ends in a fixed point; so does every update of dense memories (bit by bit) and of modern ones."
    ),
    hypotheses=("updates are asynchronous for binary memories", "ties keep the sign"),
    reference="hopfield1982; ramsauer2020, Theorem 1",
    run=_run,
    control=_control,
    control_statement="All bits of the classical memory are updated at once, and many queries end in two-cycles.",
    quick=Config(),
    full=Config(dim=128, patterns=256, queries=2000),
)
