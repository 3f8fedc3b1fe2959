"""Where a search looks: random and structured measures, and paths along which a jump can be cornered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from measureformer.measures.domain import AbstractDomain
from measureformer.structure.black_box import Atoms, merged
from measureformer.structure.weights import binary_weights

GRID, BEAM = 9, 3
"""Points of a path that are looked at first, and intervals of it that are followed."""
STAYS = 0.9
"""Share of the difference three decades earlier that is left at a jump; a modulus 1/log(1/distance) keeps 0.7."""
ZOOM = 64
"""Queries that are looked at together; they cost one evaluation of f."""


def random_measure(domain: AbstractDomain, rng: np.random.Generator, n: int, *, weights: str = "generic") -> Atoms:
    """n atoms in the domain, with weights that are equal, or random, or tell all sets of atoms apart ("generic")."""
    n = max(n, domain.least)
    points = domain.draw(rng, n)
    if weights == "equal":
        mass = np.full(n, 1 / n)
    elif weights == "random" or n > 12:
        mass = rng.uniform(0.2, 1, n)
    else:
        mass = rng.permutation(binary_weights(n))
    return admitted(domain, points, mass)


def outermost(domain: AbstractDomain, rng: np.random.Generator) -> Atoms:
    """A measure as far out as can be: what depends on mass nearby has none of it almost everywhere."""
    mu = random_measure(domain, rng, 1)
    return mu if domain.least > 1 else Atoms(domain.chord(rng, domain.draw(rng, 1)[0])[0][None], mu.weights)


def admitted(domain: AbstractDomain, points: np.ndarray, weights: np.ndarray) -> Atoms:
    """The admissible probability measure next to these atoms."""
    points, weights = domain.admit(points, weights)
    return merged(points, weights / weights.sum())


def structured_measures(domain: AbstractDomain, rng: np.random.Generator) -> Iterator[Atoms]:
    """Measures at which maps tend to break: Diracs, pairs, tied coordinates, clusters, nearly all mass at a point."""
    middle = domain.middle[None]
    ends = np.stack(domain.chord(rng, domain.middle))
    some = domain.draw(rng, max(4, domain.least))
    if domain.least == 1:
        yield from (admitted(domain, rows, np.ones(len(rows))) for rows in (middle, ends[:1], ends[1:], ends, some[:2]))
        yield admitted(domain, np.concatenate([ends, middle]), np.array([1.0, 2.0, 4.0]))
        yield admitted(domain, ends, np.array([1.0, 2.0]))
    tied = some.copy()
    tied[:, 0] = some[0, 0]
    weights = rng.permutation(binary_weights(len(some)))
    yield admitted(domain, tied, weights)
    yield admitted(domain, some[:1] + 1e-3 * (some - some[:1]) if domain.least == 1 else some, weights)
    yield admitted(domain, some, np.append(np.full(len(some) - 1, 1e-3), 1.0))


Place = tuple[Atoms, np.ndarray]
"""A measure and a query."""


class Probe(NamedTuple):
    """A path s ↦ (mu_s, x_s), 0 ≤ s ≤ 1, along which distances are at most `length` times differences of s."""

    name: str
    at: Callable[[float], Place]
    length: float
    grid: np.ndarray


class Step(NamedTuple):
    """Two neighbouring places on a path, and how far apart the values are there."""

    jump: float
    start: float
    end: float
    values: tuple[Any, Any]


class Trail(NamedTuple):
    """Ever closer places on a path: their distances, and the distances of the values."""

    probe: Probe
    distances: np.ndarray
    jumps: np.ndarray
    last: Step
    pairs: list[tuple[float, float]]
    """All pairs (distance, jump) that were seen on the way."""

    def verdict(self, floor: float) -> str:
        """ "settled" once the values differ by at most `floor`; else "jump" if they do not approach each other."""
        if self.jumps[-1] <= floor:
            return "settled"
        early = self.jumps[np.searchsorted(-self.distances, -1e3 * self.distances[-1])]
        return "jump" if self.jumps[-1] >= STAYS * early else "undecided"


def followed(
    probe: Probe, values_at: Callable[[list[Place]], list[Any]], gap: Callable[[Any, Any], float], **stop: float
) -> Trail:
    """Halve the intervals of the path on which values differ most, until they differ by `floor` or are too short.

    Several intervals are followed at once: at first a steep continuous piece may hide a small jump, but it becomes
    flatter with every halving and the jump does not.
    """
    values = values_at([probe.at(float(s)) for s in probe.grid])
    steps = [
        Step(gap(values[i], values[i + 1]), float(probe.grid[i]), float(probe.grid[i + 1]), (values[i], values[i + 1]))
        for i in range(len(values) - 1)
    ]
    distances, jumps, pairs = [], [], [(probe.length * (s.end - s.start), s.jump) for s in steps]
    while True:
        steps = sorted(steps, key=lambda step: -step.jump)[:BEAM]
        best = steps[0]
        distances.append(probe.length * (best.end - best.start))
        jumps.append(best.jump)
        if best.jump <= stop["floor"] or distances[-1] <= stop["resolution"]:
            return Trail(probe, np.array(distances), np.array(jumps), best, pairs)
        middles = [(step.start + step.end) / 2 for step in steps]
        halves: list[Step] = []
        for step, middle, here in zip(steps, middles, values_at([probe.at(s) for s in middles]), strict=True):
            halves.append(Step(gap(step.values[0], here), step.start, middle, (step.values[0], here)))
            halves.append(Step(gap(here, step.values[1]), middle, step.end, (here, step.values[1])))
        pairs += [(probe.length * (step.end - step.start), step.jump) for step in halves]
        steps = halves


def zoomed(
    domain: AbstractDomain,
    rng: np.random.Generator,
    mu: Atoms,
    values: Callable[[Atoms, np.ndarray], np.ndarray],
    **stop: float,
) -> Trail:
    """Look at many queries in a ball, go where neighbours differ most, halve the ball, and so on.

    Paths find jumps across surfaces; this finds jumps at points and lines too, which no path runs into by chance.
    """
    centre, radius, pairs = domain.middle, domain.diameter / 2, []
    distances, jumps = [], []
    while True:
        x = domain.project(centre + radius * _ball(rng, ZOOM, domain.dim))
        y = values(mu, x)
        near = np.linalg.norm(x[:, None] - x, axis=2)
        apart = np.linalg.norm(y[:, None] - y, axis=2)
        pairs.append((2 * radius, float(apart.max())))
        distances.append(2 * radius)
        jumps.append(float(apart.max()))
        i, j = divmod(int((apart / (near + 0.05 * radius)).argmax()), ZOOM)
        if jumps[-1] <= stop["floor"] or distances[-1] <= stop["resolution"]:
            ends = divmod(int(apart.argmax()), ZOOM)
            last = Step(jumps[-1], 0.0, 1.0, (y[ends[0]], y[ends[1]]))
            return Trail(_between(mu, *x[list(ends)]), np.array(distances), np.array(jumps), last, pairs)
        # a domain need not be convex: the middle of two of its points is moved back into it
        centre, radius = domain.project((x[i] + x[j]) / 2), radius / 2


def _between(mu: Atoms, first: np.ndarray, last: np.ndarray) -> Probe:
    def at(s: float) -> Place:
        return mu, _line(first, last, s)

    return Probe("queries close in", at, float(np.linalg.norm(last - first)), np.array([0.0, 1.0]))


def _ball(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    points = rng.normal(size=(n, dim))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / dim)


def context_probes(domain: AbstractDomain, rng: np.random.Generator) -> Iterator[Probe]:
    """Paths of measures, with a query that stays or moves along: round after round of five kinds."""
    while True:
        n = int(rng.choice([2, 3, 5]))
        yield _moving(domain, rng, random_measure(domain, rng, n, weights="random"))
        yield _moving(domain, rng, random_measure(domain, rng, 1))
        yield _merging(domain, rng, random_measure(domain, rng, n))
        yield _fading(domain, rng, random_measure(domain, rng, int(rng.choice([1, 3]))))
        yield _trading(domain, rng, random_measure(domain, rng, n))


def query_probes(domain: AbstractDomain, rng: np.random.Generator) -> Iterator[Probe]:
    """Paths of queries in a fixed context: across the domain, through its middle, and through an atom."""
    while True:
        yield _crossing(domain, rng, outermost(domain, rng), domain.middle)
        yield _crossing(domain, rng, random_measure(domain, rng, 3), domain.draw(rng, 1)[0])
        mu = random_measure(domain, rng, 2)
        yield _crossing(domain, rng, mu, mu.points[0])


def _line(a: np.ndarray, b: np.ndarray, s: float) -> np.ndarray:
    return (1 - s) * a + s * b


def _grid(rng: np.random.Generator) -> np.ndarray:
    # not the midpoint: halving would run into the symmetries of the domain, where a jump may have no side
    inner = (np.arange(1, GRID - 1) + rng.uniform(-0.3, 0.3, GRID - 2)) / (GRID - 1)
    return np.concatenate([[0.0], inner, [1.0]])


def _ends(domain: AbstractDomain, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return domain.chord(rng, domain.draw(rng, 1)[0])


def _moving(domain: AbstractDomain, rng: np.random.Generator, mu: Atoms) -> Probe:
    """All atoms move at once, and a query with them."""
    goal = domain.draw(rng, mu.n)
    goal = domain.toward(mu.points, goal)
    first, last = _ends(domain, rng)
    length = float(mu.weights @ np.linalg.norm(goal - mu.points, axis=1)) + float(np.linalg.norm(last - first))

    def at(s: float) -> Place:
        return merged(_line(mu.points, goal, s), mu.weights), _line(first, last, s)

    return Probe("atoms move", at, length, _grid(rng))


def _merging(domain: AbstractDomain, rng: np.random.Generator, mu: Atoms) -> Probe:
    """One atom moves to another, entirely or in one coordinate only; s = 0 is where they meet."""
    goal = mu.points[0].copy()
    if rng.uniform() < 0.5:
        kept = int(rng.integers(len(goal)))
        goal = np.where(np.arange(len(goal)) == kept, goal, mu.points[-1])
    goal = domain.toward(mu.points[-1], domain.project(goal))
    x = domain.draw(rng, 1)[0]

    def at(s: float) -> Place:
        points = mu.points.copy()
        points[-1] = _line(goal, mu.points[-1], s)
        return merged(points, mu.weights), x

    length = float(mu.weights[-1] * np.linalg.norm(goal - mu.points[-1]))
    return Probe("two atoms meet", at, max(length, 1e-300), np.array([0.0, 1e-6, 1e-3, 0.1, 1.0]))


def _fading(domain: AbstractDomain, rng: np.random.Generator, mu: Atoms) -> Probe:
    """An atom appears out of nothing at s = 0; half of the time it is the query itself."""
    z, x = domain.draw(rng, 1)[0], domain.draw(rng, 1)[0]
    if domain.least > 1:
        z = domain.toward(mu.points[-1], z)
    x = z if rng.uniform() < 0.5 else x

    def at(s: float) -> Place:
        points, weights = np.concatenate([mu.points, z[None]]), np.append((1 - s) * mu.weights, s)
        if s == 0:
            return mu, x
        return admitted(domain, points, weights), x

    return Probe("an atom fades", at, domain.diameter, np.array([0.0, 1e-6, 1e-4, 1e-2, 0.3]))


def _trading(domain: AbstractDomain, rng: np.random.Generator, mu: Atoms) -> Probe:
    """Mass moves from one atom to another."""
    goal = np.roll(mu.weights, 1)

    def at(s: float) -> Place:
        return admitted(domain, mu.points, _line(mu.weights, goal, s)), mu.points[0]

    return Probe("mass moves", at, domain.diameter * float(np.abs(goal - mu.weights).sum() / 2) + 1e-300, _grid(rng))


def _crossing(domain: AbstractDomain, rng: np.random.Generator, mu: Atoms, through: np.ndarray) -> Probe:
    first, last = domain.chord(rng, through)

    def at(s: float) -> Place:
        return mu, _line(first, last, s)

    return Probe("a query moves", at, float(np.linalg.norm(last - first)), _grid(rng))
