"""`weak_residual`: does a trajectory solve the continuity equation? Asked of the trajectory, not of the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, OptionError, ShapeError, TimeError
from measureformer.flows.trajectory import AbstractTrajectory
from measureformer.flows.velocity import Depthwise, alike
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import at_once, cast, common_dtype
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked

ScalarFunction = Callable[[Array], Array]
SCALES = (0.5, 1.0, 2.0)
DIRECTIONS = 3


class WeakResidual(eqx.Module):
    """How far a trajectory is from the continuity equation, for each test function; see `weak_residual`."""

    times: Float[np.ndarray, " k"]
    residuals: Float[np.ndarray, "k q"]
    """∫ψ dmu_t − ∫ψ dmu_0 − ∫_0^t ∫ ∇ψ·v[mu_r] dmu_r dr. That between s and t is the difference of two rows."""
    errors: Float[np.ndarray, "k q"]
    """Estimated error of the integral over time."""
    moved: Float[np.ndarray, " q"]
    """∫ ∫ |∇ψ·v[mu_r]| dmu_r dr over all times: how much ψ changes along the paths."""

    @property
    def relative(self) -> float:
        """The largest residual between two times, as a share of how much its ψ changes along the paths.

        A velocity that is wrong by 1 % shows as about 0.01.
        """
        return self._share(self.residuals.max(axis=0) - self.residuals.min(axis=0))

    @property
    def quadrature(self) -> float:
        """The same for the estimated error of the integral over time: below it `relative` says nothing."""
        return self._share(2 * self.errors.max(axis=0))

    def _share(self, sizes: np.ndarray) -> float:
        return float(np.where(self.moved > 0, sizes / np.where(self.moved > 0, self.moved, 1), sizes).max())


@checked
def weak_residual(
    traj: AbstractTrajectory,
    velocity: AbstractInContextMap | None = None,
    *,
    tests: Sequence[ScalarFunction] | None = None,
) -> WeakResidual:
    """How well the measures of a trajectory satisfy the continuity equation in its weak form.

    Reads the stored measures only and solves nothing again, so it detects a wrong solver as well as a wrong velocity.
    The integral over time is that of a cubic spline through all times; its error is estimated by leaving out every
    other time. More times make both sharper.

    Arguments:
        traj: what `flow` returns, if its measures have atoms.
        velocity: the velocity to check against; that of the trajectory by default.
        tests: JAX functions ψ of one point (d,) with values in R; by default waves and bumps of three scales around the
            mean.

    Statement   ∫ψ dmu_t − ∫ψ dmu_s = ∫_s^t ∫ ∇ψ·v[mu_r] dmu_r dr for all smooth ψ and all s < t
    Cost        one velocity for each time.
    Ref         furuya2025, equation (12).

    >>> import numpy as np, measureformer as mf
    >>> G, mu = mf.Linear([[0.0, 1.0], [-1.0, 0.0]]), mf.Discrete.uniform([[1.0, 0.0], [0.0, 0.5]])
    >>> traj = mf.flow(G, mu, np.linspace(0, 1, 21), solver="rk4", steps=4)
    >>> good, bad = mf.flows.weak_residual(traj), mf.flows.weak_residual(traj, 1.01 * G)
    >>> good.relative < 1e-4, good.quadrature < 1e-3, 0.005 < bad.relative < 0.015
    (True, True, True)
    """
    times, measures, G = _parts(traj, velocity)
    family = _default(measures) if tests is None else _Given(_checked(tests))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *_same_size(measures))
    dtype = common_dtype(G, stacked)
    found = at_once(_integrals, *cast((G, stacked, family), dtype))
    values, rates, sizes = (np.asarray(part, np.float64)[: len(times)] for part in found)
    fine, coarse = _antiderivative(times, rates, 1), _antiderivative(times, rates, 2)
    moved = np.diff(times) @ (sizes[1:] + sizes[:-1]) / 2
    return WeakResidual(times, values - values[0] - fine, np.abs(fine - coarse), moved)


class _Given(eqx.Module):
    tests: tuple[ScalarFunction, ...]

    def __call__(self, x: Array) -> Array:
        values = [psi(x) for psi in self.tests]
        if any(jnp.shape(value) != () for value in values):
            raise ShapeError(
                got=f"test functions with values of shape {[jnp.shape(value) for value in values]}",
                need="one number each",
                do="A test function takes one point (d,); the library applies it to all of them.",
            )
        return jnp.stack(values).astype(x.dtype)


class _Family(eqx.Module):
    """cos and sin of ⟨w, x − c⟩, and bumps e^{−|x − c|²/2s²}: bounded, smooth, of several scales."""

    center: Any
    waves: Any
    widths: Any

    def __call__(self, x: Array) -> Array:
        y = x - self.center
        phases = self.waves @ y
        bumps = jnp.exp(-jnp.sum(y * y) / (2 * self.widths**2))
        return jnp.concatenate([jnp.cos(phases), jnp.sin(phases), bumps])


def _default(measures: Sequence[AbstractAtomic]) -> _Family:
    """Around the mean of the first measure, by the size of the largest; along the directions in which they spread."""
    points = np.concatenate([np.asarray(mu.mean())[None] for mu in measures])
    covariance = np.mean([np.asarray(mu.covariance()) for mu in measures], axis=0) + np.cov(points.T, ddof=0)
    values, vectors = np.linalg.eigh(covariance)
    size = float(np.sqrt(max(values[-1], 0))) or 1.0
    widths = size * np.asarray(SCALES)
    directions = vectors[:, ::-1][:, :DIRECTIONS].T
    return _Family(points[0], (directions[None] / widths[:, None, None]).reshape(-1, points.shape[1]), widths)


def _checked(tests: Sequence[ScalarFunction]) -> tuple[ScalarFunction, ...]:
    if not isinstance(tests, Sequence) or not tests or not all(map(callable, tests)):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise DtypeError(
            got=f"tests of type {type(tests).__name__}",
            need="a list of functions of one point",
            do="For one function pass a list of it: tests=[lambda x: x[0]].",
        )
    return tuple(tests)


def _parts(
    traj: AbstractTrajectory, velocity: AbstractInContextMap | None
) -> tuple[np.ndarray, tuple[AbstractAtomic, ...], AbstractInContextMap]:
    if not hasattr(traj, "times") or not hasattr(traj, "measures"):
        raise DtypeError(
            got=f"a trajectory of type {type(traj).__name__}",
            need="an object with `times` and `measures`",
            do="Pass what mf.flow returns.",
        )
    G = getattr(traj, "velocity", None) if velocity is None else velocity
    if isinstance(G, Depthwise) and len(G.maps) == 1:
        G = G.maps[0]
    if not isinstance(G, AbstractInContextMap):
        raise OptionError(
            got="a velocity that depends on depth" if isinstance(G, Depthwise) else f"{type(G).__name__} as a velocity",
            need="one in-context map for all times",
            do="Pass the velocity; check a network of several layers one layer at a time.",
        )
    concrete((traj, G), "weak_residual")
    times, given = np.asarray(traj.times, np.float64), tuple(traj.measures)
    measures = tuple(mu for mu in given if isinstance(mu, AbstractAtomic))
    if len(measures) < len(given):
        raise DtypeError(
            got=f"measures of type {type(given[0]).__name__}",
            need="measures with atoms",
            do="Take the flow of atoms; those of a Gaussian are mu.discretize(n).",
        )
    if len(times) != len(measures) or len(times) < 3 or (np.diff(times) <= 0).any():
        raise TimeError(
            got=f"{len(measures)} measures at {len(times)} times",
            need="at least three increasing times, and a measure at each, so that time can be integrated over",
            do="Ask the flow for more times: np.linspace(0, T, 33).",
        )
    G.check_meets(measures[0], getattr(measures[0], "times", None))
    return times, measures, G


def _same_size(measures: Sequence[AbstractAtomic]) -> list[AbstractAtomic]:
    """Padded to bucket sizes of atoms and times, so that new numbers of either compile nothing."""
    size = bucket(max(mu.n for mu in measures))
    padded = [mu.padded(size) for mu in measures]
    return padded + padded[-1:] * (bucket(len(padded)) - len(padded))


@eqx.filter_jit
def _integrals(G: AbstractInContextMap, measures: Any, tests: Any) -> tuple[Array, Array, Array]:
    """∫ψ dmu, ∫∇ψ·v dmu and ∫|∇ψ·v| dmu for all times and tests."""

    def at(mu: Any) -> tuple[Array, Array, Array]:
        velocity = alike(G.at_atoms(mu), mu.points)
        values, rates = jax.vmap(lambda x, v: jax.jvp(tests, (x,), (v,)))(mu.points, velocity)
        weights = mu.weights
        return weights @ values, weights @ rates, weights @ jnp.abs(rates)

    return jax.lax.map(at, measures)


def _antiderivative(times: np.ndarray, rates: np.ndarray, stride: int) -> np.ndarray:
    """The integral from the first time on, at all times, of the spline through every `stride`-th and the last one."""
    from scipy.interpolate import CubicSpline

    used = np.unique(np.r_[np.arange(0, len(times), stride), len(times) - 1])
    return CubicSpline(times[used], rates[used]).antiderivative()(times)
