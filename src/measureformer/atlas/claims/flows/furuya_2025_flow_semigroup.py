"""Depth adds up: the flow for time t + s is the flow for time t after the flow for time s, as in-context maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
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


def measure(key: Key, config: Config, variant: str) -> Outcome:
    import diffrax

    rng = generator(key)
    mu = Discrete.weighted(rng.normal(size=(config.n, config.dim)), rng.uniform(0.2, 1, config.n))
    x = rng.normal(size=(config.queries, config.dim))
    total = config.first + config.second
    traj = flow(
        Attention.random(key, config.dim), mu, [0.0, total], steps=diffrax.PIDController(rtol=1e-10, atol=1e-10)
    )
    first, second, both = (traj.map(t) for t in (config.first, config.second, total))
    direct, halfway = np.asarray(both(mu, x)), first(mu, x)
    in_steps, stale = (np.asarray(second(context, halfway)) for context in (first.push(mu), mu))
    gap = np.abs(direct - (stale if variant == "old-context" else in_steps)).max()
    checks = (Check("largest difference off the support", gap, high=config.tolerance, rejected_by="old-context"),)
    if variant != "claim":
        return Outcome(checks)
    ends = direct[:, 0].min(), direct[:, 0].max()
    figure = Figure(
        "One flow, or two one after the other",
        "first coordinate: one flow",
        "first coordinate: two flows",
        (
            Series("equality", ends, ends, "line", role="theory"),
            Series("φ_t ⋄ φ_s", direct[:, 0], in_steps[:, 0], "points", role="measured"),
            Series("control: old context", direct[:, 0], stale[:, 0], "points", role="control"),
        ),
        equal=True,
        caption=f"{config.queries} passive tokens among {config.n} tokens; the two sides take different steps.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="furuya-2025-flow-semigroup",
    title="Flows compose by ⋄",
    kind="theorem",
    statement=(
        "For a velocity that does not depend on depth, φ_{t+s}[μ](x) = (φ_t ⋄ φ_s)[μ](x) = φ_t[φ_s[μ]♯μ](φ_s[μ](x)), "
        "for every x, on the support or off it."
    ),
    hypotheses=("the velocity is Lipschitz in the point and in the measure",),
    reference="furuya2025, equations (13) and (14)",
    measure=measure,
    controls={"old-context": "The second flow starts from the original context instead of the pushed one."},
    quick=Config(),
    full=Config(n=512, dim=8, queries=256),
)
