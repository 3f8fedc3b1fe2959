"""With V = I and A positive, rescaled tokens tend to special points of a polytope: its vertices, as a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.clustering import polytope_vertices
from measureformer.figures.figure import Figure, Series
from measureformer.flows import flow
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete
from measureformer.numerics.types import Key

SPECIAL = 1e-3
WIDE = 0.1
"""A limit of extent e satisfies |z|² = max ⟨z, v⟩ up to e² or so whatever its points are, so the condition says
something only where e² is well above `SPECIAL`: 0.1 makes it ten times that. The theory gives no extent, because the
polytope may be one point. Of 48 starts of twenty tokens two ended in one point, one had the extent 0.33 and the others
more than 0.7; so most limits must be wide, and not each of them."""


@dataclass(frozen=True)
class Config:
    n: int = 20
    trials: int = 3
    time: float = 15.0


def _paths(key: Key, config: Config, variant: str) -> list[np.ndarray]:
    """Rescaled tokens (t, n, 2) for Q = I, K = ±I, and V = I or I plus a rotation by 90°."""
    rng, eye = generator(key), np.eye(2)
    K = -eye if variant == "negative-a" else eye
    V = np.array([[1.0, -1.0], [1.0, 1.0]]) if variant == "turned-value" else eye
    G, times = Attention.head(eye, K, V), [0.0, 1.0, 3.0, 6.0, config.time]
    starts = (rng.uniform(-1, 1, size=(config.n, 2)) for _ in range(config.trials))
    return [np.asarray(flow(Rescaled(G), Discrete.uniform(X), times).points) for X in starts]


def measure(key: Key, config: Config, variant: str) -> Outcome:
    paths = _paths(key, config, variant)
    angles = np.linspace(0, 2 * np.pi, 180)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    growth = max(np.diff((path @ directions).max(axis=1), axis=0).max() for path in paths)
    special, wide = [0.0], list[bool]()
    for path in paths:
        z = path[1] if variant == "early" else path[-1]
        vertices = z[polytope_vertices(z)]
        special.append(np.abs(np.sum(z * z, axis=1) - (z @ vertices.T).max(axis=1)).max())
        wide.append(np.ptp(z, axis=0).max() > WIDE)
    share = f"share of the limits that are wider than {WIDE:g}"
    checks = (
        Check("growth of the hull in 180 directions", growth, high=1e-6, rejected_by="turned-value"),
        Check("distance from |z|² = max ⟨z, v⟩", max(special), high=SPECIAL, rejected_by="early"),
        Check(share, np.mean(wide), low=0.5, rejected_by="negative-a"),
    )
    return Outcome(checks, _figure(config, paths[0][0], paths[0][-1]) if variant == "claim" else None)


def _figure(config: Config, start: np.ndarray, end: np.ndarray) -> Figure:
    vertices = end[polytope_vertices(end)]
    order = np.argsort(np.arctan2(*(vertices - vertices.mean(axis=0)).T[::-1]))
    ring = vertices[np.append(order, order[0])]
    return Figure(
        "Rescaled tokens and the polytope of the limit",
        "first coordinate of z",
        "second coordinate of z",
        (
            Series("start", *start.T, style="points", role="measure"),
            Series(f"t = {config.time:g}", *end.T, style="points", role="measured"),
            Series("hull of the limit", *ring.T, style="line", role="measured"),
        ),
        equal=True,
        caption=f"{config.n} tokens, uniform in a square, Q = K = V = I; z = e^{{−t}}x.",
    )


claim = Claim(
    name="geshkovski-2023b-polytope",
    title="Rescaled tokens tend to a polytope",
    statement=(
        "For V = I and A = KᵀQ symmetric positive definite: the convex hull of the rescaled tokens z = e^{−t}x does "
        "not grow and tends to a polytope with vertices v_j, and every z_i to a point with ⟨Az, z⟩ = max_j ⟨Az, v_j⟩."
    ),
    hypotheses=("V = I, one softmax head", "A symmetric positive definite; here A = I"),
    reference="geshkovski2023b",
    measure=measure,
    controls={
        "turned-value": "V = I plus a rotation by 90°, so that tokens move past the hull and not into it.",
        "early": "At t = 1 in place of the limit.",
        "negative-a": "A = −I, where tokens are drawn to the far side of the hull.",
    },
    quick=Config(),
    full=Config(n=60, trials=20),
)
