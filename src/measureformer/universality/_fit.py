"""`fit`: approximate a continuous in-context map by a polynomial in blocks, greedily, and say how well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from measureformer.errors import DtypeError, OptionError
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.random import generator
from measureformer.progress import bar
from measureformer.universality._compile import compile as compile_expression
from measureformer.universality._contexts import Contexts, Target, answers, drawn, perturbed
from measureformer.universality._factors import Factors, table
from measureformer.universality._pursuit import Nested, levelled, nested, pursue
from measureformer.universality.algebra import Expression, polynomial_in
from measureformer.universality.compiled import Compiled

PLAYERS = 32
"""Measures that the adversary changes at the same time."""
POOL, LESSONS = 5, 12
"""So many times more measures are looked at after the pursuit, and how often all of them are weighed again."""
FIRST, LARGE = 30, 1000.0
"""Terms that tell the size of the penalty, and the size of coefficients, in units of the target, that it expects."""
CHECKPOINTS = (1, 3, 10, 30, 100, 300, 1000, 3000)


@dataclass(frozen=True)
class Search:
    """How a polynomial in blocks is searched for: its size, the dictionary, and the measures that are looked at.

    The dictionary holds `candidates` random monomials of at most `degree` blocks, drawn from `blocks` random blocks
    whose logits are up to `sharpness`. Coefficients are fitted on `contexts` measures of at most `atoms` atoms, with
    `queries` queries each, and on five times as many more, the worst of which count more. Errors are then looked for
    on other measures, of up to 4·atoms atoms.

    >>> import measureformer as mf
    >>> mf.universality.Search(terms=30).degree
    5
    """

    terms: int = 300
    degree: int = 5
    blocks: int = 400
    candidates: int = 4000
    sharpness: float = 4.0
    contexts: int = 2000
    queries: int = 2
    atoms: int = 24
    rounds: int = 24
    """Steps of the adversary."""

    def __post_init__(self) -> None:
        for name in ("terms", "degree", "blocks", "candidates", "contexts", "queries", "atoms", "rounds"):
            positive_int(getattr(self, name), name)
        if not 0 < self.sharpness < np.inf:
            raise OptionError(got=f"sharpness = {self.sharpness}", need="a positive number", do="Leave it out.")


class Row(NamedTuple):
    """Errors of the best polynomial with so many terms."""

    terms: int
    training_rms: float
    training_sup: float
    held_out: float
    """Largest error on measures, and numbers of atoms, that were not seen in fitting."""
    worst: float
    """The same, with the measures that an adversary found included."""


@dataclass(frozen=True)
class Fit:
    """A polynomial in blocks that approximates a target, and an honest account of its errors.

    >>> import jax, measureformer as mf
    >>> variance = mf.universality.variance(1)
    >>> search = mf.universality.Search(terms=20, blocks=60, candidates=200, contexts=100)
    >>> found = mf.universality.fit(variance, mf.Box([0.0], [1.0]), jax.random.key(0), tol=1e-2, search=search)
    >>> found.verdict, found.worst <= 1e-2
    ('reached', True)
    """

    expression: Expression
    domain: AbstractDomain
    tol: float
    rows: tuple[Row, ...]
    training_errors: np.ndarray
    """Root mean square on the training measures after each term, with their weights and the penalty included: nested
    dictionaries, so it never grows."""
    scale: float
    """Largest deviation of the target from its mean on the held-out measures."""
    witness: Contexts
    """The measure and the query with the largest error that was found."""
    lengths: np.ndarray
    """Number of blocks in each monomial, in the order in which they were chosen."""

    @property
    def components(self) -> int:
        """Dimension of the values."""
        return self.expression.coefficients.shape[1]

    @property
    def worst(self) -> float:
        """The largest error that was found anywhere."""
        return self.rows[-1].worst

    @property
    def verdict(self) -> Literal["reached", "falling", "stalled"]:
        """Whether the largest error found is at most tol, has at least halved from 10 terms on, or neither.

        A continuous target is approximated as well as one likes; that the error stalls is what a jump looks like, or a
        dictionary that is too small.
        """
        if self.worst <= self.tol:
            return "reached"
        start = next((row for row in self.rows if row.terms >= 10), self.rows[0])
        return "falling" if self.worst <= start.worst / 2 else "stalled"

    def compile(self, *, activation: Literal["relu", "quadratic"] = "relu", tol: float | None = None) -> Compiled:
        """The weights of a transformer for the polynomial; `tol` bounds what compilation adds to the error."""
        return compile_expression(
            self.expression, self.domain, activation=activation, tol=self.tol if tol is None else tol
        )

    def report(self) -> str:
        """The table of errors, in words."""
        lines = [f"{'terms':>6} {'rms, fitted':>12} {'sup, fitted':>12} {'sup, held out':>14} {'sup, searched':>14}"]
        lines += [
            f"{row.terms:6d} {row.training_rms:12.3e} {row.training_sup:12.3e} {row.held_out:14.3e} {row.worst:14.3e}"
            for row in self.rows
        ]
        said = {
            "reached": f"no error above {self.tol:g} was found",
            "falling": f"errors fall, but are not below {self.tol:g}: allow more terms, or a larger dictionary",
            "stalled": f"the error does not fall: {self.worst:.3g} was found. Is the target continuous?",
        }
        return "\n".join([*lines, f"{self.verdict}: {said[self.verdict]}"])


def fit(target: Any, domain: Any, key: Any, *, tol: Any = 1e-3, search: Search | None = None) -> Fit:
    """A polynomial in blocks near a continuous target Γ*(mu, x), by orthogonal matching pursuit.

    `target(mu, x)` takes a `Discrete` and queries (m, d), and returns (m,) or (m, e); a map of the library is computed
    for all measures in one program, any other function is called once for each. One monomial after the other is chosen
    from a random dictionary, the one that correlates best with what is left, and all coefficients are fitted again by
    least squares, with a penalty for large ones, until the largest training error is below tol/4. If it never is, the
    measures are weighed, so that the largest error of all terms together becomes small; fewer terms have the same
    weights, and not their own. Errors are then looked for on other measures, of numbers of atoms that were not seen,
    first at random and then by an adversary. The largest error found is no bound: nothing is proven about a function
    that is only sampled.

    Statement   polynomials in blocks are dense in the continuous functions of (mu, x) on a compact domain
    Hypotheses  assumed: the target is continuous. If not, the report says that the error stalls.
    Cost        contexts·queries·candidates numbers, and as many operations for each term.
    Ref         furuya2024; pati1993; lawson1961.

    >>> import jax, numpy as np, measureformer as mf
    >>> target = lambda mu, x: x[:, 0] * np.tanh(np.asarray(mu.mean())[0])           # any Python function
    >>> search = mf.universality.Search(terms=30, blocks=60, candidates=300, contexts=400)
    >>> found = mf.universality.fit(target, mf.Box([-1.0], [1.0]), jax.random.key(0), tol=0.1, search=search)
    >>> found.verdict, found.compile(tol=0.02).census.token_dim
    ('reached', 4)
    """
    search = Search() if search is None else search
    if not isinstance(domain, AbstractDomain):
        raise DtypeError(
            got=f"a domain of type {type(domain).__name__}", need="a compact domain", do="Pass mf.Box(low, high)."
        )
    if not (isinstance(tol, (int, float)) and 0 < tol < np.inf):
        raise OptionError(got=f"tol = {tol!r}", need="a positive number", do="Leave it out for 1e-3.")
    rng = generator(key)
    with bar("fitting", 4) as show:
        held_out = drawn(rng, domain, search.contexts, sizes_of(search)[1], search.queries)
        truths = answers(target, held_out)
        show(1, "target evaluated")
        factors, products = dictionary(rng, domain, search)
        found = _taught(rng, domain, target, factors, products, search, tol / 4)
        terms = len(found.products)
        show(2, f"{terms} terms")
        best = found.polynomial(terms)
        hard = _attacked(rng, domain, target, held_out, truths, lambda c: _predicted(factors, *best, c), search.rounds)
        show(3, "adversary")
        everything = held_out.joined(hard)
        truth = np.concatenate([truths, answers(target, hard)])
        sizes = [k for k in CHECKPOINTS if k < terms] + [terms]
        rows, errors = _rows(found, factors, sizes, everything, truth, held_out.size)
        show(4, "done")
    expression = polynomial_in(factors, *best)
    scale = float(np.abs(truths - truths.mean(axis=(0, 1))).max())
    k, m = np.unravel_index(int(errors.argmax()), errors.shape)
    worst = Contexts(everything.points[[k]], everything.log_weights[[k]], everything.x[[k]][:, [m]])
    lengths = (best[0] < factors.size).sum(axis=1)
    return Fit(expression, domain, float(tol), tuple(rows), found.nested.errors, scale, worst, lengths)


class _Lessons(NamedTuple):
    """Monomials that were chosen, and their coefficients."""

    products: np.ndarray
    nested: Nested

    def polynomial(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        return self.products[:size], self.nested.coefficients(size)


def _taught(
    rng: np.random.Generator,
    domain: AbstractDomain,
    target: Target,
    factors: Factors,
    products: np.ndarray,
    search: Search,
    enough: float,
) -> _Lessons:
    """Monomials by pursuit on random measures; then coefficients, on more of them.

    Least squares is content with a small error on average. Measures on which it is large are rare, and must count more.
    """
    sizes = sizes_of(search)[0]
    training = drawn(rng, domain, search.contexts, sizes, search.queries)
    goals = _flat(answers(target, training))
    features = _features(factors, products, training)
    chosen, ridge = _pursued(features, goals, search.terms, enough)
    columns = features[:, chosen]
    found = nested(columns, goals, ridge=ridge)
    if found.sups[-1] <= enough:
        return _Lessons(products[chosen], found)
    more = drawn(rng, domain, POOL * search.contexts, sizes, search.queries)
    columns = np.concatenate([columns, _features(factors, products[chosen], more)])
    goals = np.concatenate([goals, _flat(answers(target, more))])
    return _Lessons(products[chosen], levelled(columns, goals, LESSONS, ridge=ridge))


def _pursued(features: np.ndarray, goals: np.ndarray, terms: int, enough: float) -> tuple[np.ndarray, float]:
    """Monomials by pursuit, and the penalty: what the first ones leave counts as noise, coefficients as of size LARGE.

    Without it the coefficients of hundreds of similar terms become huge, and errors between the training measures with
    them. A target that is a polynomial in blocks leaves nothing, and has no penalty.
    """
    first = pursue(features, goals, min(terms, FIRST), enough)
    left = nested(features[:, first], goals)
    if len(first) < FIRST or left.sups[-1] <= enough:
        return first, 0.0
    ridge = (left.errors[-1] / (LARGE * float(goals.std()))) ** 2
    return pursue(features, goals, terms, enough, ridge=ridge), ridge


def sizes_of(search: Search) -> tuple[list[int], list[int]]:
    """Numbers of atoms of the measures that are fitted, and of those on which errors are looked for."""
    most = search.atoms
    seen = sorted({n for n in (1, 2, 3, 5, 8) if n < most} | {most})
    return seen, [n for n in (4, 6, 7, most + 1, 2 * most, 4 * most) if n not in seen]


def dictionary(rng: np.random.Generator, domain: AbstractDomain, search: Search) -> tuple[Factors, np.ndarray]:
    """Random blocks, with values of order 1 on the domain, and a table of random products of them.

    The first blocks are the coordinates of x and of the mean, and the first monomials 1 and these. Half of the others
    are functions of the measure alone: many targets are, and few products of many blocks would be so by chance.
    """
    dim, radius = domain.dim, domain.diameter / 2
    count = max(search.blocks, 2 * dim)
    A, b = np.zeros((count, dim, dim)), np.zeros((count, dim))
    u, v = np.zeros((2, count, dim))
    u[:dim], v[dim : 2 * dim] = np.eye(dim), np.eye(dim)
    rest = np.arange(2 * dim, count)
    sharp = search.sharpness * rng.uniform(size=len(rest)) / radius
    b[rest] = sharp[:, None] * _directions(rng, len(rest), dim)
    depends = rng.uniform(size=len(rest)) < 0.5
    turn = rng.normal(size=(len(rest), dim, dim)) + 2 * rng.choice([-1, 1], size=(len(rest), 1, 1)) * np.eye(dim)
    A[rest] = np.where(depends, sharp / radius, 0)[:, None, None] * turn / 2
    # a tilt around the middle of the domain: b + A(x − middle)
    b[rest] -= np.einsum("kij,j->ki", A[rest], domain.middle)
    v[rest] = _directions(rng, len(rest), dim)
    c = -(u + v) @ domain.middle / radius
    factors = Factors(A, b, c, u / radius, v / radius)
    products = np.full((search.candidates, search.degree), count)
    plain = min(2 * dim, search.candidates - 1)
    products[1 : plain + 1, 0] = np.arange(plain)
    everything, of_measure = np.arange(count), np.append(np.arange(dim, 2 * dim), rest[~depends])
    # share and list of the coordinates, and the list that the other factors are from; smooth targets need coordinates
    kinds = (0.25, of_measure[:dim], of_measure), (0.5, everything[: 2 * dim], everything)
    for row in range(plain + 1, search.candidates):
        (share, coordinates, blocks), degree = kinds[rng.integers(2)], rng.integers(1, search.degree + 1)
        simple = rng.uniform(size=degree) < share
        products[row, :degree] = np.where(simple, rng.choice(coordinates, degree), rng.choice(blocks, degree))
    return factors, np.unique(np.sort(products, axis=1), axis=0)


def _directions(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    rows = rng.normal(size=(count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _features(factors: Factors, products: np.ndarray, contexts: Contexts) -> np.ndarray:
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


def _predicted(factors: Factors, products: np.ndarray, coefficients: np.ndarray, contexts: Contexts) -> np.ndarray:
    return (_features(factors, products, contexts) @ coefficients).reshape(*contexts.x.shape[:2], -1)


def _attacked(
    rng: np.random.Generator,
    domain: AbstractDomain,
    target: Target,
    contexts: Contexts,
    goals: np.ndarray,
    predict: Callable[[Contexts], np.ndarray],
    rounds: int,
) -> Contexts:
    """Measures with larger errors, by climbing from the worst ones: small changes are kept where the error grows."""

    def errors(contexts: Contexts, goals: np.ndarray) -> np.ndarray:
        return np.linalg.norm(predict(contexts) - goals, axis=-1).max(axis=1)

    start = errors(contexts, goals)
    chosen = np.argsort(start)[-PLAYERS:]
    current, height = contexts.rows(chosen), start[chosen]
    for turn in range(rounds):
        other = perturbed(rng, domain, current, 0.1 * 0.75**turn)
        found = errors(other, answers(target, other))
        better = found > height
        current = Contexts(
            *(np.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(other, current, strict=True))
        )
        height = np.maximum(height, found)
    return current


def _rows(
    found: _Lessons, factors: Factors, sizes: list[int], contexts: Contexts, truth: np.ndarray, held_out: int
) -> tuple[list[Row], np.ndarray]:
    values = _features(factors, found.products, contexts)
    rows: list[Row] = []
    errors = np.zeros(truth.shape[:2])
    for size in sizes:
        left = (values[:, :size] @ found.nested.coefficients(size)).reshape(truth.shape) - truth
        errors = np.linalg.norm(left, axis=-1)
        rms, sup = found.nested.errors[size - 1], found.nested.sups[size - 1]
        rows.append(Row(size, float(rms), float(sup), float(errors[:held_out].max()), float(errors.max())))
    return rows, errors
