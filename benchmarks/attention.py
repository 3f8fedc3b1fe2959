"""Attention on two cores: ours against torch SDPA, KeOps, and softmax(QKᵀ)V in JAX and NumPy.

    make bench                                       all of it, about ten minutes
    .venv/bin/python benchmarks/attention.py --fast  smaller sizes, one minute, to try it

Weights are an additive mask for torch, which has no other way to take them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from compare import Number, Row, interleaved, machine, row, write

import measureformer as mf

FAST = "--fast" in sys.argv
Runs = dict[str, Callable[[], object]]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

try:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    torch.set_num_threads(len(os.sched_getaffinity(0)))
except ModuleNotFoundError:
    torch = None

try:
    from pykeops.numpy import LazyTensor
except ModuleNotFoundError:
    LazyTensor = None


def problem(n: int, dim: int) -> Arrays:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(n, dim)).astype(np.float32) for _ in range(3))
    return q / dim**0.25, k / dim**0.25, v, rng.normal(size=n).astype(np.float32)


def dense(q: Any, k: Any, v: Any, log_weights: Any) -> Any:
    return jax.nn.softmax(q @ k.T + log_weights, axis=1) @ v


def dense_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    logits = q @ k.T + log_weights
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)


@jax.jit
def products_alone(q: Any, k: Any, v: Any) -> Any:
    """The two matrix products of attention in our blocks, and nothing else: what is left of our time is overhead."""
    m, n = min(4096, len(q)), 512
    keys, values = k.reshape(-1, n, k.shape[1]), jnp.swapaxes(v.reshape(-1, n, v.shape[1]), 1, 2)

    def one(rows: Any) -> Any:
        def body(sums: Any, block: Any) -> tuple[Any, None]:
            # a term of size 0 that depends on the sums keeps the first product inside the loop
            return sums + block[1] @ (block[0] @ (rows.T + 0 * sums[:1])), None

        return jax.lax.scan(body, jnp.zeros((v.shape[1], m), q.dtype), (keys, values))[0]

    return jax.lax.map(one, q.reshape(-1, m, q.shape[1]))


def agree(name: str, ours: Any, theirs: Any) -> None:
    """A fast wrong answer is no competitor."""
    difference = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())
    if not difference < 1e-3:
        raise SystemExit(f"{name} and ours differ by {difference:.2g}: nothing is measured")


def weighted(n: int, dim: int, **bars: Any) -> Row:
    arrays = problem(n, dim)
    q, k, v, log_weights = arrays
    ours = np.asarray(mf.attend(*arrays).values)
    runs: Runs = {"ours": lambda: mf.attend(*arrays).values.block_until_ready()}
    if torch is not None:
        heads = [torch.tensor(a)[None, None] for a in (q, k, v)]
        mask = torch.tensor(log_weights)[None, None, None].expand(1, 1, n, n)

        def by_torch() -> Any:
            with torch.no_grad():
                return sdpa(*heads, attn_mask=mask, scale=1.0)

        agree("torch", ours, by_torch()[0, 0])
        runs["torch"] = by_torch
    if LazyTensor is not None and dim <= 2:
        weights = log_weights[:, None]

        def by_keops() -> Any:
            logits = (LazyTensor(q[:, None, :]) * LazyTensor(k[None, :, :])).sum(-1) + LazyTensor(weights[None, :, :])
            return logits.sumsoftmaxweight(LazyTensor(v[None, :, :]), axis=1)

        agree("KeOps", ours, by_keops())
        runs["KeOps"] = by_keops
    compiled = jax.jit(dense)
    agree("dense JAX", ours, compiled(*arrays))
    runs["dense JAX"] = lambda: compiled(*arrays).block_until_ready()
    if dim == 64:
        runs["dense NumPy"] = lambda: dense_numpy(*arrays)
    runs["our products alone"] = lambda: products_alone(q, k, v).block_until_ready()
    return row(f"weighted, n={n}, d={dim}", runs, rounds=7, bars=bars)


def causal(n: int, dim: int, **bars: Any) -> Row:
    q, k, v, _ = problem(n, dim)
    times = np.arange(n, dtype=np.float32)
    runs: Runs = {"ours": lambda: mf.attend(q, k, v, times=(times, times)).values.block_until_ready()}
    if torch is not None:
        heads = [torch.tensor(a)[None, None] for a in (q, k, v)]

        def by_torch() -> Any:
            with torch.no_grad():
                return sdpa(*heads, is_causal=True, scale=1.0)

        agree("torch", mf.attend(q, k, v, times=(times, times)).values, by_torch()[0, 0])
        runs["torch"] = by_torch
    return row(f"causal, n={n}, d={dim}", runs, bars=bars)


def gradient(n: int, dim: int, *, in_weights: bool, **bars: Any) -> Row:
    arrays = problem(n, dim)
    upstream = np.random.default_rng(1).normal(size=(n, dim)).astype(np.float32)

    def loss(*arrays: Any) -> Any:
        return jnp.sum(mf.attend(*arrays).values * upstream)

    which = (0, 1, 2, 3) if in_weights else (0, 1, 2)
    compiled = jax.jit(jax.value_and_grad(loss, which))
    runs: Runs = {"ours": lambda: jax.block_until_ready(compiled(*arrays))}
    if torch is not None:
        leaves = [torch.tensor(a)[None, None].requires_grad_() for a in arrays[:3]]
        weights, seed = torch.tensor(arrays[3]).requires_grad_(in_weights), torch.tensor(upstream)[None, None]

        def by_torch() -> Any:
            out = sdpa(*leaves, attn_mask=weights[None, None, None].expand(1, 1, n, n), scale=1.0)
            return torch.autograd.grad(out, [*leaves, weights] if in_weights else leaves, seed)

        for mine, theirs in zip(compiled(*arrays)[1], by_torch(), strict=True):
            agree("torch", mine, theirs.reshape(mine.shape))
        runs["torch"] = by_torch
    leaf_names = "q, k, v, weights" if in_weights else "q, k, v"
    return row(f"forward + gradient in {leaf_names}, n={n}, d={dim}", runs, bars=bars)


def forwards(n: int, dim: int) -> Number:
    """One jvp and one vjp of self-attention, in forward passes."""
    x, dx = (jnp.asarray(a) for a in problem(n, dim)[:2])

    def layer(x: Any) -> Any:
        return mf.attend(x, x, x).values

    forward = jax.jit(layer)
    both = jax.jit(lambda x, dx: jax.vjp(layer, x)[1](jax.jvp(layer, (x,), (dx,))[1]))
    seconds = interleaved(
        {"forward": lambda: forward(x).block_until_ready(), "both": lambda: both(x, dx)[0].block_until_ready()},
        rounds=15,
    )
    ratio = float(np.median(seconds["both"]) / np.median(seconds["forward"]))
    return Number(f"one jvp + one vjp, n={n}, d={dim}", ratio, 6, "forward passes")


MEMORY = """
import sys, numpy as np, jax, jax.numpy as jnp, measureformer as mf
n, dim, derivative = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "gradient"
def loss(q, k, v):
    return jnp.sum(mf.attend(q, k, v).values ** 2)
function = jax.jit(jax.value_and_grad(loss, (0, 1, 2)) if derivative else lambda q, k, v: mf.attend(q, k, v).values)
def arrays(n):
    return [jnp.asarray(np.random.default_rng(i).normal(size=(n, dim)) / dim**0.25, np.float32) for i in range(3)]
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
def now():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) * 1024
jax.block_until_ready(function(*arrays(4096)))
given = arrays(n)
program = function.lower(*given).compile()
open("/proc/self/clear_refs", "w").write("5")
before = now()
jax.block_until_ready(program(*given))
print(peak() - before)
"""


def memory(n: int, dim: int, what: str, limit: float) -> Number:
    """Peak memory of a fresh process that is warm and holds its inputs, over what it held before."""
    command = [sys.executable, "-c", MEMORY, str(n), str(dim), what]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    return Number(f"peak memory over the inputs, {what}, n={n}, d={dim}", float(done.stdout) / 1e6, limit, "MB")


def main() -> None:
    n, m, long = (2048, 1024, 8192) if FAST else (16384, 8192, 131072)
    rows = [
        weighted(n, 64, torch=0.95),
        weighted(n, 16, torch=0.95),
        weighted(n, 2, torch=1.4, KeOps=8),
        causal(n, 64, torch=0.95),
        gradient(m, 64, in_weights=False, torch=0.9),
        gradient(m, 64, in_weights=True, torch=1.4),
    ]
    numbers = [forwards(min(n, 4096), 64)]
    if sys.platform == "linux":
        numbers += [memory(long, 64, "forward", 200), memory(long, 64, "gradient", 400)]
    threads: dict[str, int | str] = {"ours": len(os.sched_getaffinity(0))}
    if torch is not None:
        threads["torch"] = torch.get_num_threads()
    if LazyTensor is not None:
        threads["KeOps"] = os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))
    write("attention-fast" if FAST else "attention", rows, numbers, machine(threads))


if __name__ == "__main__":
    main()
