"""Arrays on a mesh of devices: which meshes are accepted, how rows get onto one, and how they come back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from measureformer.errors import MeshError
from measureformer.numerics.arrays import is_elsewhere, is_spread
from measureformer.numerics.buckets import bucket

TOKENS = "tokens"
"""The axis over which atoms and queries are spread."""


def token_mesh(devices: Any = None) -> Mesh:
    """A mesh with the one axis "tokens" over these devices; over all of them, on every machine, if left out."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (TOKENS,))


def checked_mesh(mesh: Any, axis: str = TOKENS) -> Mesh:
    """The mesh with axes that the compiler partitions by itself; refused without devices or without the axis.

    `jax.make_mesh` gives explicit axes, on which every product of two spread arrays needs an annotation.
    """
    if not isinstance(mesh, Mesh):
        raise MeshError(
            got=f"a mesh of type {type(mesh).__name__}",
            need="a jax.sharding.Mesh",
            do=f'Take mf.join_workers(), or jax.make_mesh((devices,), ("{TOKENS}",)).',
        )
    if mesh.empty or mesh.size == 0:
        raise MeshError(got="a mesh without devices", need="at least one device", do="Take mf.join_workers().")
    if axis not in mesh.axis_names:
        names = ", ".join(map(repr, mesh.axis_names))
        raise MeshError(
            got=f"a mesh whose axes are {names}, and none is {axis!r}",
            need=f"an axis called {axis!r}, along which tokens are spread",
            do=f'Make the mesh with that name, jax.make_mesh((devices,), ("{axis}",)), or name the axis to use.',
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def ambient_mesh(axis: str = TOKENS) -> Any:
    """The mesh of `with jax.set_mesh(mesh)` if it spreads tokens, else None. JAX compiles anew when it changes."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape.get(axis, 1) == 1:
        return None
    if mesh.manual_axes:
        # inside somebody's shard_map the arrays are pieces already
        return None
    if mesh.explicit_axes:
        raise MeshError(
            got=f"an ambient mesh whose axes {', '.join(map(repr, mesh.explicit_axes))} are explicit",
            need="axes of the type jax.sharding.AxisType.Auto",
            do="Use the mesh of mf.join_workers(), or jax.make_mesh(…, axis_types=(AxisType.Auto, …)).",
        )
    return mesh


def mesh_of(*trees: Any) -> Mesh:
    """The mesh over which the rows of these arrays are spread; refused if they are spread in another way."""
    pieces = [leaf for leaf in jax.tree.leaves(trees) if is_spread(leaf)]
    for array in pieces:
        sharding = array.sharding
        fits = isinstance(sharding, NamedSharding) and TOKENS in sharding.spec and not sharding.mesh.explicit_axes
        if not fits:
            raise MeshError(
                got=f"an array that is spread by {sharding}",
                need=f"rows spread over an axis {TOKENS!r} of the type Auto",
                do="Place a measure with mf.shard(mu, mesh).",
            )
    return pieces[0].sharding.mesh


def over(mesh: Mesh, *spec: Any) -> NamedSharding:
    """How an array lies on the mesh: the name of an axis, or None, per axis of the array."""
    return NamedSharding(mesh, PartitionSpec(*spec))


def shard_rows(rows: int, pieces: int) -> int:
    """How many rows there are after padding, so that every piece has a bucket size and a new n compiles nothing.

    >>> shard_rows(1000, 2), shard_rows(5, 2)
    (1024, 32)
    """
    return pieces * bucket(-(-rows // pieces))


def placed(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array on the mesh. What is concrete is the same in every process, and each takes its pieces of it."""
    if is_spread(array):
        return jax.device_put(array, sharding)
    values = np.asarray(array)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def gathered(array: jax.Array) -> np.ndarray:
    """All rows of an array in pieces, in every process."""
    if is_elsewhere(array):
        mesh = array.sharding.mesh  # pyright: ignore[reportAttributeAccessIssue] pieces lie on a mesh
        array = jax.jit(lambda a: a, out_shardings=over(mesh))(array)
    return np.asarray(array)
