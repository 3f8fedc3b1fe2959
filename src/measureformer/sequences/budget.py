"""Where the error of a construction comes from: cells, tokens in one cell, ramps. Bounded, and measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from measureformer.errors import OptionError
from measureformer.numerics.arrays import positive_int

if TYPE_CHECKING:
    from measureformer.sequences.construction import Construction

SEED, CONTEXTS, CORNERS = 7, 4000, 4


@dataclass(frozen=True)
class ErrorBudget:
    """The L^p distance (∫ ‖f − g‖_p^p)^{1/p} over the cube: bounds on its parts, and measured values.

    Statement   hard: (dn)^{1/p} ω + P^{1/p} F; softmax and ReLUs: that and ρ^{1/p} ((dn)^{1/p} t + F), where t is the
                largest context id, or the bound of the clamp
    Hypotheses  ω and F are measured on cells, at corners and random points, unless ω was given: then the bounds hold
                for every f with that modulus, and otherwise only as far as these points show it.
    Ref         yun2020.

    >>> import measureformer as mf
    >>> net = mf.sequences.compile_yun(lambda X: X, d=1, n=2, delta=1 / 4)
    >>> found = net.error_budget(2, modulus=0.125)
    >>> found.share, found.measured["hard"] < found.bound["hard"]
    (0.25, True)
    >>> found.measured["clamped"] < found.bound["clamped"] < found.measured["soft"] < found.bound["soft"]
    True
    """

    p: float
    modulus: float
    """ω: how much f changes between the centre and any point of a cell, in the largest entry."""
    given: bool
    """Whether ω was given; otherwise it is the largest change found."""
    size: float
    """F: the largest ‖f‖_p found."""
    share: float
    """P: the share of sequences with two tokens in one cell."""
    ramps: float
    """ρ ≤ d n (1/δ + 1) ramp: the share of sequences with an entry on a ramp."""
    cells_part: float
    duplicates_part: float
    ramps_part: dict[str, float]
    """For "soft" and "clamped"."""
    bound: dict[str, float]
    measured: dict[str, float]
    """"hard", and "soft" and "clamped" where float64 can run them."""


def budget(made: Construction, p: float, points: int, modulus: float | None) -> ErrorBudget:
    if not (isinstance(p, (int, float)) and 1 <= p < math.inf):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise OptionError(got=f"p = {p!r}", need="a number p with 1 ≤ p < ∞", do="Take p = 2.")
    grid, f = made.grid, made.function
    rng = np.random.default_rng(SEED)
    X = rng.uniform(size=(positive_int(points, "points"), grid.n, grid.d))
    F = f(X)
    omega, size = _met(made, rng, X, F, p)
    omega = omega if modulus is None else float(modulus)
    share = 0.0 if grid.places is not None else 1 - math.prod(1 - i / grid.tokens for i in range(grid.n))
    rho = min(1.0, grid.d * grid.n * (grid.cells + 1) * made.ramp)
    cells_part = (grid.d * grid.n) ** (1 / p) * omega
    duplicates = share ** (1 / p) * size
    over: dict[Literal["soft", "clamped"], float] = {}
    if "soft" in made.modes:
        over = {"soft": float(grid.most) / grid.cells, "clamped": made.bound}
    ramps: dict[str, float] = {
        mode: rho ** (1 / p) * ((grid.d * grid.n) ** (1 / p) * most + size) for mode, most in over.items()
    }
    bound = {"hard": cells_part + duplicates, **{mode: cells_part + duplicates + part for mode, part in ramps.items()}}
    return ErrorBudget(
        p=float(p),
        modulus=omega,
        given=modulus is not None,
        size=size,
        share=share,
        ramps=rho,
        cells_part=cells_part,
        duplicates_part=duplicates,
        ramps_part=ramps,
        bound=bound,
        measured={"hard": distance(made.run(X), F, p), **{mode: distance(made.run(X, mode), F, p) for mode in over}},
    )


def distance(Y: np.ndarray, F: np.ndarray, p: float) -> float:
    """(mean over sequences of Σ |Y − F|^p)^{1/p}."""
    return float((np.abs(Y - F) ** p).sum(axis=(1, 2)).mean() ** (1 / p))


def _met(made: Construction, rng: np.random.Generator, X: np.ndarray, F: np.ndarray, p: float) -> tuple[float, float]:
    """The largest change of f within a cell, and the largest ‖f‖_p, over corners of cells and random points."""
    grid, f = made.grid, made.function
    centre = (np.floor(X * grid.cells) + 0.5) / grid.cells
    omega = float(np.abs(F - f(centre)).max())
    size = float((np.abs(F) ** p).sum(axis=(1, 2)).max())
    cells = grid.enumerate()
    cells = cells[rng.permutation(len(cells))[:CONTEXTS]]
    middle = f((cells + 0.5) / grid.cells)
    for i in range(CORNERS + 2):
        # the two corners in which all entries change alike, and random ones; just inside of the cell
        signs = (1.0, -1.0)[i] if i < 2 else rng.choice([-1.0, 1.0], size=cells.shape)
        corner = f((cells + 0.5 + 0.5 * (1 - 1e-9) * signs) / grid.cells)
        omega = max(omega, float(np.abs(corner - middle).max()))
        size = max(size, float((np.abs(corner) ** p).sum(axis=(1, 2)).max()))
    return omega, size ** (1 / p)
