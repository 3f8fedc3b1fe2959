"""Attention by a ring of devices is attention: no block of keys is left out, none counts twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.attention import attend
from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.ring import Ring, finished, handed_on, merged, nothing, ring_bounds, ring_stream
from measureformer.attention.streaming import stream


@dataclass(frozen=True)
class Config:
    n: int = 96
    dim: int = 3
    devices: int = 4
    block: int = 64
    spread: float = 3.0


def _skipping(ring: Ring, queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """A ring that stops one round early, so that every device misses one block."""

    def step(carry: tuple[Any, Keys], _: None) -> tuple[tuple[Any, Keys], None]:
        known, shard = carry
        return (merged(known, *stream(ring.block, queries, shard)), handed_on(ring, shard, 1)), None

    start = nothing(queries.q.shape[0], keys.v.shape[1], queries.q.dtype), keys
    (known, _), _ = jax.lax.scan(step, start, None, length=ring.size - 1)
    return finished(known)


@partial(jax.jit, static_argnums=0)
def _differences(config: Config, queries: Queries, keys: Keys) -> dict[str, dict[str, Array]]:
    """For each variant: differences between the ring and one device, and the sums of the error bounds of both.

    The ring runs here on one device: a mapped axis has the same exchanges as a mesh.
    """
    ring = Ring("devices", config.devices, (config.block, config.block))
    shards = jax.tree.map(lambda a: a.reshape(config.devices, -1, *a.shape[1:]), (queries, keys))

    def around(program: Any) -> Any:
        parts = jax.vmap(partial(program, ring), axis_name=ring.axis)(*shards)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), parts)

    one = attend(queries.q, keys.k, keys.v, keys.log_weights, times=(queries.times, keys.times), method="streaming")
    *whole, worst = around(ring_stream)
    bounds = ring_bounds(worst, whole[1], jnp.max(jnp.linalg.norm(keys.v, axis=1)), config.devices)
    allowed = {"values": one.error_bound + bounds[0], "log-normaliser": one.log_normalizer_error + bounds[1]}

    def differences(values: Array, log_z: Array) -> dict[str, Array]:
        # a query that has met no mass has an infinite difference, which counts as 1
        apart = jnp.where(log_z == -jnp.inf, 1.0, jnp.abs(log_z - one.log_normalizer))
        return {"values": jnp.linalg.norm(values - one.values, axis=1), "log-normaliser": apart}

    return {"claim": differences(*whole), "one-round-early": differences(*around(_skipping)), "allowed": allowed}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng, n = generator(key), config.n
    q, k = config.spread * rng.normal(size=(n, config.dim)), rng.normal(size=(n, config.dim))
    v, log_weights = rng.normal(size=(n, 2)), rng.normal(size=n)
    # a device whose keys have no mass, and a mask that hides whole shards from some queries
    log_weights[: n // config.devices] = -np.inf
    times = np.sort(rng.uniform(size=n))
    late = np.maximum(times, times[n // config.devices])
    found = _differences(config, Queries(q, late), Keys(k, v, log_weights, times))
    checks = tuple(
        Check(f"{what}: difference over the sum of both error bounds", share, high=1.0, rejected_by="one-round-early")
        for what in ("values", "log-normaliser")
        for share in [(found[variant][what] / found["allowed"][what]).max()]
    )
    return Outcome(checks, _figure(config, found) if variant == "claim" else None)


def _figure(config: Config, found: dict[str, dict[str, Array]]) -> Figure:
    places = np.arange(1, config.n + 1)
    allowed, ring, skipped = (
        np.maximum(found[name]["values"], 1e-17) for name in ("allowed", "claim", "one-round-early")
    )
    return Figure(
        "A ring of devices against one device",
        "query",
        "difference of the values",
        (
            Series("sum of the error bounds", places, allowed, role="theory"),
            Series("ring", places, ring, "points", role="measured"),
            Series("control: skips one block", places, skipped, "points", role="control"),
        ),
        yscale="log",
        caption=f"{config.n} causal queries, keys in {config.devices} shards. Exact zeros are drawn at 1e-17.",
    )


claim = Claim(
    name="liu-2023-ring-attention",
    title="Attention by a ring of devices is exact",
    kind="construction",
    statement=(
        "For all queries, keys, values, weights and times, and every number D of shards of the keys: the D partial "
        "answers, merged one by one, give the answer of one device, up to the sum of the error bounds of both; shards "
        "without mass, and shards that a query may not see, included."
    ),
    hypotheses=("every query sees some mass", "the floating-point model of the error bounds"),
    reference="liu2023, Section 3",
    measure=measure,
    controls={"one-round-early": "A ring that stops one round early: every device misses one block of keys."},
    quick=Config(),
    full=Config(n=4096, dim=16, devices=8, block=128),
)
