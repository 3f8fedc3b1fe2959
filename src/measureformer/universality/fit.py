"""`fit`: approximate a continuous in-context map greedily by a polynomial in blocks, and report its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from measureformer.errors import OptionError
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key
from measureformer.parallel.progress import bar
from measureformer.universality.algebra import Expression, polynomial_in
from measureformer.universality.compile import compile as compile_expression
from measureformer.universality.compiled import Compiled
from measureformer.universality.contexts import Contexts, Target, answers, climbed, drawn
from measureformer.universality.factors import Factors
from measureformer.universality.lessons import Lessons, features, largest_errors, taught
from measureformer.universality.search import Search, dictionary, sizes_of

PLAYERS = 32
"""Measures that the adversary changes at the same time."""


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
    """A polynomial in blocks that approximates a target, with its errors on held-out and adversarial measures.

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
    """Root mean square of least squares after each term, on the measures of the pursuit, penalty included: nested
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

        Continuous targets can be approximated to any accuracy, so an error that stalls points to a jump, or to a
        dictionary that is too small.
        """
        if self.worst <= self.tol:
            return "reached"
        start = next((row for row in self.rows if row.terms >= 10), self.rows[0])
        return "falling" if self.worst <= start.worst / 2 else "stalled"

    def compile(self, *, activation: Literal["relu", "quadratic"] = "relu", tol: float | None = None) -> Compiled:
        """The weights of a transformer for the polynomial.

        Arguments:
            activation: as in `mf.universality.compile`.
            tol: bound on the error that compilation adds; defaults to that of the fit.
        """
        return compile_expression(
            self.expression, self.domain, activation=activation, tol=self.tol if tol is None else tol
        )

    def report(self) -> str:
        """Table of errors for growing numbers of terms, and the verdict."""
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


@checked
def fit(target: Target, domain: AbstractDomain, key: Key, *, tol: float = 1e-3, search: Search | None = None) -> Fit:
    """A polynomial in blocks near a continuous target Γ*(mu, x), by orthogonal matching pursuit.

    Monomials are chosen one by one from a random dictionary: the next is the one that correlates best with the
    residual. All coefficients are then refitted by least squares, with a penalty on large ones, until the largest
    training error is below tol/4. If it never is, the fit adds measures and reweights all of them to reduce the largest
    error, as far as leave-one-out errors improve, with separate weights for each number of terms reported. Beyond 30
    terms it also searches for measures of large leverage, on which the terms are undetermined, and for measures with
    large errors. Errors are reported on other measures with numbers of atoms not seen in fitting, first random, then
    adversarial. The largest error found is not a bound, since the target is only sampled.

    Arguments:
        target: function of a `Discrete` and queries (m, d) with values (m,) or (m, e), called once for each measure; a
            map of the library is evaluated on all measures in one program.
        domain: compact set that holds the atoms and the queries.
        key: random key.
        tol: largest error at which the fit counts as successful.
        search: size of the polynomial, dictionary and measures; defaults to `Search()`.

    Statement   polynomials in blocks are dense in the continuous functions of (mu, x) on a compact domain
    Hypotheses  assumed: the target is continuous. Otherwise the verdict is "stalled".
    Cost        contexts·queries·candidates numbers, and as many operations for each term.
    Ref         furuya2024; pati1993; lawson1961; allen1974; kiefer1960.

    >>> import jax, numpy as np, measureformer as mf
    >>> target = lambda mu, x: x[:, 0] * np.tanh(np.asarray(mu.mean())[0])           # any Python function
    >>> search = mf.universality.Search(terms=30, blocks=60, candidates=300, contexts=400)
    >>> found = mf.universality.fit(target, mf.Box([-1.0], [1.0]), jax.random.key(0), tol=0.1, search=search)
    >>> found.verdict, found.compile(tol=0.02).census.token_dim
    ('reached', 4)
    """
    search = Search() if search is None else search
    if not 0 < tol < np.inf:
        raise OptionError(got=f"tol = {tol!r}", need="a positive number", do="Leave it out for 1e-3.")
    rng = generator(key)
    with bar("fitting", 4) as show:
        held_out = drawn(rng, domain, search.contexts, sizes_of(search)[1], search.queries)
        truths = answers(target, held_out)
        show(1, "target evaluated")
        factors, products = dictionary(rng, domain, search)
        found = taught(rng, domain, target, factors, products, search, tol / 4)
        terms = len(found.products)
        show(2, f"{terms} terms")
        best = found.products, found.coefficients[terms]

        def errors_of(contexts: Contexts) -> np.ndarray:
            return largest_errors(factors, *best, contexts, answers(target, contexts))

        start = np.argsort(largest_errors(factors, *best, held_out, truths))[-PLAYERS:]
        hard = climbed(rng, domain, held_out.rows(start), errors_of, search.rounds)
        show(3, "adversary")
        everything = held_out.joined(hard)
        truth = np.concatenate([truths, answers(target, hard)])
        rows, errors = _rows(found, factors, sorted(found.coefficients), everything, truth, held_out.size)
        show(4, "done")
    expression = polynomial_in(factors, *best)
    scale = float(np.abs(truths - truths.mean(axis=(0, 1))).max())
    k, m = np.unravel_index(int(errors.argmax()), errors.shape)
    worst = Contexts(everything.points[[k]], everything.log_weights[[k]], everything.x[[k]][:, [m]])
    lengths = (best[0] < factors.size).sum(axis=1)
    return Fit(expression, domain, float(tol), tuple(rows), found.errors, scale, worst, lengths)


def _rows(
    found: Lessons, factors: Factors, sizes: list[int], contexts: Contexts, truth: np.ndarray, held_out: int
) -> tuple[list[Row], np.ndarray]:
    values = features(factors, found.products, contexts)
    rows: list[Row] = []
    errors = np.zeros(truth.shape[:2])
    for size in sizes:
        left = (values[:, :size] @ found.coefficients[size]).reshape(truth.shape) - truth
        errors = np.linalg.norm(left, axis=-1)
        rms, sup = found.training[size]
        rows.append(Row(size, rms, sup, float(errors[:held_out].max()), float(errors.max())))
    return rows, errors
