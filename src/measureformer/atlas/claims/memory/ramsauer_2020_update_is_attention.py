"""The update of a modern memory is attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.memory import Modern, as_attention, as_memory

BETAS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Config:
    patterns: int = 50
    dim: int = 6
    queries: int = 20


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    X, queries = rng.normal(size=(config.patterns, config.dim)), rng.normal(size=(config.queries, config.dim))
    mu = Discrete.weighted(X, rng.uniform(0.1, 2, config.patterns))
    with_beta = variant != "without-beta"
    gaps = _gaps(mu, queries, with_beta=with_beta)
    Q, K, B = (rng.normal(size=(config.dim, config.dim)) for _ in range(3))
    # values that can be read off the keys: V = B K
    head = Attention.head(Q, K, B @ K, scale=config.dim**-0.5)
    read = as_memory(head if with_beta else Attention.head(Q, K, B @ K), mu)
    gap = np.abs(np.asarray(head(mu, queries)) - np.asarray(read(queries))).max()
    checks = (
        Check("update minus attention with Q = K = V = I", max(gaps), high=1e-12, rejected_by="without-beta"),
        Check("head with V = BK minus what its memory reads out", gap, high=1e-9, rejected_by="without-beta"),
    )
    return Outcome(checks, _figure(config, gaps, _gaps(mu, queries, with_beta=False)) if variant == "claim" else None)


def _gaps(mu: Discrete, queries: np.ndarray, *, with_beta: bool) -> list[float]:
    """The largest difference of update and attention, for each β."""
    gaps: list[float] = []
    for beta in BETAS:
        memory = Modern.store(mu, beta)
        layer = as_attention(memory)
        if not with_beta:
            layer = Attention.head(layer.Q[0], layer.K[0], layer.V[0])
        gaps.append(float(np.abs(np.asarray(layer(mu, queries)) - np.asarray(memory.update(queries))).max()))
    return gaps


def _figure(config: Config, gaps: list[float], without: list[float]) -> Figure:
    return Figure(
        "Update and attention",
        "inverse temperature β",
        "largest difference",
        (
            Series("logits β⟨x, ξ⟩", BETAS, np.maximum(gaps, 1e-17), "points", role="measured"),
            Series("control: logits ⟨x, ξ⟩", BETAS, np.maximum(without, 1e-17), "points", role="control"),
            Series("claimed", (BETAS[0], BETAS[-1]), (1e-12, 1e-12), "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.patterns} weighted patterns, {config.queries} queries; differences of 0 are drawn at 1e-17.",
    )


claim = Claim(
    name="ramsauer-2020-update-is-attention",
    title="The update is attention",
    kind="theorem",
    statement=(
        "For every measure of patterns μ, every β and ξ: the update of the modern memory is the attention map with "
        "Q = K = V = I and logits β⟨x, ξ⟩ on μ at ξ. A head whose values are V = BK reads B · update(Qx) off the "
        "memory of its keys."
    ),
    hypotheses=("μ has finitely many atoms",),
    reference="ramsauer2020, Section 2",
    measure=measure,
    controls={"without-beta": "β is left out of the logits."},
    quick=Config(),
    full=Config(patterns=5000, dim=32, queries=500),
)
