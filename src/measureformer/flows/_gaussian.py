"""`gaussian_flow`: a very deep layer on a Gaussian, as an ordinary differential equation for mean and covariance."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError
from measureformer.flows._plan import checked_times
from measureformer.flows._solve import AbstractField, checked_tolerance, solve
from measureformer.maps.base import AbstractInContextMap, affine_parts, no_closed_form
from measureformer.measures import AbstractGaussianLike, Gaussian
from measureformer.measures.atomic import concrete
from measureformer.measures.gaussian import checked_covariances
from measureformer.numerics.arrays import cast, common_dtype, default_float, finite, floats, on_device, shaped
from measureformer.numerics.roots import psd_root

COLLAPSE = 1e-10
"""A growth rate times the elapsed time above the inverse of this is a blow-up: what is left is lost in rounding."""


class GaussianFlow(eqx.Module):
    """Mean and covariance along a flow of Gaussians; see `gaussian_flow`."""

    times: Float[Array, " t"]
    """The requested times before the blow-up: all of them if there is none."""
    means: Float[Array, "t d"]
    covs: Float[Array, "t d d"]
    roots: Float[Array, "t d r"]
    """Σ = R Rᵀ with as many columns as the rank of the first covariance."""
    blow_up: float | None
    """When the Gaussian becomes infinite, if that happens before the last requested time."""
    log_mass: Float[Array, ""]

    @property
    def measures(self) -> tuple[Gaussian, ...]:
        """The Gaussians at `times`."""
        pairs = zip(np.asarray(self.means), np.asarray(self.covs), strict=True)
        return tuple(Gaussian(mean, cov, log_mass=self.log_mass) for mean, cov in pairs)

    def rank(self, threshold: float = 1e-2) -> np.ndarray:
        """How many eigenvalues of each covariance exceed `threshold` times the largest one."""
        if not 0 < threshold < 1:
            raise OptionError(got=f"threshold = {threshold!r}", need="0 < threshold < 1", do="1e-2 is usual.")
        values = np.linalg.svd(np.asarray(self.roots), compute_uv=False) ** 2
        # of zero, no eigenvalue counts
        return (values > threshold * values.max(axis=1, initial=0.0)[:, None]).sum(axis=1)


def gaussian_flow(G: Any, gaussian: Any, times: Any, *, rtol: Any = 1e-10) -> GaussianFlow:
    """The flow ∂_t mu + div(mu G(mu, ·)) = 0 that starts at a Gaussian, where it stays Gaussian.

    It does where x ↦ G(N(m,Σ), x) = Bx + b is affine: softmax, L2, Sinkhorn and linear attention with any number of
    heads, their sums, multiples and residuals; `L2Attention.head(I, I, I, scale=1/(2ε)) - Identity()` is mean shift.
    Other maps are refused. `times[0]` is the time of the given Gaussian. Steps are adaptive, with relative error
    `rtol` in each. A square root R of Σ is integrated, R' = BR, so Σ = RRᵀ stays positive semidefinite and never
    gains rank, and a singular Σ is no exception. A finite time of explosion is returned as `blow_up`, and the
    trajectory ends before it. One layer of finite depth is exact by itself: `Residual(G, step).push(gaussian)`.

    Statement   m' = G(N(m,Σ), m),  Σ' = BΣ + ΣBᵀ;  for softmax B = VΣA and m' = V(I + ΣA)m, A = KᵀQ
    Cost        O(d³) for each of 13 stages of a step.
    Ref         castin2025.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> traj = mf.gaussian_flow(G, mf.Gaussian([1.0], [[1.0]]), [0.0, 0.25, 0.6])
    >>> traj.covs[:, 0, 0].round(6).tolist(), traj.means[1].round(6).tolist(), round(traj.blow_up, 6)
    ([1.0, 2.0], [1.815886], 0.5)
    """
    times = checked_times(times)
    _check(G, gaussian)
    dtype, given = default_float(), common_dtype(G, gaussian)
    field, start = cast((_Moments(G), gaussian), dtype)
    state = np.asarray(start.center), _thin_root(np.asarray(start.cov))
    size = max(float(np.abs(part).max(initial=0.0)) for part in state) or 1.0
    rtol = checked_tolerance(rtol, dtype)

    def measure(state: Any) -> Gaussian:
        return Gaussian(state[0], state[1] @ state[1].T, log_mass=gaussian.log_mass)

    found = solve(field, state, times, rtol=rtol, atol=1e-3 * rtol * size, seen=measure)
    means, roots = found.states
    covs = roots @ roots.swapaxes(1, 2)
    arrays = cast((times[: len(means)], means, covs, roots), given)
    blow_up = _pole(field, found.last_time, found.last_state) if found.stopped else None
    return GaussianFlow(*map(on_device, arrays), blow_up=blow_up, log_mass=gaussian.log_mass)


def moment_rates(G: Any, gaussian: Any) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """m' and Σ' of the flow with velocity G at a Gaussian; both are zero at a stationary point.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> [part.tolist() for part in mf.flows.moment_rates(G, mf.Gaussian([1.0], [[2.0]]))]
    [[3.0], [[8.0]]]
    """
    _check(G, gaussian)
    matrix, shift = map(np.asarray, affine_parts(*cast((G, gaussian), common_dtype(G, gaussian))))
    moved = matrix @ np.asarray(gaussian.cov)
    return on_device(matrix @ np.asarray(gaussian.center) + shift), on_device(moved + moved.T)


class _Moments(AbstractField):
    """(m, R) ↦ (Bm + b, BR)."""

    G: AbstractInContextMap
    stops: ClassVar[bool] = True

    def velocity(self, t: Any, y: Any) -> Any:
        mean, root = y
        matrix, shift = affine_parts(self.G, Gaussian(mean, root @ root.T))
        return matrix @ mean + shift, matrix @ root

    def stop(self, t: Any, y: Any, start: Any) -> Any:
        return self.growth(t, y) * (t - start) > 1 / COLLAPSE

    def growth(self, t: Any, y: Any) -> Any:
        """The largest relative growth rate of a row of (m, R); rows far below the largest one do not count."""
        state, moved = (jnp.concatenate([mean[:, None], root], axis=1) for mean, root in (y, self.velocity(t, y)))
        squares = jnp.sum(state * state, axis=1)
        floor = 1e-12 * jnp.max(squares)
        return jnp.max(jnp.sum(state * moved, axis=1) / jnp.where(squares > floor, squares, jnp.inf))


def _pole(field: _Moments, time: float, state: Any) -> float:
    """Near a pole R grows like (t* − t)^{-1/2}, so what is left is half of the inverse growth rate."""
    return time + 0.5 / float(_growth(field, time, state))


@eqx.filter_jit
def _growth(field: _Moments, time: Any, state: Any) -> Array:
    return field.growth(time, state)


def _thin_root(cov: np.ndarray) -> np.ndarray:
    """R (d, r) with RRᵀ = cov and as many columns as the rank, which then cannot grow by rounding."""
    values, vectors = np.linalg.eigh(cov)
    kept = values > len(cov) * np.finfo(cov.dtype).eps * max(values.max(), 0.0)
    return vectors[:, kept] * np.sqrt(values[kept])


def _check(G: Any, gaussian: Any) -> None:
    if not isinstance(G, AbstractInContextMap) or not isinstance(gaussian, AbstractGaussianLike):
        raise DtypeError(
            got=f"G of type {type(G).__name__} and a start of type {type(gaussian).__name__}",
            need="an in-context map and a Gaussian",
            do="Call mf.gaussian_flow(G, mf.Gaussian(mean, cov), times).",
        )
    concrete((G, gaussian), "gaussian_flow")
    G.check_meets(gaussian, None)
    if not isinstance(gaussian, Gaussian) or not G.affine_on(gaussian):
        raise no_closed_form(G, gaussian, "flow")
    if G.out_dim(gaussian.dim) != gaussian.dim:
        raise DimensionMismatchError(
            got=f"a velocity from R^{gaussian.dim} to R^{G.out_dim(gaussian.dim)}",
            need="a map of a space to itself",
            do="Compose it with mf.Linear first.",
        )


def castin25_covariance(A: Any, cov: Any, t: float) -> np.ndarray:
    """The covariance at time t of the softmax flow with V = I.

    Statement   Σ(t) = (Σ_0^{-1} − t(A + Aᵀ))^{-1}, for t before the blow-up
    Hypotheses  checked: t is before the blow-up.  assumed: V = I, one head.
    Ref         castin2025.    Singular Σ_0 are limits: the formula is evaluated as R(I − tRᵀ(A + Aᵀ)R)^{-1}Rᵀ.

    >>> import measureformer as mf
    >>> mf.flows.castin25_covariance([[1.0]], [[1.0]], 0.25).tolist()
    [[2.0]]
    """
    A, root = _square(A, "A"), _root(cov)
    end = castin25_blow_up(A, cov)
    if end is not None and t >= end:
        raise OptionError(got=f"t = {t:g}", need=f"a time before the blow-up at {end:g}", do="Ask for an earlier time.")
    return root @ np.linalg.solve(np.eye(len(A)) - t * root @ (A + A.T) @ root, root)


def castin25_blow_up(A: Any, cov: Any) -> float | None:
    """When the softmax flow with V = I explodes; None if it never does.

    Statement   t* = 1/λ_max(Σ_0^{1/2}(A + Aᵀ)Σ_0^{1/2}) if that is positive
    Ref         castin2025.

    >>> import measureformer as mf
    >>> mf.flows.castin25_blow_up([[1.0]], [[1.0]]), mf.flows.castin25_blow_up([[-1.0]], [[1.0]])
    (0.5, None)
    """
    A, root = _square(A, "A"), _root(cov)
    top = float(np.linalg.eigvalsh(root @ (A + A.T) @ root)[-1])
    return 1 / top if top > 0 else None


def castin25_stationary_rank(A: Any) -> int:
    """The largest rank of a stationary covariance of the softmax flow with V = I and A symmetric.

    Statement   ΣAΣ = 0 ⇒ rank Σ ≤ dim ker A + min(n₊, n₋); at most d/2 if A is nonsingular. Attained.
    Hypotheses  checked: A = Aᵀ.  assumed: V = I, one head.
    Ref         castin2025.

    >>> import numpy as np, measureformer as mf
    >>> mf.flows.castin25_stationary_rank(np.diag([1.0, -1.0, -1.0, 2.0]))
    2
    """
    A = _square(A, "A")
    if np.abs(A - A.T).max() > 1e-12 * np.abs(A).max():
        raise OptionError(
            got="a matrix A that is not symmetric", need="A = Aᵀ", do="The bound is known for those only."
        )
    values = np.linalg.eigvalsh(A)
    zero = len(A) * np.finfo(np.float64).eps * np.abs(values).max()
    return int((np.abs(values) <= zero).sum() + min((values > zero).sum(), (values < -zero).sum()))


def _square(matrix: Any, name: str) -> np.ndarray:
    array = np.asarray(shaped(floats(matrix, name), name, "d d"), np.float64)
    finite(array, name)
    if array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise DimensionMismatchError(
            got=f"{name} of shape {array.shape}", need="a square matrix (d, d)", do=f"Pass {name} as (d, d)."
        )
    return array


def _root(cov: Any) -> np.ndarray:
    matrix = _square(cov, "cov")
    return np.asarray(psd_root(on_device(checked_covariances(matrix, len(matrix)))))
