"""How finely to cut a box: the number of cells and nodes per axis that is cheapest among those that certify enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from measureformer.attention.grid.certificate import LARGEST_EXPONENT, UNIT, amplification
from measureformer.attention.grid.chebyshev import matrix_error, nodes_for
from measureformer.attention.grid.costs import Costs
from measureformer.attention.grid.layout import RUN, ladder

SIGMAS = (0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""Products of half-widths that are tried. Large ones need few cells, but lose digits like e^{4σ} per axis."""

EXPONENTIAL = {np.float64: 2e-8, np.longdouble: 2e-7}
"""Seconds per entry of the matrices, which are made on the host."""


class Trial(NamedTuple):
    """What is tried: a product of half-widths, and the arithmetic in which matrices are made."""

    sigma: float
    kind: Any


TRIALS = tuple(Trial(sigma, kind) for sigma in SIGMAS for kind in EXPONENTIAL)

STEPS = np.concatenate([[0.0], 2.0 ** np.arange(-50, 6, 0.25)])
"""Numbers of nodes are chosen for these products, so that a small change of the points changes no shape."""

LARGEST_GRID = 2.5e7
"""Numbers on the grids of one plan, 200 MB."""


@dataclass(frozen=True)
class Demand:
    """What a plan must certify, and what it is for."""

    delta: float
    """Relative error of every kernel value, all together."""
    argument: float
    """The share of it that the rounding of arguments takes."""
    columns: int
    margin: float
    costs: Costs
    fuzz: tuple[Any, Any] = (0.0, 0.0)
    """How far rounding can move queries and keys, per axis."""
    steady: bool = False
    """Whether sizes of arrays may depend on how many points and cells there are only, and not on where they are."""

    @property
    def interpolation(self) -> float:
        return 0.65 * (self.delta - self.argument)

    @property
    def rounding(self) -> float:
        return 0.22 * (self.delta - self.argument)

    @property
    def dropped(self) -> float:
        return 0.1 * (self.delta - self.argument)


class Shape(NamedTuple):
    """For every box: seconds that a grid would take (inf if none certifies enough), cells and nodes per axis."""

    seconds: np.ndarray
    cells: np.ndarray
    nodes: np.ndarray


@lru_cache(maxsize=64)
def nodes_table(wanted: float) -> np.ndarray:
    """For each of STEPS the number of nodes, 0 where there is none."""
    return np.array([nodes_for(float(step), wanted) or 0 for step in STEPS])


def cheapest(r: np.ndarray, s: np.ndarray, m: np.ndarray, n: np.ndarray, demand: Demand) -> Shape:
    """The best shape for each box with half-widths r, s (boxes, d) and m queries, n keys (boxes,)."""
    best = Shape(np.full(len(r), np.inf), np.ones(r.shape, int), np.ones(r.shape, int))
    for trial in TRIALS:
        made = shaped_by(trial, None, (r, s, m, n), demand)
        better = made.seconds < best.seconds
        for old, new in zip(best, made, strict=True):
            old[better] = new[better]
    return best


def shaped_by(trial: Trial, nodes: np.ndarray | None, boxes: Any, demand: Demand) -> Shape:
    """The shape of each box if its cells have a product of half-widths of about σ, and what it costs.

    Boxes are half-widths r, s (boxes, d) and numbers of queries and keys m, n (boxes,). With `nodes` given, (d,), all
    boxes have the same, and are refused if these do not suffice.
    """
    r, s, m, n = boxes
    cells = ladder(r * s / trial.sigma)
    needed, sound = allowed(r, s, cells, n, demand, trial.kind)
    if nodes is not None:
        sound &= (needed <= nodes).all(1)
        needed = np.broadcast_to(nodes, needed.shape)
    matrices = EXPONENTIAL[trial.kind] * ((cells * needed).astype(float) ** 2).sum(1)
    return Shape(np.where(sound, estimated(cells, needed, m, n, demand) + matrices, np.inf), cells, needed)


def common_nodes(sigma: float, extents: np.ndarray, demand: Demand) -> np.ndarray | None:
    """Nodes per axis that suffice for all boxes shaped by `sigma`; fewer where even the whole is narrow."""
    table = nodes_table(demand.interpolation / len(extents))
    wanted = np.minimum(sigma, extents) * (1 + demand.margin) ** 2 * (1 + 1e-5)
    step = np.searchsorted(STEPS, wanted)
    found = table[np.minimum(step, len(STEPS) - 1)]
    return found if (found > 0).all() else None


def allowed(
    r: np.ndarray, s: np.ndarray, cells: np.ndarray, n: Any, demand: Demand, kind: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes per axis for these cells, and whether the grid certifies enough with matrices computed in `kind`."""
    dim = r.shape[1]
    if demand.interpolation <= 0:
        return np.ones(r.shape, int), np.zeros(len(r), bool)
    widened = 1 + demand.margin
    product = r * s / cells * widened * (1 + demand.margin / cells) * (1 + 1e-6)
    step = np.minimum(np.searchsorted(STEPS, product), len(STEPS) - 1)
    nodes = nodes_table(demand.interpolation / dim)[step]
    sound = (nodes > 0).all(1) & ((r * s).sum(1) < LARGEST_EXPONENT) & (product <= STEPS[step]).all(1)
    rho, h = r / cells * widened, s / cells * widened
    with np.errstate(over="ignore"):
        amplified = amplification(np, r + rho * demand.margin, s + h * demand.margin, rho, h)
    on_axis = (cells * nodes).sum(1)
    steps = 256 + RUN + n / (256 * RUN) + 1 + on_axis + nodes.sum(1) + 4 * dim + 12 + 16 * product.sum(1)
    rounded = 1.02 * UNIT * steps + matrix_error(nodes, 2 * product, kind).sum(1)
    sound &= amplified * rounded <= demand.rounding
    sound &= (cells * nodes).prod(1).astype(float) * demand.columns <= LARGEST_GRID
    return nodes, sound


def estimated(cells: np.ndarray, nodes: np.ndarray, m: Any, n: Any, demand: Demand) -> np.ndarray:
    """Seconds for a grid of this shape."""
    costs, columns = demand.costs, demand.columns
    on_axis = (cells * nodes).astype(float)
    grid = on_axis.prod(1) * columns
    moments = nodes.prod(1) * columns
    total = cells.prod(1).astype(float)
    # half a chunk of every cell that has points is empty
    padded = sum(count + np.minimum(total, count) * np.clip(count / total / 4, 4, 128) for count in (m, n))
    points = padded * (costs.point * (1 + nodes.sum(1) / 20) + costs.moment * moments)
    return points + costs.product * grid * on_axis.sum(1) + 3 * costs.node * grid + costs.box
