"""Alone on two devices: how the ring is built, as JSON. What is exchanged, compiled, kept, and refused."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import measureformer as mf

mesh = mf.join_workers()
rng = np.random.default_rng(0)
found: dict[str, Any] = {}
compiled: list[str] = []


def listen(event: str, seconds: float, **details: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.append(event)


def problem(n: int) -> tuple[np.ndarray, ...]:
    return tuple(rng.normal(size=(n, 2)) for _ in range(3))


# jax.make_mesh has explicit axes; they are accepted, and another name too
ring = mf.Sharded(mesh=jax.make_mesh((2,), ("ring",)), axis="ring")
mf.attend(*problem(60), method=ring)
jax.monitoring.register_event_duration_secs_listener(listen)
for n in (61, 64, 50):
    mf.attend(*problem(n), method=ring)
found["compiled for a new n"] = len(compiled)

# queries in pieces get answers in pieces; log-weights that are left out, and keys in full, go with them
pieces = mf.shard(mf.Discrete.uniform(rng.normal(size=(64, 2))), mesh).points
other = problem(20)[0]
out = mf.attend(pieces, other, other)
found["answer in pieces"] = not out.values.is_fully_replicated and not out.error_bound.is_fully_replicated
found["pieces agree"] = float(np.abs(out.values - mf.attend(np.asarray(pieces), other, other).values).max())
full = mf.attend(other, pieces, pieces)
found["full agree"] = float(np.abs(full.values - mf.attend(other, *[np.asarray(pieces)] * 2).values).max())

# under a trace the mesh that is set decides
G = mf.Attention.random(jax.random.key(0), 2)


def pushed(points: Any) -> Any:
    return G.push(mf.Discrete(points, jnp.zeros(64))).points


with jax.set_mesh(mesh):
    text = jax.jit(pushed).lower(pieces).compile().as_text()
found["exchanges"] = sorted(word for word in ("collective-permute", "all-gather", "all-to-all") if f" {word}(" in text)

# memory per device of a gradient: two devices need about half, since none keeps what it has only seen
rows = NamedSharding(mesh, PartitionSpec("tokens"))


def memory(method: Any, n: int, placed: Any) -> int:
    shapes = [jax.ShapeDtypeStruct((n, 16), jnp.float32, sharding=placed)] * 3
    gradient = jax.grad(lambda *a: jnp.sum(mf.attend(*a, method=method).values), (0, 1, 2))
    return jax.jit(gradient).lower(*shapes).compile().memory_analysis().temp_size_in_bytes


n = 1 << 16
# blocks so small that they do not count
block = 256, 512
found["memory"] = [memory(mf.Streaming(block), n, None), memory(mf.Sharded(mesh=mesh, block=block), n, rows)]


def refusal(call: Any) -> str:
    try:
        call()
    except mf.MeasureformerError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


explicit = jax.make_mesh((2,), ("tokens",))
found["explicit pieces"] = refusal(lambda: mf.attend(*[jax.device_put(other, NamedSharding(explicit, rows.spec))] * 3))
with jax.set_mesh(explicit):
    found["explicit ambient"] = refusal(lambda: jax.jit(lambda a: mf.attend(a, a, a).values)(other))
found["NaN"] = refusal(lambda: mf.attend(pieces * jnp.where(jnp.arange(64)[:, None] == 40, jnp.nan, 1), other, other))
found["overflow"] = refusal(lambda: mf.attend(1e200 * pieces, 1e200 * pieces, pieces))
late = np.arange(64.0), np.arange(64.0)
found["window"] = refusal(lambda: mf.attend(pieces, pieces, pieces, times=late, window=4))
sigma = mf.shard(mf.SpaceTime.sequence(rng.normal(size=(30, 2))), mesh)
found["blind"] = refusal(lambda: mf.Causal(G)(sigma, [0.0, 0.0], 0.001))
spread = mf.shard(mf.Discrete.uniform(np.eye(2).repeat(20, 0) - 1), mesh)
found["zero vector"] = refusal(lambda: mf.RMSNorm(np.ones(2), eps=0.0)(spread, [[0.0, 0.0]]))
print(json.dumps(found))
