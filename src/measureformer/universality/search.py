"""`Search`: settings of a fit, and its dictionary of random blocks and products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.errors import OptionError
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import check_fields
from measureformer.universality.factors import Factors


@dataclass(frozen=True)
class Search:
    """Settings of `fit`: size of the polynomial, random dictionary, and measures.

    Where a first fit is not good enough, it uses five times more measures and some that it searches for.

    Arguments:
        terms: most monomials of the polynomial.
        degree: most blocks in a monomial.
        blocks: random blocks from which monomials are made.
        candidates: random monomials of the dictionary.
        sharpness: largest size of the logits of a block.
        contexts: measures on which monomials are chosen, and as many on which errors are measured.
        queries: queries for each measure.
        atoms: most atoms of a fitted measure; held-out ones have up to 4·atoms.
        rounds: steps of the adversary that searches for large errors.

    >>> import measureformer as mf
    >>> mf.universality.Search(terms=30).degree
    5
    """

    terms: int = 300
    degree: int = 5
    blocks: int = 400
    candidates: int = 4000
    sharpness: float = 4.0
    contexts: int = 4000
    queries: int = 2
    atoms: int = 24
    rounds: int = 24

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("terms", "degree", "blocks", "candidates", "contexts", "queries", "atoms", "rounds"):
            positive_int(getattr(self, name), name)
        if not 0 < self.sharpness < np.inf:
            raise OptionError(got=f"sharpness = {self.sharpness}", need="a positive number", do="Leave it out.")


def sizes_of(search: Search) -> tuple[list[int], list[int]]:
    """Numbers of atoms of the fitted measures, and of the held-out ones."""
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
