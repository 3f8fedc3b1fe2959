"""The figure of docs/attention.md: error against certificate, time against n, and a million tokens in the plane.

.venv/bin/python benchmarks/grid_figure.py          some minutes
.venv/bin/python benchmarks/grid_figure.py --fast   fewer tokens, to try it
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.attention.grid import Costs
from measureformer.figures.roles import PALETTE
from measureformer.figures.style import style

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from grid_examples import exact

FAST = "--fast" in sys.argv
TOKENS = 30_000 if FAST else 1_000_000
TIMES, STEPS = [0.0, 0.5, 1.0, 2.0], 8
TOLERANCES = 10.0 ** -np.arange(2, 12)
GRID = Costs(pair=1e-3)
"""Sums one by one are so dear that the grid is taken, although 200 queries are few."""


FOLDER = Path(tempfile.gettempdir()) / f"measureformer-grid-figure-{TOKENS}"


def kept(name: str, compute: Callable[[], Any]) -> np.ndarray:
    """What is computed, or was before."""
    file = FOLDER / f"{name}.npy"
    if not file.exists():
        FOLDER.mkdir(exist_ok=True)
        np.save(file, np.asarray(compute()))
    return np.load(file)


def errors() -> np.ndarray:
    """For each tolerance the largest certificate and the largest error of log Z, against long double."""
    rng = np.random.default_rng(0)
    q, k = rng.uniform(-2.5, 2.5, (200, 2)), rng.uniform(-2.5, 2.5, (20_000, 2))
    v = rng.uniform(-0.35, 0.35, (20_000, 2))
    log_z = exact(q, k, v, np.zeros(len(k)))[1]
    found = []
    for tol in TOLERANCES:
        out = mf.attend(q, k, v, method=mf.Grid(plan=mf.GridPlan.make(q, k, tol=float(tol), costs=GRID)))
        found.append([out.log_normalizer_error.max(), np.abs(np.asarray(out.log_normalizer) - log_z).max()])
    return np.array(found, float)


def seconds() -> list[list[float]]:
    """Attention of n tokens in the plane: the grid with planning, and streaming, timed on some of the queries."""
    sizes = [2**i for i in range(10, 16 if FAST else 21, 2)]
    ours, theirs = [], []
    for n in sizes:
        rng = np.random.default_rng(1)
        x, v = rng.uniform(-2.5, 2.5, (n, 2)), rng.uniform(-0.35, 0.35, (n, 2))
        some = x[: min(n, max(1024, 2**26 // n))]
        ours.append(timed(lambda x=x, v=v: mf.attend(x, x, v, method="grid", tol=1e-6)))
        theirs.append(timed(lambda x=x, v=v, some=some: mf.attend(some, x, v, method="streaming")) * n / len(some))
    return [list(map(float, sizes)), ours, theirs]


def timed(run: Any) -> float:
    run().values.block_until_ready()
    found = []
    for _ in range(2):
        start = time.perf_counter()
        run().values.block_until_ready()
        found.append(time.perf_counter() - start)
    return min(found)


def flowing() -> tuple[np.ndarray, float]:
    """A disc of tokens at the four times, and the largest certificate of their velocities."""
    rng = np.random.default_rng(2)
    angle, radius = rng.uniform(0, 2 * np.pi, TOKENS), np.sqrt(rng.uniform(0, 1, TOKENS))
    points = 1.5 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    # tokens of an uneven disc attract those they attend to, and turn
    mu = mf.Discrete.weighted(points, np.exp(1.5 * np.sin(3 * angle) + np.sin(2 * points[:, 0])))
    velocity = mf.Attention.head(2.0 * np.eye(2), np.eye(2), np.array([[1.0, -1.5], [1.5, 1.0]]))
    options: dict[str, Any] = {"solver": "euler", "steps": STEPS, "method": mf.Grid(tol=1e-6), "save": FOLDER / "flow"}
    traj = mf.flow(velocity - mf.Identity(), mu, TIMES, **options)
    assert traj.error_bound is not None
    return np.asarray(traj.points), traj.error_bound


def main() -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    with style():
        figure = plt.figure(figsize=(8.4, 5.6), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.35, 1])
        above, below = halves
        left, right = above.subplots(1, 2)
        found = kept("errors", errors)
        left.loglog(TOLERANCES, found[:, 0], "o-", color=PALETTE[0], label="certificate")
        left.loglog(TOLERANCES, found[:, 1], "s-", color=PALETTE[1], label="true error, long double")
        left.loglog(TOLERANCES, TOLERANCES, "--", color="#333333", linewidth=0.8, label="tolerance")
        left.set_xlabel("tolerance that was asked for")
        left.set_ylabel("largest error of log Z")
        left.legend()
        sizes, ours, theirs = kept("seconds", seconds)
        right.loglog(sizes, ours, "o-", color=PALETTE[0], label="grid, tol = 1e-6, with planning")
        right.loglog(sizes, theirs, "s-", color=PALETTE[1], label="streaming, from a sample")
        right.set_xlabel("number of tokens n in the plane")
        right.set_ylabel("seconds")
        right.legend()
        points, bound = flowing()
        for axes, t, x in zip(below.subplots(1, len(TIMES)), TIMES, points, strict=True):
            size = float(np.abs(x).max()) * 1.05
            axes.hist2d(*x.T, bins=160, range=[[-size, size]] * 2, norm=LogNorm(), cmap="viridis", rasterized=True)
            axes.set_aspect("equal")
            axes.set_title(f"t = {t:g}", fontsize=9)
        below.suptitle(
            f"{TOKENS:,} tokens flowing; attention in every velocity within {bound:.1g}".replace(",", " "), fontsize=9
        )
        path = Path(__file__).parents[1] / "docs" / "images" / "grid.png"
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
