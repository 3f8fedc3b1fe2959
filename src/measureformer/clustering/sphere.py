"""`sphere_flow`: tokens on the unit sphere that attend to each other, in continuous depth."""

from __future__ import annotations

import math
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import NotFiniteError, OffSphereError, OptionError, ZeroVectorError
from measureformer.flows.schedule import checked_times
from measureformer.flows.solve import AbstractField, checked_tolerance, solve
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.numerics.arrays import cast, common_dtype, default_float, on_device, scalar
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.numerics.types import ArrayLike

Norm = Literal["post", "pre"]


class SphereFlow(eqx.Module):
    """Tokens on the sphere at the requested times; see `sphere_flow`."""

    times: Float[Array, " t"]
    points: Float[Array, "t n d"]
    """The tokens divided by their norms."""
    norms: Float[Array, "t n"]
    """Their norms: 1, unless `norm="pre"`."""
    beta: float
    normalized: bool

    @property
    def measures(self) -> tuple[Discrete, ...]:
        """The uniform measures of the tokens at `times`."""
        return tuple(Discrete.uniform(points) for points in np.asarray(self.points))

    def energy(self) -> np.ndarray:
        """The energy E_β at `times`, which never decreases."""
        return np.array([sphere_energy(points, self.beta) for points in np.asarray(self.points)])


def sphere_flow(
    points: ArrayLike,
    beta: ArrayLike,
    times: ArrayLike,
    *,
    normalized: bool = True,
    norm: Norm = "post",
    rtol: float = 1e-9,
) -> SphereFlow:
    """Tokens on the unit sphere, each drawn towards what it attends to: SA, or USA if not `normalized`.

    The solver integrates the lift x_i' = |x_i| v_i(x/|x|), which is homogeneous of degree 1 in each token: a
    Runge–Kutta step of the lift, divided by its norm, is a step of the method with projection, of the same order.
    Memory is linear in n.

    Arguments:
        points: tokens (n, d), of norm 1; with norm="pre" anywhere but at 0.
        beta: inverse temperature.
        times: increasing output times, (t,); the first is the time of `points`.
        normalized: divide attention by its normaliser (SA); without it the flow is the gradient flow of the energy.
        norm: "post" normalises after each of infinitely many layers, which keeps tokens on the sphere; "pre" normalises
            the input of each layer, so that tokens grow (`norms`) and their directions (`points`) slow down.
        rtol: relative error of each adaptive step; 1e-5 is enough for clusters and figures.

    Statement   SA   x_i' = Proj_{x_i}(Σ_j e^{β⟨x_i,x_j⟩} x_j / Σ_j e^{β⟨x_i,x_j⟩}),   Proj_x y = y − ⟨x,y⟩x
                USA  x_i' = Proj_{x_i}(Σ_j e^{β⟨x_i,x_j⟩} x_j / n)
                "pre": the same sums of x/|x|, without the projection; directions θ and norms r then follow
                θ_i' = Proj_{θ_i}(…)/r_i, r_i' = ⟨θ_i, …⟩
    Hypotheses  checked: |x_i| = 1 up to rounding, for "post".
    Cost        13 attentions of n tokens for each step.
    Ref         geshkovski2023; rigollet2025 for "pre".

    >>> import numpy as np, measureformer as mf
    >>> traj = mf.clustering.sphere_flow(np.eye(3), 0.0, [0.0, 1.0])
    >>> products = traj.points[1] @ traj.points[1].T
    >>> abs(float(products[0, 1]) - mf.clustering.geshkovski23_equiangular(3, 1.0)) < 1e-8
    True
    """
    times, post = checked_times(times), checked_norm(norm) == "post"
    given, dtype = common_dtype(X := on_sphere(points) if post else off_zero(points)), default_float()
    slope = float(scalar(beta, "beta"))
    n, size = len(X), bucket(len(X))
    X = X.astype(dtype)
    start = pad_rows(X / np.linalg.norm(X, axis=1, keepdims=True) if post else X, size)
    log_weights = pad_log_weights(np.full(n, -math.log(n), dtype), size)
    field = _Sphere(np.asarray(slope, dtype), log_weights, bool(normalized), post)
    rtol = checked_tolerance(rtol, dtype)
    found = solve(field, start, times, rtol=rtol, atol=rtol, seen=lambda y: Discrete.uniform(y[:n]))
    states = found.states[:, :n]
    norms = np.linalg.norm(states, axis=2)
    states, norms = states / norms[:, :, None], np.ones_like(norms) if post else norms
    arrays = cast((times, states, norms), given)
    return SphereFlow(*map(on_device, arrays), beta=slope, normalized=bool(normalized))


class _Sphere(AbstractField):
    beta: Any
    log_weights: Any
    normalized: bool = eqx.field(static=True)
    post: bool = eqx.field(static=True)

    def velocity(self, t: Any, y: Any) -> Any:
        norm = jnp.sqrt(jnp.sum(y * y, axis=1, keepdims=True))
        x = y / norm
        seen = attend(self.beta * x, x, x, self.log_weights)
        drift = seen.values if self.normalized else jnp.exp(seen.log_normalizer)[:, None] * seen.values
        if not self.post:
            return drift
        # without the projection x/|x| moves in the same way, but norms grow like e^t
        return norm * (drift - jnp.sum(drift * x, axis=1, keepdims=True) * x)


def checked_norm(norm: Norm) -> Norm:
    """Refuse anything but the two names."""
    if norm not in ("post", "pre"):
        raise OptionError(got=f"norm = {norm!r}", need='"post" or "pre"', do='Leave it out for "post".')
    return norm


def sphere_energy(points: ArrayLike, beta: ArrayLike) -> float:
    """E_β = Σ_ij e^{β⟨x_i,x_j⟩}/(2βn²); at β = 0 the limit of E_β − 1/(2β), which is |mean of the tokens|²/2.

    Arguments:
        points: tokens (n, d) of norm 1.
        beta: inverse temperature.

    Statement   along USA, dE/dt = Σ_i |x_i'|²/n ≥ 0; along SA it does not decrease either
    Ref         geshkovski2023.

    >>> import numpy as np, measureformer as mf
    >>> round(mf.clustering.sphere_energy(np.eye(2), 1.0), 6), mf.clustering.sphere_energy(np.eye(2), 0.0)
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


def on_sphere(points: ArrayLike) -> np.ndarray:
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


def off_zero(points: ArrayLike) -> np.ndarray:
    """Points as NumPy, refused if one of them has no direction."""
    concrete(points, "a flow on the sphere")
    X = np.asarray(checked_points(points))
    norms = np.linalg.norm(X, axis=1)
    if not norms.min() > 0:
        raise ZeroVectorError(
            got=f"point {int(norms.argmin())} at 0", need="points with a direction", do="Take it out, or move it."
        )
    return X
