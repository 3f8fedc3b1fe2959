"""Attention by a ring of devices is attention: no block of keys is left out, none counts twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import attend
from measureformer.attention.blocks import Keys, Queries
from measureformer.attention.ring import Ring, finished, handed_on, merged, nothing, ring_bounds, ring_stream
from measureformer.attention.streaming import stream
from measureformer.figures.figure import Figure, Series


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
def _answers(config: Config, queries: Queries, keys: Keys) -> dict[str, Array]:
    """Values and log-normalisers from one device, from the ring and from the ring that skips a block, with bounds.

    The ring runs here on one device: a mapped axis has the same exchanges as a mesh.
    """
    ring = Ring("devices", config.devices, (config.block, config.block))
    shards = jax.tree.map(lambda a: a.reshape(config.devices, -1, *a.shape[1:]), (queries, keys))

    def around(program: Any) -> Any:
        parts = jax.vmap(partial(program, ring), axis_name=ring.axis)(*shards)
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), parts)

    one = attend(queries.q, keys.k, keys.v, keys.log_weights, times=(queries.times, keys.times), method="streaming")
    values, log_z, worst = around(ring_stream)
    skipped, skipped_log_z = around(_skipping)
    largest_v = jnp.max(jnp.linalg.norm(keys.v, axis=1))
    bounds = ring_bounds(worst, log_z, largest_v, config.devices)
    return {
        "allowed": one.error_bound + bounds[0],
        "allowed_log": one.log_normalizer_error + bounds[1],
        "truth": jnp.linalg.norm(values - one.values, axis=1),
        "truth_log": jnp.abs(log_z - one.log_normalizer),
        "control": jnp.linalg.norm(skipped - one.values, axis=1),
        # where the block that is left out was all that a query saw, the difference is infinite
        "control_log": jnp.minimum(jnp.abs(skipped_log_z - one.log_normalizer), 1.0),
    }


def _experiment(key: Any, config: Config) -> dict[str, np.ndarray]:
    rng, n = generator(key), config.n
    q, k = config.spread * rng.normal(size=(n, config.dim)), rng.normal(size=(n, config.dim))
    v, log_weights = rng.normal(size=(n, 2)), rng.normal(size=n)
    # a device whose keys have no mass, and a mask that hides whole shards from some queries
    log_weights[: n // config.devices] = -np.inf
    times = np.sort(rng.uniform(size=n))
    late = np.maximum(times, times[n // config.devices])
    answers = _answers(config, Queries(q, late), Keys(k, v, log_weights, times))
    return {name: np.asarray(array) for name, array in answers.items()}


def _outcome(answers: dict[str, np.ndarray], which: str, figure: Figure | None = None) -> Outcome:
    checks = []
    for what, suffix in (("values", ""), ("log-normaliser", "_log")):
        share = answers[f"{which}{suffix}"] / answers[f"allowed{suffix}"]
        checks.append(Check(f"{what}: difference over the sum of both error bounds", float(share.max()), high=1.0))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    answers = _experiment(key, config)
    places = tuple(float(i + 1) for i in range(config.n))
    ring, allowed, control = (
        tuple(float(v) for v in np.maximum(answers[name], 1e-17)) for name in ("truth", "allowed", "control")
    )
    figure = Figure(
        "A ring of devices against one device",
        "query",
        "difference of the values",
        (
            Series("sum of the error bounds", places, allowed, "line"),
            Series("ring", places, ring, "points"),
            Series("control: skips one block", places, control, "points"),
        ),
        yscale="log",
        caption=f"{config.n} causal queries, keys in {config.devices} shards. Exact zeros are drawn at 1e-17.",
    )
    return _outcome(answers, "truth", figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_experiment(key, config), "control")


claim = Claim(
    name="liu-2023-ring-attention",
    title="Attention by a ring of devices is exact",
    statement=(
        "For all queries, keys, values, weights and times, and every number D of shards of the keys: the D partial "
        "answers, merged one by one, give the answer of one device, up to the sum of the error bounds of both; shards "
        "without mass, and shards that a query may not see, included."
    ),
    hypotheses=("every query sees some mass", "the floating-point model of the error bounds"),
    reference="liu2023, Section 3",
    run=_run,
    control=_control,
    control_statement="A ring that stops one round early: every device misses one block of keys.",
    quick=Config(),
    full=Config(n=4096, dim=16, devices=8, block=128),
)
