"""A passive token is the limit of light ones: what a token of mass ε feels of itself vanishes with ε."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import flow
from measureformer.maps import Attention
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    n: int = 12
    dim: int = 2
    lightest: float = 1e-5
    heaviest: float = 1e-2
    masses: int = 4
    slack: float = 0.05


def measure(key: Key, config: Config, variant: str) -> Outcome:
    import diffrax

    rng = generator(key)
    points, x = rng.normal(size=(config.n, config.dim)), rng.normal(size=config.dim)
    mu, G = Discrete.uniform(points), Attention.random(key, config.dim)
    passive = flow(G, mu, [0.0, 1.0], steps=diffrax.PIDController(rtol=1e-10, atol=1e-10)).map(1.0)(mu, x)

    def gap(mass: float) -> float:
        """How far a token of that mass ends from where the passive one does."""
        end = flow(
            G, mu + mass * Discrete.dirac(x), [0.0, 1.0], steps=diffrax.PIDController(rtol=1e-10, atol=1e-10)
        ).points[-1, -1]
        return float(np.linalg.norm(np.asarray(end) - np.asarray(passive)))

    masses = np.geomspace(config.lightest, config.heaviest, config.masses)
    power = 0.5 if variant == "root-of-the-mass" else 1.0
    gaps = np.array([gap(mass**power) for mass in masses.tolist()])
    slope = np.polyfit(np.log(masses), np.log(gaps), 1)[0]
    low, high = 1 - config.slack, 1 + config.slack
    checks = (Check("exponent of the mass in the difference", slope, low, high, rejected_by="root-of-the-mass"),)
    if variant != "claim":
        return Outcome(checks)
    figure = Figure(
        "A light token and a passive one",
        "mass ε of the token",
        "distance at time 1",
        (
            Series("token of mass ε", masses, gaps, "points", role="measured"),
            Series("ε", masses, gaps[-1] * masses / masses[-1], "dashed", role="theory"),
            Series("control: √ε", masses, gaps[-1] * np.sqrt(masses / masses[-1]), "line", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Softmax attention on {config.n} tokens, and one more that starts at x.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="furuya-2025-passive-token",
    title="A passive token is the limit of light tokens",
    kind="theorem",
    statement=(
        "The token that starts at x in the flow of μ + ε δ_x ends at distance O(ε) from φ_1[μ](x), the end of a "
        "token of mass zero that starts there, and not closer in general: the exponent of ε is 1."
    ),
    hypotheses=("the velocity is differentiable in the measure",),
    reference="furuya2025, equations (13) and (14)",
    measure=measure,
    controls={"root-of-the-mass": "The added token has mass √ε."},
    quick=Config(),
    full=Config(n=400, dim=8, masses=9),
)
