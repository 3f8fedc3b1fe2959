"""`sinkhorn`: entropic transport, and its debiased divergence."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from measureformer.attention import attend
from measureformer.errors import NoClosedFormError, NotFiniteError, OptionError
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics import edge
from measureformer.numerics.arrays import cast, common_dtype, floats, host, is_traced, namespace, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.sinkhorn import (
    Softmin,
    sinkhorn_potentials,
    stored_soft_minima,
    swept,
    symmetric_potentials,
)
from measureformer.numerics.types import Count, Number
from measureformer.transport.intake import compared

STORED = 1 << 23
"""Pairs of atoms up to which the kernel is stored while the iteration looks for its limit: 64 MB."""


class SelfTransport(eqx.Module):
    """Entropic transport of mu to itself and of nu to itself, with the evidence that both problems are solved."""

    costs: Float[Array, 2]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Float[Array, ""]


class Entropic(eqx.Module):
    """Entropic transport between mu and nu, and on demand between each and itself.

    `cost` is min ∫|x−y|² dπ + eps KL(π | mu⊗nu) over couplings of the normalised measures; `divergence` is
    cost(mu,nu) − cost(mu,mu)/2 − cost(nu,nu)/2 ≥ 0, zero only for mu = nu. Both are multiplied by the common mass.
    `potentials` = (f, g): π has density exp((f + g − |x−y|²)/eps). `residual` is the violation of the marginals,
    `converged` says whether it is below the tolerance.

    `divergence` solves two more problems on first access; `own` says whether they converged.
    """

    cost: Float[Array, ""]
    potentials: tuple[Float[Array, " n"], Float[Array, " m"]]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Float[Array, ""]
    problem: tuple[AbstractAtomic, AbstractAtomic, Float[Array, ""]]
    """mu, nu and eps."""
    tol: float = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    @cached_property
    def own(self) -> SelfTransport:
        """Transport of mu and of nu to itself, computed on first access."""
        return _run(_own, *self.problem, self.tol, self.max_iterations)

    @property
    def divergence(self) -> Float[Array, ""]:
        """Zero only for equal measures."""
        costs = host(self.own.costs)
        # the theorem says ≥ 0, and rounding must not contradict it
        return on_device(namespace(costs, self.cost).maximum(host(self.cost) - (costs[0] + costs[1]) / 2, 0))


@checked
def sinkhorn(
    mu: AbstractMeasure, nu: AbstractMeasure, *, eps: Number, tol: float = 1e-9, max_iterations: Count = 10_000
) -> Entropic:
    """Entropic transport for the cost |x−y|², by Sinkhorn's iteration in the log domain.

    Beyond 8 million pairs of atoms the kernel is streamed, and memory linear. If eps is small compared with the gaps
    between atoms, the plan is nearly a permutation and the iteration slow: check `converged`. Derivatives are implicit.

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
    tol, max_iterations = float(tol), int(max_iterations)
    traced = is_traced(mu, nu, level)
    level = cast(level, common_dtype(mu, nu)) if traced else on_device(np.asarray(level, common_dtype(mu, nu)))
    cost, (f, g), *evidence = _run(_solution, mu, nu, level, tol, max_iterations)
    if not traced and not np.isfinite(host(cost)):
        raise NotFiniteError(
            got=f"eps = {float(level):g}, at which the potentials overflow",
            need="squared distances that are finite, also when they are divided by eps",
            do="Choose a larger eps, or scale the points.",
        )
    if not traced:
        f, g = on_device(np.asarray(f)[: mu.n]), on_device(np.asarray(g)[: nu.n])
    residual, converged, iterations = evidence
    return Entropic(cost, (f, g), residual, converged, iterations, (mu, nu, level), tol, max_iterations)


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


def _run(program: Any, mu: AbstractAtomic, nu: AbstractAtomic, eps: Any, tol: float, max_iterations: int) -> Any:
    rows, structure = jax.tree.flatten((mu, nu))
    masses = tuple(i for i, row in enumerate(rows) if row is mu.log_weights or row is nu.log_weights)
    layout = edge.Layout((0,) * len(rows), masses, ())
    return edge.run(edge.Layer((tol, max_iterations)), program, (structure, rows), (eps,), layout)


def _solution(settings: Any, pair: Any, eps: Array) -> tuple[Any, ...]:
    (tol, max_iterations), (mu, nu) = settings, pair
    tol, (x, log_a), (y, log_b) = _prepared(mu, nu, eps, tol)
    fixed = jax.lax.stop_gradient((x, log_a, y, log_b, eps))
    start, steps = jax.lax.stop_gradient(_start(*fixed, tol, max_iterations))
    rows, cols = _soft_minima(x, log_a, y, log_b, eps)
    solved = sinkhorn_potentials(
        rows, cols, jnp.exp(log_b), start=start, tol=tol, max_iterations=jnp.maximum(max_iterations - steps, 0)
    )
    cost = eps * jnp.exp(mu.log_mass) * (jnp.exp(log_a) @ solved.f + jnp.exp(log_b) @ solved.g)
    potentials = eps * solved.f, eps * solved.g
    return cost, potentials, solved.residual, solved.residual <= 2 * tol, steps + solved.iterations


def _own(settings: Any, pair: Any, eps: Array) -> SelfTransport:
    (tol, max_iterations), (mu, nu) = settings, pair
    tol, *clouds = _prepared(mu, nu, eps, tol)
    found = [
        symmetric_potentials(
            _soft_minima(x, log_a, x, log_a, eps)[0], jnp.exp(log_a), tol=tol, max_iterations=max_iterations
        )
        for x, log_a in clouds
    ]
    costs = [2 * jnp.exp(log_a) @ solved.f for (_, log_a), solved in zip(clouds, found, strict=True)]
    residual = jnp.max(jnp.stack([solved.residual for solved in found]))
    iterations = jnp.max(jnp.stack([solved.iterations for solved in found]))
    return SelfTransport(eps * jnp.exp(mu.log_mass) * jnp.stack(costs), residual, residual <= 2 * tol, iterations)


def _prepared(mu: AbstractAtomic, nu: AbstractAtomic, eps: Array, tol: float) -> tuple[Any, ...]:
    # costs do not change if both measures are moved; near the origin inner products lose the fewest digits
    center = jax.lax.stop_gradient(mu.points[0])
    # float32 cannot see potentials more finely than this
    tol = max(tol, 30 * float(jnp.finfo(eps.dtype).eps))
    return tol, *((m.points - center, m.log_weights - m.log_mass) for m in (mu, nu))


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


def _start(
    x: Array, log_a: Array, y: Array, log_b: Array, eps: Array, tol: float, max_iterations: int
) -> tuple[Array, Array]:
    """A start for g, and the number of steps at eps that it took.

    Steps at regularisations from the squared diameter down to eps, since iterations from 0 crawl where the plan is
    close to a permutation. They and the first ones at eps treat both sides alike: for mu = nu they keep f = g and
    converge as fast as those of `symmetric_potentials`. While
    the kernel fits into the memory, the rest of the iteration follows.
    """
    a, b = jnp.exp(log_a), jnp.exp(log_b)
    stored = x.shape[0] * y.shape[0] <= STORED
    cost = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1) - 2 * x @ y.T if stored else jnp.zeros((0, 0))

    def kernel(g: Array, level: Array) -> tuple[Softmin, Softmin]:
        if stored:
            return stored_soft_minima(cost / level, a, b, g)
        return _soft_minima(x, log_a, y, log_b, level)

    def alike(rows: Softmin, cols: Softmin, f: Array, g: Array) -> tuple[Array, Array]:
        return (f + rows(g)) / 2, (g + cols(f)) / 2

    def in_turn(rows: Softmin, cols: Softmin, f: Array, g: Array) -> tuple[Array, Array]:
        f = rows(g)
        return f, cols(f)

    def cool(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        f, g, level = state
        f, g, _ = swept(partial(kernel, level=level), alike, f / level, g / level, b, tol=tol, limit=8)
        return level * f, level * g, level / 4

    width = 4 * jnp.maximum(jnp.max(jnp.sum(x * x, axis=1)), jnp.max(jnp.sum(y * y, axis=1)))
    # at a quarter of the diameter the kernel is still nearly flat
    start = jnp.zeros_like(log_a), jnp.zeros_like(log_b), jnp.maximum(width / 4, eps)
    # a quarter of infinity is infinity: without the second condition the loop would not end
    f, g, _ = jax.lax.while_loop(lambda state: (state[2] > eps) & (state[2] < jnp.inf), cool, start)
    f, g, _ = swept(partial(kernel, level=eps), alike, f / eps, g / eps, b, tol=tol, limit=100 if stored else 40)
    if not stored:
        return g, jnp.zeros((), g.dtype)
    _, g, steps = swept(partial(kernel, level=eps), in_turn, f, g, b, tol=tol, limit=max_iterations)
    return g, steps
