"""`Rescaled`: one softmax head as a velocity in the coordinates in which growing tokens converge."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DimensionMismatchError, DtypeError, NotFiniteError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.rows import all_rows
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import at_once, floats, scalar, shaped
from measureformer.numerics.types import ArrayLike


class Rescaled(AbstractInContextMap):
    """(mu, z) ↦ e^{−tV} G(e^{tV}♯mu, e^{tV}z) − Vz: the velocity of z = e^{−tV}x where x moves by a softmax head G.

    `mf.flow(Rescaled(G), mu, times)` moves the rescaled tokens, with t the time of the flow; as a map of its own it is
    the velocity at `time`. The tokens x grow like e^{tV}, and the logits twice as fast; for V = I, z stays in the
    convex hull of its start. Logits are computed from z with the matrix e^{tVᵀ}Ae^{tV} and from centred keys, so
    nothing overflows while e^{2t|V|} is a number (t < 350 for V = I).

    Arguments:
        G: one softmax head of R^d to itself.
        time: t.

    Statement   Rescaled(G)(mu, z) = Σ_j P_j V(z_j − z),  P_j ∝ w_j e^{⟨e^{tVᵀ}Ae^{tV}z, z_j⟩};  for V = I and A ≻ 0 the
                hull of z shrinks to a polytope with vertices v_j, and each z_i tends to a point with
                ⟨Az,z⟩ = max_j ⟨Az,v_j⟩
    Ref         geshkovski2023b.

    >>> import numpy as np, measureformer as mf
    >>> G, mu = mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), mf.Discrete.uniform([[-1.0], [0.3], [1.0]])
    >>> mf.Rescaled(G, 20.0)(mu, [[-1.0], [0.5]]).round(3).tolist()                  # at its leader, and towards it
    [[0.0], [0.5]]
    >>> np.asarray(mf.flow(mf.Rescaled(G), mu, [0.0, 20.0]).points[-1]).round(3).tolist()
    [[-0.859], [0.83], [0.83]]
    """

    head: Attention
    time: Float[Array, ""]

    def __init__(self, G: AbstractInContextMap, time: ArrayLike = 0.0) -> None:
        if not isinstance(G, Attention) or G.Q.shape[0] != 1:
            raise DtypeError(
                got=f"G = {G if isinstance(G, Attention) else type(G).__name__}",
                need="one softmax head",
                do="Pass mf.Attention.head(Q, K, V); with several heads there is no common matrix V.",
            )
        if G.out_dim(G.in_dim) != G.in_dim:
            raise DimensionMismatchError(
                got=f"a head from R^{G.in_dim} to R^{G.out_dim(G.in_dim)}",
                need="a map of a space to itself",
                do="Compose its output matrix W with a projection.",
            )
        self.head, self.time = G, scalar(time, "time")

    @property
    def in_dim(self) -> int:
        return self.head.in_dim

    @property
    def growth(self) -> Float[Array, "d d"]:
        """V, with the output matrix of the head."""
        return self.head.W[0] @ self.head.V[0]

    @property
    def logits(self) -> Float[Array, "d d"]:
        """e^{tVᵀ}Ae^{tV}: the logit of a query z and a token y is ⟨this · z, y⟩."""
        E = jax.scipy.linalg.expm(self.time * self.growth)
        return E.T @ self.head.A[0] @ E

    def at_time(self, t: ArrayLike) -> Rescaled:
        """The velocity at another time.

        Arguments:
            t: the time.
        """
        return Rescaled(self.head, t)

    def original(self, z: ArrayLike) -> Float[Array, "n d"]:
        """The tokens x = e^{tV}z themselves, at `time`.

        Arguments:
            z: rescaled tokens, (n, d).
        """
        rows = shaped(floats(z, "z"), "z", "n d")
        return at_once(lambda: rows @ jax.scipy.linalg.expm(self.time * self.growth).T)

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        middle = jax.nn.softmax(mu.log_weights) @ mu.points
        # softmax is invariant under a common shift of the keys, and centred keys lose fewer digits
        keys = mu.points - middle
        seen = attend(x @ self.logits.T, keys, keys, mu.log_weights, times=mu.visible(t)).values
        return (seen - (x - middle)) @ self.growth.T

    def refuse_overflow(self, time: float, radius: float) -> None:
        """Refuse a time at which the logits of tokens in a ball are beyond the largest number.

        Arguments:
            time: the last time of a flow.
            radius: radius of the ball.
        """
        from scipy.linalg import expm

        with np.errstate(over="ignore", invalid="ignore"):
            E = expm(time * np.asarray(self.growth))
            largest = np.abs(E.T @ np.asarray(self.head.A[0]) @ E).max() * radius**2
        if not largest < float(np.finfo(E.dtype).max) * 1e-8:
            raise NotFiniteError(
                got=f"logits beyond the largest number at t = {time:g}",
                need="e^{2t|V|} times the logits of the start far below the largest number of the arithmetic",
                do="Ask for earlier times: the limit is reached long before.",
            )

    def __str__(self) -> str:
        return f"Rescaled({self.head})"
