"""Transport against POT, NumPy, torch and, where it is installed, OTT.

    make bench                                       all of it, about fifteen minutes
    .venv/bin/python benchmarks/transport.py --fast  fewer and smaller sizes, to try it
    .venv/bin/python benchmarks/transport.py 3000    no clouds of more than 3000 atoms off the line

Seconds are those of the processor, since the peers use one thread or two. OTT is not among our extras.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata, util
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from compare import Row, machine, row, write

import measureformer as mf

FAST = "--fast" in sys.argv
MOST = next((int(word) for word in sys.argv[1:] if word.isdigit()), 6000)
SIZES = (60, 300) if FAST else tuple(n for n in (60, 100, 300, 1000, 2000, 3000, 6000) if n <= MOST)
LINE = 10_000 if FAST else 1_000_000
ENTROPIC = 200 if FAST else 2000
AIM = 1 / 1.1


def repeated(run: Callable[[], object], times: int) -> Callable[[], object]:
    return lambda: [run() for _ in range(times)][-1]


def exact(n: int, dim: int, weighted: bool) -> Row:
    import ot

    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, n, dim))
    a, b = rng.uniform(0.2, 1, size=(2, n)) if weighted else np.ones((2, n))
    a, b = a / a.sum(), b / b.sum()
    mu, nu = (mf.Discrete.weighted(z, w) if weighted else mf.Discrete.uniform(z) for z, w in ((x, a), (y, b)))

    def peer() -> float:
        return float(np.sqrt(ot.emd2(a, b, ot.dist(x, y), numItermax=10**8)))

    assert abs(float(mf.wasserstein(mu, nu)) - peer()) < 1e-9
    times = max(1, 3000 // n)
    runs = {"ours": repeated(lambda: mf.wasserstein(mu, nu), times), "POT": repeated(peer, times)}
    name = f"W₂, {'random' if weighted else 'equal'} weights, n={n}, d={dim}"
    # the comparison above was the first call of both
    rounds, warm = (9, 2) if n <= 1000 else (3, 0)
    return timed(name, runs, rounds=rounds, warm=warm, bars={"POT": 1 / 1.5 if n == 60 else AIM})


def line(n: int) -> Row:
    x, y = np.random.default_rng(0).normal(size=(2, n))
    mu, nu = mf.Discrete.uniform(x[:, None]), mf.Discrete.uniform(y[:, None])
    runs = {"ours": lambda: mf.wasserstein(mu, nu), "two sorts": lambda: (np.sort(x), np.sort(y))}
    return timed(f"W₂ on the line, equal weights, n={n}", runs, rounds=9, bars={"two sorts": 1 / 1.5})


def entropic(n: int, dim: int, tol: float) -> Row:
    import ot

    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, dim)), rng.normal(size=(n, dim)) + 0.5
    mu, nu, weights = mf.Discrete.uniform(x), mf.Discrete.uniform(y), np.full(n, 1 / n)
    eps = 0.05 * float(np.mean(np.asarray(ot.dist(x, y))))

    def dense() -> Any:
        return ot.sinkhorn2(weights, weights, ot.dist(x, y), eps, stopThr=tol, numItermax=10_000)

    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: float(mf.sinkhorn(mu, nu, eps=eps, tol=tol).cost),
        "POT": dense,
    }
    if util.find_spec("ott"):
        runs["OTT"] = ott(x, y, eps, tol)
    return timed(f"entropic cost, n={n}, d={dim}, eps=0.05 mean, tol={tol:g}", runs, rounds=5, bars={"OTT": 1 / 1.2})


def ott(x: np.ndarray, y: np.ndarray, eps: float, tol: float) -> Callable[[], object]:
    import jax
    from ott.geometry import pointcloud  # pyright: ignore[reportMissingImports]
    from ott.problems.linear import linear_problem  # pyright: ignore[reportMissingImports]
    from ott.solvers.linear import sinkhorn  # pyright: ignore[reportMissingImports]

    @jax.jit
    def solved(x: Any, y: Any, eps: Any) -> Any:
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=eps))
        return sinkhorn.Sinkhorn(threshold=tol, max_iterations=10_000)(problem).reg_ot_cost

    return lambda: float(solved(x, y, eps))


def update(n: int, queries: int) -> Row:
    import torch

    torch.set_num_threads(1)
    x = np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32)
    memory, q = mf.memory.Modern.store(x, 1.0), x[:queries]
    keys, rows = torch.from_numpy(x), torch.from_numpy(q)
    runs = {
        "ours": repeated(lambda: memory.update(q).block_until_ready(), 100),
        "torch": repeated(lambda: torch.softmax(rows @ keys.T, dim=1) @ keys, 100),
    }
    return timed(f"Modern.update, N={n}, d=64, {queries} queries, float32", runs, rounds=9, bars={"torch": 0.5})


def timed(
    work: str, runs: dict[str, Callable[[], object]], *, rounds: int, bars: dict[str, float], warm: int = 2
) -> Row:
    return row(f"{work}; {rounds} rounds", runs, rounds=rounds, warm=warm, clock=time.process_time, bars=bars)


def main() -> None:
    warnings.simplefilter("ignore")  # of POT, which looks for array libraries
    works: list[Callable[[], Row]] = [partial(line, LINE)]
    works += [partial(update, 1000, queries) for queries in (1, 16, 128)] if util.find_spec("torch") else []
    clouds = {n: [partial(exact, n, dim, weighted) for dim in (2, 16) for weighted in (False, True)] for n in SIZES}
    works += [work for n in SIZES if n <= 1000 for work in clouds[n]]
    works += [partial(entropic, ENTROPIC, dim, tol) for tol in (1e-3, 1e-6) for dim in (2, 16)]
    works += [work for n in SIZES if n > 1000 for work in clouds[n]]
    names = {"ot": "POT", "ott": "ott-jax"}
    others = {name: metadata.version(name) for module, name in names.items() if util.find_spec(module)}
    rows = []
    for work in works:
        rows.append(work())
        # after each, so that what was measured is there if the rest takes too long
        load = {"load when it ended": f"{os.getloadavg()[1]:.1f}", "clock": "of the processor"}
        write(
            "transport-fast" if FAST else "transport", rows, [], {**machine({"POT": 1, "torch": 1}), **others, **load}
        )


if __name__ == "__main__":
    main()
