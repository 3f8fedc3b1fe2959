"""Velocities that are integrals over pairs: `Interaction` of a kernel, and the model of Cucker and Smale."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.attention.blocks import LOGITS, Keys, Queries, fold, over_blocks
from measureformer.errors import OptionError, ShapeError
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import at_own_atoms
from measureformer.maps.rows import all_rows
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import is_traced, scalar
from measureformer.numerics.checked import check_fields, checked
from measureformer.numerics.types import ArrayLike


class AbstractInteraction(AbstractInContextMap):
    """(mu, x) ↦ ∫ k(x, y) dmu(y) / |mu|, summed block by block: memory linear in the number of tokens.

    Under a causal mask the integral and the mass are those of the visible tokens.
    """

    @abc.abstractmethod
    def pair(self, x: Array, y: Array) -> Array:
        """k(x, y) for one query and one token, each (d,)."""

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        values = jax.eval_shape(self.pair, x[0], mu.points[0])
        if values.ndim != 1:
            raise ShapeError(
                got=f"a kernel k(x, y) of shape {values.shape} for points of shape ({mu.dim},)",
                need="a vector",
                do="The kernel takes two points (d,) and returns one vector; it is applied to all pairs.",
            )
        return _streamed(self.pair, mu, x, mu.visible(t), values.shape[0])


def _streamed(pair: Callable[[Array, Array], Array], mu: AbstractAtomic, x: Array, times: Any, size: int) -> Array:
    table = jax.vmap(jax.vmap(pair, (0, None)), (None, 0))  # keys in rows, queries in columns

    def sums(queries: Queries, blocks: Keys) -> Array:
        @jax.checkpoint
        def body(total: Array, keys: Keys, visible: Array | None) -> Array:
            mass = jnp.exp(keys.log_weights)[:, None, None]
            values = table(queries.q, keys.k)
            return total + jnp.sum(mass * (values if visible is None else jnp.where(visible[:, :, None], values, 0)), 0)

        return fold(body, jnp.zeros((queries.q.shape[0], size), x.dtype), queries, blocks)

    t, atom_times = (None, None) if times is None else times
    log_mass = mu.log_mass if t is None else mu.log_mass_until(t)[:, None]
    seen = log_mass > -jnp.inf
    side = max(16, int((LOGITS / 8 / max(size, mu.dim)) ** 0.5))
    block = min(side, x.shape[0]), min(side, mu.n)
    # massless tokens are evaluated at the place of one with mass: at their own the kernel may be infinite
    points = jnp.where((mu.log_weights > -jnp.inf)[:, None], mu.points, mu.points[jnp.argmax(mu.log_weights)])
    keys = Keys(points, None, mu.log_weights, atom_times)
    total = over_blocks(sums, Queries(x, t), keys, block)
    return jnp.where(seen, total * jnp.exp(-jnp.where(seen, log_mass, 0)), 0)


class Interaction(AbstractInteraction):
    """The velocity v[mu](x) = ∫ k(x, y) dmu(y) / |mu| of a kernel.

    Arguments:
        kernel: k, a JAX function of two points (d,) with values (d,); as an Equinox module it has trainable parameters.

    Statement   k(x, y) = y − x: v[mu](x) = mean of mu − x
    Cost        O(m n d) time, O(m + n) memory.
    Ref         furuya2025.

    >>> import measureformer as mf
    >>> v = mf.flows.Interaction(lambda x, y: y - x)
    >>> v(mf.Discrete.weighted([[0.0], [4.0]], [1.0, 3.0]), [1.0]).tolist()
    [2.0]
    """

    kernel: Callable[[Array, Array], Array]

    def __check_init__(self) -> None:
        check_fields(self)

    def pair(self, x: Array, y: Array) -> Array:
        return self.kernel(x, y)


class CuckerSmale(AbstractInteraction):
    """Alignment of velocities, on points (x, v) of R^{2d}: x' = v, v' = ∫ φ(|x − y|) (w − v) dmu(y, w) / |mu|.

    Arguments:
        kappa: strength of φ.
        sigma: length in φ, positive.
        beta: decay exponent of φ.

    Statement   φ(r) = kappa / (sigma² + r²)^beta. The mean velocity is conserved and the variance of velocities never
                grows; for beta ≤ 1/2 all velocities become equal, whatever the start.
    Ref         cucker2007.

    >>> import measureformer as mf
    >>> birds = mf.Discrete.uniform([[0.0, 1.0], [0.0, -1.0]])        # at 0, with velocities 1 and −1
    >>> mf.flows.CuckerSmale(kappa=2.0, sigma=1.0, beta=0.5).push(birds).points.tolist()
    [[1.0, -2.0], [-1.0, 2.0]]
    """

    kappa: Float[Array, ""]
    sigma: Float[Array, ""]
    beta: Float[Array, ""]

    @checked
    def __init__(self, kappa: ArrayLike, sigma: ArrayLike, beta: ArrayLike) -> None:
        self.kappa, self.sigma, self.beta = scalar(kappa, "kappa"), scalar(sigma, "sigma"), scalar(beta, "beta")
        if not is_traced(self.sigma) and float(self.sigma) <= 0:
            raise OptionError(
                got=f"sigma = {float(self.sigma):g}",
                need="sigma > 0",
                do="Without it the force between coincident tokens is infinite.",
            )

    def check_meets(self, mu: AbstractMeasure, t: ArrayLike | None) -> None:
        super().check_meets(mu, t)
        halves(mu.dim)

    def pair(self, x: Array, y: Array) -> Array:
        d = halves(x.shape[0])
        gap = y - x
        squared = self.sigma**2 + jnp.sum(gap[:d] ** 2)
        return jnp.concatenate([x[d:], self.kappa * squared**-self.beta * gap[d:]])


class SecondOrder(AbstractInContextMap):
    """A second-order transformer on points (x, v) of R^{2d}: x' = v, v' = G(positions, x) − friction · v.

    A force that reads velocities as well is an `Interaction` on R^{2d}, such as `CuckerSmale`.

    Arguments:
        G: the force, a map of R^d to itself; it reads the positions only.
        friction: coefficient of the damping term.

    Ref         furuya2025.

    >>> import measureformer as mf
    >>> spring = mf.flows.SecondOrder(mf.Linear([[-1.0]]), friction=0.5)
    >>> spring(mf.Discrete.dirac([0.0, 0.0]), [3.0, 2.0]).tolist()
    [2.0, -4.0]
    """

    force: AbstractInContextMap
    friction: Float[Array, ""]

    @checked
    def __init__(self, G: AbstractInContextMap, *, friction: ArrayLike = 0.0) -> None:
        self.force = G
        self.friction = scalar(friction, "friction")

    @property
    def in_dim(self) -> int | None:
        return None if self.force.in_dim is None else 2 * self.force.in_dim

    def out_dim(self, dim: int) -> int:
        return halves(dim) + self.force.out_dim(halves(dim))

    def check_meets(self, mu: AbstractMeasure, t: ArrayLike | None) -> None:
        super().check_meets(mu, t)
        halves(mu.dim)

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        d = halves(mu.dim)
        moved = mu.with_points(mu.points[:, :d])
        own = at_own_atoms(mu, x, t)
        return self._joined(x, self.force.evaluate(moved, moved.points if own else x[:, :d], t))

    def _joined(self, x: Array, force: Array) -> Array:
        velocity = x[:, x.shape[1] // 2 :]
        return jnp.concatenate([velocity, force - self.friction * velocity], axis=1)

    def __str__(self) -> str:
        return f"SecondOrder({self.force})"


def halves(dim: int) -> int:
    """d for points (x, v) of R^{2d}."""
    if dim % 2:
        raise ShapeError(
            got=f"points in R^{dim}",
            need="an even dimension: positions, then velocities",
            do="Stack them: numpy.concatenate([positions, velocities], axis=1).",
        )
    return dim // 2
