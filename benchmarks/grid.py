"""The grid against streaming: a million tokens in low dimension, planning included.

    make bench                                  all of it, about twenty minutes
    .venv/bin/python benchmarks/grid.py --fast  smaller sizes, two minutes, to try it

Streaming is timed on a sample of queries in the same rounds, and multiplied: it is linear in the number of queries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from compare import CONSOLE, Number, Row, interleaved, machine, write

import measureformer as mf

FAST = "--fast" in sys.argv
SAMPLE = 256 if FAST else 2048
N = 50_000 if FAST else 1_000_000
LAYERS = 10 if FAST else 50


def ball(rng: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    x = rng.normal(size=(n, d))
    return radius * x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / d)


def problem(n: int, d: int, extent: float) -> tuple[np.ndarray, ...]:
    """Queries and keys uniform in balls whose radii have the product `extent`, and values of size 1/2."""
    rng = np.random.default_rng(0)
    q, k = (ball(rng, n, d, extent**0.5) for _ in range(2))
    return q, k, rng.uniform(-0.35, 0.35, size=(n, 2))


def compared(
    work: str, grid: Callable[[], Any], sample: Callable[[], Any], factor: float, bar: float, rounds: int
) -> Row:
    """Streaming of a sample, times `factor`, over the grid."""
    seconds = interleaved({"ours": grid, "sample": sample}, rounds=rounds)
    each = [factor * b / a for a, b in zip(seconds["ours"], seconds["sample"], strict=True)]
    ours = float(np.median(seconds["ours"]))
    ratio = factor * float(np.median(seconds["sample"])) / ours
    CONSOLE.print(f"{work}: {ours:.3g} s; streaming {ratio:.0f}×")
    return Row(work, ours, {"streaming": (ratio, min(each), max(each))}, {} if FAST else {"streaming": bar})


def row(d: int, extent: float, tol: float, bar: float, rounds: int = 5) -> Row:
    q, k, v = problem(N, d, extent)
    some = q[:: len(q) // SAMPLE][:SAMPLE]
    return compared(
        f"n=m={N:.0e}, d={d}, X={extent:g}, tol={tol:g}",
        lambda: mf.attend(q, k, v, method="grid", tol=tol).values.block_until_ready(),
        lambda: mf.attend(some, k, v, method="streaming").values.block_until_ready(),
        N / SAMPLE,
        bar,
        rounds,
    )


def causal(d: int, bar: float) -> Row:
    q, k, v = problem(N, d, 6.25)
    times = np.arange(float(N))
    # spread over time, so that the sample sees half of all keys like all queries together
    some = slice(N // SAMPLE // 2, None, N // SAMPLE)
    return compared(
        f"causal, n={N:.0e}, d={d}, X=6.25, tol=1e-6",
        lambda: mf.attend(q, k, v, times=(times, times), method="grid", tol=1e-6).values.block_until_ready(),
        lambda: mf.attend(q[some], k, v, times=(times[some], times), method="streaming").values.block_until_ready(),
        N / len(times[some]),
        bar,
        3,
    )


def flow() -> Row:
    """Fifty layers of a residual network in the plane. Streaming: its velocity for a sample, times the layers."""
    rng = np.random.default_rng(1)
    mu = mf.Discrete.uniform(ball(rng, N, 2, 2.5))
    points, log_weights = np.asarray(mu.points), np.asarray(mu.log_weights)
    velocity = mf.Attention.head(np.eye(2), np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]]) - 0.3 * np.eye(2))
    some, calls = points[:: N // SAMPLE][:SAMPLE], []

    def layers() -> None:
        calls.append(None)
        # rounds that warm up take one layer, which is the same program
        steps = 1 if len(calls) <= 2 else LAYERS
        mf.flow(velocity, mu, [0.0, steps / LAYERS], solver="euler", steps=steps, method=mf.Grid(tol=1e-6))

    def sample() -> None:
        mf.attend(some, points, points, log_weights, method="streaming").values.block_until_ready()

    return compared(f"flow, n={N:.0e}, d=2, {LAYERS} layers, tol=1e-6", layers, sample, LAYERS * N / SAMPLE, 200, 2)


def growth(d: int, sizes: tuple[int, ...], *, masked: bool) -> Number:
    """The slope of log time against log n."""
    found = []
    for n in sizes:
        q, k, v = problem(n, d, 6.25)
        times = (np.arange(float(n)),) * 2 if masked else None

        def run(q: Any = q, k: Any = k, v: Any = v, times: Any = times) -> Any:
            return mf.attend(q, k, v, times=times, method="grid", tol=1e-6).values.block_until_ready()

        found.append(float(np.median(interleaved({"ours": run}, rounds=3)["ours"])))
    slope = float(np.polyfit(np.log(sizes), np.log(found), 1)[0])
    what = "causal, " if masked else ""
    return Number(f"{what}growth exponent, d={d}, n from {sizes[0]:.0e} to {sizes[-1]:.0e}", slope, 1.15, "")


MEMORY = """
import sys; sys.argv = ["grid.py"]; sys.path.insert(0, "benchmarks")
import resource, grid, measureformer as mf
q, k, v = grid.problem(10**7, 2, 6.25)
mf.attend(q, k, v, method="grid", tol=1e-6)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def memory() -> Number:
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=3600)
    return Number("peak memory of a process, n=1e+07, d=2", float(done.stdout), 8, "GB")


def main() -> None:
    rows = [row(1, 6.25, 1e-9, 3000), row(2, 6.25, 1e-9, 2000), row(3, 6.25, 1e-6, 700)]
    rows += [row(2, 100.0, 1e-6, 500, 3), row(2, 1000.0, 1e-6, 100, 3), causal(1, 300), causal(2, 300), flow()]
    sizes = (10**4, 10**5) if FAST else (10**5, 10**6, 10**7)
    numbers = [growth(d, sizes, masked=False) for d in (1, 2)]
    numbers += [growth(d, sizes[:2], masked=True) for d in (1, 2)]
    if not FAST and sys.platform == "linux":
        numbers.append(memory())
    write("grid-fast" if FAST else "grid", rows, numbers, machine({}))


if __name__ == "__main__":
    main()
