"""Functions of sequences: seconds to compile and run, to check masks, and how sparse attention grows with n.

Sparse attention is compared with dense attention of the same tokens, masked by a matrix. Exponents are slopes of
ln(seconds) over ln(n), of the fastest of several rounds, at sizes where the fixed cost of a call no longer counts.
"""

from __future__ import annotations

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from compare import CONSOLE, Number, Row, machine, row, write

import measureformer as mf
from measureformer.sequences import SparseAttention, check_pattern, compile_yun, sparse_pattern
from measureformer.sequences.sparse.attention import Connections
from measureformer.sequences.sparse.patterns import Family

FAST = "--fast" in sys.argv
ROUNDS = 5
SIZES = {
    "window": (16384, 65536, 262144),
    "star": (16384, 65536, 262144),
    "strided": (16384, 30976, 65536),
    "fixed": (16384, 30976, 65536),
    "dense": (1024, 2048, 4096),
}
EXPONENTS = {"window": 1.0, "star": 1.0, "strided": 1.5, "fixed": 1.5, "dense": 2.0}


def wave(X: np.ndarray) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * X) + X.mean(axis=(-2, -1), keepdims=True)


def compiled(d: int, n: int, cells: int) -> Number:
    X = np.random.default_rng(0).uniform(size=(4000, n, d))
    begin = time.perf_counter()
    compile_yun(wave, d=d, n=n, delta=1 / cells).run(X, "hard")
    seconds = time.perf_counter() - begin
    return Number(f"compile ({d}, {n}, 1/{cells}) and run it on 4000 sequences", seconds, 2, "s")


def checked(name: Family) -> Number:
    mask = sparse_pattern(name, 512)
    begin = time.perf_counter()
    check_pattern(mask)
    return Number(f"check {name}, n = 512", time.perf_counter() - begin, 1, "s")


def connections(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries and tokens of a pattern without its matrix, which would not fit into memory."""
    k = np.arange(n)
    if name in ("window", "star"):
        pairs = [(k, k), (k[1:], k[:-1]), (k[:-1], k[1:])]
        if name == "star":
            pairs += [(k[: n - 2], np.full(n - 2, n - 1)), (np.full(n - 2, n - 1), k[: n - 2])]
        return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])
    width = int(n**0.5)
    if name == "dense":
        return np.repeat(k, n), np.tile(k, n)
    if name == "fixed":
        return np.repeat(k, width), ((k // width * width)[:, None] + np.arange(width)).reshape(-1)
    near = k[:, None] + np.arange(-width, width + 1)
    inside = (near >= 0) & (near < n)
    return np.repeat(k, inside.sum(axis=1)), near[inside]


def seconds(name: str, n: int) -> float:
    head = mf.Attention.random(jax.random.key(0), 4)
    G = SparseAttention(head, Connections(*connections(name, n), n))
    sigma = mf.SpaceTime.sequence(np.random.default_rng(0).normal(size=(n, 4)))
    times = []
    for _ in range(ROUNDS + 2):
        begin = time.perf_counter()
        jax.block_until_ready(G.push(sigma).points)
        times.append(time.perf_counter() - begin)
    return min(times[2:])


def growth(name: str) -> Number:
    with CONSOLE.status(name):
        measured = [seconds(name, n) for n in SIZES[name]]
    slope = float(np.polyfit(np.log(SIZES[name]), np.log(measured), 1)[0])
    CONSOLE.print(f"{name}: {', '.join(f'{s:.3g} s' for s in measured)}, exponent {slope:.2f}")
    return Number(
        f"exponent of sparse attention, {name}, off from {EXPONENTS[name]:g}", abs(slope - EXPONENTS[name]), 0.25, ""
    )


def against_matrix(n: int) -> Row:
    """A star, along its connections and as a masked matrix, compiled."""
    head = mf.Attention.random(jax.random.key(0), 4)
    mask = sparse_pattern("star", n)[0]
    G, X = SparseAttention(head, mask), np.random.default_rng(0).normal(size=(n, 4))
    sigma = mf.SpaceTime.sequence(X)

    @jax.jit
    def masked(X: jax.Array) -> jax.Array:
        logits = jnp.where(mask, (X @ head.Q[0].T) @ (X @ head.K[0].T).T, -jnp.inf)
        return jax.nn.softmax(logits, axis=1) @ X @ head.V[0].T @ head.W[0].T

    runs = {
        "ours": lambda: jax.block_until_ready(G.push(sigma).points),
        "matrix": lambda: jax.block_until_ready(masked(X)),
    }
    return row(f"star, n={n}", runs, rounds=ROUNDS, bars={"matrix": 2.0})


def main() -> None:
    numbers = [compiled(*case) for case in ((1, 2, 16), (2, 2, 4), (1, 3, 8))]
    families: tuple[Family, ...] = ("dense", "causal", "window", "strided", "fixed", "star", "bigbird")
    numbers += [checked(name) for name in families]
    numbers += [growth(name) for name in (("star",) if FAST else SIZES)]
    rows = [against_matrix(n) for n in ((1024,) if FAST else (1024, 4096))]
    write("sequences-fast" if FAST else "sequences", rows, numbers, machine({"ours": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
