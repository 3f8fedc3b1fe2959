"""`equiangular`: tokens on the sphere with equal inner products, one equation for all of them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.flows.flow_map import refuse_failure
from measureformer.flows.integrate import Solved, solve
from measureformer.flows.schedule import Schedule, checked_times, scheduled
from measureformer.flows.settings import Accuracy, Settings, settings_of
from measureformer.numerics.arrays import at_once, default_float, on_device, positive_int, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Within

Norm = Literal["post", "pre"]
ACCURACY = Accuracy("dopri8", 1e-11, 1e-11, (0.3, 0.4), 1 << 16)


class Equiangular(eqx.Module):
    """Common inner product of n equiangular tokens along the flow; see `equiangular`."""

    times: Float[Array, " t"]
    cosines: Float[Array, " t"]
    log_gaps: Float[Array, " t"]
    """log(1 − γ), accurate even where γ rounds to 1."""
    norms: Float[Array, " t"]
    """The common norm of the tokens: 1, unless `norm="pre"`."""


@checked
def equiangular(
    n: int,
    beta: ArrayLike,
    times: ArrayLike,
    *,
    start: ArrayLike = 0.0,
    normalized: bool = True,
    norm: Norm = "post",
) -> Equiangular:
    """The common inner product γ of n equiangular tokens on the sphere: one equation instead of n.

    The solver integrates log(1 − γ), so the tail is as accurate as the beginning.

    Arguments:
        n: number of tokens, at least 2.
        beta: inverse temperature.
        times: increasing output times, (t,); γ is `start` at the first.
        start: initial inner product, between −1/(n−1) and 1.
        normalized: divide attention by its normaliser (SA); without it the flow climbs the energy (USA).
        norm: "post" normalises after each layer, as the flow of `mf.Tangent(G)`; "pre" normalises the input of each
            layer, as that of `G @ UnitNorm`, so that tokens grow, from norm 1.

    Statement   SA   γ' = 2(1−γ)((n−1)γ+1)/(e^{β(1−γ)}+n−1),    1 − γ ~ e^{−2t}
                USA  γ' = (2/n) e^{βγ}(1−γ)((n−1)γ+1),          1 − γ ~ e^{−2e^β t}
                "pre", SA  the same γ' divided by the norm r,   1 − γ ~ t^{−2},
                     r' = (e^{β(1−γ)}+(n−1)γ)/(e^{β(1−γ)}+n−1)
    Ref         geshkovski2023; rigollet2025 for "pre".

    >>> import measureformer as mf
    >>> curve = mf.clustering.equiangular(32, 0.0, [0.0, 5.186261])
    >>> round(float(curve.cosines[1]), 6)
    0.999
    """
    times, n = checked_times(times), positive_int(n, "n")
    beta, start = float(scalar(beta, "beta")), float(scalar(start, "start"))
    if n < 2 or not -1 / (n - 1) < start < 1:
        raise OptionError(
            got=f"n = {n}, start = {start:g}",
            need="n ≥ 2 tokens and −1/(n−1) < start < 1",
            do="Orthogonal tokens have start = 0.",
        )
    dtype = default_float()
    field = _Equiangular(np.asarray(n, dtype), np.asarray(beta, dtype), bool(normalized), norm == "post")
    state = np.array([math.log1p(-start), 0.0], dtype)
    settings = settings_of(None, None, ACCURACY)[0]
    found = at_once(_solved, field, state, scheduled(times, 1, None).padded(16), settings)
    refuse_failure(found, np.asarray(found.last), settings)
    log_gaps, log_norms = np.concatenate([state[None], np.asarray(found.states)[: len(times) - 1]]).T
    return Equiangular(*map(on_device, (times.astype(dtype), -np.expm1(log_gaps), log_gaps, np.exp(log_norms))))


@eqx.filter_jit
def _solved(field: _Equiangular, state: Any, schedule: Schedule, settings: Settings) -> Solved:
    return solve(lambda index, t, y: field.velocity(y), state, schedule, settings)


class _Equiangular(eqx.Module):
    """(log(1 − γ), log r)."""

    n: Any
    beta: Any
    normalized: bool = eqx.field(static=True)
    post: bool = eqx.field(static=True)

    def velocity(self, y: Any) -> Any:
        gap, others = jnp.exp(y[0]), self.n - 1
        # weights of a token itself and of all others together, relative to e^{βγ}
        itself = jnp.exp(self.beta * gap)
        scale = itself + others if self.normalized else self.n * jnp.exp(-self.beta * (1 - gap))
        turn, growth = -2 * (others * (1 - gap) + 1) / scale, (itself + others * (1 - gap)) / scale
        if self.post:
            return jnp.stack([turn, jnp.zeros_like(turn)])
        return jnp.stack([turn, growth]) * jnp.exp(-y[1])


@checked
def geshkovski23_equiangular(n: Annotated[int, Within(2, 10**9)], t: Annotated[float, Within(0, math.inf)]) -> float:
    """The inner product at time t of n tokens that start orthogonal, at β = 0.

    Arguments:
        n: number of tokens, at least 2.
        t: time since the start, at least 0.

    Statement   γ(t) = (e^{2t} − 1)/(e^{2t} + n − 1)
    Ref         geshkovski2023.

    >>> import measureformer as mf
    >>> mf.clustering.geshkovski23_equiangular(2, 0.0)
    0.0
    """
    return -math.expm1(-2 * t) / (1 + (n - 1) * math.exp(-2 * t))
