"""Densities along a flow: d/dt log ρ_t(x(t)) = −div v[mu_t](x(t))."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.flows.flow_map import FlowMap
from measureformer.flows.integrate import Solved, solve
from measureformer.measures.atomic import AbstractAtomic


def with_log_density(
    phi: FlowMap, mu: AbstractAtomic, x: Float[Array, "m d"], t: Array | None, probes: Array | None
) -> Solved:
    """States (atoms, points that start at x, log ρ_t − log ρ_0 at these), at the times of the schedule."""

    def field(index: Any, time: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        G, moved = phi.velocity.at(index, time), mu.with_points(state[0])
        velocity, divergence = _divergence(lambda points: G.evaluate(moved, points, t), state[1], probes)
        return G.at_atoms(moved), velocity, -divergence

    start = mu.points, x, jnp.zeros(x.shape[0], x.dtype)
    return solve(field, start, phi.schedule, phi.settings)


def _divergence(v: Callable[[Array], Array], x: Array, probes: Array | None) -> tuple[Array, Array]:
    """v and its divergence at every query, a row of x.

    One product with the derivative for each direction, all rows at once. By default the directions are the axes and the
    trace is exact; with `probes` (p, m, d) it is the mean of ⟨e, Dv e⟩ over the probes e.
    """
    if probes is None:
        directions = jnp.broadcast_to(jnp.eye(x.shape[1], dtype=x.dtype)[:, None], (x.shape[1], *x.shape))
        share = 1.0
    else:
        directions, share = probes, 1.0 / probes.shape[0]
    value, derivative = jax.linearize(v, x)
    products = jax.lax.map(lambda e: jnp.sum(e * derivative(e), axis=1), directions)
    return value, share * jnp.sum(products, axis=0)
