"""`stability`: how far two flows of attention can drift apart, by Gronwall's inequality."""

from __future__ import annotations

import math

import equinox as eqx
import numpy as np

from measureformer.errors import DtypeError, OptionError
from measureformer.maps import Attention
from measureformer.measures.atomic import concrete
from measureformer.numerics.checked import checked


class Stability(eqx.Module):
    """Lipschitz constants of a velocity on a ball that its flow does not leave, and two inequalities for the flow.

    Arguments:
        point: L with |v[mu](x) − v[mu](y)| ≤ L |x − y|.
        measure: K with |v[mu](x) − v[nu](x)| ≤ K W_1(mu, nu).
        radius: radius of the ball that holds measures and points for both inequalities.
        time: t, the duration of the flow.
    """

    point: float
    measure: float
    radius: float
    time: float

    def between_measures(self, distance: float) -> float:
        """Upper bound of W_p(mu_t, nu_t) for every p ≥ 1: e^{(L+K)t} W_p(mu_0, nu_0).

        Arguments:
            distance: W_p(mu_0, nu_0).
        """
        return times(exp((self.point + self.measure) * self.time), distance)

    def between_points(self, gap: float, distance: float) -> float:
        """Upper bound of |φ_t[mu_0](x) − φ_t[nu_0](y)|: e^{Lt} |x − y| + e^{Lt} (e^{Kt} − 1) W_1(mu_0, nu_0).

        Arguments:
            gap: |x − y|.
            distance: W_1(mu_0, nu_0).
        """
        stretched = exp(self.point * self.time)
        try:
            mixed = math.expm1(self.measure * self.time)
        except OverflowError:
            mixed = math.inf
        return times(stretched, gap) + times(times(stretched, mixed), distance)


@checked
def stability(G: Attention, radius: float, time: float) -> Stability:
    """Bounds on how far two flows of softmax attention drift apart in a given time.

    Arguments:
        G: the velocity, softmax attention of R^d to itself.
        radius: R_0 > 0; both initial measures and points lie in B(0, R_0).
        time: t ≥ 0, the duration of the flow.

    Statement   for mu_0, nu_0, x, y in B(0, R_0) and R = R_0 e^{ct}, c = Σ_h ‖W_h V_h‖:
                W_p(mu_t, nu_t) ≤ e^{(L+K)t} W_p(mu_0, nu_0) for every p ≥ 1, and
                |φ_t[mu_0](x) − φ_t[nu_0](y)| ≤ e^{Lt} |x − y| + e^{Lt} (e^{Kt} − 1) W_1(mu_0, nu_0), with
                L = Σ_h ‖W_h V_h‖ s_h, K = Σ_h ‖W_h V_h‖ (1 + 2 s_h) e^{2 s_h}, s_h = ‖A_h‖R²
    Proof       along an optimal coupling of mu_0 and nu_0 the distance D of pairs has D' ≤ L D + K W_1 ≤ (L + K) D;
                the second inequality by variation of constants with the first.
    Hypotheses  checked: G is softmax attention of R^d to itself, the radius is positive, the time is not negative.
                assumed: the supports.
    Sharp?      K cannot be improved on the ball; both inequalities are doubly exponential in t, and pessimistic.
    Ref         dobrushin1979; piccoli2015, with constants derived for attention.

    >>> import measureformer as mf
    >>> bound = mf.flows.stability(mf.Attention.head([[0.0]], [[0.0]], [[1.0]]), radius=1.0, time=1.0)
    >>> bound.point, bound.measure, round(bound.between_measures(1.0), 4)      # v[mu](x) = mean of mu
    (0.0, 1.0, 2.7183)
    """
    if G.out_dim(G.in_dim) != G.in_dim:
        raise DtypeError(
            got=f"{G} as a velocity",
            need="softmax attention, mf.Attention, of a space to itself",
            do="For other velocities put your own constants into Stability(point, measure, radius, time).",
        )
    concrete(G, "stability")
    for name, value, allowed in (("radius", radius, radius > 0), ("time", time, time >= 0)):
        if not (allowed and math.isfinite(value)):
            raise OptionError(got=f"{name} = {value!r}", need="a finite number, not negative", do=f"Pass the {name}.")
    values = [norm(W @ V) for W, V in zip(np.asarray(G.W), np.asarray(G.V), strict=True)]
    reached = times(exp(sum(values) * time), radius)
    sizes = [times(norm(A), reached * reached) for A in np.asarray(G.A)]
    pairs = list(zip(values, sizes, strict=True))
    point = sum(times(v, s) for v, s in pairs)
    measure = sum(times(v, times(1 + 2 * s, exp(2 * s))) for v, s in pairs)
    return Stability(float(point), float(measure), float(reached), float(time))


def norm(matrix: np.ndarray) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(matrix, 2))


def exp(x: float) -> float:
    """e^x, or infinity on overflow, which is a bound as well."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def times(a: float, b: float) -> float:
    """The product of bounds, with 0 · ∞ = 0."""
    return 0.0 if a == 0 or b == 0 else a * b
