"""`gaussian_flow`: a very deep layer on a Gaussian, as an ordinary differential equation for mean and covariance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError
from measureformer.flows.schedule import checked_times
from measureformer.flows.solve import AbstractField, checked_tolerance, solve
from measureformer.maps import Attention
from measureformer.maps.base import AbstractInContextMap, affine_parts, no_closed_form
from measureformer.measures import Gaussian
from measureformer.measures.atomic import concrete
from measureformer.measures.gaussian import AbstractGaussianLike, checked_covariances
from measureformer.numerics.arrays import cast, common_dtype, default_float, finite, floats, on_device, shaped
from measureformer.numerics.roots import psd_root
from measureformer.numerics.types import ArrayLike

COLLAPSE = 1e-10
"""A blow-up is declared where the growth rate times the elapsed time exceeds the inverse of this."""


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
        """Numerical rank of each covariance.

        Arguments:
            threshold: eigenvalues below this share of the largest one count as 0.
        """
        if not 0 < threshold < 1:
            raise OptionError(got=f"threshold = {threshold!r}", need="0 < threshold < 1", do="1e-2 is usual.")
        values = np.linalg.svd(np.asarray(self.roots), compute_uv=False) ** 2
        # of zero, no eigenvalue counts
        return (values > threshold * values.max(axis=1, initial=0.0)[:, None]).sum(axis=1)


def gaussian_flow(
    G: AbstractInContextMap | Sequence[AbstractInContextMap],
    gaussian: Gaussian,
    times: ArrayLike,
    *,
    rtol: float = 1e-10,
) -> GaussianFlow:
    """The flow ∂_t mu + div(mu G(mu, ·)) = 0 from a Gaussian, by the equations of mean and covariance.

    It stays Gaussian where x ↦ G(N(m,Σ), x) = Bx + b is affine: softmax, L2, Sinkhorn and linear attention with any
    number of heads, their sums, multiples and residuals. Other maps are refused.
    `L2Attention.head(I, I, I, scale=1/(2ε)) - Identity()` is mean shift.

    One softmax head with V = v·I and symmetric A = KᵀQ is evaluated in closed form, exact to rounding. Otherwise the
    solver integrates a square root R of Σ, R' = BR, so that Σ = RRᵀ stays positive semidefinite and never gains rank;
    Σ may be singular. At a finite blow-up time, returned as `blow_up`, the trajectory ends.

    Arguments:
        G: the velocity. A sequence of maps shares the time equally, as in `mf.flow`.
        gaussian: the initial measure.
        times: increasing output times, (t,); the first is the time of `gaussian`.
        rtol: relative error of each adaptive step.

    Statement   m' = G(N(m,Σ), m),  Σ' = BΣ + ΣBᵀ;  for softmax B = VΣA and m' = V(I + ΣA)m, A = KᵀQ
                V = v·I, A = Aᵀ:  Σ(t) = (Σ_0^{-1} − 2vtA)^{-1},  m(t) = e^{vt}(I − 2vtΣ_0A)^{-1/2}m_0;  in particular
                V = −I, A = I:  Σ ~ I/(2t) and m ~ e^{−t}t^{−1/2}
    Cost        O(d³) for each of 13 stages of a step.
    Ref         castin2025.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> traj = mf.gaussian_flow(G, mf.Gaussian([1.0], [[1.0]]), [0.0, 0.25, 0.6])
    >>> traj.covs[:, 0, 0].round(6).tolist(), traj.means[1].round(6).tolist(), round(traj.blow_up, 6)
    ([1.0, 2.0], [1.815886], 0.5)
    """
    times = checked_times(times)
    maps = tuple(G) if isinstance(G, Sequence) else (G,)
    _check_all(maps, gaussian)
    dtype, given = default_float(), common_dtype(maps, gaussian)
    rtol = checked_tolerance(rtol, dtype)
    layers, start = cast((maps, gaussian), dtype)
    state = np.asarray(start.center), _thin_root(np.asarray(start.cov))
    pieces: list[_Piece] = []
    for layer, moments in zip(layers, _shared(times, len(maps)), strict=True):
        pieces.append(_exact(layer, state, moments) or _integrated(layer, state, moments, rtol, gaussian.log_mass))
        if pieces[-1].blow_up is not None:
            break
        state = pieces[-1].means[-1], pieces[-1].roots[-1]
    wanted, means, roots = _at(times, pieces)
    arrays = cast((wanted, means, roots @ roots.swapaxes(1, 2), roots), given)
    return GaussianFlow(*map(on_device, arrays), blow_up=pieces[-1].blow_up, log_mass=gaussian.log_mass)


class _Piece(NamedTuple):
    """The flow of one layer: states at its times before the blow-up."""

    times: np.ndarray
    means: np.ndarray
    roots: np.ndarray
    blow_up: float | None


def _shared(times: np.ndarray, count: int) -> list[np.ndarray]:
    """The times of each of `count` layers that share the interval equally: its ends and the requested ones between."""
    edges = times[0] + (times[-1] - times[0]) * np.arange(count + 1) / count
    edges[-1] = times[-1]
    inside = [times[(times > low) & (times < high)] for low, high in pairwise(edges)]
    return [np.concatenate([[low], some, [high]]) for some, (low, high) in zip(inside, pairwise(edges), strict=True)]


def _at(times: np.ndarray, pieces: list[_Piece]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Those of the times that were reached, with mean and root."""
    known, means, roots = (np.concatenate(part) for part in zip(*(piece[:3] for piece in pieces), strict=True))
    place = np.searchsorted(known, times)
    reached = (place < len(known)) & (known[np.minimum(place, len(known) - 1)] == times)
    return times[reached], means[place[reached]], roots[place[reached]]


def _integrated(G: AbstractInContextMap, state: Any, times: np.ndarray, rtol: float, log_mass: Any = 0.0) -> _Piece:
    field = _Moments(G)
    size = max(float(np.abs(part).max(initial=0.0)) for part in state) or 1.0

    def measure(state: Any) -> Gaussian:
        return Gaussian(state[0], state[1] @ state[1].T, log_mass=log_mass)

    found = solve(field, state, times, rtol=rtol, atol=1e-3 * rtol * size, seen=measure)
    means, roots = found.states
    blow_up = _pole(field, found.last_time, found.last_state) if found.stopped else None
    return _Piece(times[: len(means)], means, roots, blow_up)


def _exact(G: AbstractInContextMap, state: Any, times: np.ndarray) -> _Piece | None:
    """The closed form where there is one: one softmax head, V = v·I and A symmetric. None elsewhere.

    The centred flow map is M(t) = (I − 2vtΣ_0A)^{-1/2}, and the mean e^{vt}M(t)m_0. With Σ_0 = RRᵀ and the eigenvalues
    λ of RᵀAR = UΛUᵀ, powers (Σ_0A)^k = R(RᵀAR)^{k−1}RᵀA give M R = R U(1 − 2vtΛ)^{-1/2}Uᵀ and
    M = I + R U((1 − 2vtΛ)^{-1/2} − 1)/Λ Uᵀ RᵀA, also where Σ_0 is singular.
    """
    if type(G) is not Attention or len(G.Q) != 1:
        return None
    A, V, (mean, root) = np.asarray(G.A[0]), np.asarray(G.W[0]) @ np.asarray(G.V[0]), state
    if V.shape[0] != V.shape[1] or not np.array_equal(V, V[0, 0] * np.eye(len(V))):
        return None
    if np.abs(A - A.T).max() > 8 * np.finfo(A.dtype).eps * np.abs(A).max():
        return None
    rates, axes = np.linalg.eigh(root.T @ (0.5 * (A + A.T)) @ root)
    rates, v = V[0, 0] * rates, float(V[0, 0])
    top = 2 * float(rates.max(initial=0.0))
    blow_up = float(times[0] + 1 / top) if top * (times[-1] - times[0]) >= 1 else None
    known = times if blow_up is None else times[times < blow_up]
    t = (known - known[0])[:, None]
    logs = -0.5 * np.log1p(-2 * t * rates)
    slopes = np.where(rates == 0, t, np.expm1(logs) / np.where(rates == 0, 1, rates))
    along = root @ axes
    with np.errstate(over="ignore", invalid="ignore"):
        roots = (along * np.exp(logs)[:, None, :]) @ axes.T
        means = np.exp(v * t) * (mean + (slopes * (v * along.T @ A @ mean)) @ along.T)
    # on overflow the solver runs instead: its error says how far it got
    return _Piece(known, means, roots, blow_up) if np.isfinite(means).all() and np.isfinite(roots).all() else None


def moment_rates(G: AbstractInContextMap, gaussian: Gaussian) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """m' and Σ' of the flow with velocity G at a Gaussian; both are zero at a stationary point.

    Arguments:
        G: a map that is affine on Gaussians, as in `gaussian_flow`.
        gaussian: where the rates are evaluated.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> [part.tolist() for part in moment_rates(G, mf.Gaussian([1.0], [[2.0]]))]
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
    """R (d, r) with RRᵀ = cov and as many columns as the rank, which rounding then cannot increase."""
    values, vectors = np.linalg.eigh(cov)
    kept = values > len(cov) * np.finfo(cov.dtype).eps * max(values.max(), 0.0)
    return vectors[:, kept] * np.sqrt(values[kept])


def _check_all(maps: tuple[AbstractInContextMap, ...], gaussian: AbstractGaussianLike) -> None:
    if not maps:
        raise OptionError(got="no layers", need="at least one", do="Pass a map, or a list of maps that share the time.")
    for G in maps:
        _check(G, gaussian)


def _check(G: object, gaussian: object) -> None:
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
    G.check_stays(gaussian)


def castin25_covariance(A: ArrayLike, cov: ArrayLike, t: float) -> np.ndarray:
    """The covariance at time t of the softmax flow with V = I.

    Evaluated as R(I − tRᵀ(A + Aᵀ)R)^{-1}Rᵀ with RRᵀ = Σ_0, which covers singular Σ_0 as limits.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d).
        cov: the initial covariance Σ_0, (d, d).
        t: a time before the blow-up.

    Statement   Σ(t) = (Σ_0^{-1} − t(A + Aᵀ))^{-1}, for t before the blow-up
    Hypotheses  checked: t is before the blow-up.  assumed: V = I, one head.
    Ref         castin2025.

    >>> import measureformer as mf
    >>> mf.flows.castin25_covariance([[1.0]], [[1.0]], 0.25).tolist()
    [[2.0]]
    """
    A, root = square_matrix(A, "A"), _root(cov)
    end = castin25_blow_up(A, cov)
    if end is not None and t >= end:
        raise OptionError(got=f"t = {t:g}", need=f"a time before the blow-up at {end:g}", do="Ask for an earlier time.")
    return root @ np.linalg.solve(np.eye(len(A)) - t * root @ (A + A.T) @ root, root)


def castin25_blow_up(A: ArrayLike, cov: ArrayLike) -> float | None:
    """Blow-up time of the softmax flow with V = I; None if the flow exists for all times.

    Arguments:
        A: the matrix KᵀQ of the head, (d, d).
        cov: the initial covariance Σ_0, (d, d).

    Statement   t* = 1/λ_max(Σ_0^{1/2}(A + Aᵀ)Σ_0^{1/2}) if that is positive
    Ref         castin2025.

    >>> import measureformer as mf
    >>> mf.flows.castin25_blow_up([[1.0]], [[1.0]]), mf.flows.castin25_blow_up([[-1.0]], [[1.0]])
    (0.5, None)
    """
    A, root = square_matrix(A, "A"), _root(cov)
    values = np.linalg.eigvalsh(root @ (A + A.T) @ root)
    # of a singular covariance some are zero up to rounding
    zero = 8 * len(A) * np.finfo(np.float64).eps * np.linalg.norm(root, 2) ** 2 * np.linalg.norm(A + A.T, 2)
    return 1 / float(values[-1]) if values[-1] > zero else None


def square_matrix(matrix: ArrayLike, name: str) -> np.ndarray:
    """A finite square matrix in float64."""
    array = np.asarray(shaped(floats(matrix, name), name, "d d"), np.float64)
    finite(array, name)
    if array.shape[0] != array.shape[1] or array.shape[0] == 0:
        raise DimensionMismatchError(
            got=f"{name} of shape {array.shape}", need="a square matrix (d, d)", do=f"Pass {name} as (d, d)."
        )
    return array


def _root(cov: ArrayLike) -> np.ndarray:
    matrix = square_matrix(cov, "cov")
    return np.asarray(psd_root(on_device(checked_covariances(matrix, len(matrix)))))
