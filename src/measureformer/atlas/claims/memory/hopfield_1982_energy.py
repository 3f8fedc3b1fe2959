"""The energy never rises: classical in exact integers, dense, modern."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.memory_patterns import signs
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Classical, Dense, Modern, Polynomial


@dataclass(frozen=True)
class Config:
    dim: int = 32
    patterns: int = 64
    queries: int = 200


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    X, queries = signs(rng, config.patterns, config.dim), signs(rng, config.queries, config.dim)
    mode = "synchronous" if variant == "all-at-once" else "asynchronous"
    classical = Classical.store(X).retrieve(queries, mode=mode).trace
    energies = {
        "classical": classical.energies,
        "dense, z³": Dense.store(X, interaction=Polynomial(3)).retrieve(queries, mode=mode).trace.energies,
        "dense, e^z": Dense.store(X).retrieve(queries, mode=mode).trace.energies,
        "modern": _modern(X, queries, whole=variant != "without-the-square"),
    }
    checks: list[Check] = []
    for name, part in energies.items():
        rise = np.diff(part, axis=0).max(initial=-np.inf)
        # integers have no rounding errors; logarithms of sums have some
        allowed = 0.0 if name in ("classical", "dense, z³") else 1e-12 * np.abs(part).max()
        control = "without-the-square" if name == "modern" else "all-at-once"
        checks.append(Check(f"{name}: largest rise of the energy", rise, high=allowed, rejected_by=control))
    settled = "classical: share of queries that end in a fixed point"
    checks.append(Check(settled, classical.converged.mean(), low=1.0, rejected_by="all-at-once"))
    return Outcome(tuple(checks), _figure(config, energies) if variant == "claim" else None)


def _modern(X: np.ndarray, queries: np.ndarray, *, whole: bool) -> np.ndarray:
    """Energies along the updates; if not `whole`, at both ends and without |ξ|²/2."""
    memory = Modern.store(X, 0.1)
    found = memory.retrieve(queries)
    if whole:
        return found.trace.energies
    return np.stack([memory.energy(x) - 0.5 * np.sum(np.square(x), axis=1) for x in (queries, found.state)])


def _figure(config: Config, energies: dict[str, np.ndarray]) -> Figure:
    left = {name: _share_left(part)[:12] for name, part in energies.items()}
    return Figure(
        "Energy on the way to a fixed point",
        "updates of all bits",
        "share of the way down that is left",
        tuple(Series(name, np.arange(len(part)), part, role="measured") for name, part in left.items()),
        caption=(
            f"{config.patterns} random patterns of {config.dim} bits, {config.queries} random queries, asynchronous "
            "updates; the modern memory at β = 0.1."
        ),
    )


def _share_left(energies: np.ndarray) -> np.ndarray:
    """How much of the way down is left after each update, on average."""
    down = energies[0] - energies[-1]
    return np.mean((energies[:, down > 0] - energies[-1, down > 0]) / down[down > 0], axis=1)


claim = Claim(
    name="hopfield-1982-energy",
    title="The energy never rises",
    kind="theorem",
    statement=(
        "For symmetric couplings with w_ll ≥ 0, every asynchronous update keeps or lowers E = −½ξᵀWξ, exactly, and "
        "ends in a fixed point; so does every update of dense memories (bit by bit) and of modern ones."
    ),
    hypotheses=("updates are asynchronous for binary memories", "ties keep the sign"),
    reference="hopfield1982; ramsauer2020, Theorem 1",
    measure=measure,
    controls={
        "all-at-once": "All bits of the binary memories are updated at once, and many queries end in two-cycles.",
        "without-the-square": "The energy of the modern memory without its term |ξ|²/2.",
    },
    quick=Config(),
    full=Config(dim=128, patterns=256, queries=2000),
)
