"""Alice and Elise: two prompts that come together while the answers stay apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.figures.figure import Figure, Series
from measureformer.structure.counterexample import ALICE, OTHERS, REST, bump

SIZES = np.unique(np.logspace(np.log10(4), 6, 40).round())
GRID = np.linspace(-0.6, 0.6, 241)[:, None]


@dataclass(frozen=True)
class Answers:
    """Two prompts of n words that differ in the first one, and what the map makes of that word."""

    n: int
    distance: float
    """W_1 of the prompts."""
    alice: float
    elise: float

    @property
    def gap(self) -> float:
        return self.alice - self.elise


def context(n: float, delta: float = ALICE) -> mf.Discrete:
    """The prompt of n words as a measure with four atoms: the first word, two more near 0, and the rest at 1.

    The words at 1 are one heavy atom: for a map on measures that is the same prompt, however long it is.
    """
    return mf.Discrete.weighted([[delta], *([x] for x in OTHERS), [REST]], [1.0, 1.0, 1.0, n - 3.0])


def answers(n: int, *, delta: float = ALICE, softening: float = 0.0) -> Answers:
    """What the counterexample makes of the first word of the two prompts.

    >>> found = answers(10_000)
    >>> found.distance, round(found.gap, 5)
    (1e-05, 0.59005)
    """
    G = mf.structure.counterexample(softening=softening).map
    two = mf.structure.prompts(4, delta=delta)  # checks delta
    first = [float(G(context(n, place), [place])[0]) for place in (delta, -delta)]
    return Answers(n, two.distance * 4 / n, *first)


def gaps(*, delta: float = ALICE, softening: float = 0.0) -> np.ndarray:
    """The gap between the answers for prompts of `SIZES` words, all at once.

    The map sees a context only through its mass near 0, which three words of n have.
    """
    G: Any = mf.structure.counterexample(softening=softening).map
    near = [float(sum(bump(np.array([place, *OTHERS])))) for place in (delta, -delta)]
    alice, elise = (np.asarray(G.moved(place, mass / SIZES)) for place, mass in zip((delta, -delta), near, strict=True))
    return alice - elise


def gap_figure(n: int, *, delta: float = ALICE, softening: float = 0.0) -> Figure:
    """The gap between the answers against the distance of the prompts, with n marked."""
    distances = 2 * delta / SIZES
    now = answers(n, delta=delta, softening=softening)
    curves = [Series("the counterexample", distances, gaps(delta=delta), role="measured")]
    if softening > 0:
        curves.append(
            Series(
                "softened: given by a continuous map",
                distances,
                gaps(delta=delta, softening=softening),
                role="measured",
            )
        )
    curves.append(
        Series("what any Lipschitz map allows, up to a factor", distances, distances, "dashed", role="theory")
    )
    curves.append(Series(f"now: n = {n}", [now.distance], [now.gap], "points", role="measured"))
    title = "Prompts come together, answers do not"
    return Figure(title, "W_1 distance of the prompts", "gap of the answers", tuple(curves), xscale="log", yscale="log")


def map_figure(n: int, *, delta: float = ALICE, softening: float = 0.0) -> Figure:
    """Where each word would go in the two contexts."""
    G = mf.structure.counterexample(softening=softening).map
    x = GRID[:, 0]
    curves = [
        Series(f"in the context of {name}", x, np.asarray(G(context(n, place), GRID))[:, 0], role="measured")
        for name, place in (("Alice", delta), ("Elise", -delta))
    ]
    now = answers(n, delta=delta, softening=softening)
    both = Series("the first word: Alice, Elise", [delta, -delta], [now.alice, now.elise], "points", role="measured")
    stays = Series("words that stay", [x[0], x[-1]], [x[0], x[-1]], "dashed", role="theory")
    return Figure("Where words go", "word", "answer", (*curves, both, stays))


def warm_up() -> None:
    """Compile the map."""
    map_figure(10)
    gap_figure(10, softening=0.1)
