"""`first_variation`: how an in-context map reacts to a little mass at a point."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DerivativeError, ShapeError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import refuse_input, rows_of
from measureformer.maps.queries import queries_of
from measureformer.measures import AbstractMeasure
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics import edge
from measureformer.numerics.arrays import finite, is_traced, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def first_variation(
    G: AbstractInContextMap,
    mu: AbstractMeasure,
    x: ArrayLike,
    y: ArrayLike,
    *,
    t: ArrayLike | None = None,
    s: ArrayLike | None = None,
) -> Float[Array, "*m e"]:
    """The derivative of G(mu + ε δ_y, x) in ε at ε = 0; on space–time that of G(sigma + ε δ_(y,s), x, t).

    For softmax attention the closed form below is used, on atoms, Gaussians and mixtures. Any other map is
    differentiated along an atom at y of mass e^{−300} (e^{−60} in float32), too small to change a digit of the rest.
    This is not the derivative in a log-weight, which at zero mass is 0. Maps that jump where mass appears, such as hard
    attention at a new winner, are refused.

    Arguments:
        G: the map.
        mu: the context.
        x: one query (d,) or several (m, d).
        y: the point that gets mass, (d,).
        t: time of the queries, or one for each (m,); required on a `SpaceTime`.
        s: time of the point; required on a `SpaceTime`.

    Statement   for one softmax head Γ: e^{⟨Ax,y⟩} / Z(x) · (V y − Γ(mu, x)), Z(x) = ∫ e^{⟨Ax,z⟩} dmu(z)
    Ref         furuya2025, equation (20).

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> mf.first_variation(G, mf.Discrete.uniform([[0.0], [1.0]]), [0.0], [3.0]).tolist()
    [2.5]
    """
    queries, times, single = queries_of(mu, x, t)
    point, since, _ = queries_of(mu, y, s)
    if len(point) != 1:
        raise ShapeError(
            got=f"{len(point)} points y", need="one point (d,)", do="Use a loop or jax.vmap over the points."
        )
    finite(queries, "x")
    finite(point, "y")
    for given in (times, since):
        G.check_meets(mu, given)
    refuse_input(G, mu, queries, times)
    if isinstance(mu, AbstractGaussianLike) and not isinstance(G, Attention):
        raise no_closed_form(G, mu, "first variation")
    rows, structure = jax.tree.flatten(mu)
    layout = rows_of(mu, rows)._replace(values=(0, 0), finite=())

    def refuse(dtype: Any, bad: Any) -> None:
        """A value that is not finite jumps."""

    fixed = edge.Layer((G, point, since))
    out, jump = edge.call(fixed, _program, (structure, rows), (queries, times), layout, refuse=refuse)
    if not is_traced(jump):
        _refuse_jump(G, point, float(np.asarray(jump)[0]))
    if not single:
        return out
    return out[0] if is_traced(out) else on_device(np.asarray(out)[0])


def _program(fixed: Any, mu: Any, x: Any, t: Any) -> tuple[Array, Array]:
    """The derivative, and how much an infinitely light atom at y changes the value, which should be nothing."""
    G, y, s = fixed
    if isinstance(G, Attention):
        return closed_form(G, mu, x, y), jnp.zeros(x.shape[0], x.dtype)
    value, derivative = by_a_light_atom(G, mu, x, t, y, s)
    before = G.evaluate(mu, x, t)
    jump = jnp.max(jnp.abs(value - before)) / jnp.maximum(jnp.max(jnp.abs(before)), 1)
    return derivative, jnp.broadcast_to(jump, x.shape[0])


def _refuse_jump(G: AbstractInContextMap, y: Any, jump: float) -> None:
    if not jump < 1e-3:
        raise DerivativeError(
            got=f"a value of {G} that jumps by {jump:.2g} (relative) as soon as there is mass at {np.asarray(y[0])}",
            need="a map that is continuous in mass there",
            do="Choose another point; hard attention has no derivative where a new atom would win.",
        )


def closed_form(G: Attention, mu: Any, x: Any, y: Any) -> Array:
    """Σ_h W_h e^{⟨A_h x, y⟩}/Z_h(x) (V_h y − Γ_h(mu, x))."""
    if isinstance(mu, AbstractGaussianLike):

        def tilted(A: Array) -> tuple[Array, Array]:
            return mu.tilt(x @ A.T)

        log_z, means = jax.vmap(tilted)(G.A)
        values = jnp.einsum("hmd,hed->hme", means, G.V)
    else:
        out = attend(*G.project(mu, x), mu.log_weights)
        log_z, values = out.log_normalizer, out.values
    density = jnp.exp(jnp.einsum("d,hde,me->hm", y[0], G.A, x) - log_z)
    return jnp.einsum("hoe,hm,hme->mo", G.W, density, (G.V @ y[0])[:, None] - values)


def by_a_light_atom(G: AbstractInContextMap, mu: Any, x: Any, t: Any, y: Any, s: Any) -> tuple[Array, Array]:
    """G(mu + e^l δ_y, x), and its derivative in ε = e^l, e^{−l} d/dl, at a log-mass l far below that of mu."""
    light = mu.log_mass - (300.0 if x.dtype == jnp.float64 else 60.0)
    rows = jnp.concatenate([jnp.zeros(1, int), jnp.arange(mu.n)])
    more = mu.rows(rows)
    more = more.with_points(more.points.at[0].set(y[0]))
    if s is not None:
        more = eqx.tree_at(lambda sigma: sigma.times, more, more.times.at[0].set(s[0]))

    def at(level: Array) -> Array:
        return G.evaluate(more.with_log_weights(more.log_weights.at[0].set(level)), x, t)

    value, slope = jax.jvp(at, (light,), (jnp.ones_like(light),))
    return value, slope * jnp.exp(-light)
