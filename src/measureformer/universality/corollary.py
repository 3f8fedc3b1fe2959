"""`fit_map`: approximate a support-preserving map between measures by the push-forward of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measureformer.errors import DomainError
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator, two_keys
from measureformer.numerics.types import Key
from measureformer.structure import recover
from measureformer.transport import wasserstein
from measureformer.universality.compiled import Compiled
from measureformer.universality.contexts import drawn
from measureformer.universality.fit import Fit, fit
from measureformer.universality.search import Search


@dataclass(frozen=True)
class MapErrors:
    """Distances of G♯mu to f(mu) on random measures; made by `map_errors`.

    >>> import jax, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x)
    >>> map_errors(mf.Linear([[0.4]]), f, mf.Box([-1.0], [1.0]), jax.random.key(0)).relative_error > 0.1
    True
    """

    errors: np.ndarray
    """W_1(G♯mu, f(mu)) for each measure."""
    displacements: np.ndarray
    """W_1(f(mu), mu) for each of them."""

    @property
    def error(self) -> float:
        """Largest W_1 error found."""
        return float(self.errors.max())

    @property
    def relative_error(self) -> float:
        """Largest W_1 error over the largest displacement."""
        return self.error / float(self.displacements.max())


@dataclass(frozen=True)
class MapFit:
    """A transformer T with T♯mu near f(mu), and its errors on measures ten times larger than those fitted.

    >>> import jax, numpy as np, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x + 0.3 * np.asarray(mu.mean()))                   # a black box
    >>> search = mf.universality.Search(terms=20, blocks=40, candidates=100, contexts=30, atoms=5, rounds=2)
    >>> found = mf.universality.fit_map(f, mf.Box([-1.0], [1.0]), jax.random.key(0), tol=1e-3, search=search)
    >>> found.held_out.relative_error < 0.01
    True
    """

    fit: Fit
    """The approximation of the in-context map behind f."""
    network: Compiled
    held_out: MapErrors


@checked
def fit_map(
    f: Callable[[Discrete], Discrete],
    domain: AbstractDomain,
    key: Key,
    *,
    tol: float = 1e-2,
    search: Search | None = None,
    trials: int = 20,
) -> MapFit:
    """Approximate a black box f between measures by the push-forward of a transformer.

    It recovers the in-context map of f, fits it, and compiles the fit with quadratic units, which are exact. Errors are
    W_1 distances of T♯mu to f(mu) on measures with 10 · `search.atoms` atoms; they do not bound the supremum. To train
    instead, pass `mf.recover(f)` to `train_functional` and the resulting transformer to `map_errors`.

    Arguments:
        f: map from measures to measures.
        domain: compact set that holds the atoms.
        key: random key.
        tol: largest error at which the fit counts as successful.
        search: size and dictionary of the fit; defaults to `Search()`.
        trials: number of held-out measures.

    Statement   if f keeps supports and its regular derivative is uniformly continuous, then for every ε there is a
                transformer T with sup_mu W_1(T[mu]♯mu, f(mu)) ≤ ε
    Hypotheses  assumed; `mf.is_transformer(f, domain, key)` looks for violations.
    Ref         furuya2025, Corollary 1.

    >>> import jax, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x)
    >>> search = mf.universality.Search(terms=5, blocks=10, candidates=20, contexts=20, atoms=3, rounds=1)
    >>> found = mf.universality.fit_map(f, mf.Box([-1.0], [1.0]), jax.random.key(0), search=search, trials=2)
    >>> found.held_out.error < 1e-12
    True
    """
    search = Search() if search is None else search
    first, second = two_keys(key)
    found = fit(recover(f), domain, first, tol=tol, search=search)
    network = found.compile(activation="quadratic")
    return MapFit(found, network, map_errors(network, f, domain, second, atoms=10 * search.atoms, trials=trials))


def map_errors(
    G: AbstractInContextMap,
    f: Callable[[Discrete], Discrete],
    domain: AbstractDomain,
    key: Key,
    *,
    atoms: int = 100,
    trials: int = 20,
) -> MapErrors:
    """W_1 distances of the push-forward G♯mu to f(mu) on random measures.

    Arguments:
        G: in-context map from R^d to R^d.
        f: map from measures to measures.
        domain: compact set in R^d from which atoms are drawn.
        key: random key.
        atoms: atoms of each measure.
        trials: number of measures.

    >>> import jax, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x)
    >>> map_errors(mf.Linear([[0.5]]), f, mf.Box([-1.0], [1.0]), jax.random.key(0)).error < 1e-12
    True
    """
    if G.out_dim(domain.dim) != domain.dim:
        raise DomainError(
            got=f"a map from measures on R^{domain.dim} to measures on R^{G.out_dim(domain.dim)}",
            need="a map of a space to itself, whose displacement can be measured",
            do="Fit the in-context map itself: mf.universality.fit(mf.recover(f), domain, key).",
        )
    count = positive_int(trials, "trials")
    measures = drawn(generator(key), domain, count, [positive_int(atoms, "atoms")], 1)
    pairs: list[tuple[float, float]] = []
    for mu in map(measures.measure, range(count)):
        image = f(mu)
        pairs.append((float(wasserstein(G.push(mu), image, p=1)), float(wasserstein(image, mu, p=1))))
    errors, displacements = np.asarray(pairs).T
    return MapErrors(errors, displacements)
