"""A trajectory can be checked after the fact: test functions see a velocity that is wrong by a percent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import flow, weak_residual
from measureformer.flows.weak import WeakResidual
from measureformer.maps import Attention
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 24
    dim: int = 2
    times: int = 33
    wrong: float = 0.01
    allowed: float = 1e-3


def _residual(key: Key, config: Config, variant: str) -> WeakResidual:
    import diffrax

    rng = generator(key)
    mu = Discrete.weighted(rng.normal(size=(config.n, config.dim)), rng.uniform(0.2, 1, config.n))
    # rotations, so that tokens move at a speed of order 1, which the times resolve and a gap in them does not
    A, V = (np.linalg.qr(rng.normal(size=(config.dim, config.dim)))[0] for _ in range(2))
    G = Attention.head(A, np.eye(config.dim), V)
    times = np.linspace(0, 1, config.times)
    if variant == "gap-in-times":
        times[:-1] /= 4
    speed = 1 + config.wrong if variant == "wrong-velocity" else 1.0
    return weak_residual(flow(speed * G, mu, times, steps=diffrax.PIDController(rtol=1e-8, atol=1e-8)), G)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found, name = _residual(key, config, variant), "error of the integral over time, same unit"
    checks = (
        Check(
            "residual as a share of what moves",
            found.relative,
            high=config.allowed,
            error=found.quadrature,
            rejected_by="wrong-velocity",
        ),
        Check(name, found.quadrature, high=config.allowed, rejected_by="gap-in-times"),
    )
    if variant != "claim":
        return Outcome(checks)
    wrong, times = _residual(key, config, "wrong-velocity"), found.times[1:]
    right, off = (np.abs(one.residuals[1:] / one.moved).max(axis=1) for one in (found, wrong))
    figure = Figure(
        "Does the trajectory solve the equation?",
        "time t",
        "largest residual over all test functions",
        (
            Series("flow", times, right, "points", role="measured"),
            Series(f"control: velocity wrong by {config.wrong:.0%}", times, off, "points", role="control"),
            Series("allowed", times[[0, -1]], (config.allowed, config.allowed), "dashed", role="theory"),
        ),
        yscale="log",
        caption=f"{config.n} tokens at {config.times} times; waves and bumps of three scales as test functions.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="furuya-2025-weak-form",
    title="Flows of tokens solve the continuity equation",
    kind="theorem",
    statement=(
        "For the flow μ_t of tokens with velocity v and every smooth ψ: ∫ψ dμ_t − ∫ψ dμ_s = ∫_s^t ∫ ∇ψ·v[μ_r] dμ_r dr "
        "for all s < t."
    ),
    hypotheses=("v is continuous", "the integral over time is computed from the stored times"),
    reference="furuya2025, equation (12)",
    measure=measure,
    controls={
        "wrong-velocity": "The trajectory of a velocity that is larger by one percent.",
        "gap-in-times": "Of the last three quarters of the time, only the end is stored.",
    },
    quick=Config(),
    full=Config(n=512, dim=8, times=65, allowed=1e-4),
)
