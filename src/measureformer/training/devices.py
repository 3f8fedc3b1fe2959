"""Data parallelism over the devices of a process: each takes a part of the batch, and gradients are averaged.

By default all cores together are one device. Products of small matrices gain nothing from a second core, because
threads wait for each other within each product. Parts of a batch do gain, since they meet once per step.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from measureformer.numerics.arrays import on_device

PARTS = "parts"
"""The axis of devices, each with a part of the batch."""

MOST = 8
"""Most cores that become devices: what each of them adds was measured for two."""


@runtime_checkable
class Divisible(Protocol):
    """An objective that is a mean over a batch of so many, and can be asked for equal parts of it."""

    @property
    def batch(self) -> int: ...

    def part(self, weights: Any, key: Any, step: Any, index: Any, count: int) -> Array:
        """The mean over the part `index` of `count`; the mean of all of them is the objective. `index` is traced."""
        ...


def part_of(array: Any, index: Any, count: int) -> Array:
    """The rows of part `index` of `count` equal ones. Pure JAX."""
    rows = array.shape[0] // count
    return jax.lax.dynamic_slice_in_dim(array, index * rows, rows)


def use_cores() -> int:
    """Make each core of this machine a device, up to eight, for data-parallel training; returns their number.

    Call it before anything is computed: JAX counts its devices once. An explicit setting, by `jax_num_cpu_devices` or
    XLA_FLAGS, stays. The commands that train call it; everything but training still uses the first device only.

    >>> import measureformer as mf
    >>> mf.use_cores() >= 1
    True
    """
    said = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not said and getattr(jax.config, "jax_num_cpu_devices", -1) < 1:
        # refused when something has been computed already: then there are as many as there were
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", min(_cores(), MOST))
    return len(jax.local_devices())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_over(objective: Any) -> Mesh | None:
    """The devices among which the batch of an objective is shared out equally; None if one device does it all."""
    if not isinstance(objective, Divisible):
        return None
    devices = jax.local_devices()
    count = equal_parts(objective.batch, len(devices))
    return Mesh(np.array(devices[:count]), (PARTS,)) if count > 1 else None


def equal_parts(batch: int, most: int) -> int:
    """The largest number of equal parts, at most so many.

    >>> equal_parts(64, 6), equal_parts(7, 6)
    (4, 1)
    """
    return next(n for n in range(most, 0, -1) if batch % n == 0)


def everywhere(tree: Any, mesh: Mesh | None) -> Any:
    """The same tree with its arrays on every device of the mesh."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), rest)


def here(array: Array) -> Array:
    """An array that lies on every device, on the first one alone."""
    return on_device(np.asarray(array)) if len(array.sharding.device_set) > 1 else array
