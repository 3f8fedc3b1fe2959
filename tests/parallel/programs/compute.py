"""Run by workers, or alone on several devices: computes with the arrays of a folder and leaves the answers there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import measureformer as mf


def own_listening_addresses() -> list[str]:
    """Where this process accepts connections, as Linux writes it: hexadecimal, lowest byte first."""
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6")]
    if not all(table.exists() for table in tables):
        return []
    open_files = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in open_files]


folder = Path(sys.argv[1])
mesh = mf.join_workers()
given = dict(np.load(folder / "inputs.npz"))
me, count = jax.process_index(), jax.process_count()
answers: dict[str, Any] = {"processes": count, "devices": jax.device_count()}

# the engine: heads, a causal mask, shards without mass, and rows that the devices do not divide
ring = mf.Sharded(mesh=mesh)
arrays = given["q"], given["k"], given["v"], given["log_weights"]
times = given["query_times"], given["key_times"]
out = mf.attend(*arrays, times=times, method=ring)
answers |= {"values": out.values, "bound": out.error_bound, "log_normalizer": out.log_normalizer}


def loss(q: Any, k: Any, v: Any, log_weights: Any) -> Any:
    out = mf.attend(q, k, v, log_weights, times=times, method=ring)
    return jnp.sum(jnp.sin(out.values)) + jnp.sum(jnp.cos(out.log_normalizer))


# a gradient is spread like what it belongs to; every process asks for all of it
everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
gradient = jax.jit(jax.grad(loss, (0, 1, 2, 3)), out_shardings=everywhere)(*arrays)
answers |= dict(zip(("dq", "dk", "dv", "dlog_weights"), gradient, strict=True))

# measures: the push-forward stays in pieces, queries that every process has get answers that every process has
mu = mf.Discrete.weighted(given["points"], given["weights"])
spread = mf.shard(mu, mesh)
net = mf.Residual(mf.Attention.random(jax.random.key(0), mu.dim))
nu = net.push(spread)
answers["in pieces"] = nu.points.sharding.spec[0] == "tokens" and not nu.points.is_fully_replicated
answers["pushed"] = mf.gather(nu).points[: mu.n]
answers["at queries"] = net(spread, given["x"])
answers["mean"] = spread.mean()

own = mf.Discrete.weighted(given["points"][me::count], given["weights"][me::count])
answers["sum of parts"] = mf.gather(mf.shard(own, mesh, each="part")).same_as(mu, 1e-14)
try:
    answers["compact"] = spread.compact().n
except mf.MeasureformerError as refusal:
    answers["compact"] = str(refusal)
np.savez(folder / f"answers{me}.npz", listening=own_listening_addresses(), **answers)
