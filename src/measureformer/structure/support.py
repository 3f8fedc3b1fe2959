"""`is_support_preserving`: does a map between measures move atoms without splitting or reweighting them?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import equinox as eqx
import numpy as np

from measureformer.errors import DomainError
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import floats, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key, Number
from measureformer.structure.black_box import Atoms, BlackBox, MeasureMap, merged, w1
from measureformer.structure.probes import admitted, random_measure, structured_measures
from measureformer.structure.weights import SubsetSums, binary_weights

MANY = 200
"""Atoms of a large measure, of which a few light ones are marked."""
MARKED = 8
SIZES = (1, 2, 3, 5, 8, 12)


class SupportWitness(eqx.Module):
    """A measure at which a map does not preserve support, its image, and what went wrong."""

    mu: Discrete
    nu: Discrete
    kind: Literal["split", "reweighted", "separated"]
    """"split": mass of one atom went to several places; "reweighted": masses of the image are not sums of masses of
    atoms; "separated": two ways to write the same measure, with an atom once or twice, have different images."""
    atoms: tuple[int, ...]
    """Atoms of mu that no atom of nu accounts for."""
    image_atoms: tuple[int, ...]
    """Atoms of nu whose mass is not that of a set of atoms of mu."""
    explanation: str


class SupportReport(eqx.Module):
    """What a search for a violation found. `holds` says that none was found in so many trials; it is no proof."""

    holds: bool
    witness: SupportWitness | None
    trials: dict[str, int]
    """How many measures of each kind were looked at."""

    @property
    def total(self) -> int:
        return sum(self.trials.values())

    def __str__(self) -> str:
        tried = ", ".join(f"{count} {kind}" for kind, count in self.trials.items())
        if self.witness is None:
            return f"no violation found in {self.total} trials ({tried}): evidence, not a proof"
        return f"not support preserving: {self.witness.explanation} (after {self.total} trials: {tried})"


@checked
def is_support_preserving(
    f: MeasureMap, domain: AbstractDomain, key: Key, *, trials: int = 20, tol: Number | None = None
) -> SupportReport:
    """Search for a measure at which a black box f splits or reweights atoms.

    Tries random measures, structured ones (Diracs, pairs, ties, clusters) and those that f stretches most. All sets of
    atoms have different masses: weights are 1, 2, 4, … for few atoms, and equal except for a few light ones for many.
    Each mass of the image must be that of a set of atoms, and these sets must partition the atoms. Atoms may merge: the
    support may shrink, but never grow.

    The answer is a witness with as few atoms as possible, or that none was found: evidence, not a proof.

    Arguments:
        f: the black box.
        domain: where the measures live, such as `mf.Box(low, high)`.
        key: JAX random key of the search.
        trials: number of random measures, and of those that f stretches most.
        tol: accepted error of a mass; by default a few roundings.

    Statement   f(Σ a_i δ_{x_i}) = Σ a_i δ_{y_i} for all weights a and points x, and x_i = x_j implies y_i = y_j
    Ref         furuya2025, Definition 1.

    >>> import jax, measureformer as mf
    >>> box, key = mf.Box([-1.0], [1.0]), jax.random.key(0)
    >>> relu = mf.MLP([[1.0]], [0.0], [[1.0]], [0.0])
    >>> mf.is_support_preserving(relu.push, box, key).holds              # merges atoms, which is allowed
    True
    >>> halves = lambda mu: 0.5 * mu.push(lambda x: x - 0.1) + 0.5 * mu.push(lambda x: x + 0.1)
    >>> found = mf.is_support_preserving(halves, box, key)
    >>> found.holds, found.witness.kind, found.witness.mu.n
    (False, 'split', 1)
    """
    box, rng = BlackBox.of(f), generator(key)
    return searched(box, domain, rng, positive_int(trials, "trials"), 0.0 if tol is None else float(floats(tol, "tol")))


def searched(
    box: BlackBox, domain: AbstractDomain, rng: np.random.Generator, trials: int, tol: float = 0.0
) -> SupportReport:
    """The search itself, with a box whose memory is shared."""
    counts: Counter[str] = Counter()
    seen: list[tuple[float, Atoms]] = []
    for kind, mu in _measures(domain, rng, trials):
        counts[kind] += 1
        witness = violation(box, mu, tol) or (_separated(box, mu) if kind == "structured" else None)
        if witness is not None:
            return SupportReport(False, _smallest(box, domain, witness, tol), dict(counts))
        seen.append((_size(box.image(mu)) / (_size(mu) + 1e-3 * domain.diameter), mu))
    for _ in range(trials):
        # from where f spreads atoms most, a small step: splitting spreads
        stretch, mu = max(seen, key=lambda entry: entry[0])
        points = mu.points + 0.1 * domain.diameter * rng.normal(size=mu.points.shape) * rng.uniform() ** 3
        near = admitted(domain, domain.toward(mu.points, points), rng.permutation(mu.weights))
        counts["adversarial"] += 1
        witness = violation(box, near, tol)
        if witness is not None:
            return SupportReport(False, _smallest(box, domain, witness, tol), dict(counts))
        # a place that has been left behind counts less and less, so that the search does not get stuck
        seen.remove((stretch, mu))
        seen += [(0.9 * stretch, mu), (_size(box.image(near)) / (_size(near) + 1e-3 * domain.diameter), near)]
    return SupportReport(True, None, dict(counts))


def _measures(domain: AbstractDomain, rng: np.random.Generator, trials: int) -> Iterator[tuple[str, Atoms]]:
    yield from (("structured", mu) for mu in structured_measures(domain, rng))
    for k in range(trials):
        n = SIZES[k % len(SIZES)]
        yield "random", random_measure(domain, rng, n, weights="equal" if k % 4 == 3 else "generic")
    yield "large", large_measure(domain, rng)


def large_measure(domain: AbstractDomain, rng: np.random.Generator) -> Atoms:
    """Many atoms of equal weight and a few light ones, whose masses are all told apart from each other."""
    n = MANY - MANY % domain.least
    light = 2.0 ** -np.arange(2, 2 + MARKED) / n
    weights = np.concatenate([np.full(n - MARKED, 1.0), light * n])
    return Atoms(domain.draw(rng, n), weights / weights.sum())


def violation(box: BlackBox, mu: Atoms, tol: float = 0.0) -> SupportWitness | None:
    """A witness if the masses of f(mu) cannot be those of disjoint sets of atoms that exhaust mu; else None.

    None too if the weights of mu do not tell sets of atoms apart.
    """
    nu = box.image(mu)
    allowed = max(tol, 64 * box.unit)
    weights = mu.weights
    if np.ptp(weights) <= 8 * box.unit:
        known, accounted = _multiples(mu.n, nu.weights, allowed)
    elif mu.n <= 14:
        sums = SubsetSums(weights)
        if sums.gap <= 4 * allowed:
            return None
        known, accounted = _disjoint(sums.behind(nu.weights, allowed), mu.n)
    else:
        light = np.sort(weights[weights < weights.max() * (1 - 1e-9)])
        if len(light) > 40 or not np.allclose(light[1:], 2 * light[:-1], rtol=1e-9) or light.sum() >= weights.max():
            return None
        known, accounted = _marked(weights, nu.weights, allowed)
    if known.all() and accounted.all():
        return None
    return _witness(mu, nu, known, accounted, allowed)


def _multiples(n: int, masses: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """For equal weights: every mass must be a multiple of 1/n."""
    counts = np.rint(masses * n)
    known = (np.abs(masses - counts / n) <= tol) & (counts >= 1)
    return known, np.full(n, bool(known.all()) and counts.sum() == n)


def _disjoint(sets: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Which masses belong to sets of atoms that no other mass takes, and which atoms are accounted for."""
    members = (sets[:, None] >> np.arange(n)) & 1 == 1
    taken = members.sum(axis=0)
    known = (sets > 0) & ~(members & (taken > 1)).any(axis=1)
    return known, (taken == 1)


def _marked(weights: np.ndarray, masses: np.ndarray, tol: float) -> tuple[np.ndarray, np.ndarray]:
    """For many equal weights w and some light ones w/4, w/8, …: multiples of w, and digits of what is left."""
    heavy = float(weights.max())
    light = np.sort(weights[weights < heavy * (1 - 1e-9)])
    unit = float(light[0]) if len(light) else heavy
    whole = np.floor((masses + tol) / heavy)
    digits = np.rint((masses - whole * heavy) / unit)
    known = np.abs(masses - whole * heavy - digits * unit) <= tol
    bits = (np.where(known, digits, 0).astype(np.int64)[:, None] >> np.arange(len(light))) & 1
    all_heavy = whole.sum() == len(weights) - len(light)
    return known, np.full(len(weights), bool(known.all() and all_heavy and (bits.sum(axis=0) == 1).all()))


def _witness(mu: Atoms, nu: Atoms, known: np.ndarray, accounted: np.ndarray, tol: float) -> SupportWitness:
    strange = np.flatnonzero(~known)
    lost = np.flatnonzero(~accounted)
    lightest = float(mu.weights.min())
    split = nu.n > mu.n or bool((nu.weights < lightest - tol).any() and len(strange) > len(lost))
    if split:
        what = f"{mu.n} atoms have {nu.n} images, the lightest of mass {nu.weights.min():.4g}"
    elif len(strange):
        mass = float(nu.weights[strange[0]])
        what = f"an image of mass {mass:.6g}, which no set of atoms has (masses {_shown(mu.weights)})"
    else:
        what = f"masses {_shown(nu.weights)} of images that are not those of disjoint sets of atoms"
    kind: Literal["split", "reweighted"] = "split" if split else "reweighted"
    indices = tuple(map(int, lost)), tuple(map(int, strange))
    return SupportWitness(mu.measure(), nu.measure(), kind, *indices, f"{kind}: {what}")


def _separated(box: BlackBox, mu: Atoms) -> SupportWitness | None:
    """Write an atom twice: a map of measures must not notice."""
    points = np.concatenate([mu.points, mu.points[:1]])
    weights = np.concatenate([mu.weights[:1] * 0.25, mu.weights[1:], mu.weights[:1] * 0.75])
    twice = merged(*box.evaluated(Atoms(points, weights)))
    once = box.image(mu)
    apart = w1(twice, once)
    if apart <= 1e6 * box.unit * max(_size(once), float(np.abs(once.points).max()), 1e-300):
        return None
    what = f"the atom at {mu.points[0]} written as two atoms at the same place changes the image by W_1 = {apart:.3g}"
    repeated = Discrete.weighted(points, weights)
    return SupportWitness(repeated, twice.measure(), "separated", (0, mu.n), (), f"separated: {what}")


def _smallest(box: BlackBox, domain: AbstractDomain, found: SupportWitness, tol: float) -> SupportWitness:
    """The witness with as few atoms as can be had by leaving out one after the other."""
    if found.kind == "separated":
        return found
    mu = Atoms(np.asarray(found.mu.points), np.asarray(found.mu.weights))
    i = 0
    while mu.n > domain.least and i < min(mu.n, 16):
        fewer = _without(domain, mu, i)
        smaller = None if fewer is None else violation(box, fewer, tol)
        if fewer is None or smaller is None:
            i += 1
        else:
            mu, found, i = fewer, smaller, 0
    return found


def _without(domain: AbstractDomain, mu: Atoms, i: int) -> Atoms | None:
    """The measure without atom i, with weights that tell sets of atoms apart; None if the domain needs the atom."""
    kept = np.arange(mu.n) != i
    weights = binary_weights(mu.n - 1) if mu.n <= 13 and domain.least == 1 else mu.weights[kept]
    try:
        return admitted(domain, mu.points[kept], weights)
    except DomainError:
        return None


def _size(mu: Atoms) -> float:
    return float(np.linalg.norm(np.ptp(mu.points, axis=0)))


def _shown(weights: np.ndarray) -> str:
    return np.array2string(weights, precision=4, threshold=8)
