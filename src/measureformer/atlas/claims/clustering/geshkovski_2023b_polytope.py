"""With V = I and A positive, rescaled tokens tend to special points of a polytope: its vertices, as a rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.clustering import polytope_vertices
from measureformer.flows import flow
from measureformer.maps import Attention, Rescaled
from measureformer.measures import Discrete

WIDE = 0.1


@dataclass(frozen=True)
class Config:
    n: int = 16
    trials: int = 2
    time: float = 8.0
    dims: int = 1
    """How many of the dimensions 3, 4, 5."""


def _paths(key: Key, config: Config, variant: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """A, and rescaled tokens (t, n, d) for V = I or I plus an antisymmetric matrix."""
    rng, paths = generator(key), list[tuple[np.ndarray, np.ndarray]]()
    for d in (3, 4, 5)[: config.dims]:
        for _ in range(config.trials):
            root, turn = rng.normal(size=(2, d, d)) / np.sqrt(d)
            A, V = root @ root.T + 0.3 * np.eye(d), np.eye(d)
            if variant == "turned-value":
                V = V + turn - turn.T
            elif variant == "negative-a":
                A = -A
            X, times = rng.uniform(-1, 1, size=(config.n, d)), np.array([0.0, 1.0, 3.0, 6.0, config.time])
            if variant == "turned-value":
                # past the hull the equation becomes stiff, and what is asked is seen early
                times = times / config.time
            G = Rescaled(Attention.head(A, np.eye(d), V))
            paths.append((A, np.asarray(flow(G, Discrete.uniform(X), times).points)))
    return paths


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng, growth, special, wide = generator(key), list[float](), list[float](), list[bool]()
    for A, path in _paths(key, config, variant):
        directions = rng.normal(size=(path.shape[2], 200))
        directions /= np.linalg.norm(directions, axis=0)
        growth.append(np.diff((path @ directions).max(axis=1), axis=0).max())
        z = path[1] if variant == "early" else path[-1]
        scores = z @ A.T @ z.T
        extent, first = np.ptp(z, axis=0).max(), np.ptp(path[0], axis=0).max()
        special.append(np.abs(np.diag(scores) - scores.max(axis=1)).max() / (np.linalg.norm(A, 2) * first**2))
        wide.append(extent > WIDE * first)
    checks = (
        Check("growth of the hull in 200 directions", max(growth), high=1e-6, rejected_by="turned-value"),
        Check(
            "largest |⟨Az, z⟩ − max_j ⟨Az, z_j⟩| over ‖A‖·extent²·e^{−t}",
            max(special) * np.exp(config.time),
            high=10,
            rejected_by="early",
        ),
        Check("share of limits wider than a tenth of the start", np.mean(wide), low=0.5, rejected_by="negative-a"),
    )
    return Outcome(checks, _figure(config, *_paths(key, config, "claim")[0]) if variant == "claim" else None)


def _figure(config: Config, A: np.ndarray, path: np.ndarray) -> Figure:
    start, end = path[0], path[-1]
    corners = np.sort(polytope_vertices(end))
    return Figure(
        "Rescaled tokens and the polytope of the limit",
        "first coordinate of z",
        "second coordinate of z",
        (
            Series("start", *start[:, :2].T, style="points", role="measure"),
            Series(f"t = {config.time:g}", *end[:, :2].T, style="points", role="measured"),
            Series("vertices of the limit", *end[corners, :2].T, style="points", role="theory"),
        ),
        equal=True,
        caption=f"{config.n} tokens, uniform in a cube of dimension {len(A)}, V = I, random A; z = e^{{−t}}x.",
    )


claim = Claim(
    name="geshkovski-2023b-polytope",
    title="Rescaled tokens tend to a polytope",
    kind="observation",
    statement=(
        "For V = I and A = KᵀQ symmetric positive definite: the convex hull of the rescaled tokens z = e^{−t}x does "
        "not grow and tends to a polytope with vertices v_j, and every z_i to a point with ⟨Az, z⟩ = max_j ⟨Az, v_j⟩. "
        "Observed: up to 10‖A‖·extent²·e^{−t}, and in at least half of the runs the limit is wider than a tenth of "
        "the start."
    ),
    hypotheses=(
        "V = I, one softmax head",
        "A symmetric positive definite, random",
        "the theorem has no rate",
    ),
    reference="geshkovski2023b",
    measure=measure,
    controls={
        "turned-value": "V = I plus an antisymmetric matrix, so that tokens move past the hull and not into it.",
        "early": "At t = 1 in place of the limit.",
        "negative-a": "A is negative definite, and tokens are drawn to the far side of the hull.",
    },
    quick=Config(),
    full=Config(n=40, trials=12, time=12.0, dims=3),
)
