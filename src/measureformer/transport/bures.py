"""W_2 between Gaussians: the distance of the means and the Bures distance of the covariances."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from measureformer.measures import Gaussian
from measureformer.numerics.arrays import host, namespace
from measureformer.numerics.roots import psd_root
from measureformer.transport.sparse import Cost, fixed, largest_move


def bures_cost(mu: Gaussian, nu: Gaussian) -> Cost:
    """W_2² of the normalised laws, as a sum of squares: never negative, whatever the covariances.

    Statement   W_2²(N(m,A), N(n,B)) = |m−n|² + min_U ‖A^{1/2} − B^{1/2}U‖_F² over orthogonal U. The minimum is at the
                polar factor U of B^{1/2}A^{1/2}, and equals tr A + tr B − 2 tr (A^{1/2}BA^{1/2})^{1/2}.
    Hypotheses  none: covariances may be singular. There W_2² has one-sided derivatives only, and automatic
                differentiation gives that along covariances of the same range.
    Cost        O(d³).
    Ref         peyre2019, Remark 2.31.
    """
    xp = namespace(mu, nu)
    a, b = (host(psd_root(measure.cov)) for measure in (mu, nu))
    moves = xp.concatenate([(host(mu.center) - host(nu.center))[None], a - b @ fixed(_polar(xp, b @ a))])
    scale = fixed(largest_move(xp.abs(moves), xp.ones_like(moves)))
    return Cost(scale, xp.sum((moves / scale) ** 2))


def _polar(xp: ModuleType, matrix: Any) -> Any:
    left, _, right = xp.linalg.svd(matrix)
    return left @ right
