"""`GaussianMixture`: a weighted sum of Gaussians."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError, ShapeError, ZeroMassError
from measureformer.measures.atomic import concrete, host, meet
from measureformer.measures.discrete import Discrete, checked_log_weights, checked_points, joined
from measureformer.measures.gaussian import AbstractGaussianLike, Gaussian, affine_images, checked_covariances
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    floats,
    is_traced,
    namespace,
    on_device,
    owned,
    positive_int,
    shaped,
)
from measureformer.numerics.random import normal, two_keys
from measureformer.numerics.roots import psd_root
from measureformer.numerics.types import ArrayLike, Key


class GaussianMixture(AbstractGaussianLike):
    """A weighted sum of Gaussians, Σ_c w_c N(m_c, Σ_c).

    Arguments:
        weights: masses ≥ 0 of the components, (c,), not all zero.
        means: their means, (c, d).
        covs: their covariances, (c, d, d), each possibly singular.

    >>> import measureformer as mf
    >>> mu = mf.GaussianMixture([1, 3], [[-1.0], [1.0]], [[[0.25]], [[0.25]]])
    >>> round(float(mu.mass), 12), mu.mean().round(12).tolist(), mu.covariance().round(12).tolist()
    (4.0, [0.5], [[1.0]])
    """

    log_weights: Float[Array, " c"]
    means: Float[Array, "c d"]
    covs: Float[Array, "c d d"]

    def __init__(self, weights: ArrayLike, means: ArrayLike, covs: ArrayLike) -> None:
        centers = checked_points(means)
        matrices = shaped(floats(covs, "covs"), "covs", "c d d")
        if matrices.shape[0] != centers.shape[0]:
            raise ShapeError(
                got=f"{matrices.shape[0]} covariances for {centers.shape[0]} means",
                need="one covariance per component",
                do="Stack them to shape (c, d, d).",
            )
        checked_covariances(matrices, centers.shape[1])
        given = checked_log_weights(weights, centers), owned(centers), owned(matrices)
        self.log_weights, self.means, self.covs = cast(given, common_dtype(given))

    @staticmethod
    def of(gaussian: Gaussian) -> GaussianMixture:
        """The mixture with this single component."""
        return _mixture(*(on_device(host(a)[None]) for a in (gaussian.log_mass, gaussian.center, gaussian.cov)))

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def components(self) -> Discrete:
        """The measure Σ_c w_c δ_{m_c} of the centres, which has the mass and mean of the mixture."""
        return Discrete(self.means, self.log_weights)

    @property
    def log_mass(self) -> Float[Array, ""]:
        return self.components().log_mass

    def mean(self) -> Float[Array, " d"]:
        return self.components().mean()

    def covariance(self) -> Float[Array, "d d"]:
        """Within plus between the components."""
        xp = namespace(self)
        within = xp.tensordot(xp.asarray(self.components().probabilities()), xp.asarray(self.covs), axes=1)
        return on_device(within + xp.asarray(self.components().covariance()))

    def reweighted(self, log_factor: ArrayLike) -> GaussianMixture:
        return _mixture(self.components().reweighted(log_factor).log_weights, self.means, self.covs)

    def tilted(self, a: Float[Array, "m d"], H: Float[Array, "d d"] | None) -> tuple[Array, Array]:
        """Each component tilts by itself, and its weight by its own normaliser."""

        def one(mean: Array, cov: Array) -> tuple[Array, Array]:
            return Gaussian(mean, cov).tilted(a, H)

        log_z, means = jax.vmap(one)(self.means, self.covs)
        log_z = log_z + (self.log_weights - self.log_mass)[:, None]
        shares = jax.nn.softmax(log_z, axis=0)
        return jax.nn.logsumexp(log_z, axis=0), jnp.einsum("cm,cmd->md", shares, means)

    def push_affine(self, B: ArrayLike, b: ArrayLike) -> GaussianMixture:
        means, covs = affine_images(B, b, host(self.means), host(self.covs))
        return _mixture(cast(self.log_weights, means.dtype), on_device(means), on_device(covs))

    def component(self, c: int) -> Gaussian:
        """The c-th component with its weight as mass; one of weight zero is refused."""
        log_weight = host(self.log_weights)[c]
        if not is_traced(log_weight) and log_weight == -np.inf:
            raise ZeroMassError(
                got=f"component {c}, which has weight 0",
                need="positive mass",
                do="Its law is Gaussian(mu.means[c], mu.covs[c]).",
            )
        return Gaussian(host(self.means)[c], host(self.covs)[c], log_mass=log_weight)

    def sample(self, key: Key, n: int) -> Discrete:
        which, noise = two_keys(key)
        count = self.means.shape[0]
        labels = Discrete(on_device(np.arange(count, dtype=self.means.dtype)[:, None]), self.log_weights)
        xp = namespace(self, key)
        roots = xp.asarray(psd_root(self.covs))
        drawn = xp.asarray(labels.sample(which, n).points)[:, 0].astype(int)
        steps = normal(noise, (n, self.dim)).astype(self.means.dtype)
        moved = xp.einsum("nij,nj->ni", roots[drawn], steps)
        return Discrete.uniform(xp.asarray(self.means)[drawn] + moved)

    def discretize(self, n: int) -> Discrete:
        """n atoms in all: each component gets its share of them, and keeps its exact weight."""
        concrete(self, "discretize")
        shares = np.asarray(self.components().probabilities()) * positive_int(n, "n")
        active = int((shares > 0).sum())
        if n < active:
            raise OptionError(
                got=f"n = {n} atoms for {active} components",
                need="at least one atom per component",
                do=f"Pass n ≥ {active}.",
            )
        counts = np.maximum(np.floor(shares).astype(int), shares > 0)
        # largest remainders get the atoms that rounding down left over
        for c in np.argsort(counts - shares)[: max(n - counts.sum(), 0)]:
            counts[c] += 1
        # and those with most to spare give up what light components got too much
        while counts.sum() > n:
            counts[np.argmax(np.where(counts > 1, counts - shares, -np.inf))] -= 1
        parts = [self.component(c).discretize(int(k)) for c, k in enumerate(counts) if k > 0]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def same_as(self, other: GaussianMixture, atol: float = 0.0) -> bool:
        """Whether the components agree to `atol`, in any order, merged and without those of weight zero."""
        concrete(self, "same_as")
        wrong = not isinstance(other, GaussianMixture)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        if wrong or self.dim != other.dim:
            return False
        return self._as_atoms().same_as(other._as_atoms(), atol)

    def _as_atoms(self) -> Discrete:
        rows = [np.asarray(self.means), np.asarray(self.covs).reshape(len(self.means), -1)]
        return Discrete(on_device(np.concatenate(rows, axis=1)), self.log_weights)

    def __add__(self, other: AbstractGaussianLike) -> GaussianMixture:
        if not isinstance(other, AbstractGaussianLike):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            return NotImplemented
        meet(self, other)
        second = GaussianMixture.of(other) if isinstance(other, Gaussian) else other
        assert isinstance(second, GaussianMixture)  # the only other kind
        return joined(self, second)


def _mixture(log_weights: Array, means: Array, covs: Array) -> GaussianMixture:
    """A mixture from log-weights, exact where weights would underflow."""
    start = GaussianMixture(np.ones(log_weights.shape, log_weights.dtype), means, covs)
    return eqx.tree_at(lambda mixture: mixture.log_weights, start, log_weights)
