"""`Sharded`: queries and keys spread over a mesh of devices, on one machine or on many."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.ring import Ring, ring_bounds, ring_stream
from measureformer.attention.rounding import largest_norm
from measureformer.attention.streaming import STREAMING, Streaming
from measureformer.numerics.arrays import is_spread, is_traced
from measureformer.numerics.buckets import pad_axis, pad_log_weights
from measureformer.numerics.checked import checked
from measureformer.parallel.mesh import TOKENS, ambient_mesh, checked_mesh, gathered, mesh_of, over, placed, shard_rows


class Sharded(eqx.Module):
    """Exact attention over a mesh of devices, as a `method` of `attend`: keys travel round the ring.

    Arrays that every process has in full are padded and placed on the mesh, and the result comes back in full. Queries
    that are sharded over the mesh get a result that is sharded in the same way.

    Arguments:
        mesh: the devices, `jax.make_mesh(...)`.
        axis: name of the axis of the mesh over which tokens are sharded.
        block: numbers of queries and keys in one block on a device; by default the fastest measured.

    >>> import jax, measureformer as mf
    >>> mesh = jax.make_mesh((jax.device_count(),), ("tokens",))
    >>> out = mf.attend([[0.0]], [[0.0], [1.0]], [[2.0], [4.0]], method=mf.Sharded(mesh=mesh))
    >>> out.values.tolist()
    [[3.0]]
    """

    mesh: Mesh | AbstractMesh = eqx.field(static=True)
    axis: str = eqx.field(static=True)
    block: tuple[int, int] | None = eqx.field(static=True)

    @checked
    def __init__(self, mesh: Mesh | AbstractMesh, axis: str = TOKENS, block: tuple[int, int] | None = None) -> None:
        self.mesh = mesh if isinstance(mesh, AbstractMesh) else checked_mesh(mesh, axis)
        self.axis = axis
        self.block = Streaming(block).block  # refused there if it is none

    @property
    def size(self) -> int:
        """Devices along the axis."""
        return self.mesh.shape[self.axis]


def chosen(*arrays: Any) -> Streaming | Sharded:
    """What "auto" stands for: the ring on arrays in pieces, and under a trace where a mesh is set; else streaming."""
    if all(type(array) is np.ndarray for array in jax.tree.leaves(arrays)):
        return STREAMING
    if is_spread(arrays):
        return Sharded(mesh_of(arrays))
    mesh = ambient_mesh() if is_traced(arrays) else None
    return STREAMING if mesh is None else Sharded(mesh)


def ring_attention(settings: Sharded, queries: Queries, keys: Keys) -> tuple[Array, Array, Array, Array]:
    """Values, their error bound, log-normaliser and its error bound, for whole arrays, under a trace.

    Rows that do not divide by the number of devices are filled up with copies of row 0, which have no mass as keys and
    are cut off as queries.
    """
    size, rows = settings.size, P(settings.axis)
    m, n = queries.q.shape[0], keys.k.shape[0]
    around = Ring(settings.axis, size, settings.block)
    local = jax.shard_map(
        lambda qs, ks: ring_stream(around, qs, ks),
        mesh=settings.mesh,
        in_specs=rows,
        out_specs=rows,
        # the streaming loops start from constants, which are the same on every device until the first block
        check_vma=False,
    )
    full = jax.tree.map(lambda a: _filled(a, -m % size), queries), jax.tree.map(lambda a: _filled(a, -n % size), keys)
    without = jnp.full(-n % size, -jnp.inf, keys.log_weights.dtype)
    mass = jnp.concatenate([keys.log_weights, without])
    values, log_z, worst = jax.tree.map(lambda a: a[:m], local(full[0], full[1]._replace(log_weights=mass)))
    largest_v = largest_norm(*jax.lax.stop_gradient((keys.v, keys.log_weights)))
    error, log_error = ring_bounds(worst, log_z, largest_v, size)
    # in the merge, each shard's operand, product and sum, and the quotient, may be taken for 0
    error += 4 * (size + 1) * math.sqrt(keys.v.shape[1]) * float(jnp.finfo(error.dtype).tiny)
    return values, error, log_z, log_error


def _filled(array: Array, missing: int) -> Array:
    return jnp.concatenate([array, jnp.broadcast_to(array[:1], (missing, *array.shape[1:]))]) if missing else array


def at_mesh_edge(compiled: Callable[..., Any], settings: Sharded, *arrays: Any) -> list[Any]:
    """What `attend` does at its edge, on the mesh: pad and place, run the compiled program, bring back and cut.

    `compiled(settings, q, k, v, log_weights, times)` gives values, bound, log-normaliser and its bound. Rows in pieces
    divide by the number of devices already: they stay where they are, and so does the answer to queries in pieces.
    """
    # under a trace a mesh may be abstract; here there must be devices
    mesh = checked_mesh(settings.mesh, settings.axis)
    q, k, v, log_weights, times = arrays
    query_times, key_times = (None, None) if times is None else times
    m, n, pieces = q.shape[-2], k.shape[-2], settings.size
    queries_in_pieces = is_spread(q, query_times)
    if not queries_in_pieces:
        q, query_times = _rows_over(mesh, settings.axis, shard_rows(m, pieces), (q, -2), (query_times, -1))
    if not is_spread(k, v, log_weights, key_times):
        mass = pad_log_weights(log_weights, shard_rows(n, pieces))
        parts = (k, -2), (v, -2), (mass, -1), (key_times, -1)
        k, v, log_weights, key_times = _rows_over(mesh, settings.axis, shard_rows(n, pieces), *parts)
    with jax.set_mesh(mesh):
        out = compiled(settings, q, k, v, log_weights, None if times is None else (query_times, key_times))
        values, *others = jax.block_until_ready(jax.tree.leaves(out))
        if queries_in_pieces:
            return [values, *others]
        return [gathered(values)[..., :m, :], *(gathered(array)[..., :m] for array in others)]


def _rows_over(mesh: Mesh, name: str, rows: int, *parts: tuple[Any, int]) -> list[Any]:
    """Arrays padded to `rows` along the axis that goes with each, and spread along it over the mesh."""
    made = []
    for array, axis in parts:
        if array is not None:
            padded = pad_axis(array, rows, axis)
            array = placed(padded, over(mesh, *[None] * (padded.ndim + axis), name))
        made.append(array)
    return made
