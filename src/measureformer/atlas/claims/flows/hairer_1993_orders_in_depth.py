"""A residual network of L layers is Euler's method, 1/L away from infinite depth. Runge and Kutta get L^{-4}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows import Interaction, flow
from measureformer.maps import Attention
from measureformer.maps.compose import Sum
from measureformer.measures import Discrete
from measureformer.numerics.arrays import scalar


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


def _errors(key: Any, config: Config, kink: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Depths, and the largest error of a token at time 1 for both methods."""
    rng = generator(key)
    mu = Discrete.uniform(rng.normal(size=(config.n, 2)))
    velocity = Sum(Attention.random(key, 2), Interaction(_Kink(scalar(kink, "kink"))))
    depths = config.fewest * 2 ** np.arange(config.doublings)

    def end(solver: Any, steps: int) -> np.ndarray:
        return np.asarray(flow(velocity, mu, [0.0, 1.0], solver=solver, steps=steps).points[-1])

    exact = end("rk4", 4 * int(depths[-1]))
    return depths, {
        solver: np.array([np.abs(end(solver, int(L)) - exact).max() for L in depths]) for solver in ("euler", "rk4")
    }


def _outcome(
    depths: np.ndarray, errors: dict[str, np.ndarray], config: Config, figure: Figure | None = None
) -> Outcome:
    slopes = {solver: float(np.polyfit(np.log(depths), np.log(error), 1)[0]) for solver, error in errors.items()}
    checks = (
        Check("slope of Euler's method", slopes["euler"], -1 - config.euler_slack, -1 + config.euler_slack),
        Check("slope of the method of order 4", slopes["rk4"], -4 - config.rk4_slack, -4 + config.rk4_slack),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    depths, errors = _errors(key, config, 0.0)
    _, rough = _errors(key, config, config.kink)
    at = tuple(map(float, depths))

    def curve(values: np.ndarray) -> tuple[float, ...]:
        return tuple(map(float, values))

    figure = Figure(
        "Finite depth against infinite depth",
        "layers L",
        "largest error of a token",
        (
            Series("residual network (Euler)", at, curve(errors["euler"]), "points"),
            Series("1/L", at, curve(errors["euler"][0] * depths[0] / depths), "dashed"),
            Series("Runge–Kutta of order 4", at, curve(errors["rk4"]), "points"),
            Series("L^{-4}", at, curve(errors["rk4"][0] * (depths[0] / depths) ** 4.0), "dashed"),
            Series("control: velocity with kinks, order 4", at, curve(rough["rk4"]), "line"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Softmax attention on {config.n} tokens in the plane, to time 1.",
    )
    return _outcome(depths, errors, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_errors(key, config, config.kink), config)


claim = Claim(
    name="hairer-1993-orders-in-depth",
    title="A residual network of L layers is 1/L away from infinite depth",
    statement=(
        "For a smooth velocity v on measures, the tokens of L residual layers x ↦ x + v(μ, x)/L differ from those of "
        "the flow at time 1 by O(1/L); four stages per layer, combined as by Runge and Kutta, make it O(L^{-4})."
    ),
    hypotheses=("v is four times continuously differentiable",),
    reference="hairer1993, Chapter II",
    run=_run,
    control=_control,
    control_statement="A velocity with kinks, c |sin 6x| added: the method of order 4 loses its order.",
    quick=Config(),
    full=Config(n=256, fewest=16, doublings=5),
)
