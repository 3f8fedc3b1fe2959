"""Depth adds up: the flow for time t + s is the flow for time t after the flow for time s, as in-context maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import flow
from measureformer.maps import Attention
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 16
    dim: int = 2
    queries: int = 12
    first: float = 0.7
    second: float = 0.3
    tolerance: float = 1e-8


def _values(key: Any, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points off the support: at once, in two flows, and in two flows of which the second sees the old context."""
    rng = generator(key)
    mu = Discrete.weighted(rng.normal(size=(config.n, config.dim)), rng.uniform(0.2, 1, config.n))
    x = rng.normal(size=(config.queries, config.dim))
    total = config.first + config.second
    traj = flow(Attention.random(key, config.dim), mu, [0.0, total], rtol=1e-10, atol=1e-10)
    first, second, both = (traj.map(t) for t in (config.first, config.second, total))
    halfway = first(mu, x)
    pushed, stale = second(first.push(mu), halfway), second(mu, halfway)
    return np.asarray(both(mu, x)), np.asarray(pushed), np.asarray(stale)


def _outcome(direct: np.ndarray, in_steps: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    gap = float(np.abs(direct - in_steps).max())
    return Outcome((Check("largest difference off the support", gap, high=config.tolerance),), figure)


def _run(key: Any, config: Config) -> Outcome:
    direct, in_steps, stale = _values(key, config)
    ends = float(direct[:, 0].min()), float(direct[:, 0].max())
    at_once = tuple(map(float, direct[:, 0]))
    figure = Figure(
        "One flow, or two one after the other",
        "first coordinate: one flow",
        "first coordinate: two flows",
        (
            Series("equality", ends, ends, "line"),
            Series("φ_t ⋄ φ_s", at_once, tuple(map(float, in_steps[:, 0])), "points"),
            Series("control: old context", at_once, tuple(map(float, stale[:, 0])), "points"),
        ),
        equal=True,
        caption=f"{config.queries} passive tokens among {config.n} tokens; the two sides take different steps.",
    )
    return _outcome(direct, in_steps, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    direct, _, stale = _values(key, config)
    return _outcome(direct, stale, config)


claim = Claim(
    name="furuya-2025-flow-semigroup",
    title="Flows compose by ⋄",
    statement=(
        "For a velocity that does not depend on depth, φ_{t+s}[μ](x) = (φ_t ⋄ φ_s)[μ](x) = φ_t[φ_s[μ]♯μ](φ_s[μ](x)), "
        "for every x, on the support or off it."
    ),
    hypotheses=("the velocity is Lipschitz in the point and in the measure",),
    reference="furuya2025, equations (13) and (14)",
    run=_run,
    control=_control,
    control_statement="The second flow starts from the original context instead of the pushed one.",
    quick=Config(),
    full=Config(n=512, dim=8, queries=256),
)
