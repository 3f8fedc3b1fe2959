"""`rigollet25_long_context`: attention among very many equiangular tokens, and its transition in β."""

from __future__ import annotations

import math

from measureformer.errors import OptionError
from measureformer.numerics.arrays import positive_int, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def rigollet25_long_context(rho: ArrayLike, gamma: ArrayLike, n: int | None = None) -> float:
    """The cosine of two outputs of attention among n equiangular tokens of cosine ρ, at β = γ log n.

    In the limit n → ∞, a small γ makes all outputs equal and a large γ makes attention the identity.

    Arguments:
        rho: ρ in (0, 1).
        gamma: γ.
        n: number of tokens, at least 2; by default the limit n → ∞.

    Statement   the limit is 1 for γ < 1/(1−ρ), 4ρ/(1+3ρ) for γ = 1/(1−ρ), ρ for γ > 1/(1−ρ)
    Hypotheses  checked: 0 < ρ < 1.  assumed: Q = K = V = I, one softmax.
    Ref         rigollet2025.

    >>> import measureformer as mf
    >>> [mf.clustering.rigollet25_long_context(0.5, gamma) for gamma in (1.5, 2.0, 2.5)]
    [1.0, 0.8, 0.5]
    >>> round(mf.clustering.rigollet25_long_context(0.5, 2.0, 10**6), 4)
    0.8
    """
    rho, gamma = float(scalar(rho, "rho")), float(scalar(gamma, "gamma"))
    if not 0 < rho < 1:
        raise OptionError(got=f"rho = {rho:g}", need="0 < rho < 1", do="At rho = 0 outputs stay orthogonal.")
    if n is None:
        critical = 1 / (1 - rho)
        return 4 * rho / (1 + 3 * rho) if gamma == critical else 1.0 if gamma < critical else rho
    others = positive_int(n, "n") - 1
    if others < 1:
        raise OptionError(got=f"n = {n}", need="n ≥ 2", do="A cosine needs two tokens.")
    # the weight of a token itself; each of the others has (1 − own)/others
    own = 1 / (1 + others * math.exp(-gamma * (1 - rho) * math.log(n)))
    each = (1 - own) / others
    # Σ_jk w_j w_k ⟨x_j,x_k⟩ = ρ(Σw)² + (1 − ρ)Σw²; two outputs share all weights but those of the pair
    square = rho + (1 - rho) * (own**2 + others * each**2)
    product = rho + (1 - rho) * (2 * own * each + (others - 1) * each**2)
    return product / square
