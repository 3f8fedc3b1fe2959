"""The second way through the edge: rows in pieces on a mesh of devices, here or on several machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

from measureformer.numerics.arrays import is_elsewhere, is_spread, namespace, on_device
from measureformer.numerics.buckets import pad_all
from measureformer.numerics.edge import Layout, Program
from measureformer.parallel.mesh import TOKENS, gathered, mesh_of, over
from measureformer.parallel.workers import collective


def in_pieces(run: Program, arrays: Any, rows: Any, queries: Any, layout: Layout, refuse: Callable[[Any], None]) -> Any:
    """The values at rows in pieces stay where the rows are; those at rows that everybody has are gathered.

    A mesh is set while the program is traced, so that attention goes round the ring.
    """
    with collective(certain=is_elsewhere(arrays, rows, queries)):
        mesh = mesh_of(arrays, rows, queries)
        stays = queries[0] is None or is_spread(queries)
        count = None if stays else queries[0].shape[layout.queries[0]]
        rows_in_pieces = is_spread(rows)
        filled, asked = pad_all(rows, layout.atoms, layout.masses, [None] if stays else queries, layout.queries)
        placed = _placed(run, over(mesh, *([TOKENS] if stays else [])))
        with jax.set_mesh(mesh):
            y = placed(arrays, rows if rows_in_pieces else filled, queries if stays else asked)
        y = y if stays else gathered(y)[:count]
        bad = ~namespace(y).isfinite(y)
        if bad.any():
            refuse(bad)
        return on_device(y)


@lru_cache(64)
def _placed(run: Any, place: Any) -> Any:
    return jax.jit(run.__wrapped__, out_shardings=place)
