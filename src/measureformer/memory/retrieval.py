"""When a modern memory retrieves a pattern: separation, one update, contraction, and basins, as theorems."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from measureformer.errors import OptionError
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, NotNegative, Positive

_floats = partial(np.asarray, dtype=float)


def ramsauer20_separation(
    beta: ArrayLike, n: ArrayLike, radius: ArrayLike, odds: ArrayLike | None = None
) -> np.ndarray:
    """Separation that suffices for a pattern of a modern memory to be stored.

    Arguments:
        beta: inverse temperature β.
        n: number N of patterns.
        radius: M, the largest norm of a pattern.
        odds: (A − a_i)/a_i for a pattern of mass a_i among patterns of total mass A; N − 1 by default.

    Statement   Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩ ≥ 2/(βN) + ln(2(N−1)NβM²)/β: then the update maps the ball of
                radius 1/(βNM) around x_i into itself, and is a contraction there
    Hypotheses  assumed: |x_j| ≤ M.
    Ref         ramsauer2020, Definition 1 and Appendix A.

    For patterns with mass, `odds` replaces N − 1. The proof is the same: all it needs of the other patterns is their
    share 1 − p_i ≤ odds · e^{−β(Δ_i − 2M|ξ−x_i|)} of the softmax.

    >>> import measureformer as mf
    >>> round(float(ramsauer20_separation(1.0, 1000, 63**0.5)), 2)
    18.65
    """
    beta, n, radius = map(_floats, (beta, n, radius))
    with np.errstate(divide="ignore"):
        return 2 / (beta * n) + np.log(2 * (n - 1 if odds is None else _floats(odds)) * n * beta * radius**2) / beta


def ramsauer20_beta(separation: float, n: int, radius: float) -> float:
    """The smallest β above 1/Δ at which `ramsauer20_separation` is Δ.

    Arguments:
        separation: Δ > 0.
        n: number N of patterns.
        radius: M > 0, the largest norm of a pattern.

    Statement   with C = 2(N−1)NM²: Δ = 2/(βN) + ln(Cβ)/β says (−βΔ) e^{−βΔ} = −z, z = Δ e^{−2/N}/C, so β = −W₋₁(−z)/Δ
    Ref         ramsauer2020, Definition 1 and Appendix A.

    >>> import measureformer as mf
    >>> beta = ramsauer20_beta(2.0, 100, 1.5)
    >>> abs(float(ramsauer20_separation(beta, 100, 1.5)) - 2.0) < 1e-12
    True
    """
    from scipy.special import lambertw

    if not (separation > 0 and radius > 0 and n >= 1):
        raise OptionError(
            got=f"separation = {separation}, n = {n}, radius = {radius}",
            need="positive numbers",
            do="Patterns that are equal, or shorter than another in its direction, are stored at no β.",
        )
    if n == 1 or separation == math.inf:
        return 1.0
    z = separation * math.exp(-2 / n) / (2 * (n - 1) * n * radius**2)
    return 1 / separation if z >= 1 / math.e else float(-lambertw(-z, -1).real / separation)


def ramsauer20_one_step(
    beta: ArrayLike, separation: ArrayLike, distance: ArrayLike, radius: ArrayLike, odds: ArrayLike
) -> np.ndarray:
    """Bound of |f(ξ) − x_i| after one update of a query ξ.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        distance: max(|ξ − x_i|, |x_i* − x_i|), with the fixed point x_i*.
        radius: M, the largest norm of a pattern.
        odds: N − 1 for N patterns, or (A − a_i)/a_i for a pattern of mass a_i among patterns of total mass A.

    Statement   |f(ξ) − x_i| ≤ 2(N−1)M exp(−β(Δ_i − 2M max(|ξ − x_i|, |x_i* − x_i|)))
    Hypotheses  assumed: |x_j| ≤ M.
    Ref         ramsauer2020, Theorem 5.

    >>> import measureformer as mf
    >>> float(ramsauer20_one_step(1.0, 30.0, 0.0, 8.0, 999.0)) < 2e-9
    True
    """
    beta, separation, distance, radius, odds = map(_floats, (beta, separation, distance, radius, odds))
    return 2 * odds * radius * np.exp(-beta * (separation - 2 * distance * radius))


def ramsauer20_contraction(
    beta: ArrayLike, separation: ArrayLike, distance: ArrayLike, radius: ArrayLike, odds: ArrayLike, n: ArrayLike
) -> np.ndarray:
    """Bound of the contraction of one update towards the fixed point x_i*.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        distance: max(|ξ − x_i|, |x_i* − x_i|).
        radius: M, the largest norm of a pattern.
        odds: as in `ramsauer20_one_step`.
        n: number N of patterns.

    Statement   |f(ξ) − x_i*| ≤ J |ξ − x_i*|, J = 2βNM²(N−1) exp(−β(Δ_i − 2M max(|ξ − x_i|, |x_i* − x_i|)))
    Ref         ramsauer2020, Theorem 4.

    >>> import measureformer as mf
    >>> float(ramsauer20_contraction(1.0, 40.0, 0.0, 8.0, 999.0, 1000)) < 1e-8
    True
    """
    return _floats(beta) * _floats(n) * _floats(radius) * ramsauer20_one_step(beta, separation, distance, radius, odds)


@checked
def basin(
    beta: Positive, separation: ArrayLike, radius: NotNegative, odds: NotNegative
) -> tuple[np.ndarray, np.ndarray]:
    """Radius r₊ of a ball around x_i from which updates end within r₋ of x_i; (0, inf) where none is certain.

    Arguments:
        beta: inverse temperature β.
        separation: Δ_i of the pattern x_i.
        radius: M, the largest norm of a pattern.
        odds: as in `ramsauer20_one_step`.

    Statement   with h(r) = 2 M odds e^{−β(Δ_i − 2Mr)}: |f(ξ) − x_i| ≤ h(|ξ − x_i|). If c = 4βM² odds e^{−βΔ_i} < 1/e,
                h(r) < r between r₋ = −W₀(−c)/(2βM) and r₊ = −W₋₁(−c)/(2βM): from |ξ − x_i| < r₊ the updates end in
                |ξ − x_i| ≤ r₋
    Proof       h is increasing, so distances fall below every number above the largest fixed point of h that is below
                the start. h(r) = r says y e^{−y} = c for y = 2βMr.
    Ref         ramsauer2020, Theorem 5, iterated.

    This needs only βΔ_i > 1 + ln(4βM²(N−1)), about half of what `ramsauer20_separation` needs.

    >>> import measureformer as mf
    >>> outer, inner = mf.memory.basin(1.0, 30.0, 8.0, 999.0)
    >>> 0.9 < float(outer) < 1.5, float(inner) < 1e-8
    (True, True)
    """
    return basin_of(beta, separation, radius, odds)


def basin_of(
    beta: ArrayLike, separation: ArrayLike, radius: ArrayLike, odds: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """`basin` for any numbers, those that overflow too."""
    from scipy.special import lambertw

    beta, separation, radius, odds = map(_floats, (beta, separation, radius, odds))
    with np.errstate(divide="ignore"):
        log_c = np.log(4 * beta * radius**2 * odds) - beta * separation
    certain = log_c < -1
    c = np.exp(np.where(certain, log_c, -1.0))
    unit = 2 * beta * radius
    with np.errstate(divide="ignore", invalid="ignore"):
        outer, inner = (-lambertw(-c, branch).real / unit for branch in (-1, 0))
    inner = np.where(unit > 0, inner, 0.0)
    # c underflows for a single pattern, or one far from all others: then W₋₁(−c) = ln c − ln(−ln c) + …
    far = np.where(c > 0, outer, np.where(log_c == -np.inf, np.inf, -log_c / unit))
    return np.where(certain, far, 0.0), np.where(certain, inner, np.inf)
