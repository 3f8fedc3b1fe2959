"""Sinkhorn's iteration in the log domain, knowing the kernel only through its two soft minima.

Given measures a, b and a kernel e^{c(x,y)}, there are potentials f, g such that e^{f(x)+c(x,y)+g(y)} a(dx) b(dy) has
marginals a and b. They are the fixed point of

    f = rows(g) = −log ∫ e^{c(·,y)+g(y)} b(dy),        g = cols(f) = −log ∫ e^{c(x,·)+f(x)} a(dx).

Whoever calls decides how the integrals are computed (streamed, dense), so memory stays linear if theirs is.
Derivatives are implicit: the fixed point is differentiated, not the iterations.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Softmin = Callable[[Array], Array]


class Potentials(eqx.Module):
    """Potentials with the evidence that they solve the problem: `residual` is the total marginal violation."""

    f: Float[Array, "*h n"]
    g: Float[Array, "*h m"]
    residual: Float[Array, "*h"]
    iterations: Float[Array, ""]


def sinkhorn_potentials(
    rows: Softmin,
    cols: Softmin,
    weights: Float[Array, "*h m"],
    *,
    tol: float,
    max_iterations: int | Array,
    start: Float[Array, "*h m"] | None = None,
) -> Potentials:
    """Solve g = cols(rows(g)) with ∫ g db = 0, from `start` or 0; `weights` are those of b, normalised, one per g.

    Statement   f, g exist and are unique up to a constant; the iteration converges geometrically (compact supports)
    Ref         peyre2019, Section 4.2.
    """

    def centred(g: Array) -> Array:
        # the fixed point is unique up to a constant; without this the linearised equation would be singular
        return g - jnp.sum(weights * g, axis=-1, keepdims=True)

    def defect(g: Array) -> Array:
        return g - centred(cols(rows(g)))

    start = jnp.zeros_like(weights) if start is None else start
    g, steps = _fixed_point(defect, start, weights, tol, max_iterations)
    f = rows(g)
    # rows are exact by construction; the other marginal has density e^{g − cols(f)}
    residual = jnp.sum(weights * jnp.abs(jnp.expm1(g - cols(f))), axis=-1)
    return Potentials(f, g, jax.lax.stop_gradient(residual), steps)


def symmetric_potentials(
    rows: Softmin, weights: Float[Array, "*h n"], *, tol: float, max_iterations: int
) -> Potentials:
    """Solve f = rows(f), the problem of a measure with itself, for a symmetric positive definite kernel.

    Alternating steps would be slow exactly when the plan is close to the identity. The mean of the two sides is not:
    the derivative of rows is −P, P a Markov operator with spectrum in [0, 1], so (f + rows(f))/2 gains a factor of at
    least 2 per step near the solution.

    Statement   f exists, is unique, and f ← (f + rows(f))/2 converges to it
    Ref         feydy2019, Section 3.1.
    """

    def defect(f: Array) -> Array:
        return (f - rows(f)) / 2

    f, steps = _fixed_point(defect, jnp.zeros_like(weights), weights, tol, max_iterations)
    residual = jnp.sum(weights * jnp.abs(jnp.expm1(f - rows(f))), axis=-1)
    return Potentials(f, f, jax.lax.stop_gradient(residual), steps)


Sweep = Callable[[Softmin, Softmin, Array, Array], tuple[Array, Array]]
DRIFT = 25.0
"""Change of g for which a stored kernel is good: what it has rounded to 0 stays below the precision."""


def stored_soft_minima(cost: Float[Array, "n m"], a: Array, b: Array, g: Array) -> tuple[Softmin, Softmin]:
    """rows and cols for the kernel e^{−cost}, as products with the stored matrix e^{f + g − cost} where f = rows(g).

    No exponential is taken of a pair of atoms any more. Good near g: entries that underflow are those without mass.
    """
    logits = g - cost
    top = jnp.max(jnp.where(b > 0, logits, -jnp.inf), axis=1)
    # atoms without mass may exceed the top
    kernel = jnp.exp(jnp.minimum(logits - top[:, None], DRIFT))
    least = float(jnp.finfo(cost.dtype).tiny)

    def rows(new: Array) -> Array:
        return -top - jnp.log(jnp.maximum(kernel @ (b * jnp.exp(jnp.clip(new - g, -2 * DRIFT, 2 * DRIFT))), least))

    def cols(f: Array) -> Array:
        return g - jnp.log(jnp.maximum((a * jnp.exp(jnp.clip(f + top, -2 * DRIFT, 2 * DRIFT))) @ kernel, least))

    return rows, cols


def swept(
    kernel: Callable[[Array], tuple[Softmin, Softmin]],
    sweep: Sweep,
    f: Array,
    g: Array,
    weights: Array,
    *,
    tol: float,
    limit: int,
) -> tuple[Array, Array, Array]:
    """Sweeps from f and g, at most `limit` of them, until g changes by at most `tol`; and their number.

    `kernel(g)` gives rows and cols that are good near g; it is asked again when g has drifted away.
    """

    def unfinished(state: tuple[Array, ...]) -> Array:
        return (state[2] > tol) & (state[3] < limit)

    def near(state: tuple[Array, ...]) -> tuple[Array, ...]:
        centre = state[1]
        rows, cols = kernel(centre)

        def advance(inner: tuple[Array, ...]) -> tuple[Array, ...]:
            f, g, _, step = inner
            new_f, new_g = sweep(rows, cols, f, g)
            return new_f, new_g, jnp.max(jnp.abs(new_g - g), where=weights > 0, initial=0), step + 1

        def good(inner: tuple[Array, ...]) -> Array:
            drift = jnp.max(jnp.abs(inner[1] - centre), where=weights > 0, initial=0)
            # NaN is no drift: a loop that never advances would never end
            return unfinished(inner) & ~(drift >= DRIFT)

        return jax.lax.while_loop(good, advance, state)

    infinite, none = jnp.asarray(jnp.inf, g.dtype), jnp.asarray(0, g.dtype)
    f, g, _, steps = jax.lax.while_loop(unfinished, near, (f, g, infinite, none))
    return f, g, steps


def _fixed_point(
    defect: Softmin, start: Array, weights: Array, tol: float, max_iterations: int | Array
) -> tuple[Array, Array]:
    """Where the defect vanishes, and the number of steps; differentiated as a root, not step by step."""

    def solve(defect: Softmin, start: Array) -> tuple[Array, Array]:
        # an atom without mass follows the others and must not decide when they are done
        return _iterate(defect, start, weights > 0, tol, max_iterations)

    def tangent_solve(linear: Softmin, right: Array) -> Array:
        def neumann(linear: Softmin, right: Array) -> Array:
            # the derivative of a step is made of Markov operators: its powers decay (off the constants, which `centred`
            # has taken away where they do not)
            return _iterate(lambda x: linear(x) - right, right, jnp.full(right.shape, True), tol, max_iterations)[0]

        return jax.lax.custom_linear_solve(linear, right, neumann, transpose_solve=neumann)

    return jax.lax.custom_root(defect, start, solve, tangent_solve, has_aux=True)


def _iterate(
    defect: Softmin, start: Array, counted: Array, tol: float, max_iterations: int | Array
) -> tuple[Array, Array]:
    """x ← x − defect(x) until the defect is below `tol` at all counted entries."""

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, size, step = state
        return (size > tol) & (step < max_iterations)

    def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, step = state
        change = defect(x)
        return x - change, jnp.max(jnp.abs(change), where=counted, initial=0), step + 1

    # the count is a float because `custom_root` cannot carry an integer next to a differentiable root
    infinite, none = jnp.asarray(jnp.inf, start.dtype), jnp.asarray(0, start.dtype)
    x, _, steps = jax.lax.while_loop(unfinished, advance, (start, infinite, none))
    return x, steps
