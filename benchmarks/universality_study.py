"""Rates of universality: error against parameters. No theorem is known; these are measured slopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from measureformer.errors import OptionError
from measureformer.measures.domain import AbstractDomain
from measureformer.universality.contexts import answers, drawn
from measureformer.universality.fit import Fit, fit
from measureformer.universality.search import Search
from measureformer.universality.targets import Functional


@dataclass(frozen=True)
class ErrorCurve:
    """Errors on held-out measures against the parameters of the compiled network, for several keys."""

    parameters: np.ndarray
    """(keys, sizes)"""
    errors: np.ndarray
    """(keys, sizes): largest error."""
    slopes: np.ndarray
    """(keys,): of log error against log parameters, by least squares."""

    @property
    def slope(self) -> float:
        """Mean of the slopes."""
        return float(self.slopes.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean slope over keys, by Student's t."""
        from scipy.stats import t

        count = len(self.slopes)
        half = float(t.ppf(0.975, count - 1)) * float(self.slopes.std(ddof=1)) / np.sqrt(count)
        return self.slope - half, self.slope + half


def error_curve(
    target: Any, domain: AbstractDomain, keys: Sequence[Any], *, search: Search | None = None, separately: bool = False
) -> ErrorCurve:
    """Held-out errors of `fit` with 3, 10, 30, … terms, for every key: none is left out.

    Parameters are those of the network with quadratic units that `compile` makes of that many terms. A target with
    several components has one network with vector-valued blocks, whose components share their monomials. Fitted
    `separately`, each component has a network with scalar blocks: parameters add up, errors in the Euclidean norm.
    Only the sizes that all fits reach are compared: a fit ends when its training error is rounding.
    """
    if len(keys) < 2:
        raise OptionError(got=f"{len(keys)} keys", need="at least 2", do="An interval needs several slopes.")
    parts = _components(target, domain) if separately else [target]
    curves = [[_curve(fit(part, domain, key, tol=1e-12, search=search), domain.dim) for part in parts] for key in keys]
    shortest = min(curve.shape[1] for own in curves for curve in own)
    if shortest < 2:
        raise OptionError(
            got="a target that a few terms hit",
            need="errors at two sizes at least, for a slope",
            do="Take a target that is no polynomial in blocks, or a larger search.",
        )
    rows = np.array([[curve[:, :shortest] for curve in own] for own in curves])
    parameters, errors = rows[:, :, 0].sum(axis=1), np.linalg.norm(rows[:, :, 1], axis=1)
    slopes = np.array([np.polyfit(np.log(a), np.log(b), 1)[0] for a, b in zip(parameters, errors, strict=True)])
    return ErrorCurve(parameters, errors, slopes)


def _curve(found: Fit, dim: int) -> np.ndarray:
    """(2, sizes): parameters and errors, for 3 and more terms."""
    rows = [row for row in found.rows if row.terms >= 3]
    counts = [parameters(found.lengths[: row.terms], dim, found.components) for row in rows]
    return np.array([counts, [row.held_out for row in rows]])


def _components(target: Any, domain: AbstractDomain) -> list[Callable[[Any, Any], Any]]:
    count = answers(target, drawn(np.random.default_rng(0), domain, 1, [1], 1)).shape[-1]
    return [lambda mu, x, i=i: np.asarray(target(mu, x))[:, [i]] for i in range(count)]


def parameters(lengths: np.ndarray, dim: int, components: int) -> int:
    """What the census of the compiled network says, for monomials of these lengths in every component."""
    size, layers = dim + 3 * components, int(lengths.sum())
    # 4 units for the first factor of a monomial, 6 for every other
    units = components * int(np.where(lengths > 0, 6 * lengths - 2, 0).sum())
    attention = layers * components * (2 * dim + 2) * size
    return attention + units * (2 * size + 1) + layers * size + size * (dim + 1) + components * (size + 1)


def graded(smoothness: int | None, *, place: float = 0.45) -> Functional:
    """(mu, x) ↦ ∫ φ dmu/|mu| on the line with φ(y) = s^{k−1}|s|, s = y − place: C^{k−1,1} in y and no smoother.

    As a function of mu it is linear, and Lipschitz, C¹, C² along transport for k = 1, 2, 3; for None it is analytic,
    φ(y) = cos(4s).
    """

    def formula(y: Any, p: Any, x: Any) -> Any:
        s = y[:, 0] - place
        return p @ (jnp.cos(4 * s) if smoothness is None else s ** (smoothness - 1) * jnp.abs(s))

    return Functional(formula, dim=1, out=1)
