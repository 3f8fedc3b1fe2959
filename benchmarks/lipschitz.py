"""Local Lipschitz constants: a Lanczos step in forward passes, a power iteration in torch to compare with, and memory.

The power iteration multiplies by torch.func's jvp and vjp on the materialised softmax. It is told the answer, and stops
as soon as it is as accurate as ours: a stopping rule of its own would need more steps.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
from compare import Number, Row, interleaved, machine, row, write

import measureformer as mf
from measureformer.regularity.local import stretch

FAST = "--fast" in sys.argv
N, LARGE, DIM = (512, 2048, 64) if FAST else (4096, 32768, 64)
TOL = 1e-4
"""Residual at which Lanczos stops; the error of the constant is of the order of its square."""


def problem(n: int) -> tuple[mf.Attention, mf.Discrete]:
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(3, DIM, DIM)).astype(np.float32) / np.float32(np.sqrt(DIM))
    G, points = mf.Attention.head(*matrices, scale=np.float32(DIM**-0.5)), rng.normal(size=(n, DIM))
    return G, mf.Discrete.uniform(points.astype(np.float32))


@eqx.filter_jit
def forward(G: Any, mu: Any) -> Any:
    return G.at_atoms(mu)


@eqx.filter_jit
def iterate(G: Any, mu: Any, start: Any, tol: Any, steps: Any) -> Any:
    return stretch(G, mu, start, tol=tol, max_iterations=steps)


def lanczos(n: int, tol: float, steps: int) -> Any:
    G, mu = problem(n)
    start = jax.random.normal(jax.random.key(0), mu.points.shape, mu.points.dtype)
    return lambda: jax.block_until_ready(iterate(G, mu, start, np.float32(tol), np.asarray(steps)))


def step_in_forwards() -> Number:
    G, mu = problem(N)
    # a tolerance that is never met; the linearisation before the first step does not count
    runs = {"forward": lambda: jax.block_until_ready(forward(G, mu))}
    seconds = interleaved(runs | {str(steps): lanczos(N, 1e-30, steps) for steps in (2, 12)}, rounds=7)
    median = {name: float(np.median(times)) for name, times in seconds.items()}
    return Number(
        f"Lanczos step, n={N}, d={DIM}", (median["12"] - median["2"]) / 10 / median["forward"], 6, "forward passes"
    )


def against_torch() -> Row | None:
    try:
        import torch
    except ModuleNotFoundError:
        return None
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    G, mu = problem(N)
    Q, K, V = (torch.from_numpy(np.array(a[0])) for a in (G.scale * G.Q, G.K, G.V))
    X = torch.from_numpy(np.array(mu.points))
    start = torch.from_numpy(np.random.default_rng(1).normal(size=X.shape).astype(np.float32))
    exact = float(lanczos(N, 1e-6, 500)().value)
    ours = lanczos(N, TOL, 500)
    accuracy = max(abs(float(ours().value) / exact - 1), 1e-6)

    def layer(X: Any) -> Any:
        return torch.softmax((X @ Q.T) @ (X @ K.T).T, dim=1) @ (X @ V.T)

    def theirs() -> None:
        _, back = torch.func.vjp(layer, X)
        v = start
        for _ in range(400):
            u = torch.func.jvp(layer, (X,), (v / v.norm(),))[1]
            if abs(float(u.norm()) / exact - 1) <= accuracy:
                return
            v = back(u)[0]
        raise SystemExit("the power iteration did not reach our accuracy in 400 steps")

    return row(
        f"constant to {accuracy:.0e}, n={N}, d={DIM}",
        {"ours": ours, "power iteration": theirs},
        rounds=3,
        bars={"power iteration": 5.0},
    )


def peak() -> None:
    """In a process of its own: seconds, and megabytes over those of a warm process."""
    G, mu = problem(N)
    mf.local_lipschitz(G, mu, tol=1e-3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    mf.local_lipschitz(*problem(LARGE), tol=1e-3)
    print(time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def memory() -> list[Number]:
    command = [sys.executable, __file__, "--peak", *(["--fast"] if FAST else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3000)
    seconds, megabytes = map(float, done.stdout.split())
    matrix = 4 * LARGE**2 / 1e6
    return [
        Number(f"both values at n={LARGE}, d={DIM}", seconds, float("inf"), "s"),
        Number(f"memory of that; one matrix of attention weights takes {matrix:.0f} MB", megabytes, matrix, "MB"),
    ]


def main() -> None:
    found = against_torch()
    numbers = [step_in_forwards(), *memory()]
    about = machine({"all": len(os.sched_getaffinity(0))})
    write("lipschitz-fast" if FAST else "lipschitz", [found] if found else [], numbers, about)


if __name__ == "__main__":
    peak() if "--peak" in sys.argv else main()
