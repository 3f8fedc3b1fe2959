"""A passive token is the limit of light ones: what a token of mass ε feels of itself vanishes with ε."""

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
    n: int = 12
    dim: int = 2
    lightest: float = 1e-5
    heaviest: float = 1e-2
    masses: int = 4
    slack: float = 0.05


def _gaps(key: Any, config: Config, *, vanishing: bool) -> tuple[np.ndarray, np.ndarray]:
    """Masses ε, and how far a token of that mass ends from where the passive one does."""
    rng = generator(key)
    points, x = rng.normal(size=(config.n, config.dim)), rng.normal(size=config.dim)
    mu, G = Discrete.uniform(points), Attention.random(key, config.dim)
    sharp: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
    passive = np.asarray(flow(G, mu, [0.0, 1.0], **sharp).map(1.0)(mu, x))
    masses = np.geomspace(config.lightest, config.heaviest, config.masses)
    gaps: list[float] = []
    for mass in masses:
        light = float(mass) if vanishing else config.heaviest
        end = flow(G, mu + light * Discrete.dirac(x), [0.0, 1.0], **sharp).points[-1, -1]
        gaps.append(float(np.linalg.norm(np.asarray(end) - passive)))
    return masses, np.array(gaps)


def _outcome(masses: np.ndarray, gaps: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    slope = float(np.polyfit(np.log(masses), np.log(gaps), 1)[0])
    checks = (Check("exponent of the mass in the difference", slope, 1 - config.slack, 1 + config.slack),)
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    masses, gaps = _gaps(key, config, vanishing=True)
    _, heavy = _gaps(key, config, vanishing=False)
    at = tuple(map(float, masses))
    figure = Figure(
        "A light token and a passive one",
        "mass ε of the token",
        "distance at time 1",
        (
            Series("token of mass ε", at, tuple(map(float, gaps)), "points"),
            Series("ε", at, tuple(float(g) for g in gaps[-1] * masses / masses[-1]), "dashed"),
            Series("control: mass kept", at, tuple(map(float, heavy)), "line"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Softmax attention on {config.n} tokens, and one more that starts at x.",
    )
    return _outcome(masses, gaps, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_gaps(key, config, vanishing=False), config)


claim = Claim(
    name="furuya-2025-passive-token",
    title="A passive token is the limit of light tokens",
    statement=(
        "The token that starts at x in the flow of μ + ε δ_x ends at distance O(ε) from φ_1[μ](x), the end of a "
        "token of mass zero that starts there, and not closer in general: the exponent of ε is 1."
    ),
    hypotheses=("the velocity is differentiable in the measure",),
    reference="furuya2025, equations (13) and (14)",
    run=_run,
    control=_control,
    control_statement="The added token keeps its mass.",
    quick=Config(),
    full=Config(n=400, dim=8, masses=9),
)
