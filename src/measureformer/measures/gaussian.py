"""`Gaussian`: a normal law, covariance possibly singular, with the integrals that attention needs in closed form."""

from __future__ import annotations

import abc
import math
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import (
    DimensionMismatchError,
    NoAtomsError,
    NoClosedFormError,
    NotPositiveSemidefiniteError,
    ShapeError,
)
from measureformer.measures.atomic import concrete, host
from measureformer.measures.base import AbstractMeasure
from measureformer.measures.discrete import Discrete
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    floats,
    is_traced,
    on_device,
    owned,
    positive_int,
    scalar,
    shaped,
)
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.random import normal
from measureformer.numerics.roots import psd_root
from measureformer.numerics.types import ArrayLike, Key

if TYPE_CHECKING:
    from measureformer.measures.mixture import GaussianMixture


class AbstractGaussianLike(AbstractMeasure):
    """A Gaussian or a finite mixture of Gaussians: what can be tilted by e^{⟨a,y⟩ − yᵀHy/2} in closed form."""

    def tilt(self, a: ArrayLike, H: ArrayLike | None = None) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
        """log Z(a) and the tilted mean, for Z(a) = ∫ e^{⟨a,y⟩ − yᵀHy/2} dmu(y) of the normalised measure.

        The tilted mean is ∫ y e^{⟨a,y⟩ − yᵀHy/2} dmu(y) / Z(a): softmax without H, L2 attention with H = 2KᵀK.

        Arguments:
            a: one tilt per row, (m, d).
            H: positive semidefinite, (d, d); zero by default. Its eigenvalues are not checked under a trace.
        """
        tilts = shaped(floats(a, "a"), "a", "m d")
        count, dim = tilts.shape
        if dim != self.dim or count == 0:
            raise DimensionMismatchError(
                got=f"a of shape {tilts.shape} for a measure on R^{self.dim}",
                need=f"(m, {self.dim}), not empty",
                do="One tilt per row: add an axis with a[None] for a single one.",
            )
        finite(tilts, "a")
        form = None if H is None else checked_covariances(shaped(floats(H, "H"), "H", "d d"), self.dim, "H")
        dtype = common_dtype(self, tilts, form)
        if is_traced(self, tilts, form):
            return _compiled_tilted(*cast((self, tilts, form), dtype))
        padded = cast((self, pad_rows(tilts, bucket(count)), form), dtype)
        with jax.ensure_compile_time_eval():
            log_z, means = map(np.asarray, _compiled_tilted(*padded))
        return on_device(log_z[:count]), on_device(means[:count])

    @abc.abstractmethod
    def tilted(
        self, a: Float[Array, "m d"], H: Float[Array, "d d"] | None
    ) -> tuple[Float[Array, " m"], Float[Array, "m d"]]:
        """The formula behind `tilt`: pure JAX, called under `jit`."""

    @abc.abstractmethod
    def push_affine(self, B: ArrayLike, b: ArrayLike) -> Self:
        """The image under y ↦ B y + b, exactly.

        Arguments:
            B: matrix, (e, d).
            b: vector, (e,).
        """

    @abc.abstractmethod
    def discretize(self, n: int) -> Discrete:
        """A measure of n atoms that follow the law closely: quasi-Monte Carlo points, the same ones at every call."""

    def radius(self) -> Float[Array, ""]:
        """inf: the support is unbounded (a covariance of zero is not singled out)."""
        return on_device(np.asarray(np.inf, common_dtype(self)))

    def integrate(self, f: Callable[[Array], ArrayLike]) -> NoReturn:
        """Refused: a general f has no closed form; use `discretize(n).integrate(f)`."""
        self._refuse("integrate of a general function")

    def push(self, T: Callable[[Array], ArrayLike]) -> NoReturn:
        """Refused for a general T; `push_affine(B, b)` is exact, `discretize(n).push(T)` is not."""
        self._refuse("push by a general function")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in ("points", "weights", "log_weights", "probabilities", "n"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise NoAtomsError(
                got=f"mu.{name} of a {type(self).__name__}",
                need="a measure with atoms, or a formula in mu.mean(), mu.covariance() and mu.tilt(a)",
                do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
            )

    def _refuse(self, what: str) -> NoReturn:
        name = type(self).__name__
        raise NoClosedFormError(
            got=f"{what} on a {name}",
            need="a closed form, and there is none",
            do=f"Take atoms first: mu.discretize(n).{what.split()[0]}(…).",
        )


class Gaussian(AbstractGaussianLike):
    """The normal law N(mean, cov), times a mass. Sums of Gaussians are mixtures.

    Arguments:
        mean: its mean, (d,).
        cov: its covariance, (d, d), possibly singular.
        log_mass: logarithm of the mass.

    >>> import measureformer as mf
    >>> g = mf.Gaussian([1.0, 0.0], [[2.0, 0.5], [0.5, 1.0]])
    >>> g.dim, g.mean().tolist(), g.discretize(256).n
    (2, [1.0, 0.0], 256)
    >>> type(0.3 * g + 0.7 * mf.Gaussian([0, 0], [[1, 0], [0, 1]])).__name__
    'GaussianMixture'
    """

    center: Float[Array, " d"]
    cov: Float[Array, "d d"]
    log_weight: Float[Array, ""]

    def __init__(self, mean: ArrayLike, cov: ArrayLike, *, log_mass: ArrayLike = 0.0) -> None:
        center = shaped(floats(mean, "mean"), "mean", "d")
        if center.shape[0] == 0:
            raise ShapeError(got="a mean of shape (0,)", need="dimension d ≥ 1", do="Pass a mean with d ≥ 1 entries.")
        matrix = checked_covariances(shaped(floats(cov, "cov"), "cov", "d d"), center.shape[0])
        finite(center, "mean")
        dtype = common_dtype(center, matrix)
        self.center, self.cov = cast((owned(center), owned(matrix)), dtype)
        self.log_weight = cast(scalar(log_mass, "log_mass"), dtype)

    @property
    def dim(self) -> int:
        return self.center.shape[0]

    @property
    def log_mass(self) -> Float[Array, ""]:
        return self.log_weight

    def mean(self) -> Float[Array, " d"]:
        return self.center

    def covariance(self) -> Float[Array, "d d"]:
        return self.cov

    def reweighted(self, log_factor: ArrayLike) -> Gaussian:
        log_mass = host(self.log_weight) + host(log_factor).astype(self.log_weight.dtype)
        return Gaussian(self.center, self.cov, log_mass=log_mass)

    def tilted(self, a: Float[Array, "m d"], H: Float[Array, "d d"] | None) -> tuple[Array, Array]:
        """Without H: mean m + Σa, log Z = ⟨a,m⟩ + aᵀΣa/2. With H: the same for what e^{−yᵀHy/2} leaves."""
        if H is None:
            moved = a @ self.cov
            return a @ self.center + 0.5 * jnp.sum(a * moved, axis=1), self.center + moved
        system = jnp.eye(self.dim, dtype=self.cov.dtype) + self.cov @ H
        # (I+ΣH)^{-1} applied to Σ and to m: covariance and mean of what is left, for singular Σ and H too
        factors = typing.cast(tuple[Array, Array], jax.scipy.linalg.lu_factor(system))
        both = jnp.concatenate([self.cov, self.center[:, None]], axis=1)
        left = typing.cast(Array, jax.scipy.linalg.lu_solve(factors, both))
        spread, shrunk = left[:, :-1], left[:, -1]
        moved = a @ spread.T
        pivots = typing.cast(Array, jnp.diagonal(factors[0]))
        log_det = jnp.sum(jnp.log(jnp.abs(pivots)))
        log_left = -0.5 * (log_det + self.center @ H @ shrunk)
        return log_left + a @ shrunk + 0.5 * jnp.sum(a * moved, axis=1), shrunk + moved

    def push_affine(self, B: ArrayLike, b: ArrayLike) -> Gaussian:
        means, covs = affine_images(B, b, host(self.center)[None], host(self.cov)[None])
        return Gaussian(means[0], covs[0], log_mass=self.log_weight)

    def root(self) -> Float[Array, "d d"]:
        """The symmetric square root of the covariance."""
        return psd_root(self.cov)

    def sample(self, key: Key, n: int) -> Discrete:
        noise = normal(key, (positive_int(n, "n"), self.dim)).astype(self.center.dtype)
        if is_traced(self, noise):
            return Discrete.uniform(self.center + noise @ self.root())
        return Discrete.uniform(np.asarray(self.center) + noise @ np.asarray(self.root()))

    def discretize(self, n: int) -> Discrete:
        """n equal atoms: quantiles on the line, scrambled Sobol' points (fixed scrambling) in higher dimension."""
        concrete(self, "discretize")
        atoms = np.asarray(self.center) + normal_points(n, self.dim) @ np.asarray(self.root())
        return Discrete.uniform(atoms.astype(self.center.dtype)).reweighted(self.log_mass)

    def same_as(self, other: Gaussian, atol: float = 0.0) -> bool:
        """Whether mass, mean and covariance agree to `atol` (plus rounding)."""
        concrete(self, "same_as")
        if not isinstance(other, Gaussian) or self.dim != other.dim:  # pyright: ignore[reportUnnecessaryIsInstance]
            return False
        pairs = [(self.mass, other.mass), (self.center, other.center), (self.cov, other.cov)]
        return all(np.allclose(np.asarray(x), np.asarray(y), rtol=1e-14, atol=atol) for x, y in pairs)

    def __add__(self, other: AbstractGaussianLike) -> GaussianMixture:
        from measureformer.measures.mixture import GaussianMixture

        if not isinstance(other, AbstractGaussianLike):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            return NotImplemented
        return GaussianMixture.of(self) + other


@eqx.filter_jit
def _compiled_tilted(mu: AbstractGaussianLike, a: Any, H: Any) -> tuple[Array, Array]:
    return mu.tilted(a, H)


def affine_images(B: Any, b: Any, means: Any, covs: Any) -> tuple[Any, Any]:
    """B m_c + b and B Σ_c Bᵀ for each of the means (c, d) and covariances (c, d, d)."""
    B, b, dim = floats(B, "B"), floats(b, "b"), means.shape[1]
    if B.ndim != 2 or B.shape[0] == 0 or B.shape[1] != dim or b.shape != B.shape[:1]:
        raise DimensionMismatchError(
            got=f"B of shape {B.shape} and b of shape {b.shape} for a measure on R^{dim}",
            need=f"(e, {dim}) and (e,), e ≥ 1",
            do="B acts on columns: the image of y is B @ y + b.",
        )
    finite(B, "B")
    finite(b, "b")
    B, b, means, covs = cast((host(B), host(b), means, covs), common_dtype(B, b, means, covs))
    images = B @ covs @ B.T
    return means @ B.T + b, 0.5 * (images + images.swapaxes(-1, -2))


def checked_covariances(cov: Any, dim: int, name: str = "cov") -> Any:
    """Refuse covariances (…, d, d) of the wrong shape, asymmetric ones and those with clearly negative eigenvalues."""
    if cov.shape[-2:] != (dim, dim):
        raise DimensionMismatchError(
            got=f"{name} of shape {cov.shape} on R^{dim}",
            need=f"matrices ({dim}, {dim})",
            do="Pass the full matrix; for a diagonal one use np.diag(variances).",
        )
    finite(cov, name)
    if is_traced(cov):
        return cov
    matrix = np.asarray(cov)
    # each matrix by its own size: a large component must not excuse a small one
    slack = 1e3 * dim * np.finfo(matrix.dtype).eps * np.abs(matrix).max(axis=(-1, -2))
    skew = np.abs(matrix - np.swapaxes(matrix, -1, -2)).max(axis=(-1, -2))
    if (skew > slack).any():
        raise NotPositiveSemidefiniteError(
            got=f"{name} that is not symmetric: it differs from its transpose by {float(skew.max()):.3g}",
            need=f"{name} == {name}.T",
            do=f"Symmetrise it: ({name} + {name}.T) / 2.",
        )
    least = np.linalg.eigvalsh(matrix)[..., 0]
    if (least < -slack).any():
        raise NotPositiveSemidefiniteError(
            got=f"{name} with eigenvalue {float(least.min()):.3g}",
            need="eigenvalues ≥ 0 (zero is allowed)",
            do="Check the matrix, or clip its eigenvalues at 0.",
        )
    return cov


def normal_points(n: int, dim: int) -> np.ndarray:
    """n deterministic points that follow the standard normal law on R^dim."""
    from scipy.special import ndtri

    n = positive_int(n, "n")
    if dim == 1:
        return ndtri((np.arange(n) + 0.5) / n)[:, None]
    from scipy.stats import qmc

    # a full power of two is drawn because the sequence is balanced only then; the first n of it are used
    points = qmc.Sobol(dim, scramble=True, rng=0).random_base2(max(0, math.ceil(math.log2(n))))[:n]
    tiny = np.finfo(np.float64).eps
    return ndtri(np.clip(points, tiny, 1 - tiny))
