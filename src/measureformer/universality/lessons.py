"""What `fit` learns from: monomials by pursuit, then coefficients on measures that leave no freedom between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Array

from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.universality.contexts import Contexts, Target, answers, climbed, drawn
from measureformer.universality.factors import Factors, table
from measureformer.universality.lawson import levelled
from measureformer.universality.pursuit import basis, leverages, nested, pursue
from measureformer.universality.search import Search, sizes_of

POOL, LESSONS = 5, 6
"""So many times more measures are looked at after the pursuit, and how often all of them are weighed again."""
CLIMBS, STEPS, SHARE = 4, 4, 4
"""How often unusual measures are added, steps of the climb to them, and contexts over their number."""
FIRST, LARGE = 30, 1000.0
"""Terms that tell the size of the penalty, and the size of coefficients, in units of the target, that it expects."""
CHECKPOINTS = (1, 3, 10, 30, 100, 300, 1000, 3000)


class Lessons(NamedTuple):
    """Monomials that were chosen, and their coefficients."""

    products: np.ndarray
    coefficients: dict[int, np.ndarray]
    """For the first monomials, by their number."""
    training: dict[int, tuple[float, float]]
    """Root mean square and largest error on the training measures with these."""
    errors: np.ndarray
    """Root mean square of least squares after each term, on the measures of the pursuit, penalty included."""


def taught(
    rng: np.random.Generator,
    domain: AbstractDomain,
    target: Target,
    factors: Factors,
    products: np.ndarray,
    search: Search,
    enough: float,
) -> Lessons:
    """Monomials by pursuit on random measures; then coefficients for each number of them, on more measures.

    Least squares is content with a small error on average. Measures on which it is large are rare, and must count more.
    Many terms have large errors on measures that random ones are not likely to be near: these are searched for.
    """
    sizes = sizes_of(search)[0]
    contexts = drawn(rng, domain, search.contexts, sizes, search.queries)
    goals = _flat(answers(target, contexts))
    dictionary = features(factors, products, contexts)
    chosen, ridge = _pursued(dictionary, goals, search.terms, enough)
    data = _Data(contexts, dictionary[:, chosen], goals)
    plain = nested(data.columns, goals, ridge=ridge)
    numbers = [size for size in CHECKPOINTS if size < len(chosen)] + [len(chosen)]
    if plain.sups[-1] <= enough:
        found = {size: plain.coefficients(size) for size in numbers}
        training = {size: data.errors(found[size]) for size in numbers}
        return Lessons(products[chosen], found, training, plain.errors)
    teacher = _Teacher(rng, domain, target, factors, products[chosen], ridge)
    data = data.joined(teacher.data(drawn(rng, domain, POOL * search.contexts, sizes, search.queries)))
    # unusual for many terms is not so for few: random measures determine these, and searched ones would be in the way
    few, many = [[k for k in numbers if (k > FIRST) == large] for large in (False, True)]
    found, training = teacher.weighed(data, few)
    if many:
        data = teacher.with_unusual(data, -(-search.contexts // SHARE))
        data = teacher.with_hard(data, -(-search.contexts // SHARE))
        more = teacher.weighed(data, many)
        found, training = found | more[0], training | more[1]
    return Lessons(products[chosen], found, training, plain.errors)


class _Data(NamedTuple):
    """Measures, the values of the monomials on them, (k·m, count), and those of the target, (k·m, e)."""

    contexts: Contexts
    columns: np.ndarray
    goals: np.ndarray

    def joined(self, other: _Data) -> _Data:
        columns, goals = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        return _Data(self.contexts.joined(other.contexts), columns, goals)

    def errors(self, coefficients: np.ndarray) -> tuple[float, float]:
        """Root mean square, and largest error."""
        left = np.linalg.norm(self.columns[:, : len(coefficients)] @ coefficients - self.goals, axis=1)
        return float(np.sqrt((left**2).mean())), float(left.max())

    def worst(self, rows: np.ndarray, count: int) -> Contexts:
        """The contexts with the largest numbers (k·m,), of all their queries."""
        return self.contexts.rows(np.argsort(rows.reshape(self.contexts.x.shape[:2]).max(axis=1))[-count:])


@dataclass(frozen=True)
class _Teacher:
    """Finds measures that are worth learning from."""

    rng: np.random.Generator
    domain: AbstractDomain
    target: Target
    factors: Factors
    products: np.ndarray
    ridge: float

    def data(self, contexts: Contexts) -> _Data:
        return _Data(contexts, self.values(contexts), _flat(answers(self.target, contexts)))

    def values(self, contexts: Contexts) -> np.ndarray:
        return features(self.factors, self.products, contexts)

    def weighed(self, data: _Data, numbers: list[int]) -> tuple[dict[int, np.ndarray], dict[int, tuple[float, float]]]:
        """Coefficients of the first monomials, for these numbers of them, and their errors."""
        own = basis(data.columns[:, : max(numbers)], ridge=self.ridge)
        together = data.contexts.x.shape[1]
        found = {size: levelled(data.columns, data.goals, size, LESSONS, own, together=together) for size in numbers}
        return found, {size: data.errors(found[size]) for size in numbers}

    def with_unusual(self, data: _Data, count: int) -> _Data:
        """And measures of which the others say little: those of large leverage, and larger near them, in a few turns.

        Hundreds of terms could have any value there. To find them the target is not needed, only the monomials.
        """
        R = basis(data.columns, ridge=self.ridge).R
        for _ in range(CLIMBS):

            def score(contexts: Contexts, R: np.ndarray = R) -> np.ndarray:
                return leverages(self.values(contexts), R).reshape(contexts.x.shape[:2]).max(axis=1)

            start = data.worst(leverages(data.columns, R), count)
            new = self.data(climbed(self.rng, self.domain, start, score, STEPS))
            data, R = data.joined(new), basis(np.concatenate([R, new.columns])).R
        return data

    def with_hard(self, data: _Data, count: int) -> _Data:
        """And measures with large errors, near the worst of those that are there, as in an exchange algorithm."""
        size = len(self.products)
        best = self.weighed(data, [size])[0][size]

        def score(contexts: Contexts) -> np.ndarray:
            return largest_errors(self.factors, self.products, best, contexts, answers(self.target, contexts))

        start = data.worst(np.linalg.norm(data.columns @ best - data.goals, axis=1), count)
        return data.joined(self.data(climbed(self.rng, self.domain, start, score, STEPS)))


def _pursued(dictionary: np.ndarray, goals: np.ndarray, terms: int, enough: float) -> tuple[np.ndarray, float]:
    """Monomials by pursuit, and the penalty: what the first ones leave counts as noise, coefficients as of size LARGE.

    Without it the coefficients of hundreds of similar terms become huge, and errors between the training measures with
    them. A target that is a polynomial in blocks leaves nothing, and has no penalty.
    """
    first = pursue(dictionary, goals, min(terms, FIRST), enough)
    left = nested(dictionary[:, first], goals)
    if len(first) < FIRST or left.sups[-1] <= enough:
        return first, 0.0
    ridge = (left.errors[-1] / (LARGE * float(goals.std()))) ** 2
    return pursue(dictionary, goals, terms, enough, ridge=ridge), ridge


def features(factors: Factors, products: np.ndarray, contexts: Contexts) -> np.ndarray:
    """Values of the monomials, (k·m, count)."""
    used = np.unique(products[products < factors.size])
    # a few sizes only, so that other blocks, or more of them, are the same program
    padded = pad_rows(np.append(used, 0), bucket(len(used) + 1))
    found = cast("Array", table(factors.rows(padded), *contexts))
    values = np.array(found).reshape(-1, len(padded))[:, : len(used) + 1]
    values[:, -1] = 1.0
    place = np.full(factors.size + 1, len(used))
    place[used] = np.arange(len(used))
    out = np.ones((len(values), len(products)))
    for column in place[products].T:
        out *= values[:, column]
    return out


def _flat(goals: np.ndarray) -> np.ndarray:
    return goals.reshape(-1, goals.shape[-1])


def largest_errors(
    factors: Factors, products: np.ndarray, coefficients: np.ndarray, contexts: Contexts, truth: np.ndarray
) -> np.ndarray:
    """Largest error over the queries of each context, (k,)."""
    values = (features(factors, products, contexts) @ coefficients).reshape(truth.shape)
    return np.linalg.norm(values - truth, axis=-1).max(axis=1)
