"""`rescaled_flow`: tokens that grow exponentially, in the coordinates in which they converge."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DtypeError, NotFiniteError, OptionError
from measureformer.flows.schedule import checked_times
from measureformer.flows.solve import AbstractField, checked_tolerance, solve
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.numerics.arrays import cast, common_dtype, default_float, on_device
from measureformer.numerics.types import ArrayLike

LEADERS = 1 << 22
"""Logits that `leaders` holds in memory at a time."""


class RescaledFlow(eqx.Module):
    """The rescaled tokens z = e^{−tV}x at the requested times; see `rescaled_flow`."""

    times: Float[Array, " t"]
    points: Float[Array, "t n d"]
    log_weights: Float[Array, " n"]
    growth: Float[Array, "d d"]
    """V, with the output matrix of the head."""
    A: Float[Array, "d d"]

    @property
    def measures(self) -> tuple[Discrete, ...]:
        """The measures of the rescaled tokens at `times`."""
        return tuple(Discrete(on_device(points), self.log_weights) for points in np.asarray(self.points))

    def tokens(self, i: int) -> np.ndarray:
        """The tokens themselves, e^{tV}z.

        Arguments:
            i: index into `times`.
        """
        from scipy.linalg import expm

        return np.asarray(self.points[i]) @ expm(float(self.times[i]) * np.asarray(self.growth)).T

    def leaders(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """For every token, the token it attends to most, and the share of its attention there.

        Arguments:
            i: index into `times`.
        """
        from scipy.linalg import expm

        E, z, lw = expm(float(self.times[i]) * np.asarray(self.growth)), np.asarray(self.points[i]), self.log_weights
        q, k, lw = z @ (E.T @ np.asarray(self.A) @ E).T, z - z.mean(axis=0), np.asarray(lw)
        rows = max(1, LEADERS // len(z))
        index, share = np.zeros(len(z), int), np.zeros(len(z))
        for start in range(0, len(z), rows):
            here = slice(start, start + rows)
            logits = q[here] @ k.T + lw
            index[here] = logits.argmax(axis=1)
            share[here] = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
        return index, share


def rescaled_flow(G: Attention, mu: Discrete | ArrayLike, times: ArrayLike, *, rtol: float = 1e-8) -> RescaledFlow:
    """The flow x_i' = G(mu, x_i) of one softmax head, in the coordinates z = e^{−tV}x, in which it converges.

    The tokens x grow like e^{tV}, and the logits twice as fast; for V = I, z stays in the convex hull of its start. The
    weights are computed from z with the matrix e^{tVᵀ}Ae^{tV} and from centred keys, relative to the largest logit, so
    nothing overflows while e^{2t|V|} is a number (t < 350 for V = I).

    Arguments:
        G: one softmax head of R^d to itself.
        mu: the tokens at time 0: a measure, or points (n, d).
        times: increasing output times, (t,); the first must be 0.
        rtol: relative error of each adaptive step.

    Statement   z_i' = Σ_j P_ij V(z_j − z_i),  P_ij ∝ e^{⟨e^{tVᵀ}Ae^{tV} z_i, z_j⟩};  for V = I and A ≻ 0 the hull of z
                shrinks to a polytope with vertices v_j, and each z_i tends to a point with ⟨Az,z⟩ = max_j ⟨Az,v_j⟩
    Ref         geshkovski2023b.

    >>> import numpy as np, measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> traj = mf.clustering.rescaled_flow(G, [[-1.0], [0.3], [1.0]], [0.0, 20.0])
    >>> np.asarray(traj.points[1]).round(3).tolist(), traj.leaders(1)[0].tolist()
    ([[-0.859], [0.83], [0.83]], [0, 2, 2])
    """
    times = checked_times(times)
    mu = mu if isinstance(mu, Discrete) else Discrete.uniform(checked_points(mu))
    _check(G, mu, times)
    given, dtype = common_dtype(G, mu), default_float()
    padded, head = cast((mu.padded(), G), dtype)
    V, A = np.asarray(head.W[0]) @ np.asarray(head.V[0]), np.asarray(head.A[0])
    _check_size(V, A, times[-1], float(mu.radius()))
    field = _Rescaled(V, A, padded.log_weights)
    rtol = checked_tolerance(rtol, dtype)
    size = float(mu.radius()) or 1.0

    def rescaled(z: np.ndarray) -> Discrete:
        return mu.with_points(on_device(z[: mu.n]))

    found = solve(field, np.asarray(padded.points), times, rtol=rtol, atol=rtol * size, seen=rescaled)
    arrays = cast((times, found.states[:, : mu.n], np.asarray(mu.log_weights), V, A), given)
    return RescaledFlow(*map(on_device, arrays))


class _Rescaled(AbstractField):
    V: Any
    A: Any
    log_weights: Any

    def velocity(self, t: Any, y: Any) -> Any:
        E = jax.scipy.linalg.expm(t * self.V)
        shares = jax.nn.softmax(self.log_weights)
        # softmax is invariant under a common shift of the keys, and centred keys lose fewer digits
        centred = y - shares @ y
        seen = attend(y @ (E.T @ self.A @ E).T, centred, centred, self.log_weights).values
        return (seen - centred) @ self.V.T


def _check_size(V: np.ndarray, A: np.ndarray, time: float, radius: float) -> None:
    from scipy.linalg import expm

    with np.errstate(over="ignore", invalid="ignore"):
        E = expm(time * V)
        largest = np.abs(E.T @ A @ E).max() * radius**2
    if not largest < 1e300:
        raise NotFiniteError(
            got=f"logits beyond the largest number at t = {time:g}",
            need="e^{2t|V|} times the logits of the start below 1e300",
            do="Ask for earlier times: the limit is reached long before.",
        )


def _check(G: object, mu: Discrete, times: np.ndarray) -> None:
    if not isinstance(G, Attention) or G.Q.shape[0] != 1:
        raise DtypeError(
            got=f"G = {G if isinstance(G, Attention) else type(G).__name__}",
            need="one softmax head",
            do="Pass mf.Attention.head(Q, K, V); with several heads there is no common matrix V.",
        )
    concrete((G, mu), "rescaled_flow")
    G.check_meets(mu, None)
    G.check_stays(mu)
    if times[0] != 0:
        raise OptionError(got=f"times that begin at {times[0]:g}", need="times[0] = 0", do="At 0 z and x are the same.")


def polytope_vertices(points: ArrayLike) -> np.ndarray:
    """Indices of the points that are vertices of their convex hull, in increasing order.

    Arguments:
        points: a cloud (n, d), which may lie in a subspace.

    Cost        that of Qhull, about n^{d/2}: for dimensions up to 8 or so.

    >>> import measureformer as mf
    >>> mf.clustering.polytope_vertices([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]]).tolist()
    [0, 1, 2]
    """
    from scipy.spatial import ConvexHull

    concrete(points, "polytope_vertices")
    X = np.asarray(checked_points(points), np.float64)
    X = X - X.mean(axis=0)
    _, sizes, axes = np.linalg.svd(X, full_matrices=False)
    rank = int((sizes > max(X.shape) * np.finfo(np.float64).eps * sizes[0]).sum()) if sizes[0] > 0 else 0
    if rank == 0:
        return np.array([0])
    flat = X @ axes[:rank].T
    if rank == 1:
        return np.unique([flat[:, 0].argmin(), flat[:, 0].argmax()])
    return np.sort(ConvexHull(flat).vertices)
