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
from measureformer.measures import AbstractAtomic, AbstractMeasure
from measureformer.numerics.arrays import cast, common_dtype, floats, is_traced, on_device
from measureformer.numerics.buckets import bucket
from measureformer.numerics.sinkhorn import Potentials, sinkhorn_potentials, symmetric_potentials
from measureformer.transport._wasserstein import compared


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
    mu: AbstractMeasure, nu: AbstractMeasure, *, eps: Any, tol: float = 1e-9, max_iterations: int = 10_000
) -> Entropic:
    """Entropic transport for the cost |x−y|², by Sinkhorn's iteration in the log domain.

    The kernel is streamed and never stored, so memory is linear. `tol` is the last change of the potentials in units
    of `eps`; the number of iterations grows like (diameter)²/eps. Derivatives are those of the fixed point.

    Statement   the divergence is ≥ 0, convex in each measure, 0 only at mu = nu, and → W_2² as eps → 0
    Hypotheses  checked: equal masses, eps > 0.
    Ref         feydy2019, Theorem 1.

    >>> import measureformer as mf
    >>> mu, nu = mf.Discrete.uniform([[0.0], [1.0]]), mf.Discrete.uniform([[2.0], [3.0]])
    >>> out = mf.sinkhorn(mu, nu, eps=0.1)
    >>> bool(out.converged), round(float(out.divergence), 6)
    (True, 4.0)
    """
    mu, nu = compared(mu, nu)
    if not isinstance(mu, AbstractAtomic) or not isinstance(nu, AbstractAtomic):
        raise NoClosedFormError(got="two Gaussians", need="atoms", do="Take mu.discretize(n) first.")
    eps = _checked(eps, tol, max_iterations)
    settings = float(tol), int(max_iterations)
    if is_traced(mu, nu, eps):
        return _compiled(mu, nu, cast(eps, common_dtype(mu, nu)), *settings)
    n, m = mu.n, nu.n
    # one size for both: the three problems share their shapes
    size = bucket(max(n, m))
    eps = on_device(np.asarray(eps, common_dtype(mu, nu)))
    out = jax.tree.map(np.asarray, _compiled(mu.padded(size), nu.padded(size), eps, *settings))
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
    own_mu, own_nu = (_solve(measure, measure, eps, tol, max_iterations) for measure in (mu, nu))
    # the potential of nu with itself: exact if mu = nu, where iterations from 0 would crawl
    both = _solve(mu, nu, eps, tol, max_iterations, own_nu[1].g)
    costs, found = zip(both, own_mu, own_nu, strict=True)
    mass = jnp.exp(mu.log_mass)
    residual = jnp.max(jnp.stack([solved.residual for solved in found]))
    # the theorem says ≥ 0, and rounding must not contradict it
    divergence = jnp.maximum(costs[0] - (costs[1] + costs[2]) / 2, 0)
    return Entropic(
        mass * costs[0],
        mass * divergence,
        (eps * found[0].f, eps * found[0].g),
        residual,
        residual <= 2 * tol,
        jnp.max(jnp.stack([solved.iterations for solved in found])),
    )


def _solve(
    mu: AbstractAtomic, nu: AbstractAtomic, eps: Array, tol: float, max_iterations: int, start: Array | None = None
) -> tuple[Array, Potentials]:
    """The cost and its potentials; without a start the two measures are one and the same."""
    # the cost does not change if both measures are moved; near the origin the inner products lose the fewest digits
    center = jax.lax.stop_gradient(mu.points[0])
    x, y = mu.points - center, nu.points - center
    nothing_x, nothing_y = (jnp.zeros((points.shape[0], 0), points.dtype) for points in (x, y))
    log_a, log_b = mu.log_weights - mu.log_mass, nu.log_weights - nu.log_mass
    square_x, square_y = jnp.sum(x * x, axis=1) / eps, jnp.sum(y * y, axis=1) / eps
    queries = 2 * x / eps

    def rows(g: Array) -> Array:
        return square_x - attend(queries, y, nothing_y, log_b + g - square_y).log_normalizer

    def cols(f: Array) -> Array:
        return square_y - attend(y, queries, nothing_x, log_a + f - square_x).log_normalizer

    b = jnp.exp(log_b)
    if start is None:
        found = symmetric_potentials(rows, b, tol=tol, max_iterations=max_iterations)
    else:
        start = jax.lax.stop_gradient(start)
        found = sinkhorn_potentials(rows, cols, b, tol=tol, max_iterations=max_iterations, start=start)
    return eps * (jnp.exp(log_a) @ found.f + b @ found.g), found
