"""`positive_wasserstein`: a distance between positive measures of any mass."""

from __future__ import annotations

from jaxtyping import Array, Float

from measureformer.measures import AbstractMeasure
from measureformer.transport.intake import compared, exponent
from measureformer.transport.wasserstein import distance


def positive_wasserstein(mu: AbstractMeasure, nu: AbstractMeasure, p: float = 1) -> Float[Array, ""]:
    """W_p(mu/|mu|, nu/|nu|) + ||mu| − |nu||, the extension of W_p to positive measures of finite mass.

    Arguments:
        mu: first measure: atoms or a Gaussian.
        nu: second measure, of the same kind and dimension and any mass.
        p: exponent ≥ 1, as in `wasserstein`.

    Statement   a metric on positive measures: a sum of two pseudometrics which together separate points
    Hypotheses  assumed: masses are positive, which the constructors check.
    Ref         lombardini2021; furuya2025.

    >>> import measureformer as mf
    >>> mu = mf.Discrete.dirac([0.0])
    >>> round(float(mf.positive_wasserstein(mu, 3 * mf.Discrete.dirac([1.0]))), 12)
    3.0
    """
    p, pair = exponent(p), compared(mu, nu, masses=False)
    first, second = pair.masses
    return pair.result(distance(pair, p) + abs(first - second))
