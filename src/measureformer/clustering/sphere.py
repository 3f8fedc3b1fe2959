"""`sphere_energy`: what tokens on the unit sphere climb when they attend to each other."""

from __future__ import annotations

import math

import numpy as np

from measureformer.attention import attend
from measureformer.errors import NotFiniteError, OffSphereError
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.numerics.arrays import default_float, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def sphere_energy(points: ArrayLike, beta: ArrayLike) -> float:
    """E_β = Σ_ij e^{β⟨x_i,x_j⟩}/(2βn²); at β = 0 the limit of E_β − 1/(2β), which is |mean of the tokens|²/2.

    Arguments:
        points: tokens (n, d) of norm 1.
        beta: inverse temperature.

    Statement   dE/dt = Σ_i |x_i'|²/n ≥ 0 along the flow of `Tangent` of `UnnormalizedAttention` (USA); along that of
                `Attention` (SA) it does not decrease either
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
    concrete(points, "sphere_energy")
    X = np.asarray(checked_points(points))
    off = np.abs(np.linalg.norm(X, axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > 1e4 * np.finfo(X.dtype).eps:
        raise OffSphereError(
            got=f"point {worst} with norm {float(np.linalg.norm(X[worst])):.12g}",
            need="points of norm 1",
            do="Divide each by its norm: mf.UnitNorm(np.ones(d)).tokens(points).",
        )
    return X
