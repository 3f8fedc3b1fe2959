"""From N tokens to their law: how fast a quantity converges, and how fast tokens become independent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, NoClosedFormError, OptionError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import at_once, default_float, finite, floats, positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.random import two_keys
from measureformer.numerics.types import ArrayLike, Key

ATOMS_AT_ONCE = 1 << 15
"""Samples run side by side up to this many atoms in total."""
LARGER = 64
"""Without a closed form, a sample this many times larger than the largest one stands for the law."""


class Law(Protocol):
    """A measure, or anything else that can be sampled."""

    def sample(self, key: Key, n: int) -> AbstractMeasure:
        """n independent draws as an empirical measure."""
        ...


class MeanField(eqx.Module):
    """Errors against the number of tokens; see `mean_field_rate`."""

    sizes: tuple[int, ...]
    errors: Float[np.ndarray, " k"]
    """Root mean square error over the repetitions, for each size."""
    interval: Float[np.ndarray, "k 2"]
    """Ends of the confidence interval of each error."""
    order: float
    """Slope of the fitted line of log error against log size: −1/2 is the rate of Monte Carlo."""
    order_interval: tuple[float, float]
    """Confidence interval of the order, assuming that the errors lie on a line."""
    samples: Float[np.ndarray, "k r"]
    """The error in each repetition."""
    reference: str
    """What the errors were measured against."""


@checked
def mean_field_rate(
    f: Callable[[AbstractMeasure], ArrayLike],
    law: Law,
    key: Key,
    *,
    sizes: Sequence[int] = (64, 256, 1024),
    repetitions: int = 64,
    exact: ArrayLike | None = None,
) -> MeanField:
    """How fast f(mu_N) approaches f(law), where mu_N are N independent tokens drawn from the law.

    Examples of f: `lambda mu: G(mu, x)` for a layer, `lambda mu: traj.map(t)(mu, x)` for a flow, and
    `lambda mu: mf.wasserstein(traj.map(t).push(mu), limit, 1)` with exact=0 for a distance. Confidence intervals are at
    95 %, by the delta method. Each size runs in one program, compiled once for the same f.

    Arguments:
        f: a JAX function of a measure; its value is a number or an array.
        law: the law of the tokens: a measure, or an object with `sample(key, n)`.
        key: key of the samples.
        sizes: increasing values of N, at least two.
        repetitions: independent samples of each size, at least two.
        exact: f(law); by default its closed form, or else its value on a sample 64 times as large as the largest.

    Statement   √N (f(mu_N) − f(law)) is asymptotically normal if f has a first variation in L²(law), in any dimension;
                E W_1(mu_N, law) is of order N^{-1/d} in dimension d ≥ 3
    Ref         vandervaart1998, Theorem 3.1; fournier2015, Theorem 1.

    >>> import jax, measureformer as mf
    >>> law = mf.Gaussian([0.0], [[1.0]])
    >>> study = mf.mean_field.mean_field_rate(lambda mu: mu.mean(), law, jax.random.key(0), exact=[0.0])
    >>> low, high = study.order_interval
    >>> low < -0.5 < high, abs(float(study.errors[0]) * 8 - 1) < 0.4                        # the error is 1/√N
    (True, True)
    """
    sizes, repetitions = _checked(law, sizes, repetitions)
    keys = two_keys(prng_key(key))
    value, reference = _reference(f, law, keys[0], sizes, exact)
    samples = np.stack([_batched(_ErrorOf(f, value), law, keys[1], n, repetitions) for n in sizes])
    finite(samples, "f(mu)")
    squares = samples**2
    means = squares.mean(axis=1)
    if not (means > 0).all():
        raise OptionError(
            got=f"an error of zero at {sizes[int((means == 0).argmax())]} tokens",
            need="errors that have a logarithm",
            do="f does not depend on the sample, or `exact` was computed from it.",
        )
    # of the logarithm of the root: half of that of the mean square
    spread = squares.std(axis=1, ddof=1) / math.sqrt(repetitions) / (2 * means)
    errors = np.sqrt(means)
    order, half = _line(sizes, errors, spread)
    ends = errors[:, None] * np.exp(_quantile() * spread[:, None] * np.array([-1, 1]))
    return MeanField(sizes, errors, ends, order, (order - half, order + half), samples, reference)


class PairCovariance(eqx.Module):
    """Covariance of two tokens against their number; see `pair_covariance`."""

    sizes: tuple[int, ...]
    covariances: Float[np.ndarray, " k"]
    standard_errors: Float[np.ndarray, " k"]
    order: float
    """Slope of log |covariance| against log size: −1 where chaos propagates."""
    order_interval: tuple[float, float]


@checked
def pair_covariance(
    T: AbstractInContextMap,
    psi: Callable[[Array], Array],
    law: Law,
    key: Key,
    *,
    sizes: Sequence[int] = (8, 16, 32, 64),
    repetitions: int = 2000,
) -> PairCovariance:
    """Cov(ψ(X_1), ψ(X_2)) for two of N tokens that start independent and are then pushed by T, against N.

    Propagation of chaos means that the joint law of two tokens tends to the product of their laws. The estimator is
    unbiased and averages over all pairs of tokens of a repetition; confidence intervals are at 95 %.

    Arguments:
        T: an in-context map, such as the flow map `traj.map(t)`.
        psi: a JAX function of points (n, d), with values (n,).
        law: the initial law of each token: a measure, or an object with `sample(key, n)`.
        key: key of the samples.
        sizes: increasing values of N, at least two, each at least 2.
        repetitions: independent samples of each size, at least two.

    Statement   Cov(ψ(X_1), ψ(X_2)) = O(1/N) for a flow with a smooth velocity
    Ref         sznitman1991, Chapter I.

    >>> import jax, measureformer as mf
    >>> law, pull = mf.Gaussian([0.0], [[1.0]]), mf.flows.Interaction(lambda x, y: y)     # v[mu](x) = mean of mu
    >>> found = mf.mean_field.pair_covariance(mf.Residual(pull), lambda x: x[:, 0], law, jax.random.key(0))
    >>> bool(abs(found.covariances[0] - 3 / 8) < 5 * found.standard_errors[0])            # (2² − 1)/N
    True
    """
    sizes, repetitions = _checked(law, sizes, repetitions)
    if sizes[0] < 2:
        raise OptionError(got="sizes with 1", need="at least two tokens", do="Two tokens make a pair.")
    stream = two_keys(prng_key(key))[1]
    found = [_pairs(T, psi, law, stream, n, repetitions) for n in sizes]
    covariances, errors = (np.array(column) for column in zip(*found, strict=True))
    order, half = _line(sizes, np.abs(covariances), errors / np.abs(covariances))
    return PairCovariance(sizes, covariances, errors, order, (order - half, order + half))


class _Moments(eqx.Module):
    """Mean and variance of ψ over the tokens, after T."""

    T: AbstractInContextMap
    psi: Callable[[Array], Array]

    def __call__(self, mu: Any) -> Array:
        values = self.psi(self.T.push(mu).points)
        if jnp.shape(values) != (mu.n,):
            raise ShapeError(
                got=f"psi(x) of shape {jnp.shape(values)} for {mu.n} points",
                need=f"({mu.n},)",
                do="psi takes an (n, d) array of points and returns one number for each.",
            )
        return jnp.stack([jnp.mean(values), jnp.var(values)])


def _pairs(
    T: AbstractInContextMap, psi: Callable[[Array], Array], law: Law, key: Key, n: int, repetitions: int
) -> tuple[float, float]:
    """The covariance and its standard error."""
    found = _batched(_Moments(T, psi), law, key, n, repetitions)
    finite(found, "psi(x)")
    means, variances = found[:, 0] - found[:, 0].mean(), found[:, 1]
    # means of ψ_i ψ_j over pairs i ≠ j in one repetition, with centred ψ; the last term removes the bias of centring
    pairs = means**2 - variances / (n - 1)
    covariance = pairs.mean() + (means**2).mean() / (repetitions - 1)
    return float(covariance), float(pairs.std(ddof=1) / math.sqrt(repetitions))


def _checked(law: Law, sizes: Sequence[int], repetitions: int) -> tuple[tuple[int, ...], int]:
    if not hasattr(law, "sample"):
        raise DtypeError(
            got=f"a law of type {type(law).__name__}",
            need="a measure, or an object with sample(key, n)",
            do="Pass mf.Gaussian(mean, cov), a mixture, or a large mf.Discrete.",
        )
    counts = tuple(positive_int(n, "sizes") for n in sizes)
    if len(counts) < 2 or (np.diff(counts) <= 0).any():
        raise OptionError(got=f"sizes = {counts}", need="at least two, increasing", do="Pass sizes=(64, 256, 1024).")
    if positive_int(repetitions, "repetitions") < 2:
        raise OptionError(
            got="one repetition", need="at least two: one has no spread", do="Leave it out for the default."
        )
    return counts, repetitions


def _reference(
    f: Callable[[Any], ArrayLike], law: Law, key: Key, sizes: tuple[int, ...], exact: ArrayLike | None
) -> tuple[np.ndarray, str]:
    if exact is not None:
        value, source = floats(exact, "exact"), "given value"
    else:
        try:
            value, source = floats(f(law), "f(law)"), "closed form"
        except NoClosedFormError:
            n = LARGER * sizes[-1]
            value, source = floats(f(law.sample(key, n)), "f(mu)"), f"sample of {n} tokens"
    finite(value, "exact" if exact is not None else "f(law)")
    return np.asarray(value), source


class _ErrorOf(eqx.Module):
    """|f(mu) − value|. A module, so that the same f is compiled only once."""

    f: Callable[[Any], ArrayLike]
    value: np.ndarray

    def __call__(self, mu: Any) -> Array:
        found = jnp.asarray(self.f(mu))
        if jnp.shape(found) != self.value.shape:
            raise ShapeError(
                got=f"f(mu) of shape {jnp.shape(found)} and a reference of shape {self.value.shape}",
                need="one shape",
                do="`exact` is what f gives on the law itself.",
            )
        return jnp.sqrt(jnp.sum((found - self.value.astype(found.dtype)) ** 2))


def _batched(statistic: Callable[[Any], Array], law: Law, key: Key, n: int, repetitions: int) -> np.ndarray:
    """A statistic of samples of n tokens, for all repetitions: one compiled program, in batches of bounded size."""
    # one key per size, so that errors of different sizes are independent
    keys = at_once(lambda: jax.random.split(jax.random.fold_in(key, n), repetitions))
    batch = max(1, min(repetitions, ATOMS_AT_ONCE // n))
    return np.asarray(at_once(_program, statistic, law, keys, n, batch), default_float())


@eqx.filter_jit
def _program(statistic: Callable[[Any], Array], law: Law, keys: Array, n: int, batch: int) -> Array:
    return jax.lax.map(lambda key: statistic(law.sample(key, n)), keys, batch_size=batch)


def _line(sizes: tuple[int, ...], values: np.ndarray, spread: np.ndarray) -> tuple[float, float]:
    """Slope of log values against log sizes, weighted by inverse variances, and the half-width of its interval."""
    x, y = np.log(sizes), np.log(values)
    # a spread near zero must not outweigh all other values
    w = 1 / np.maximum(spread, 1e-12) ** 2
    x = x - (w @ x) / w.sum()
    strength = w @ x**2
    return float((w * x) @ y / strength), float(_quantile() / math.sqrt(strength))


def _quantile() -> float:
    from scipy.special import ndtri

    return float(ndtri(0.975))
