"""Reading atoms by their weights: generic weights, sets of atoms behind a mass, light atoms among heavy ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from measureformer.errors import OptionError, TooManyAtomsError
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.gap import LARGEST, subset_sum_gap
from measureformer.numerics.arrays import floats, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key, Number

ATTEMPTS = 20


@checked
def generic(mu: Discrete, eps: Number, key: Key) -> Discrete:
    """A measure near mu whose sets of atoms all have different masses.

    Coincident atoms are joined first. The mass stays, and half the sum of all changes of weights is at most
    eps · mass / 2, so that W_1(mu, nu) ≤ eps · diameter of the support / 2 for mass 1.

    Arguments:
        mu: the measure.
        eps: largest relative change of a weight, in (0, 1).
        key: JAX random key of the changes.

    Statement   measures with generic weights are dense: ties fill finitely many hyperplanes of weights
    Hypotheses  checked: 0 < eps < 1, and up to 20 atoms that the gap exceeds rounding. For more, ties have
                probability 0 but no computer can look at all subsets.
    Ref         furuya2025, Lemma 1.

    >>> import jax, measureformer as mf
    >>> mu = mf.Discrete.uniform([[0.0], [1.0], [2.0]])
    >>> nu = mf.structure.generic(mu, 1e-3, jax.random.key(0))
    >>> mf.subset_sum_gap(mu.weights) < 1e-12, mf.subset_sum_gap(nu.weights) > 1e-6
    (True, True)
    """
    concrete(mu, "generic")
    size = float(floats(eps, "eps"))
    if not 0 < size < 1:
        raise OptionError(got=f"eps = {size:g}", need="0 < eps < 1", do="It is a relative change of weights.")
    nu, rng = mu.compact(), generator(key)
    weights = np.asarray(nu.weights, np.float64)
    unit = float(np.finfo(nu.log_weights.dtype).eps)
    for _ in range(ATTEMPTS):
        moved = weights * (1 + size / 2 * rng.uniform(-1, 1, len(weights)))
        moved *= weights.sum() / moved.sum()
        rounded = np.log(moved).astype(nu.log_weights.dtype)
        if len(weights) > LARGEST or subset_sum_gap(np.exp(rounded.astype(float))) > 8 * unit * weights.sum():
            return nu.with_log_weights(on_device(rounded))
    raise OptionError(
        got=f"eps = {size:g} for {len(weights)} atoms, after which sets of atoms still cannot be told apart",
        need="a larger change of weights, or fewer atoms",
        do="Random weights have a gap of about 3^(−n) of the mass: mark single atoms instead, as mf.recover does.",
    )


def binary_weights(n: int) -> np.ndarray:
    """1, 2, 4, … over 2^n − 1: of all n weights of mass 1 these have the largest subset-sum gap, 1/(2^n − 1)."""
    return 2.0 ** np.arange(n) / (2.0**n - 1)


def tolerance(weights: Any, unit: float) -> Any:
    """How far a weight may be off by rounding: weights are stored as logarithms."""
    return 16 * unit * weights * (1 + np.abs(np.log(weights)))


class SubsetSums:
    """All sets of at most 16 atoms, by mass."""

    def __init__(self, weights: np.ndarray) -> None:
        if len(weights) > 16:
            raise TooManyAtomsError(got=f"{len(weights)} atoms", need="at most 16", do="Mark a few of them instead.")
        sums = np.zeros(1)
        for weight in weights:
            sums = np.concatenate([sums, sums + weight])
        self.sets = np.argsort(sums)
        self.sums = sums[self.sets]
        self.gap = float(np.diff(self.sums).min())

    def behind(self, mass: np.ndarray, tol: float) -> np.ndarray:
        """The set of atoms behind each mass, as bits of a number; 0, the empty set, if there is none."""
        right = np.clip(np.searchsorted(self.sums, mass), 1, len(self.sums) - 1)
        nearest = np.where(mass - self.sums[right - 1] < self.sums[right] - mass, right - 1, right)
        return np.where(np.abs(self.sums[nearest] - mass) <= tol, self.sets[nearest], 0)


def linear_marks(count: int, eps: float) -> np.ndarray:
    """Different light weights in [eps, 2 eps): an atom that joins no other light one is recognised by its own."""
    return eps * (1 + np.arange(count) / count)


def binary_marks(count: int, eps: float) -> np.ndarray:
    """eps, 2 eps, 4 eps, …: every set of light atoms is recognised by its sum, however atoms merge."""
    return eps * 2.0 ** np.arange(count)


def carriers(heavy: np.ndarray, out: np.ndarray, marks: np.ndarray, unit: float, *, binary: bool) -> np.ndarray:
    """For each mark, the position in `out` of the one atom that carries it; −1 where none, or more than one, does.

    An atom carries what its weight exceeds the next smaller heavy weight (or 0) by: one mark, or with binary marks the
    set of marks with this sum. `heavy` are the weights of the image without marks.
    """
    rest = out - below(heavy, out, unit)
    tol = tolerance(out, unit)
    if binary:
        digits = np.rint(rest / marks[0])
        known = (np.abs(rest - digits * marks[0]) <= tol) & (digits < 2.0 ** len(marks))
        bits = np.where(known, digits, 0).astype(np.int64)
        carries = (bits[:, None] >> np.arange(len(marks))) & 1 == 1
    else:
        right = np.clip(np.searchsorted(marks, rest), 1, len(marks) - 1) if len(marks) > 1 else np.zeros(len(out), int)
        left = np.maximum(right - 1, 0)
        nearest = np.where(np.abs(rest - marks[left]) < np.abs(rest - marks[right]), left, right)
        carries = np.zeros((len(out), len(marks)), bool)
        hit = np.abs(rest - marks[nearest]) <= tol
        carries[np.flatnonzero(hit), nearest[hit]] = True
    return np.where(carries.sum(axis=0) == 1, carries.argmax(axis=0), -1)


def below(heavy: np.ndarray, out: np.ndarray, unit: float) -> np.ndarray:
    """The largest of the heavy weights, and 0, that each weight of `out` does not fall short of."""
    levels = np.concatenate([[0.0], np.sort(heavy)])
    return levels[np.searchsorted(levels, out + tolerance(out, unit), side="right") - 1]
