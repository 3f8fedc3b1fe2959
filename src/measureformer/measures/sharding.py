"""Measures spread over a mesh of devices, for those that are larger than one machine."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from measureformer.errors import DtypeError, MeshError
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import is_elsewhere, is_spread, is_traced, on_device
from measureformer.numerics.buckets import bucket
from measureformer.numerics.checked import checked
from measureformer.parallel.mesh import TOKENS, checked_mesh, gathered, over, placed, shard_rows
from measureformer.parallel.workers import collective, exchanging

Measure = TypeVar("Measure", bound=AbstractAtomic)


@collective()
@checked
def shard(mu: Measure, mesh: Mesh, *, each: Literal["whole", "part"] = "whole") -> Measure:
    """The same measure with its atoms spread over a mesh of devices, padded with atoms of zero mass.

    Maps work on it as on any other, `G.push(mu)` and `G(mu, x)`: attention goes round the ring, no machine ever holds
    all atoms, and the push-forward is spread in the same way. With several processes, all of them make the same calls.

    Arguments:
        mu: a measure with atoms.
        mesh: that of `join_workers()`, or any `jax.sharding.Mesh` with an axis "tokens", over which atoms are spread.
        each: what each process passes: "whole", the same measure, or "part", its own part of a sum.

    >>> import jax, measureformer as mf
    >>> mesh = jax.make_mesh((jax.device_count(),), ("tokens",))
    >>> mu = mf.shard(mf.Discrete.uniform([[0.0], [1.0], [2.0]]), mesh)
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> G(mu, [0.0]).round(12).tolist(), mf.gather(G.push(mu)).compact().n
    ([1.0], 3)
    """
    if not isinstance(mu, AbstractAtomic):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise DtypeError(
            got=f"{type(mu).__name__}, which has no atoms",
            need="a measure with atoms",
            do="A Gaussian is small enough for every machine; for atoms take mu.discretize(n) or mu.sample(key, n).",
        )
    if is_traced(mu):
        concrete(mu, "shard")
    mesh = checked_mesh(mesh)
    return _sum_of_parts(mu, mesh) if each == "part" and jax.process_count() > 1 else _spread(mu, mesh)


@collective()
@checked
def gather(mu: Measure) -> Measure:
    """The measure in one piece again, in every process.

    Arguments:
        mu: a measure that is spread over a mesh; it must fit on each machine. Its padding stays: `compact()` drops it.

    >>> import jax, measureformer as mf
    >>> mu = mf.Discrete.uniform([[0.0], [1.0], [2.0]])
    >>> mf.gather(mf.shard(mu, jax.make_mesh((jax.device_count(),), ("tokens",)))).same_as(mu)
    True
    """

    def whole(array: jax.Array) -> jax.Array:
        return on_device(gathered(array)) if is_spread(array) else array

    if is_elsewhere(mu):
        exchanging()
    return jax.tree.map(whole, mu)


def _spread(mu: Measure, mesh: Mesh) -> Measure:
    pieces = mesh.shape[TOKENS]
    if not is_spread(mu):
        mu = mu.padded(shard_rows(mu.n, pieces))
    elif mu.n % pieces:
        raise MeshError(
            got=f"a measure that is spread already, with {mu.n} atoms, for {pieces} devices",
            need="a number of atoms that divides by that of the devices",
            do="Take mf.gather(mu) first.",
        )

    def spread(array: jax.Array) -> jax.Array:
        return placed(array, over(mesh, TOKENS))

    return jax.tree.map(spread, mu)


def _sum_of_parts(mu: Measure, mesh: Mesh) -> Measure:
    """Every process pads its part to the rows of the longest, so that all pieces are equally long."""
    from jax.experimental.multihost_utils import process_allgather

    exchanging()
    sharding, pieces = over(mesh, TOKENS), mesh.shape[TOKENS]
    own = len(set(map(str, sharding.addressable_devices_indices_map((pieces,)).values())))
    rows = bucket(-(-mu.n // max(own, 1)))
    described = np.asarray(process_allgather(np.array([rows, mu.dim, mu.points.dtype.itemsize])))
    if (described[:, 1:] != described[0, 1:]).any():
        raise MeshError(
            got=f"parts of the dimensions {described[:, 1].tolist()} with {described[:, 2].tolist()} bytes a number",
            need="one dimension and one precision",
            do="Every process passes atoms of the same kind.",
        )
    rows = int(described[:, 0].max())

    def joined(array: Any) -> jax.Array:
        entries = np.asarray(array)
        return jax.make_array_from_process_local_data(sharding, entries, (rows * pieces, *entries.shape[1:]))

    return jax.tree.map(joined, mu.padded(rows * own))
