"""Sequences and measures: token maps of any length as maps between measures, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, OptionError, ShapeError
from measureformer.maps import AbstractInContextMap
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.measures.discrete import checked_points
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import floats, on_device, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Key
from measureformer.structure.black_box import MeasureMap, atoms_of
from measureformer.structure.recover import recover

LONGEST = 4096
Law = Literal["order", "repetition", "separated"]
Tokenwise: TypeAlias = Callable[[Array], ArrayLike]
"""A map of token arrays: (n, d) to (n, e), for every n."""


class Repetition(NamedTuple):
    """A prompt that stands for a measure: atom i is repeated `counts[i]` times."""

    counts: np.ndarray
    error: float
    """Σ_i |counts_i/N − a_i|/2, the mass that the prompt puts elsewhere: W_1 of the two is at most the diameter of the
    support times this."""


def repetition(weights: ArrayLike, *, longest: int = LONGEST) -> Repetition:
    """Whole numbers proportional to the weights: exactly where their sum allows it, otherwise approximately.

    Arguments:
        weights: positive numbers (n,).
        longest: largest sum of the whole numbers.

    Statement   weights a are limits of counts_i/N, and |counts_i/N − a_i| < 1/N for rounding by largest remainders; an
                atom keeps at least one token
    Ref         furuya2025, Lemma 2.

    >>> repetition([0.5, 0.25, 0.25]).counts.tolist()
    [2, 1, 1]
    >>> found = repetition([0.5, 0.5**0.5])
    >>> bool(found.error < 1e-6), int(found.counts.sum()) <= 4096
    (True, True)
    """
    longest = positive_int(longest, "longest")
    entries = np.asarray(floats(weights, "weights"), np.float64)
    if entries.ndim != 1 or not (entries > 0).all() or not np.isfinite(entries).all() or len(entries) > longest:
        raise OptionError(
            got=f"{entries.size} weights for at most {longest} tokens",
            need="a vector of positive weights, not more than tokens",
            do="Drop passive tokens, or allow longer prompts.",
        )
    a = entries / entries.sum()
    best = _rounded(a, len(a))
    # a few hundred lengths at a time: an array of all of them by all atoms could be large
    for start in range(len(a), longest + 1, step := max(1, 10**6 // len(a))):
        lengths = np.arange(start, min(start + step, longest + 1))
        worst = np.abs(np.maximum(np.rint(lengths[:, None] * a), 1) / lengths[:, None] - a).max(axis=1)
        # lengths whose plain rounding is nearly the best are rounded properly
        for length in lengths[np.argsort(worst, kind="stable")[:8]]:
            found = _rounded(a, int(length))
            if found.error < best.error * (1 - 1e-9) - 1e-15:
                best = found
    return best


def _rounded(a: np.ndarray, length: int) -> Repetition:
    """Largest remainders, with one token at least for each atom."""
    exact = a * length
    counts = np.maximum(np.floor(exact + 1e-9), 1)
    while counts.sum() > length:
        counts[np.argmax(np.where(counts > 1, counts - exact, -np.inf))] -= 1
    missing = int(length - counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return Repetition(counts.astype(int), float(np.abs(counts / counts.sum() - a).sum() / 2))


class TokenMap:
    """A token map as a map between measures; see `from_token_map`."""

    def __init__(self, T: Tokenwise, longest: int) -> None:
        self.T, self.longest = T, longest

    @property
    def least_mass(self) -> float:
        """The lightest atom that a prompt of the longest kind can hold."""
        return 1 / self.longest

    def prompt(self, mu: Discrete) -> tuple[np.ndarray, Repetition]:
        """The tokens (N, d) that stand for mu, and how often each atom is repeated."""
        atoms = atoms_of(mu)
        repeated = repetition(atoms.weights, longest=self.longest)
        return np.repeat(atoms.points, repeated.counts, axis=0), repeated

    def error(self, mu: Discrete) -> float:
        """A bound of W_1 between mu/|mu| and the prompt that stands for it."""
        points = atoms_of(mu).points
        return self.prompt(mu)[1].error * float(np.linalg.norm(np.ptp(points, axis=0)))

    def __call__(self, mu: Discrete) -> Discrete:
        tokens, repeated = self.prompt(mu)
        out = token_values(self.T, tokens)
        # the image keeps the weights of mu, not those of the prompt; copies that part company share them
        weights = np.repeat(atoms_of(mu).weights / repeated.counts, repeated.counts)
        return Discrete.weighted(out, weights).compact() * float(mu.mass)


@checked
def from_token_map(T: Tokenwise, *, longest: int = LONGEST) -> TokenMap:
    """A map of token arrays as a map between measures.

    It takes the uniform measure of n tokens to that of their images. For other weights it repeats atoms: exactly for
    weights with a common denominator; otherwise `f.error(mu)` bounds W_1 between mu and the prompt. `check_token_map`
    tests whether T is a function of measures at all.

    Arguments:
        T: a function of token arrays, (n, d) to (n, e), for every n.
        longest: most tokens that may stand for a measure.

    Ref         furuya2025, Lemma 2.

    >>> import numpy as np, measureformer as mf
    >>> f = mf.structure.from_token_map(lambda X: X - X.mean(axis=0))
    >>> f(mf.Discrete.weighted([[0.0], [4.0]], [3.0, 1.0])).points.tolist()
    [[-1.0], [3.0]]
    """
    if not callable(T):
        raise DtypeError(got=f"T of type {type(T).__name__}", need="a function of arrays (n, d)", do="Pass X ↦ Y.")
    return TokenMap(T, positive_int(longest, "longest"))


@checked
def to_token_map(f: MeasureMap) -> Callable[[ArrayLike], Array]:
    """A map between measures as a map of token arrays: row i of the result is the image of row i.

    With equal weights f(mu) does not tell which atom went where; `recover` finds out. For an in-context map this is its
    method `tokens`.

    Arguments:
        f: the black box, or an in-context map.

    >>> import numpy as np, measureformer as mf
    >>> f = lambda mu: mu.rows(np.argsort(mu.points[:, 0])).push(lambda x: -x)              # gives no order away
    >>> mf.structure.to_token_map(f)([[3.0], [1.0], [2.0]]).tolist()
    [[-3.0], [-1.0], [-2.0]]
    """
    if isinstance(f, AbstractInContextMap):
        return f.tokens
    G = recover(f)

    def tokens(X: ArrayLike) -> Array:
        concrete(X, "a token map of a black box")
        rows = np.asarray(checked_points(X))
        return G(Discrete.uniform(rows), rows)

    return tokens


class TokenWitness(NamedTuple):
    """Two prompts that stand for one measure, and their different images."""

    kind: Law
    first: np.ndarray
    second: np.ndarray
    difference: float


class TokenReport(NamedTuple):
    """What `check_token_map` found; `holds` says that nothing was found, not that nothing is there."""

    holds: bool
    witness: TokenWitness | None
    trials: int


@checked
def check_token_map(T: Tokenwise, domain: AbstractDomain, key: Key, *, trials: int = 20) -> TokenReport:
    """Search for a violation of the laws that make a token map a function of measures.

    Three laws: the order of the tokens does not matter, repeating every token twice does not matter, and equal tokens
    have equal images.

    Arguments:
        T: the token map, (n, d) to (n, e), for every n.
        domain: where the tokens live.
        key: JAX random key of the search.
        trials: number of prompts.

    >>> import jax, measureformer as mf
    >>> box, key = mf.Box([-1.0], [1.0]), jax.random.key(0)
    >>> check_token_map(lambda X: X - X.mean(axis=0), box, key).holds
    True
    >>> check_token_map(lambda X: X - X.sum(axis=0), box, key).witness.kind
    'repetition'
    """
    rng = generator(key)
    trials = positive_int(trials, "trials")
    for trial in range(trials):
        X = domain.draw(rng, int(rng.integers(2, 9)))
        X = np.concatenate([X, X[:1]])
        Y = token_values(T, X)
        size = 1e-9 * max(float(np.abs(Y).max()), 1e-300)
        order = rng.permutation(len(X))
        laws: tuple[tuple[Law, np.ndarray, np.ndarray], ...] = (
            ("separated", X, np.concatenate([Y[:-1], Y[:1]])),
            ("order", X[order], Y[order]),
            ("repetition", np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0)),
        )
        for kind, other, expected in laws:
            difference = float(np.abs(token_values(T, other) - expected).max())
            if not difference <= size:
                return TokenReport(False, TokenWitness(kind, X, other, difference), trial + 1)
    return TokenReport(True, None, trials)


def token_values(T: Tokenwise, tokens: np.ndarray) -> np.ndarray:
    values = np.asarray(checked_points(T(on_device(tokens))), np.float64)
    if len(values) != len(tokens):
        raise ShapeError(
            got=f"{len(values)} images of {len(tokens)} tokens",
            need="one image per token",
            do="A token map takes the whole (n, d) array and returns an (n, e) array.",
        )
    return values
