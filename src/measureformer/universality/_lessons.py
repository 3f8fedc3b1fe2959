"""What `fit` learns from: monomials by pursuit, then coefficients on measures that leave no freedom between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.universality._contexts import Contexts, Target, answers, climbed, drawn
from measureformer.universality._factors import Factors, table
from measureformer.universality._pursuit import basis, levelled, leverages, nested, pursue
from measureformer.universality._search import Search, sizes_of

POOL, LESSONS = 5, 12
"""So many times more measures are looked at after the pursuit, and how often all of them are weighed again."""
CLIMBS, STEPS, SHARE = 4, 4, 4
"""How often measures of large leverage are added, steps of the climb to them, and contexts over their number."""
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
    """
    sizes = sizes_of(search)[0]
    contexts = drawn(rng, domain, search.contexts, sizes, search.queries)
    goals = _flat(answers(target, contexts))
    dictionary = features(factors, products, contexts)
    chosen, ridge = _pursued(dictionary, goals, search.terms, enough)
    columns, products = dictionary[:, chosen], products[chosen]
    plain = nested(columns, goals, ridge=ridge)
    numbers = [size for size in CHECKPOINTS if size < len(chosen)] + [len(chosen)]
    if plain.sups[-1] <= enough:
        found = {size: plain.coefficients(size) for size in numbers}
        return Lessons(products, found, {size: _left(columns, found[size], goals) for size in numbers}, plain.errors)
    more = drawn(rng, domain, POOL * search.contexts, sizes, search.queries)
    contexts = contexts.joined(more)
    columns = np.concatenate([columns, features(factors, products, more)])
    goals = np.concatenate([goals, _flat(answers(target, more))])
    found, training = _weighed(columns, goals, [size for size in numbers if size <= FIRST], ridge)
    if len(chosen) > FIRST:
        unusual = _unusual(rng, domain, factors, products, contexts, columns, ridge)
        columns = np.concatenate([columns, features(factors, products, unusual)])
        goals = np.concatenate([goals, _flat(answers(target, unusual))])
        many = _weighed(columns, goals, [size for size in numbers if size > FIRST], ridge)
        found, training = found | many[0], training | many[1]
    return Lessons(products, found, training, plain.errors)


def _weighed(
    columns: np.ndarray, goals: np.ndarray, numbers: list[int], ridge: float
) -> tuple[dict[int, np.ndarray], dict[int, tuple[float, float]]]:
    """Coefficients of the first columns, for these numbers of them, and their errors."""
    own = basis(columns[:, : max(numbers)], ridge=ridge)
    found = {size: levelled(columns, goals, size, LESSONS, own) for size in numbers}
    return found, {size: _left(columns, found[size], goals) for size in numbers}


def _left(columns: np.ndarray, coefficients: np.ndarray, goals: np.ndarray) -> tuple[float, float]:
    """Root mean square, and largest error."""
    errors = np.linalg.norm(columns[:, : len(coefficients)] @ coefficients - goals, axis=1)
    return float(np.sqrt((errors**2).mean())), float(errors.max())


def _unusual(
    rng: np.random.Generator,
    domain: AbstractDomain,
    factors: Factors,
    products: np.ndarray,
    contexts: Contexts,
    columns: np.ndarray,
    ridge: float,
) -> Contexts:
    """Measures of which the others say little: those of large leverage, and larger ones near them, in a few turns.

    Large errors elsewhere are on such measures: hundreds of terms can have any value there, and few terms cannot. To
    find them the target is not needed, only the monomials.
    """
    R = basis(columns, ridge=ridge).R
    shape, count = contexts.x.shape[:2], -(-len(contexts.x) // (SHARE * (POOL + 1)))
    added: list[Contexts] = []

    def score(some: Contexts) -> np.ndarray:
        return leverages(features(factors, products, some), R).reshape(-1, shape[1]).max(axis=1)

    everything, heights = contexts, leverages(columns, R).reshape(shape).max(axis=1)
    for _ in range(CLIMBS):
        new = climbed(rng, domain, everything.rows(np.argsort(heights)[-count:]), score, STEPS)
        added.append(new)
        columns = np.concatenate([columns, features(factors, products, new)])
        everything = everything.joined(new)
        R = np.linalg.qr(np.concatenate([R, columns[-count * shape[1] :]]), mode="r")
        heights = leverages(columns, R).reshape(-1, shape[1]).max(axis=1)
    return Contexts(*(np.concatenate(leaves) for leaves in zip(*added, strict=True)))


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
    values = np.array(table(factors.rows(padded), *contexts)).reshape(-1, len(padded))[:, : len(used) + 1]
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
