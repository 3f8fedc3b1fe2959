"""The edge: the one place where concrete arrays of any size meet a compiled program.

A program is a function `program(layer, atoms, *queries)` of fixed arrays, of rows with mass, and of rows that are asked
about. `call` brings them to one precision, pads both kinds of rows to bucket sizes, so that a new number compiles
nothing, runs one compiled program, and cuts the padding off. `run` is for programs whose values are not rows. Arrays in
pieces take a second way, which `parallel` provides. Tracers pass through: they meet the program as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jax.sharding import SingleDeviceSharding

from measureformer.numerics.arrays import (
    all_on_device,
    at_once,
    cast,
    common_dtype,
    elsewhere,
    is_floating,
    is_spread,
    is_traced,
)
from measureformer.numerics.buckets import pad_all

Program = Callable[..., Any]
PROGRAMS = 512
"""Compiled programs that are kept for layers to come; a layer keeps its own for as long as it lives."""

_UNTRACED = elsewhere(get_opaque_trace_state)


class Layout(NamedTuple):
    """Along which axis there are rows, for each array of atoms, of queries, and of values."""

    atoms: tuple[int, ...]
    masses: tuple[int, ...]
    """Which of the atoms' arrays hold log-weights; none where atoms are not rows, as in a Gaussian."""
    queries: tuple[int, ...] = (0, 0)
    """Queries beyond these are not rows: numbers, or random keys."""
    values: tuple[int, ...] = (0,)
    finite: tuple[int, ...] = (0,)
    """Which of the values must be finite."""


class Layer:
    """What can be known of fixed arrays before they are called: worth remembering for a map."""

    def __init__(self, tree: Any) -> None:
        leaves, structure = jax.tree.flatten(tree)
        kept = tuple(isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in leaves)
        self.arrays = [leaf for leaf, keep in zip(leaves, kept, strict=True) if keep]
        others = tuple((type(leaf), leaf) for leaf, keep in zip(leaves, kept, strict=True) if not keep)
        self.key = structure, kept, others
        # scalars do not decide the precision
        self.precisions = frozenset(np.dtype(a.dtype) for a in self.arrays if a.ndim > 0 and is_floating(a))
        self.traced = any(isinstance(array, Tracer) for array in self.arrays)
        self.whole = self.traced or all(getattr(array, "is_fully_replicated", True) for array in self.arrays)
        self._cast: dict[Any, list[Any]] = {}
        self._programs: dict[Any, Program] = {}

    def arrays_in(self, dtype: Any) -> list[Any]:
        """The arrays, real ones in this precision."""
        if dtype not in self._cast:
            self._cast[dtype] = cast(self.arrays, dtype)
        return self._cast[dtype]

    def compiled(self, program: Program, atoms: Any) -> Program:
        """`program` as a compiled function of the layer's arrays, the atoms' arrays, and the queries."""
        found = self._programs.get((program, atoms))
        if found is None:
            found = self._programs[program, atoms] = _compiled(program, atoms, *self.key)
        return found


@lru_cache(PROGRAMS)
def _compiled(program: Program, atoms: Any, structure: Any, kept: tuple[bool, ...], others: Any) -> Program:
    def run(arrays: Sequence[Any], rows: Sequence[Any], queries: Sequence[Any]) -> Any:
        given, fixed = iter(arrays), iter(others)
        layer = jax.tree.unflatten(structure, [next(given) if keep else next(fixed)[1] for keep in kept])
        return program(layer, jax.tree.unflatten(atoms, rows), *queries)

    return jax.jit(run)


Way = Callable[[Program, Any, Any, Any, Layout, Callable[[Any], None]], Any]
_ways: list[Way] = []


def for_pieces(way: Way) -> None:
    """Say what `call` does with arrays that lie in pieces on several devices."""
    _ways[:] = [way]


def call(
    layer: Layer,
    program: Program,
    atoms: tuple[Any, Sequence[Any]],
    queries: Sequence[Any],
    layout: Layout,
    *,
    refuse: Callable[[Any, Any], None],
) -> Any:
    """The values of the program as JAX arrays, as many as `layout.values` has axes.

    There is one row of values for each row of the first query, or of the first of the atoms' arrays if that is None.
    `refuse(dtype, bad)` raises the error for values that are not finite where `bad` says so.
    """
    structure, rows = atoms
    whole, traced, precisions = layer.whole, layer.traced, layer.precisions
    for array in (*rows, *queries):
        if array is None:
            continue
        if array.dtype not in precisions and is_floating(array):
            precisions = precisions | {np.dtype(array.dtype)}
        if type(array) is not np.ndarray:
            if isinstance(array, Tracer):
                traced = True
            else:
                whole = whole and array.is_fully_replicated
    dtype = next(iter(precisions)) if len(precisions) == 1 else np.result_type(*precisions)
    if len(precisions) > 1:
        rows, queries = cast((list(rows), list(queries)), dtype)
    arrays, run = layer.arrays_in(dtype), layer.compiled(program, structure)
    if traced:
        return run(arrays, list(rows), list(queries))
    if not whole:
        return _ways[0](run, arrays, rows, queries, layout, lambda bad: refuse(dtype, bad))
    axis, counted = (layout.atoms[0], rows[0]) if queries[0] is None else (layout.queries[0], queries[0])
    count = counted.shape[axis]
    rows, queries = pad_all(rows, layout.atoms, layout.masses, queries, layout.queries)
    now = get_opaque_trace_state() == _UNTRACED
    found = run(arrays, rows, queries) if now else elsewhere(run, arrays, rows, queries)
    values = found if type(found) is tuple else (found,)
    seen = [np.asarray(a) for a in values]
    if seen[0].shape[layout.values[0]] != count:
        seen = [a[(*(slice(None),) * (k % a.ndim), slice(count))] for a, k in zip(seen, layout.values, strict=True)]
    for i in layout.finite:
        good = np.isfinite(seen[i])
        if not np.logical_and.reduce(good, axis=None):
            refuse(dtype, ~good)
    # what needs no cut is on the device already, unless the user has set a mesh
    if seen[0].shape != values[0].shape or type(values[0].sharding) is not SingleDeviceSharding:
        values = all_on_device(seen)
    return values[0] if len(values) == 1 else values


def run(
    layer: Layer, program: Program, atoms: tuple[Any, Sequence[Any]], queries: Sequence[Any], layout: Layout
) -> Any:
    """The values of the program as they are, on the device: not cut, and not looked at.

    What lies in pieces is gathered.
    """
    dtype = common_dtype(layer.arrays, list(atoms[1]), list(queries))
    rows, asked = cast((list(atoms[1]), list(queries)), dtype)
    compiled, arrays = layer.compiled(program, atoms[0]), layer.arrays_in(dtype)
    if layer.traced or is_traced(rows, asked):
        return compiled(arrays, rows, asked)
    if is_spread(rows):
        rows = [np.asarray(row) for row in rows]
    return at_once(compiled, arrays, *pad_all(rows, layout.atoms, layout.masses, asked, layout.queries))
