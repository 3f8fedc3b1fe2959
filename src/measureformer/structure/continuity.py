"""`continuity`: the modulus of continuity of the regular derivative, that is, of the in-context map behind f."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from typing import Literal

import equinox as eqx
import numpy as np

from measureformer.errors import SupportError
from measureformer.measures import Discrete
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key
from measureformer.structure.black_box import Atoms, BlackBox, MeasureMap, w1
from measureformer.structure.probes import (
    Place,
    Trail,
    context_probes,
    followed,
    outermost,
    query_probes,
    random_measure,
    zoomed,
)
from measureformer.structure.recover import Recovered, recover

Verdict = Literal["representable", "not representable", "inconclusive"]
FLOOR = 2e-3
"""Differences of values, as a share of the size of the image, below which a path is left."""
CLOSEST, CLOSEST_MEASURES = 1e-8, 1e-10
"""Distances, as a share of the diameter of the domain, down to which a jump is followed: of the in-context map, well
above the mass of light atoms, which blur what lies closer together; and of f itself."""
BLOWN_UP = 10.0


class JumpWitness(eqx.Module):
    """Two nearby places at which values are far apart, the last of a sequence of ever closer ones."""

    what: str
    first: Discrete
    second: Discrete
    first_query: np.ndarray | None
    """The queries, if it is the in-context map that jumps, and not f itself."""
    second_query: np.ndarray | None
    distance: float
    jump: float
    distances: tuple[float, ...]
    jumps: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"{self.what}: values {self.jump:.4g} apart at distance {self.distance:.2g}, "
            f"and {self.jumps[0]:.4g} apart at distance {self.distances[0]:.2g}"
        )


class Continuity(eqx.Module):
    """What a search for discontinuities found; "representable" says that none was found, which is evidence only."""

    verdict: Verdict
    witness: JumpWitness | None
    trials: int
    """Paths that were followed."""
    distances: tuple[float, ...]
    modulus: tuple[float, ...]
    """The largest difference of values that was seen between places at most as far apart as `distances`."""
    lipschitz: float
    """The largest ratio that was seen of differences to distances; a lower bound, and infinite for none."""
    blow_up: bool
    """Whether ratios grow towards small distances. A hint only: those of sign(x)√|x| do, and it is representable."""
    unread: int
    """Paths that were left because an added atom was not found again."""

    def __str__(self) -> str:
        if self.witness is not None:
            return str(self.witness)
        more = ", ratios blow up (a hint only)" if self.blow_up else ""
        return f"{self.verdict}: no jump on {self.trials} paths, ratios up to {self.lipschitz:.3g}{more}"


@checked
def continuity(f: MeasureMap, domain: AbstractDomain, key: Key, *, trials: int = 24) -> Continuity:
    """Modulus of continuity of the regular derivative of a black box f, and a search for its jumps.

    D̄f(mu, x, ψ) = ψ(G(mu, x)), so that on ψ with |ψ|, |∇ψ| ≤ R its modulus in the metric W_1 + |x − x'| + |ψ − ψ'| is
    R times that of G plus |ψ − ψ'|. G is recovered along paths on which queries cross the domain or an atom, or atoms
    move, meet, fade or trade mass, and in balls of queries that close in on where G is steepest. Intervals with large
    differences are halved until the difference is small or the places are 1e-8 of the diameter apart. A difference that
    does not shrink over the last three decades is a jump, and the sequence is the witness; if it shrinks too slowly to
    tell, the answer is inconclusive.

    Arguments:
        f: the black box.
        domain: where measures and queries live, such as `mf.Box(low, high)`.
        key: JAX random key of the paths.
        trials: number of paths.

    Statement   f is given by a continuous in-context map iff it is support preserving and D̄f uniformly continuous
    Hypotheses  assumed: f is continuous and support preserving, see `is_transformer`. Searched, not proven.
    Ref         furuya2025, Theorem 1.

    >>> import jax, measureformer as mf
    >>> box, key = mf.Box([-1.0], [1.0]), jax.random.key(0)
    >>> found = mf.structure.continuity(mf.structure.counterexample(), box, key)
    >>> found.verdict, round(found.witness.jump, 2)
    ('not representable', 0.5)
    >>> mf.structure.continuity(mf.structure.counterexample(softening=0.1), box, key).verdict
    'representable'
    """
    G, rng = recover(f), generator(key)
    return derivative_search(G, domain, rng, positive_int(trials, "trials"), image_size(G.box, domain, rng))


def derivative_search(
    G: Recovered, domain: AbstractDomain, rng: np.random.Generator, trials: int, scale: float
) -> Continuity:
    """Follow paths of measures and queries, looking at G; `scale` is the size of the image."""

    def values(places: list[Place]) -> list[np.ndarray]:
        measures, queries = zip(*places, strict=True)
        if all(mu is measures[0] for mu in measures):  # queries in one context cost one evaluation
            return list(G.read(measures[0], np.stack(queries)))
        return [G.read(mu, x[None])[0] for mu, x in places]

    def gap(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.linalg.norm(a - b))

    kinds = query_probes(domain, rng), context_probes(domain, rng)
    probes = islice(chain.from_iterable(zip(*kinds, strict=False)), trials)
    stop = {"floor": FLOOR * scale, "resolution": CLOSEST * domain.diameter}
    contexts = [outermost(domain, rng), *(random_measure(domain, rng, n) for n in (3, 1)[: trials // 4])]
    zooms = (partial(zoomed, domain, rng, mu, G.read, **stop) for mu in contexts)
    trails = chain(zooms, (partial(followed, probe, values, gap, **stop) for probe in probes))
    return _searched(trails, domain, stop, "the in-context map jumps")


def measure_search(
    box: BlackBox, domain: AbstractDomain, rng: np.random.Generator, trials: int, scale: float
) -> Continuity:
    """Follow paths of measures, looking at f itself in W_1."""

    def values(places: list[Place]) -> list[Atoms]:
        return [box.image(mu) for mu, _ in places]

    stop = {"floor": FLOOR * scale, "resolution": CLOSEST_MEASURES * domain.diameter}
    trails = (partial(followed, probe, values, w1, **stop) for probe in islice(context_probes(domain, rng), trials))
    return _searched(trails, domain, stop, "f jumps")


def image_size(box: BlackBox, domain: AbstractDomain, rng: np.random.Generator) -> float:
    """The diameter of what f makes of a cloud that fills the domain, and of measures in different places."""
    sizes = (24, *[1] * 6)
    points = np.concatenate([box.image(random_measure(domain, rng, n, weights="equal")).points for n in sizes])
    return max(float(np.linalg.norm(np.ptp(points, axis=0))), 1e-9 * float(np.abs(points).max()), 1e-300)


def _searched(
    searches: Iterable[Callable[[], Trail]], domain: AbstractDomain, stop: dict[str, float], what: str
) -> Continuity:
    pairs: list[tuple[float, float]] = []
    undecided = unread = trials = 0
    witness = None
    for search in searches:
        trials += 1
        try:
            trail = search()
        except SupportError:
            unread += 1
            continue
        pairs += trail.pairs
        found = trail.verdict(stop["floor"])
        undecided += found == "undecided"
        if found == "jump":
            witness = _witness(trail, what)
            break
    distances, modulus, lipschitz, blow_up = _modulus(pairs, domain.diameter, stop["floor"])
    verdict: Verdict = "inconclusive" if undecided or unread else "representable"
    if witness is not None:
        verdict = "not representable"
    return Continuity(verdict, witness, trials, distances, modulus, lipschitz, blow_up, unread)


def _modulus(
    pairs: list[tuple[float, float]], diameter: float, floor: float
) -> tuple[tuple[float, ...], tuple[float, ...], float, bool]:
    """The largest jumps up to each distance, the largest ratio, and whether ratios grow towards small distances."""
    if not pairs:
        return (), (), float("nan"), False
    distance, jump = np.array(pairs).T
    ratio = jump / np.maximum(distance, 1e-300)
    # below the floor a path is left early: ratios of tiny differences would be those of rounding errors
    clear = jump >= 0.05 * floor
    edges = diameter * 2.0 ** -np.arange(0, 34)
    inside = [distance <= edge for edge in edges]
    kept = [i for i, mask in enumerate(inside) if mask.any()]
    modulus = tuple(float(jump[inside[i]].max()) for i in kept)
    largest = float(ratio[clear].max()) if clear.any() else 0.0
    coarse = ratio[clear & (distance >= 0.01 * diameter)]
    blow_up = bool(clear.any() and len(coarse) and largest > BLOWN_UP * coarse.max())
    return tuple(float(edges[i]) for i in kept), modulus, largest, blow_up


def _witness(trail: Trail, what: str) -> JumpWitness:
    (first, x), (second, y) = (trail.probe.at(s) for s in (trail.last.start, trail.last.end))
    distances, jumps = (tuple(map(float, row)) for row in (trail.distances, trail.jumps))
    queries = (None, None) if isinstance(trail.last.values[0], Atoms) else (x, y)
    where = f"{what} while {trail.probe.name}"
    return JumpWitness(where, first.measure(), second.measure(), *queries, distances[-1], jumps[-1], distances, jumps)
