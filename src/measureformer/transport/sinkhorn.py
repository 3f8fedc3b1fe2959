"""`sinkhorn`: entropic transport in linear memory, and its debiased divergence."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from measureformer.attention import attend
from measureformer.errors import NoClosedFormError, OptionError
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import cast, common_dtype, floats, is_traced, on_device
from measureformer.numerics.buckets import bucket
from measureformer.numerics.sinkhorn import Softmin, sinkhorn_potentials, symmetric_potentials
from measureformer.numerics.types import ArrayLike
from measureformer.transport.intake import compared


class Entropic(eqx.Module):
    """Entropic transport between mu and nu, and between each and itself.

    `cost` is min ∫|x−y|² dπ + eps KL(π | mu⊗nu) over couplings of the normalised measures; `divergence` is
    cost(mu,nu) − cost(mu,mu)/2 − cost(nu,nu)/2 ≥ 0, zero only for mu = nu. Both are multiplied by the common mass.
    `potentials` = (f, g) are those of the first problem: π has density exp((f + g − |x−y|²)/eps). `residual` is the
    largest of the marginal violations of the three problems, `converged` says whether it is below the tolerance.
    """

    cost: Float[Array, ""]
    divergence: Float[Array, ""]
    potentials: tuple[Float[Array, " n"], Float[Array, " m"]]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Float[Array, ""]


def sinkhorn(
    mu: AbstractMeasure, nu: AbstractMeasure, *, eps: ArrayLike, tol: float = 1e-9, max_iterations: int = 10_000
) -> Entropic:
    """Entropic transport for the cost |x−y|², by Sinkhorn's iteration in the log domain.

    The kernel is streamed and never stored, so memory is linear. If eps is small compared with the gaps between atoms,
    the plan is nearly a permutation and the iteration slow: check `converged`. Derivatives are implicit.

    Arguments:
        mu: first measure, with atoms.
        nu: second measure, with atoms and of the same mass.
        eps: regularisation > 0, in units of |x−y|²; may be traced.
        tol: the iteration ends when the potentials change by at most tol · eps.
        max_iterations: the iteration ends after this many steps in any case.

    Statement   the divergence is ≥ 0, convex in each measure, 0 only at mu = nu, and → W_2² as eps → 0
    Hypotheses  checked: equal masses, eps > 0.
    Ref         feydy2019, Theorem 1.

    >>> import measureformer as mf
    >>> mu, nu = mf.Discrete.uniform([[0.0], [1.0]]), mf.Discrete.uniform([[2.0], [3.0]])
    >>> out = mf.sinkhorn(mu, nu, eps=0.5)
    >>> bool(out.converged), round(float(out.divergence), 6)
    (True, 4.0)
    """
    mu, nu, *_ = compared(mu, nu)
    if not isinstance(mu, AbstractAtomic) or not isinstance(nu, AbstractAtomic):
        raise NoClosedFormError(got="two Gaussians", need="atoms", do="Take mu.discretize(n) first.")
    level = _checked(eps, tol, max_iterations)
    settings = float(tol), int(max_iterations)
    if is_traced(mu, nu, level):
        return _compiled(mu, nu, cast(level, common_dtype(mu, nu)), *settings)
    n, m = mu.n, nu.n
    # one size for both: the three problems share their shapes
    size = bucket(max(n, m))
    level = on_device(np.asarray(level, common_dtype(mu, nu)))
    out = jax.tree.map(np.asarray, _compiled(mu.padded(size), nu.padded(size), level, *settings))
    cut = out.potentials[0][:n], out.potentials[1][:m]
    return jax.tree.map(on_device, eqx.tree_at(lambda out: out.potentials, out, cut))


def _checked(eps: Any, tol: float, max_iterations: int) -> Any:
    eps = floats(eps, "eps")
    if eps.ndim != 0 or (not is_traced(eps) and not 0 < float(eps) < np.inf):
        raise OptionError(
            got=f"eps = {str(eps)[:40]}", need="one positive number", do="Try 0.01 times the squared diameter."
        )
    if not tol > 0 or max_iterations < 1:
        raise OptionError(
            got=f"tol = {tol!r}, max_iterations = {max_iterations!r}",
            need="a positive tolerance and at least one iteration",
            do="Leave them out for 1e-9 and 10000.",
        )
    return eps


@eqx.filter_jit
def _compiled(mu: AbstractAtomic, nu: AbstractAtomic, eps: Array, tol: float, max_iterations: int) -> Entropic:
    # float32 cannot see potentials more finely than this
    tol = max(tol, 30 * float(jnp.finfo(eps.dtype).eps))
    # costs do not change if both measures are moved; near the origin inner products lose the fewest digits
    center = jax.lax.stop_gradient(mu.points[0])
    (x, log_a), (y, log_b) = ((m.points - center, m.log_weights - m.log_mass) for m in (mu, nu))
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    rows, cols = _soft_minima(x, log_a, y, log_b, eps)
    start = jax.lax.stop_gradient(_cooled(*jax.lax.stop_gradient((x, log_a, y, log_b, eps))))
    both = sinkhorn_potentials(rows, cols, b, start=start, tol=tol, max_iterations=max_iterations)
    own_mu = symmetric_potentials(_soft_minima(x, log_a, x, log_a, eps)[0], a, tol=tol, max_iterations=max_iterations)
    own_nu = symmetric_potentials(_soft_minima(y, log_b, y, log_b, eps)[0], b, tol=tol, max_iterations=max_iterations)
    found = (both, own_mu, own_nu)
    residual = jnp.max(jnp.stack([solved.residual for solved in found]))
    cost, mass = a @ both.f + b @ both.g, eps * jnp.exp(mu.log_mass)
    # the theorem says ≥ 0, and rounding must not contradict it
    divergence = jnp.maximum(cost - a @ own_mu.f - b @ own_nu.f, 0)
    return Entropic(
        mass * cost,
        mass * divergence,
        (eps * both.f, eps * both.g),
        residual,
        residual <= 2 * tol,
        jnp.max(jnp.stack([solved.iterations for solved in found])),
    )


def _soft_minima(x: Array, log_a: Array, y: Array, log_b: Array, eps: Array) -> tuple[Softmin, Softmin]:
    """The two half-steps for the kernel exp(−|x−y|²/eps), streamed by the attention engine."""
    nothing_x, nothing_y = (jnp.zeros((points.shape[0], 0), points.dtype) for points in (x, y))
    square_x, square_y = jnp.sum(x * x, axis=1) / eps, jnp.sum(y * y, axis=1) / eps
    queries = 2 * x / eps

    def rows(g: Array) -> Array:
        return square_x - attend(queries, y, nothing_y, log_b + g - square_y).log_normalizer

    def cols(f: Array) -> Array:
        return square_y - attend(y, queries, nothing_x, log_a + f - square_x).log_normalizer

    return rows, cols


def _cooled(x: Array, log_a: Array, y: Array, log_b: Array, eps: Array) -> Array:
    """A start for g, by one step at each of many regularisations from the squared diameter down to eps, then 40 at eps.

    Where the plan is close to a permutation, iterations from 0 crawl. These steps treat both sides alike: for mu = nu
    they keep f = g and converge as fast as those of `symmetric_potentials`.
    """

    def cool(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        f, g, level = state
        warm = jnp.maximum(level, eps)
        rows, cols = _soft_minima(x, log_a, y, log_b, warm)
        return (f + warm * rows(g / warm)) / 2, (g + warm * cols(f / warm)) / 2, 0.8 * level

    width = 4 * jnp.maximum(jnp.max(jnp.sum(x * x, axis=1)), jnp.max(jnp.sum(y * y, axis=1)))
    start = jnp.zeros_like(log_a), jnp.zeros_like(log_b), jnp.maximum(width, eps)
    _, g, _ = jax.lax.while_loop(lambda state: state[2] > 0.8**40 * eps, cool, start)
    return g / eps
