"""Local Lipschitz constants: the cost of a Lanczos step, a power iteration in torch to compare with, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer.regularity._local import stretch

N, DIM = 4096, 64
TOL = 1e-4
"""Residual at which Lanczos stops; the error of the constant is of the order of its square."""


def problem(n: int) -> tuple[mf.Attention, mf.Discrete]:
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(3, DIM, DIM)).astype(np.float32) / np.float32(np.sqrt(DIM))
    G, points = mf.Attention.head(*matrices, scale=np.float32(DIM**-0.5)), rng.normal(size=(n, DIM))
    return G, mf.Discrete.uniform(points.astype(np.float32))


def fastest(run: Any, rounds: int = 5) -> float:
    """The best of a few runs after one to warm up: the others met somebody else's work."""
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@eqx.filter_jit
def forward(G: Any, mu: Any) -> Any:
    return G.at_atoms(mu)


@eqx.filter_jit
def iterate(G: Any, mu: Any, start: Any, tol: Any, steps: Any) -> Any:
    return stretch(G, mu, start, tol=tol, max_iterations=steps)


def lanczos(n: int, tol: float, steps: int) -> Any:
    G, mu = problem(n)
    start = jax.random.normal(jax.random.key(0), mu.points.shape, mu.points.dtype)
    arguments = G, mu, start, np.float32(tol), np.asarray(steps)
    return lambda: jax.block_until_ready(iterate(*arguments))


def test_one_step_in_forward_passes(benchmark: object) -> None:
    G, mu = problem(N)
    one = fastest(lambda: jax.block_until_ready(forward(G, mu)))
    # a tolerance that is never met, and steps enough that the linearisation before the first does not count
    few, many = (fastest(lanczos(N, 1e-30, steps), 3) for steps in (2, 12))
    step = (many - few) / 10
    benchmark.extra_info.update(forward=one, step=step, forwards_per_step=step / one)  # type: ignore[attr-defined]
    print(f"\nforward {one:.3f} s, Lanczos step {step:.3f} s: {step / one:.1f} forwards")
    benchmark.pedantic(lanczos(N, 1e-30, 2), rounds=1)  # type: ignore[attr-defined]


def torch_power_iteration(accuracy: float, exact: float) -> tuple[float, int]:
    """Seconds and steps until the constant is as accurate; products by torch.func on the materialised softmax."""
    torch: Any = pytest.importorskip("torch")
    G, mu = problem(N)
    Q, K, V = (torch.from_numpy(np.array(a[0])) for a in (G.scale * G.Q, G.K, G.V))
    X = torch.from_numpy(np.array(mu.points))

    def layer(X: Any) -> Any:
        return torch.softmax((X @ Q.T) @ (X @ K.T).T, dim=1) @ (X @ V.T)

    v = torch.from_numpy(np.random.default_rng(1).normal(size=X.shape).astype(np.float32))
    _, back = torch.func.vjp(layer, X)
    start, steps = time.perf_counter(), 0
    while steps < 400:
        steps += 1
        u = torch.func.jvp(layer, (X,), (v / v.norm(),))[1]
        value = float(u.norm())
        if abs(value / exact - 1) <= accuracy:
            break
        v = back(u)[0]
    return time.perf_counter() - start, steps


@pytest.mark.filterwarnings("ignore")  # torch warns of its own internals
def test_against_a_power_iteration_in_torch(benchmark: object) -> None:
    exact = float(lanczos(N, 1e-6, 500)().value)
    run = lanczos(N, TOL, 500)
    found, ours = run(), fastest(run, 3)
    accuracy = max(abs(float(found.value) / exact - 1), 1e-6)
    theirs, steps = torch_power_iteration(accuracy, exact)
    print(f"\naccuracy {accuracy:.1e}: Lanczos {ours:.2f} s, {int(found.iterations)} steps;", end=" ")
    print(f"power iteration {theirs:.2f} s, {steps} steps; ratio {theirs / ours:.1f}")
    info = {"ours": ours, "theirs": theirs, "ratio": theirs / ours, "accuracy": accuracy}
    benchmark.extra_info.update(info)  # type: ignore[attr-defined]
    benchmark.pedantic(run, rounds=1)  # type: ignore[attr-defined]


LARGE = """
import resource, sys, time
sys.path.insert(0, "benchmarks")
import bench_lipschitz as bench, measureformer as mf
G, mu = bench.problem(int(sys.argv[1]))
start = time.perf_counter(); found = mf.local_lipschitz(G, mu, tol=1e-3)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, found.iterations)
"""


@pytest.mark.parametrize("n", [8192, 16384, 32768])
def test_memory_is_linear(benchmark: object, n: int) -> None:
    """One such matrix of attention weights is 4 GB at n = 32768 in single precision."""

    def run() -> None:
        command = [sys.executable, "-c", LARGE, str(n)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=3000)
        seconds, megabytes, steps = map(float, done.stdout.split())
        benchmark.extra_info.update(seconds=seconds, megabytes=megabytes, steps=steps)  # type: ignore[attr-defined]
        print(f"\nn = {n}: {seconds:.1f} s, {int(steps)} steps, {megabytes:.0f} MB at most")

    benchmark.pedantic(run, rounds=1)  # type: ignore[attr-defined]
