"""A trajectory can be checked after the fact: test functions see a velocity that is wrong by a percent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import WeakResidual, flow, weak_residual
from measureformer.maps import Attention
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 24
    dim: int = 2
    times: int = 17
    wrong: float = 0.01
    allowed: float = 1e-3


def _residual(key: Any, config: Config, wrong: float) -> WeakResidual:
    rng = generator(key)
    mu = Discrete.weighted(rng.normal(size=(config.n, config.dim)), rng.uniform(0.2, 1, config.n))
    G = Attention.random(key, config.dim)
    times = np.linspace(0, 1, config.times)
    traj = flow((1 + wrong) * G, mu, times, rtol=1e-8, atol=1e-8)
    return weak_residual(traj, G)


def _outcome(found: WeakResidual, config: Config, figure: Figure | None = None) -> Outcome:
    checks = (
        Check("residual as a share of what moves", found.relative, high=config.allowed, error=found.quadrature),
        Check("error of the integral over time, same unit", found.quadrature, high=config.allowed),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    found, wrong = (_residual(key, config, share) for share in (0.0, config.wrong))
    at = tuple(map(float, found.times[1:]))

    def largest(residual: WeakResidual) -> tuple[float, ...]:
        return tuple(map(float, np.abs(residual.residuals[1:] / residual.moved).max(axis=1)))

    figure = Figure(
        "Does the trajectory solve the equation?",
        "time t",
        "largest residual over all test functions",
        (
            Series("flow", at, largest(found), "points"),
            Series(f"control: velocity wrong by {config.wrong:.0%}", at, largest(wrong), "points"),
            Series("allowed", (at[0], at[-1]), (config.allowed, config.allowed), "dashed"),
        ),
        yscale="log",
        caption=f"{config.n} tokens at {config.times} times; waves and bumps of three scales as test functions.",
    )
    return _outcome(found, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_residual(key, config, config.wrong), config)


claim = Claim(
    name="furuya-2025-weak-form",
    title="Flows of tokens solve the continuity equation",
    statement=(
        "For the flow μ_t of tokens with velocity v and every smooth ψ: ∫ψ dμ_t − ∫ψ dμ_s = ∫_s^t ∫ ∇ψ·v[μ_r] dμ_r dr "
        "for all s < t."
    ),
    hypotheses=("v is continuous", "the integral over time is computed from the stored times"),
    reference="furuya2025, equation (12)",
    run=_run,
    control=_control,
    control_statement="The trajectory of a velocity that is larger by one percent.",
    quick=Config(),
    full=Config(n=512, dim=8, times=65, allowed=1e-4),
)
