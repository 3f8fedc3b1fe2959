"""The corollary: a map between measures that keeps supports, approximated by the push-forward of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.errors import DomainError
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.random import generator, two_keys
from measureformer.structure import recover
from measureformer.transport import wasserstein
from measureformer.universality._contexts import drawn
from measureformer.universality._fit import Fit, Search, fit
from measureformer.universality.compiled import Compiled


@dataclass(frozen=True)
class MapFit:
    """A transformer T with T♯mu near f(mu), and how near, on measures with ten times the atoms of any that was fitted.

    >>> import jax, numpy as np, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x + 0.3 * np.asarray(mu.mean()))                   # a black box
    >>> search = mf.universality.Search(terms=20, blocks=40, candidates=100, contexts=30, atoms=5, rounds=2)
    >>> found = mf.universality.fit_map(f, mf.Box([-1.0], [1.0]), jax.random.key(0), tol=1e-3, search=search)
    >>> found.relative_error < 0.01
    True
    """

    fit: Fit
    """The approximation of the in-context map behind f."""
    network: Compiled
    errors: np.ndarray
    """W_1(T♯mu, f(mu)) for each held-out measure."""
    displacements: np.ndarray
    """W_1(f(mu), mu) for each of them."""

    @property
    def error(self) -> float:
        """Largest W_1 error that was found."""
        return float(self.errors.max())

    @property
    def relative_error(self) -> float:
        """Largest W_1 error over the largest displacement."""
        return self.error / float(self.displacements.max())


def fit_map(
    f: Callable[[Discrete], Discrete],
    domain: AbstractDomain,
    key: Any,
    *,
    tol: float = 1e-2,
    search: Search | None = None,
    trials: int = 20,
) -> MapFit:
    """A transformer whose push-forward approximates the black box f: recover its in-context map, fit it, compile it.

    Errors are W_1 distances of T♯mu to f(mu) on `trials` measures with 10 · `search.atoms` atoms; quadratic units are
    compiled, so that they are those of the fit. The supremum over all measures is not bounded by them.

    Statement   if f keeps supports and its regular derivative is uniformly continuous, then for every ε there is a
                transformer T with sup_mu W_1(T[mu]♯mu, f(mu)) ≤ ε
    Hypotheses  assumed; `mf.is_transformer(f, domain, key)` looks for violations.
    Ref         furuya2025, Corollary 1.

    >>> import jax, measureformer as mf
    >>> f = lambda mu: mu.push(lambda x: 0.5 * x)
    >>> search = mf.universality.Search(terms=5, blocks=10, candidates=20, contexts=20, atoms=3, rounds=1)
    >>> mf.universality.fit_map(f, mf.Box([-1.0], [1.0]), jax.random.key(0), search=search, trials=2).error < 1e-12
    True
    """
    search, trials = Search() if search is None else search, positive_int(trials, "trials")
    first, second = two_keys(key)
    found = fit(recover(f), domain, first, tol=tol, search=search)
    network = found.compile(activation="quadratic")
    if network.out_dim(domain.dim) != domain.dim:
        raise DomainError(
            got=f"a map from measures on R^{domain.dim} to measures on R^{network.out_dim(domain.dim)}",
            need="a map of a space to itself, whose displacement can be measured",
            do="Fit the in-context map itself: mf.universality.fit(mf.recover(f), domain, key).",
        )
    others = drawn(generator(second), domain, trials, [10 * search.atoms], 1)
    pairs: list[tuple[float, float]] = []
    for k in range(trials):
        mu = others.measure(k)
        image = f(mu)
        pairs.append((float(wasserstein(network.push(mu), image, p=1)), float(wasserstein(image, mu, p=1))))
    errors, displacements = np.asarray(pairs).T
    return MapFit(found, network, errors, displacements)
