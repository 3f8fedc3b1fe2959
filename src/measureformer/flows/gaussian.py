"""`GaussianTrajectory`: a Gaussian that moves, by the ordinary differential equations of its mean and covariance.

A Gaussian stays one where x ↦ G(N(m,Σ), x) = Bx + b is affine: softmax, L2, Sinkhorn and linear attention with any
number of heads, their sums, multiples and residuals. `L2Attention.head(I, I, I, scale=1/(2ε)) - Identity()` is mean
shift. One softmax head with V = v·I and symmetric A = KᵀQ is evaluated in closed form, exact to rounding. Otherwise the
solver integrates the matrix R of Σ = RSRᵀ, R' = BR, so that Σ stays positive semidefinite and never gains rank.

Statement   m' = G(N(m,Σ), m),  Σ' = BΣ + ΣBᵀ;  for softmax B = VΣA and m' = V(I + ΣA)m, A = KᵀQ
            V = v·I, A = Aᵀ:  Σ(t) = (Σ_0^{-1} − 2vtA)^{-1},  m(t) = e^{vt}(I − 2vtΣ_0A)^{-1/2}m_0;  in particular
            V = −I, A = I:  Σ ~ I/(2t) and m ~ e^{−t}t^{−1/2}
Ref         castin2025
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.flows.flow_map import refuse_failure
from measureformer.flows.integrate import STOPPED, SUCCESS, Solved, solve
from measureformer.flows.schedule import Schedule, scheduled
from measureformer.flows.settings import Accuracy, Settings
from measureformer.flows.velocity import Depthwise
from measureformer.maps import Attention
from measureformer.maps.base import AbstractInContextMap, affine_parts, no_closed_form
from measureformer.measures import Gaussian
from measureformer.numerics.arrays import at_once, cast, common_dtype, default_float, is_traced, on_device

COLLAPSE = 1e-10
"""A blow-up is declared where the growth rate times the elapsed time exceeds the inverse of this."""
PRECISE = Accuracy("dopri8", 1e-10, 1e-13, (0.3, 0.4), 1 << 16)


class GaussianTrajectory(eqx.Module):
    """Mean and covariance along a flow of Gaussians."""

    times: Float[Array, " t"]
    """The requested times before the blow-up: all of them if there is none."""
    means: Float[Array, "t d"]
    covs: Float[Array, "t d d"]
    roots: Float[Array, "t d r"]
    """Σ = R Rᵀ with as many columns as the rank of the first covariance; under a trace Σ = R Σ_0 Rᵀ."""
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


def move_gaussian(layers: Depthwise, gaussian: Gaussian, times: np.ndarray, settings: Settings) -> GaussianTrajectory:
    """The trajectory of a Gaussian, computed in float64; it ends at the blow-up, if there is one."""
    for G in layers.maps:
        G.check_meets(gaussian, None)
        if not G.affine_on(gaussian):
            raise no_closed_form(G, gaussian, "flow")
        G.check_stays(gaussian)
    dtype, given = default_float(), common_dtype(layers, gaussian)
    maps, start = cast((layers.maps, gaussian), dtype)
    if is_traced(maps, start):
        return _traced(Depthwise(maps), start, scheduled(times, len(maps), None), settings, given)
    state = np.asarray(start.center), _thin_root(np.asarray(start.cov))
    pieces: list[_Piece] = []
    for layer, moments in zip(maps, _shared(times, len(maps)), strict=True):
        pieces.append(_exact(layer, state, moments) or _integrated(layer, state, moments, settings, gaussian.log_mass))
        if pieces[-1].blow_up is not None:
            break
        state = pieces[-1].means[-1], pieces[-1].roots[-1]
    wanted, means, roots = _at(times, pieces)
    arrays = cast((wanted, means, roots @ roots.swapaxes(1, 2), roots), given)
    return GaussianTrajectory(*map(on_device, arrays), blow_up=pieces[-1].blow_up, log_mass=gaussian.log_mass)


def _traced(
    layers: Depthwise, start: Gaussian, schedule: Schedule, settings: Settings, given: Any
) -> GaussianTrajectory:
    """With derivatives: Σ = RΣ_0Rᵀ and R = I at first, which is smooth also where Σ_0 is singular."""

    def field(index: Any, t: Any, y: Any) -> Any:
        return _velocity(layers.at(index, t), y, start.cov)

    first = start.center, jnp.eye(start.dim, dtype=start.cov.dtype)
    found = solve(field, first, schedule, settings).states
    means, moved = (jnp.concatenate([a[None], b]) for a, b in zip(first, found, strict=True))
    covs = moved @ start.cov @ moved.swapaxes(1, 2)
    arrays = cast((on_device(schedule.moments), means, covs, moved), given)
    return GaussianTrajectory(*arrays, blow_up=None, log_mass=start.log_mass)


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


def _integrated(
    G: AbstractInContextMap, state: Any, times: np.ndarray, settings: Settings, log_mass: Any = 0.0
) -> _Piece:
    size = max(float(np.abs(part).max(initial=0.0)) for part in state) or 1.0
    control = dataclasses.replace(settings.control, atol=np.asarray(settings.control.atol * size))
    settings = dataclasses.replace(settings, control=control)
    solved, growth = at_once(_solved, G, state, scheduled(times, 1, None).padded(16), settings)
    found: Solved = jax.tree.map(np.asarray, solved)
    kept = (np.asarray(times[1:]) <= found.last_time) | (found.code == SUCCESS)
    means, roots = (np.concatenate([a[None], b[: len(kept)][kept]]) for a, b in zip(state, found.states, strict=True))
    if found.code != STOPPED:
        mean, root = found.last
        refuse_failure(found, Gaussian(mean, root @ root.T, log_mass=log_mass), settings)
        return _Piece(times, means, roots, None)
    # near a pole R grows like (t* − t)^{-1/2}, so what is left is half of the inverse growth rate
    return _Piece(times[: len(means)], means, roots, float(found.last_time) + 0.5 / float(growth))


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
        G: a map that is affine on Gaussians, a layer whose flow keeps Gaussians.
        gaussian: where the rates are evaluated.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> [part.tolist() for part in moment_rates(G, mf.Gaussian([1.0], [[2.0]]))]
    [[3.0], [[8.0]]]
    """
    G.check_meets(gaussian, None)
    if not G.affine_on(gaussian):
        raise no_closed_form(G, gaussian, "flow")
    matrix, shift = map(np.asarray, affine_parts(*cast((G, gaussian), common_dtype(G, gaussian))))
    moved = matrix @ np.asarray(gaussian.cov)
    return on_device(matrix @ np.asarray(gaussian.center) + shift), on_device(moved + moved.T)


@eqx.filter_jit
def _solved(G: AbstractInContextMap, state: Any, schedule: Schedule, settings: Settings) -> tuple[Solved, Array]:
    """The solution up to the blow-up, and how fast it grows at its end."""

    def velocity(y: Any) -> Any:
        return _velocity(G, y, jnp.eye(y[1].shape[1], dtype=y[1].dtype))

    def growth(y: Any) -> Array:
        """The largest relative growth rate of a row of (m, R); rows far below the largest one do not count."""
        now, moved = (jnp.concatenate([mean[:, None], root], axis=1) for mean, root in (y, velocity(y)))
        squares = jnp.sum(now * now, axis=1)
        floor = 1e-12 * jnp.max(squares)
        return jnp.max(jnp.sum(now * moved, axis=1) / jnp.where(squares > floor, squares, jnp.inf))

    def stop(t: Any, y: Any) -> Any:
        return growth(y) * (t - schedule.start) > 1 / COLLAPSE

    found = solve(lambda index, t, y: velocity(y), state, schedule, settings, stop=stop)
    return found, growth(found.last)


def _velocity(G: AbstractInContextMap, y: Any, inner: Array) -> Any:
    """(m, R) ↦ (Bm + b, BR) for Σ = R inner Rᵀ."""
    mean, root = y
    matrix, shift = affine_parts(G, Gaussian(mean, root @ inner @ root.T))
    return matrix @ mean + shift, matrix @ root


def _thin_root(cov: np.ndarray) -> np.ndarray:
    """R (d, r) with RRᵀ = cov and as many columns as the rank, which rounding then cannot increase."""
    values, vectors = np.linalg.eigh(cov)
    kept = values > len(cov) * np.finfo(cov.dtype).eps * max(values.max(), 0.0)
    return vectors[:, kept] * np.sqrt(values[kept])
