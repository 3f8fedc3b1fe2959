"""Generic weights: the smallest difference between two subset sums."""

from __future__ import annotations

import numpy as np

from measureformer.errors import NegativeWeightError, TooManyAtomsError
from measureformer.measures.atomic import concrete
from measureformer.numerics.arrays import finite, floats, shaped
from measureformer.numerics.types import ArrayLike

LARGEST = 20
"""The 2^n subset sums fit comfortably up to here; for random weights the gap is about 3^{−n}."""


def subset_sum_gap(weights: ArrayLike) -> float:
    """The minimal gap min{ |Σ_I a − Σ_J a| : I ≠ J } between sums of weights over different sets of atoms.

    Arguments:
        weights: positive masses, (n,) with 1 ≤ n ≤ 20.

    Statement   gap > 0 iff every subset of atoms is recognised by its mass (generic weights); the gap is ≤ min_j a_j
                because the empty set takes part
    Hypotheses  checked: weights > 0, n ≤ 20.
    Cost        2^n log 2^n; float64, so gaps below about 1e-16 · Σ a are rounding.
    Ref         furuya2025, equation (15).

    >>> import measureformer as mf
    >>> round(7 * mf.subset_sum_gap([1 / 7, 2 / 7, 4 / 7]), 12), mf.subset_sum_gap([0.5, 0.5])
    (1.0, 0.0)
    """
    concrete(weights, "subset_sum_gap")
    entries = np.asarray(shaped(floats(weights, "weights"), "weights", "n"), np.float64)
    finite(entries, "weights")
    if len(entries) > LARGEST:
        raise TooManyAtomsError(
            got=f"{len(entries)} weights",
            need=f"at most {LARGEST}, since all 2^n subset sums are formed",
            do="For more atoms mark one instead: add 1e-6 * Discrete.dirac(x), which is recognised by its mass.",
        )
    if len(entries) == 0 or (entries <= 0).any():
        raise NegativeWeightError(
            got=f"weights {np.array2string(entries, threshold=6)}",
            need="at least one weight, all positive",
            do="Drop atoms of zero mass first: mu.compact().weights.",
        )
    sums = np.zeros(1)
    for weight in entries:
        sums = np.concatenate([sums, sums + weight])
    return float(np.diff(np.sort(sums)).min())
