"""Costs of the grid and of streaming, in seconds per unit of work: constants, so that the same call plans the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds per unit of work, by which `method="auto"` and the planner choose. They affect time, never correctness.

    Arguments:
        pair: a query and a key, streamed.
        point: a point put into its cell, looked up, and its polynomials.
        moment: a point times a moment times a column.
        node: a number on the grid, moved about.
        product: a multiplication and addition in the products along the axes.
        box: a box, whatever is in it.
        masked_pair: a query and a key that it sees, streamed behind a mask.

    >>> Costs().pair < 1e-6
    True
    """

    # Rounded, for float64 with XLA on two x86 cores. To measure them again, time on idle cores, after compilation:
    # `pair` and `masked_pair` by streaming 256 queries over 65536 keys in the plane, `product` by a product of
    # 512 × 512 and 512 × 1536 matrices, `point` and `moment` by grids of 4 × 4 cells for 65536 points, with 4² and
    # with 12² nodes, planning included.
    pair: float = 3e-9
    point: float = 1e-7
    moment: float = 1.5e-10
    node: float = 3e-9
    product: float = 4e-11
    box: float = 1e-3
    masked_pair: float = 6e-9
