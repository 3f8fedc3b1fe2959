"""Two flows drift apart at most exponentially, and the constant in the measure is needed for that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import flow, stability
from measureformer.flows.stability import Stability
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.transport import wasserstein


@dataclass(frozen=True)
class Config:
    pairs: int = 8
    n: int = 8
    radius: float = 0.5
    time: float = 0.3


def _ball(rng: np.random.Generator, n: int, radius: float) -> np.ndarray:
    points = rng.normal(size=(n, 2))
    return radius * points / np.linalg.norm(points, axis=1).max()


def _ratios(key: Key, config: Config) -> dict[str, np.ndarray]:
    """For each variant, what is measured over its bound: W_1, W_2 and points, a row for each pair of measures."""
    import diffrax

    rng, claimed, dropped = generator(key), [], []
    for i in range(config.pairs):
        # the first pair is made to be bad: without logits the mean carries all tokens, and a translation grows like e^t
        A, V = (rng.normal(size=(2, 2)), rng.normal(size=(2, 2))) if i else (np.zeros((2, 2)), np.eye(2))
        G = Attention.head(A, np.eye(2), V)
        start = _ball(rng, config.n, config.radius if i else config.radius / 2)
        other = _ball(rng, config.n, config.radius) if i else start + np.array([config.radius / 2, 0.0])
        mu, nu = Discrete.uniform(start), Discrete.uniform(other)
        first, second = (
            flow(G, measure, [0.0, config.time], steps=diffrax.PIDController(rtol=1e-9, atol=1e-10))
            for measure in (mu, nu)
        )
        x, y = _ball(rng, 2, config.radius)
        if not i:
            y = x
        phi = first.map(config.time)
        before = [float(wasserstein(mu, nu, p=p)) for p in (1, 2)]
        after = [float(wasserstein(first.measures[-1], second.measures[-1], p=p)) for p in (1, 2)]
        after.append(float(np.linalg.norm(np.asarray(phi(mu, x)) - np.asarray(phi(nu, y)))))
        bound = stability(G, config.radius, config.time)
        for rows, K in ((claimed, bound.measure), (dropped, 0.0)):
            constants = Stability(bound.point, K, bound.radius, bound.time)
            allowed = [constants.between_measures(distance) for distance in before]
            allowed.append(constants.between_points(float(np.linalg.norm(x - y)), before[0]))
            rows.append([apart / most if most else np.inf for apart, most in zip(after, allowed, strict=True)])
    return {"claim": np.array(claimed), "point-constant-alone": np.array(dropped)}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    ratios = _ratios(key, config)
    names = ("W_1 over its bound", "W_2 over its bound", "distance of points over its bound")
    checks = tuple(
        # the first pair attains the bound, up to the tolerance of the flow
        Check(f"{name}, largest", largest, high=1 + 1e-6, rejected_by="point-constant-alone")
        for name, largest in zip(names, ratios[variant].max(axis=0), strict=True)
    )
    if variant != "claim":
        return Outcome(checks)
    pairs = np.arange(config.pairs) + 1
    figure = Figure(
        "How far two flows drift apart",
        "pair of measures",
        "W_1 at the end over its bound",
        (
            Series("constants L and K", pairs, ratios["claim"][:, 0], "points", role="measured"),
            Series("control: L alone", pairs, ratios["point-constant-alone"][:, 0], "points", role="control"),
            Series("the bound", pairs[[0, -1]], (1, 1), "dashed", role="theory"),
        ),
        yscale="log",
        caption="The first pair is a translation under attention without logits, where the bound is attained.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="dobrushin-1979-stability",
    title="Flows of measures are stable",
    kind="theorem",
    statement=(
        "For all μ, ν, x, y in the ball of radius R_0 and attention with constants L (in the point) and K (in the "
        "measure) on the ball of radius R_0 e^{‖V‖t}: W_p(μ_t, ν_t) ≤ e^{(L+K)t} W_p(μ_0, ν_0), p = 1, 2, and "
        "|φ_t[μ_0](x) − φ_t[ν_0](y)| ≤ e^{Lt}|x−y| + e^{Lt}(e^{Kt}−1) W_1(μ_0, ν_0)."
    ),
    hypotheses=("one softmax head, L = ‖V‖‖A‖R², K = ‖V‖(1 + 2‖A‖R²)e^{2‖A‖R²}",),
    reference="dobrushin1979; piccoli2015",
    measure=measure,
    controls={"point-constant-alone": "The constant K in the measure is dropped."},
    quick=Config(),
    full=Config(pairs=100, n=40),
)
