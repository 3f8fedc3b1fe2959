"""The update of a modern memory is attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.memory import Modern, as_attention, as_memory

BETAS = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Config:
    patterns: int = 50
    dim: int = 6
    queries: int = 20


def _outcome(key: Any, config: Config, *, with_beta: bool) -> Outcome:
    rng = generator(key)
    X, queries = rng.normal(size=(config.patterns, config.dim)), rng.normal(size=(config.queries, config.dim))
    mu = Discrete.weighted(X, rng.uniform(0.1, 2, config.patterns))
    gaps: list[float] = []
    without: list[float] = []
    for beta in BETAS:
        memory = Modern.store(mu, beta)
        update, layer = np.asarray(memory.update(queries)), as_attention(memory)
        bare = Attention.head(layer.Q[0], layer.K[0], layer.V[0])
        gaps.append(float(np.abs(np.asarray(layer(mu, queries)) - update).max()))
        without.append(float(np.abs(np.asarray(bare(mu, queries)) - update).max()))
    Q, K, B = (rng.normal(size=(config.dim, config.dim)) for _ in range(3))
    # values that can be read off the keys: V = B K
    head = Attention.head(Q, K, B @ K, scale=config.dim**-0.5)
    read = as_memory(head, mu)
    back = read if with_beta else as_memory(Attention.head(Q, K, B @ K), mu)
    gap = float(np.abs(np.asarray(head(mu, queries)) - np.asarray(back(queries))).max())
    checks = (
        Check("update minus attention with Q = K = V = I", max(gaps if with_beta else without), high=1e-12),
        Check("head with V = BK minus what its memory reads out", gap, high=1e-9),
    )
    figure = Figure(
        "Update and attention",
        "inverse temperature β",
        "largest difference",
        (
            Series("logits β⟨x, ξ⟩", BETAS, tuple(max(g, 1e-17) for g in gaps), "points"),
            Series("control: logits ⟨x, ξ⟩", BETAS, tuple(max(g, 1e-17) for g in without), "points"),
            Series("claimed", (BETAS[0], BETAS[-1]), (1e-12, 1e-12), "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.patterns} weighted patterns, {config.queries} queries; differences of 0 are drawn at 1e-17.",
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, with_beta=True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, with_beta=False)


claim = Claim(
    name="ramsauer-2020-update-is-attention",
    title="The update is attention",
    statement=(
        "For every measure of patterns μ, every β and ξ: the update of the modern memory is the attention map with "
        "Q = K = V = I and logits β⟨x, ξ⟩ on μ at ξ. A head whose values are V = BK reads B · update(Qx) off the "
        "memory of its keys."
    ),
    hypotheses=("μ has finitely many atoms",),
    reference="ramsauer2020, Section 2",
    run=_run,
    control=_control,
    control_statement="β is left out of the logits.",
    quick=Config(),
    full=Config(patterns=5000, dim=32, queries=500),
)
