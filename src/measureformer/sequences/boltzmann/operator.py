"""The Boltzmann operator, and how far apart it keeps vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from measureformer.errors import OptionError, need
from measureformer.numerics.arrays import finite, floats, positive_int


def boltz(a: Any) -> Any:
    """Σ_i a_i e^{a_i} / Σ_i e^{a_i} along the last axis: below the maximum, and moved along by a shift.

    Ref         kajitsuka2024; asadi2017.

    >>> import measureformer as mf
    >>> float(mf.sequences.boltz([0.0, 0.0])), float(mf.sequences.boltz([0.0, 40.0]))
    (0.0, 40.0)
    """
    a = np.asarray(floats(a, "a"), float)
    finite(a, "a")
    shares = np.exp(a - a.max(axis=-1, keepdims=True))
    return (a * shares).sum(axis=-1) / shares.sum(axis=-1)


def log_boltz_gap(a: Any, b: Any) -> float:
    """ln |boltz(a) − boltz(b)| of two vectors, in as many digits as that needs; −inf if they are equal.

    Vectors that share their largest entries have values that agree to more digits than float64 has.

    Ref         kajitsuka2024, Lemma 3.

    >>> import measureformer as mf
    >>> round(mf.sequences.log_boltz_gap([100.0, 50.0, 0.0], [100.0, 50.0, -9.0]), 3)
    -95.395
    """
    need("mpmath", "atlas")
    import mpmath

    vectors = [np.asarray(floats(x, name), float).reshape(-1).tolist() for x, name in ((a, "a"), (b, "b"))]
    spread = max(max(x) for x in vectors) - min(min(x) for x in vectors)
    with mpmath.workdps(30 + math.ceil(2 * spread / math.log(10))):
        values = []
        for x in vectors:
            shares = [mpmath.exp(y - max(x)) for y in map(mpmath.mpf, x)]
            values.append(mpmath.fdot(shares, x) / mpmath.fsum(shares))
        gap = abs(values[0] - values[1])
        return float(mpmath.log(gap)) if gap > 0 else -math.inf


def kajitsuka24_separation(n: int, r: Any) -> float:
    """How far apart the Boltzmann operator keeps two vectors that are no permutations of each other.

    Statement   a, b in R^n with entries in [−r, r], any two different ones more than 2 ln n + 3 apart, not permutations
                of each other  ⟹  |boltz(a) − boltz(b)| > (ln n)² e^{−2r}
    Hypotheses  checked: n ≥ 2, r ≥ 0. assumed: the entries.
    Sharp?      far from it: see the claim.
    Ref         kajitsuka2024, Lemma 3.

    >>> import measureformer as mf
    >>> round(mf.sequences.kajitsuka24_separation(2, 3.0), 6)
    0.001191
    """
    if positive_int(n, "n") < 2 or not r >= 0:
        raise OptionError(got=f"n = {n}, r = {r}", need="n ≥ 2 and r ≥ 0", do="One entry has no context.")
    return math.log(n) ** 2 * math.exp(-2 * r)


def kajitsuka24_log_separation(n: int, d: int, tokens: int, sizes: Any) -> float:
    """The decimal logarithm of the separation that the theorem guarantees; sizes = (r_min, r_max, eps) of the tokens.

    Statement   one softmax layer of rank 1 keeps context vectors apart by 2 (ln n)² eps² r_min / (r_max² (V+1)⁴ (2 ln n
                + 3) π d) · exp(−(V+1)⁴ (2 ln n + 3) π d r_max² / (4 eps r_min)) for V tokens with norms in (r_min,
                r_max) and more than eps apart
    Sharp?      no: with a direction that suits the tokens thousands of digits are won.
    Ref         kajitsuka2024, Theorem 2.

    >>> import measureformer as mf
    >>> round(mf.sequences.kajitsuka24_log_separation(2, 1, 3, (1.0, 2.0, 0.5)))
    -3069
    """
    r_min, r_max, eps = sizes
    hard = (tokens + 1) ** 4 * (2 * math.log(n) + 3) * math.pi * d
    first = math.log(2 * math.log(n) ** 2 * eps**2 * r_min / (r_max**2 * hard))
    return (first - hard * r_max**2 / (4 * eps * r_min)) / math.log(10)
