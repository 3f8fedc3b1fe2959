"""`sphere_flow`: tokens on the unit sphere that attend to each other, in continuous depth."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import NotFiniteError, OffSphereError, OptionError
from measureformer.flows._plan import checked_times
from measureformer.flows._solve import AbstractField, checked_tolerance, solve
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.numerics.arrays import cast, common_dtype, default_float, on_device, positive_int, scalar
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows


class SphereFlow(eqx.Module):
    """Tokens on the sphere at the requested times; see `sphere_flow`."""

    times: Float[Array, " t"]
    points: Float[Array, "t n d"]
    beta: float
    normalized: bool

    @property
    def measures(self) -> tuple[Discrete, ...]:
        """The uniform measures of the tokens at `times`."""
        return tuple(Discrete.uniform(points) for points in np.asarray(self.points))

    def energy(self) -> np.ndarray:
        """The energy E_β at `times`, which never decreases."""
        return np.array([sphere_energy(points, self.beta) for points in np.asarray(self.points)])


def sphere_flow(points: Any, beta: Any, times: Any, *, normalized: bool = True, rtol: Any = 1e-9) -> SphereFlow:
    """Tokens (n, d) on the unit sphere, each drawn towards what it attends to: SA, or USA if not `normalized`.

    Steps are adaptive. The sphere is kept by construction: the field is lifted to x_i' = |x_i| v_i(x/|x|), which is
    homogeneous of degree 1 in each token, so that a Runge–Kutta step of the lift, divided by its norm, is a step of the
    method with projection, of the same order. Memory is linear in n.

    Statement   SA   x_i' = Proj_{x_i}(Σ_j e^{β⟨x_i,x_j⟩} x_j / Σ_j e^{β⟨x_i,x_j⟩}),   Proj_x y = y − ⟨x,y⟩x
                USA  x_i' = Proj_{x_i}(Σ_j e^{β⟨x_i,x_j⟩} x_j / n)
    Hypotheses  checked: |x_i| = 1 up to rounding.
    Cost        13 attentions of n tokens for each step.
    Ref         geshkovski2023.

    >>> import numpy as np, measureformer as mf
    >>> traj = mf.flows.sphere_flow(np.eye(3), 0.0, [0.0, 1.0])
    >>> products = traj.points[1] @ traj.points[1].T
    >>> abs(float(products[0, 1]) - mf.flows.geshkovski23_equiangular(3, 1.0)) < 1e-8
    True
    """
    times = checked_times(times)
    given, dtype = common_dtype(X := on_sphere(points)), default_float()
    beta = float(scalar(beta, "beta"))
    n, size = len(X), bucket(len(X))
    X = X.astype(dtype)
    start = pad_rows(X / np.linalg.norm(X, axis=1, keepdims=True), size)
    log_weights = pad_log_weights(np.full(n, -math.log(n), dtype), size)
    field = _Sphere(np.asarray(beta, dtype), log_weights, bool(normalized))
    rtol = checked_tolerance(rtol, dtype)

    def tokens(states: np.ndarray) -> np.ndarray:
        return states[..., :n, :] / np.linalg.norm(states[..., :n, :], axis=-1, keepdims=True)

    found = solve(field, start, times, rtol=rtol, atol=rtol, seen=lambda y: Discrete.uniform(tokens(y)))
    states = tokens(found.states)
    return SphereFlow(*map(on_device, cast((times, states), given)), beta=beta, normalized=bool(normalized))


class _Sphere(AbstractField):
    beta: Any
    log_weights: Any
    normalized: bool = eqx.field(static=True)

    def velocity(self, t: Any, y: Any) -> Any:
        norm = jnp.sqrt(jnp.sum(y * y, axis=1, keepdims=True))
        x = y / norm
        seen = attend(self.beta * x, x, x, self.log_weights)
        drift = seen.values if self.normalized else jnp.exp(seen.log_normalizer)[:, None] * seen.values
        # x/|x| moves in the same way without the projection, but norms would grow like e^t
        return norm * (drift - jnp.sum(drift * x, axis=1, keepdims=True) * x)


def sphere_energy(points: Any, beta: Any) -> float:
    """E_β = Σ_ij e^{β⟨x_i,x_j⟩}/(2βn²); at β = 0 the limit of E_β − 1/(2β), which is |mean of the tokens|²/2.

    Statement   along USA, dE/dt = Σ_i |x_i'|²/n ≥ 0; along SA it does not decrease either
    Ref         geshkovski2023.

    >>> import numpy as np, measureformer as mf
    >>> round(mf.flows.sphere_energy(np.eye(2), 1.0), 6), mf.flows.sphere_energy(np.eye(2), 0.0)
    (0.92957, 0.25)
    """
    X, beta = on_sphere(points).astype(default_float()), float(scalar(beta, "beta"))
    if beta == 0:
        return 0.5 * float(np.sum(X.mean(axis=0) ** 2))
    log_sums = np.asarray(attend(beta * X, X, np.zeros((len(X), 1))).log_normalizer) - math.log(len(X))
    if log_sums.max() > 700:
        raise NotFiniteError(
            got=f"an energy of about e^{log_sums.max():.0f} at beta = {beta:g}",
            need="a number that fits",
            do="Take |beta| below 700.",
        )
    return float(np.exp(log_sums).mean() / (2 * beta))


def on_sphere(points: Any) -> np.ndarray:
    """Points as NumPy, refused unless their norms are 1 up to rounding."""
    concrete(points, "a flow on the sphere")
    X = np.asarray(checked_points(points))
    off = np.abs(np.linalg.norm(X, axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > 1e4 * np.finfo(X.dtype).eps:
        raise OffSphereError(
            got=f"point {worst} with norm {float(np.linalg.norm(X[worst])):.12g}",
            need="points of norm 1",
            do="Divide each by its norm: mf.UnitNorm().tokens(points).",
        )
    return X


class Equiangular(eqx.Module):
    """Common inner product of n equiangular tokens along the flow; see `equiangular`."""

    times: Float[Array, " t"]
    cosines: Float[Array, " t"]
    log_gaps: Float[Array, " t"]
    """log(1 − γ), accurate also where γ is 1 to all digits."""


def equiangular(n: Any, beta: Any, times: Any, *, start: Any = 0.0, normalized: bool = True) -> Equiangular:
    """The inner product γ of n tokens that all have the same one, `start` at first: one equation instead of n.

    log(1 − γ) is integrated, so the tail is as accurate as the beginning.

    Statement   SA   γ' = 2(1−γ)((n−1)γ+1)/(e^{β(1−γ)}+n−1),    1 − γ ~ e^{−2t}
                USA  γ' = (2/n) e^{βγ}(1−γ)((n−1)γ+1),          1 − γ ~ e^{−2e^β t}
    Ref         geshkovski2023.

    >>> import measureformer as mf
    >>> curve = mf.flows.equiangular(32, 0.0, [0.0, 5.186261])
    >>> round(float(curve.cosines[1]), 6)
    0.999
    """
    times, n = checked_times(times), positive_int(n, "n")
    beta, start = float(scalar(beta, "beta")), float(scalar(start, "start"))
    if n < 2 or not -1 / (n - 1) < start < 1:
        raise OptionError(
            got=f"n = {n}, start = {start:g}",
            need="n ≥ 2 tokens and −1/(n−1) < start < 1",
            do="Orthogonal tokens have start = 0.",
        )
    dtype = default_float()
    field = _Equiangular(np.asarray(n, dtype), np.asarray(beta, dtype), bool(normalized))
    rtol = checked_tolerance(1e-11, dtype)
    log_gaps = solve(field, np.asarray(math.log1p(-start), dtype), times, rtol=rtol, atol=rtol).states
    return Equiangular(*map(on_device, (times.astype(dtype), -np.expm1(log_gaps), log_gaps)))


class _Equiangular(AbstractField):
    n: Any
    beta: Any
    normalized: bool = eqx.field(static=True)

    def velocity(self, t: Any, y: Any) -> Any:
        gap = jnp.exp(y)
        pull = 2 * ((self.n - 1) * (1 - gap) + 1)
        if self.normalized:
            return -pull / (jnp.exp(self.beta * gap) + self.n - 1)
        return -pull * jnp.exp(self.beta * (1 - gap)) / self.n


def geshkovski23_equiangular(n: int, t: float) -> float:
    """The inner product at time t of n tokens that start orthogonal, at β = 0.

    Statement   γ(t) = (e^{2t} − 1)/(e^{2t} + n − 1)
    Ref         geshkovski2023.

    >>> import measureformer as mf
    >>> mf.flows.geshkovski23_equiangular(2, 0.0)
    0.0
    """
    return -math.expm1(-2 * t) / (1 + (n - 1) * math.exp(-2 * t))
