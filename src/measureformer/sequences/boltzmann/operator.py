"""The Boltzmann operator, and lower bounds on how far apart it keeps vectors."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import numpy as np

from measureformer.errors import OptionError, need
from measureformer.numerics.arrays import finite, floats, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Filled, Real, Size

Exponents: TypeAlias = Annotated[ArrayLike, Real(filled=True, least=-1e4, most=1e4)]
"""Numbers whose exponentials are computed, with a digit for each two units of their spread."""


@checked
def boltz(a: Filled) -> np.ndarray:
    """Boltzmann operator Σ_i a_i e^{a_i} / Σ_i e^{a_i}: at most the maximum, equivariant under shifts.

    Arguments:
        a: vectors along the last axis, (…, n).

    Ref         kajitsuka2024; asadi2017.

    >>> import measureformer as mf
    >>> float(mf.sequences.boltz([0.0, 0.0])), float(mf.sequences.boltz([0.0, 40.0]))
    (0.0, 40.0)
    """
    a = np.asarray(floats(a, "a"), float)
    finite(a, "a")
    shares = np.exp(a - a.max(axis=-1, keepdims=True))
    return np.asarray((a * shares).sum(axis=-1) / shares.sum(axis=-1))


@checked
def log_boltz_gap(a: Exponents, b: Exponents) -> float:
    """ln |boltz(a) − boltz(b)|, computed with as many digits as it needs; −inf if they are equal.

    If two vectors share their largest entries, their values agree to more digits than float64 has.

    Arguments:
        a: first vector, (n,).
        b: second vector, (m,).

    Ref         kajitsuka2024, Lemma 3.

    >>> import measureformer as mf
    >>> round(mf.sequences.log_boltz_gap([100.0, 50.0, 0.0], [100.0, 50.0, -9.0]), 3)
    -95.395
    """
    mpmath = multiprecision()
    vectors = [np.asarray(floats(x, name), float).reshape(-1).tolist() for x, name in ((a, "a"), (b, "b"))]
    spread = max(max(x) for x in vectors) - min(min(x) for x in vectors)
    with mpmath.workdps(30 + math.ceil(2 * spread / math.log(10))):
        values: list[Any] = []
        for x in vectors:
            shares = [mpmath.exp(y - max(x)) for y in map(mpmath.mpf, x)]
            values.append(mpmath.fdot(shares, x) / mpmath.fsum(shares))
        gap = abs(values[0] - values[1])
        return float(mpmath.log(gap)) if gap > 0 else -math.inf


def multiprecision() -> Any:
    """The module mpmath, which has no types."""
    need("mpmath", "atlas")
    import mpmath

    return mpmath


def kajitsuka24_separation(n: int, r: float) -> float:
    """Lower bound on how far apart the Boltzmann operator keeps two vectors.

    Arguments:
        n: length of the vectors, at least 2.
        r: bound on the absolute values of their entries.

    Statement   a, b in R^n with entries in [−r, r], any two different ones more than 2 ln n + 3 apart, not permutations
                of each other  ⟹  |boltz(a) − boltz(b)| > (ln n)² e^{−2r}
    Hypotheses  checked: n ≥ 2, r ≥ 0. assumed: the entries.
    Sharp?      far from it.
    Ref         kajitsuka2024, Lemma 3.

    >>> import measureformer as mf
    >>> round(kajitsuka24_separation(2, 3.0), 6)
    0.001191
    """
    if positive_int(n, "n") < 2 or not r >= 0:
        raise OptionError(got=f"n = {n}, r = {r}", need="n ≥ 2 and r ≥ 0", do="One entry has no context.")
    return math.log(n) ** 2 * math.exp(-2 * r)


@checked
def kajitsuka24_log_separation(n: Size, d: Size, tokens: Size, sizes: tuple[float, float, float]) -> float:
    """Decimal logarithm of the separation of contexts that one softmax layer of rank 1 guarantees.

    Arguments:
        n: tokens in a sequence.
        d: dimension of the tokens.
        tokens: size V of the vocabulary.
        sizes: (r_min, r_max, eps), bounds on the norms of the tokens and on their distances.

    Statement   one softmax layer of rank 1 keeps context vectors apart by 2 (ln n)² eps² r_min / (r_max² (V+1)⁴ (2 ln n
                + 3) π d) · exp(−(V+1)⁴ (2 ln n + 3) π d r_max² / (4 eps r_min)) for V tokens with norms in (r_min,
                r_max) and more than eps apart
    Sharp?      no: a direction adapted to the tokens gains thousands of digits.
    Ref         kajitsuka2024, Theorem 2.

    >>> import measureformer as mf
    >>> round(mf.sequences.kajitsuka24_log_separation(2, 1, 3, (1.0, 2.0, 0.5)))
    -3069
    """
    r_min, r_max, eps = sizes
    hard = (tokens + 1) ** 4 * (2 * math.log(n) + 3) * math.pi * d
    first = math.log(2 * math.log(n) ** 2 * eps**2 * r_min / (r_max**2 * hard))
    return (first - hard * r_max**2 / (4 * eps * r_min)) / math.log(10)
