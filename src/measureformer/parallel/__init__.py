"""Meshes and workers of `jax.distributed`, pools for parameter sweeps, and progress."""

from measureformer.parallel.pool import Pool as Pool
from measureformer.parallel.pool import sweep as sweep
from measureformer.parallel.workers import join_workers as join_workers
