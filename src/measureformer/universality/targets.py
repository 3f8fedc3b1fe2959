"""Targets of approximation: continuous functions of a measure and a point, by formulas."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


class Functional(AbstractInContextMap):
    """The in-context map of a formula in JAX.

    Arguments:
        formula: function of points (n, d), probabilities (n,) and one query (d,), with values (e,) or a number.
        dim: dimension d of the tokens.
        out: dimension e of the values.

    >>> import jax.numpy as jnp, measureformer as mf
    >>> second_moment = Functional(lambda y, a, x: a @ y**2, dim=1, out=1)
    >>> second_moment(mf.Discrete.uniform([[0.0], [2.0]]), [5.0]).tolist()
    [2.0]
    """

    formula: Callable[[Array, Array, Array], Array]
    dim: int = eqx.field(static=True)
    out: int = eqx.field(static=True)

    def __init__(self, formula: Callable[[Array, Array, Array], Array], *, dim: int, out: int) -> None:
        self.formula, self.dim, self.out = formula, dim, out

    @property
    def in_dim(self) -> int:
        return self.dim

    def out_dim(self, dim: int) -> int:
        return self.out

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if not isinstance(mu, AbstractAtomic) or mu.visible(t) is not None:
            raise no_closed_form(self, mu)
        p = jnp.exp(mu.log_weights - mu.log_mass)

        def one(query: Array) -> Array:
            return jnp.reshape(self.formula(mu.points, p, query), (self.out,))

        return jax.vmap(one)(x)


class _SmoothQuantile(eqx.Module):
    level: Float[Array, ""]
    width: Float[Array, ""]

    def __call__(self, y: Array, p: Array, x: Array) -> Array:
        places = y[:, 0]

        def halve(ends: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            middle = (ends[0] + ends[1]) / 2
            below = p @ jax.nn.sigmoid((middle - places) / self.width) < self.level
            return (jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)), None

        # the root lies where a single atom would put it, at most
        shift = self.width * jnp.log(self.level / (1 - self.level))
        ends = jnp.min(places) + shift, jnp.max(places) + shift
        return jnp.mean(jnp.stack(jax.lax.scan(halve, ends, None, 50)[0]))


class _Softmin(eqx.Module):
    temperature: Float[Array, ""]

    def __call__(self, y: Array, p: Array, x: Array) -> Array:
        squares = jnp.sum((y - x) ** 2, axis=1)
        felt = p > 0
        logits = jnp.where(felt, jnp.log(jnp.where(felt, p, 1)) - squares / self.temperature, -jnp.inf)
        return -self.temperature * jax.nn.logsumexp(logits)


class _KernelRegression(eqx.Module):
    bandwidth: Float[Array, ""]

    def __call__(self, y: Array, p: Array, x: Array) -> Array:
        kernel = p * jnp.exp(-((y[:, 0] - x[0]) ** 2) / (2 * self.bandwidth**2))
        return kernel @ y[:, 1] / jnp.sum(kernel)


@checked
def mean(dim: int) -> Functional:
    """(mu, x) ↦ the mean of mu.

    Arguments:
        dim: dimension of the tokens.

    >>> import measureformer as mf
    >>> mf.universality.mean(1)(mf.Discrete.uniform([[0.0], [1.0]]), [7.0]).tolist()
    [0.5]
    """
    return Functional(_mean, dim=dim, out=dim)


@checked
def variance(dim: int) -> Functional:
    """(mu, x) ↦ ∫ |y − mean|² dmu/|mu|.

    Arguments:
        dim: dimension of the tokens.

    >>> import measureformer as mf
    >>> mf.universality.variance(1)(mf.Discrete.uniform([[0.0], [1.0]]), [7.0]).tolist()
    [0.25]
    """
    return Functional(_variance, dim=dim, out=1)


def smooth_quantile(level: ArrayLike, width: ArrayLike) -> Functional:
    """(mu, x) ↦ the q with ∫ sigmoid((q − y)/width) dmu/|mu| = level, on the line: a quantile without jumps.

    Arguments:
        level: of the quantile, in (0, 1).
        width: of the sigmoid, positive.

    >>> import measureformer as mf
    >>> smooth_quantile(0.5, 0.1)(mf.Discrete.uniform([[0.0], [1.0]]), [0.0]).round(9).tolist()
    [0.5]
    """
    return Functional(_SmoothQuantile(scalar(level, "level"), scalar(width, "width")), dim=1, out=1)


def distance_to_uniform() -> Functional:
    """(mu, x) ↦ W_1(mu/|mu|, uniform law on [0, 1]), on the line: Lipschitz in mu, and not differentiable.

    Statement   W_1 = ∫_0^1 |Q(t) − t| dt, where the quantile function Q is constant on an interval for each atom
    Ref         peyre2019.

    >>> import measureformer as mf
    >>> distance_to_uniform()(mf.Discrete.dirac([0.5]), [0.0]).tolist()
    [0.25]
    """
    return Functional(_distance_to_uniform, dim=1, out=1)


def softmin_distance(dim: int, temperature: ArrayLike) -> Functional:
    """(mu, x) ↦ −T log ∫ e^{−|x − y|²/T} dmu(y)/|mu|: a soft squared distance of x to the cloud.

    Arguments:
        dim: dimension of the tokens.
        temperature: T, positive.

    >>> import measureformer as mf
    >>> softmin_distance(1, 0.1)(mf.Discrete.dirac([2.0]), [0.0]).round(9).tolist()
    [4.0]
    """
    return Functional(_Softmin(scalar(temperature, "temperature")), dim=dim, out=1)


def kernel_regression(bandwidth: ArrayLike) -> Functional:
    """(mu, x) ↦ ∫ K(x₁ − y₁) y₂ dmu / ∫ K(x₁ − y₁) dmu on the plane: labels y₂ at places y₁, Gaussian kernel.

    Arguments:
        bandwidth: standard deviation of the kernel.

    >>> import measureformer as mf
    >>> G = kernel_regression(0.5)
    >>> G(mf.Discrete.uniform([[0.0, 1.0], [1.0, 3.0]]), [0.5, 0.0]).tolist()
    [2.0]
    """
    return Functional(_KernelRegression(scalar(bandwidth, "bandwidth")), dim=2, out=1)


def _mean(y: Array, p: Array, x: Array) -> Array:
    return p @ y


def _variance(y: Array, p: Array, x: Array) -> Array:
    return p @ jnp.sum((y - p @ y) ** 2, axis=1)


def _distance_to_uniform(y: Array, p: Array, x: Array) -> Array:
    order = jnp.argsort(y[:, 0])
    places, masses = y[order, 0], p[order]
    end = jnp.cumsum(masses)
    start = end - masses

    def antiderivative(t: Array) -> Array:
        return (t - places) * jnp.abs(t - places) / 2

    return jnp.sum(antiderivative(end) - antiderivative(start))
