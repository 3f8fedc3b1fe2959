"""A residual network of L layers is Euler's method, 1/L away from infinite depth. Runge and Kutta get L^{-4}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.flows import Interaction, flow
from measureformer.maps import Attention
from measureformer.maps.compose import Sum
from measureformer.measures import Discrete
from measureformer.numerics.arrays import scalar

SOLVERS: tuple[Literal["euler", "rk4"], ...] = ("euler", "rk4")


@dataclass(frozen=True)
class Config:
    n: int = 16
    fewest: int = 8
    doublings: int = 4
    kink: float = 1.0
    euler_slack: float = 0.1
    rk4_slack: float = 0.25


class _Kink(eqx.Module):
    """c |sin 6x|, a velocity that is continuous but not differentiable; the context does not matter."""

    size: Array

    def __call__(self, x: Array, y: Array) -> Array:
        return self.size * jnp.abs(jnp.sin(6 * x)) + 0 * y


def _errors(key: Key, config: Config, variant: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Depths, and the largest error of a token at time 1 for both methods."""
    rng = generator(key)
    mu = Discrete.uniform(rng.normal(size=(config.n, 2)))
    kink = config.kink if variant == "kinks" else 0.0
    velocity = Sum(Attention.random(key, 2), Interaction(_Kink(scalar(kink, "kink"))))
    depths = config.fewest * 2 ** np.arange(config.doublings)

    def end(solver: Literal["euler", "rk4"], steps: int) -> np.ndarray:
        return np.asarray(flow(velocity, mu, [0.0, 1.0], solver=solver, steps=steps).points[-1])

    exact = end("rk4", 4 * int(depths[-1]))
    ends = {solver: np.array([end(solver, int(L)) for L in depths]) for solver in SOLVERS}
    if variant == "extrapolated":
        ends["euler"] = 2 * np.array([end("euler", 2 * int(L)) for L in depths]) - ends["euler"]
    return depths, {solver: np.abs(found - exact).max(axis=(1, 2)) for solver, found in ends.items()}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    depths, errors = _errors(key, config, variant)
    euler, rk4 = (np.polyfit(np.log(depths), np.log(errors[name]), 1)[0] for name in SOLVERS)
    slack, slack4 = config.euler_slack, config.rk4_slack
    checks = (
        Check("slope of Euler's method", euler, -1 - slack, -1 + slack, rejected_by="extrapolated"),
        Check("slope of the method of order 4", rk4, -4 - slack4, -4 + slack4, rejected_by="kinks"),
    )
    if variant != "claim":
        return Outcome(checks)
    _, rough = _errors(key, config, "kinks")
    once, fourth = errors["euler"][0] * depths[0] / depths, errors["rk4"][0] * (depths[0] / depths) ** 4.0
    figure = Figure(
        "Finite depth against infinite depth",
        "layers L",
        "largest error of a token",
        (
            Series("residual network (Euler)", depths, errors["euler"], "points", role="measured"),
            Series("1/L", depths, once, "dashed", role="theory"),
            Series("Runge–Kutta of order 4", depths, errors["rk4"], "points", role="measured"),
            Series("L^{-4}", depths, fourth, "dashed", role="theory"),
            Series("control: velocity with kinks, order 4", depths, rough["rk4"], "line", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Softmax attention on {config.n} tokens in the plane, to time 1.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="hairer-1993-orders-in-depth",
    title="A residual network of L layers is 1/L away from infinite depth",
    kind="theorem",
    statement=(
        "For a smooth velocity v on measures, the tokens of L residual layers x ↦ x + v(μ, x)/L differ from those of "
        "the flow at time 1 by O(1/L); four stages per layer, combined as by Runge and Kutta, make it O(L^{-4})."
    ),
    hypotheses=("v is four times continuously differentiable",),
    reference="hairer1993, Chapter II",
    measure=measure,
    controls={
        "kinks": "A velocity with kinks, c |sin 6x| added: the method of order 4 loses its order.",
        "extrapolated": "Tokens extrapolated from L and 2L layers in place of those of L layers: an error O(L^{-2}).",
    },
    quick=Config(),
    full=Config(n=256, fewest=16, doublings=5),
)
