"""The certificate of the grid against long double, without any slack: random and adversarial problems.

    make bench                                              4400 problems, and clustered data with a million keys
    .venv/bin/python benchmarks/grid_certificate.py 300 7   300 problems from the seed 7 on, to try it

A violation ends the program with an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from compare import CONSOLE, RESULTS
from rich.progress import track

import measureformer as mf
from measureformer.attention.grid import Costs
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.errors import MeasureformerError, ToleranceError
from measureformer.storage.files import write_atomically

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from grid_examples import exact, problem, shares

SHAPES = {
    1: [((4,), (3,)), ((12,), (12,)), ((1,), (30,))],
    2: [((3, 2), (3, 4)), ((6, 6), (11, 11)), ((20, 20), (6, 6))],
    3: [((2, 2, 3), (5, 5, 5)), ((6, 6, 6), (6, 6, 6))],
}
PLANNED = 20
"""Every so many problems go through the planner, which compiles new shapes; the others have one of SHAPES."""


def one(seed: int) -> tuple[str, float, float]:
    """Family, and the worst error over its bound, of values and log-normaliser; NaN if refused."""
    rng = np.random.default_rng([seed, 1])
    d = 1 + seed % 3
    q, k, v, log_weights, family = problem(seed, 64, 1000, d)
    if seed % PLANNED:
        plan = plan_of_shape(q, k, log_weights, *SHAPES[d][rng.integers(len(SHAPES[d]))])
        tol = np.inf
        if not float(plan.boxes.interpolation[0]) < 0.5:
            return family, np.nan, np.nan
    else:
        tol = 10.0 ** rng.uniform(-10, -2)
        # most of the time sums one by one are priced so high that a grid is taken
        costs = Costs(pair=1e-3) if rng.uniform() < 0.7 else Costs(pair=1e-7, box=1e-5, point=1e-8)
        try:
            plan = mf.GridPlan.make(q, k, log_weights, tol=tol, costs=costs)
        except ToleranceError:
            return family, np.nan, np.nan
    out = mf.attend(q, k, v, log_weights, method=mf.Grid(plan=plan))
    if not float(out.log_normalizer_error.max()) <= tol:
        raise SystemExit(f"seed {seed}: asked for {tol:.2g}, got {float(out.log_normalizer_error.max()):.2g}")
    return family, *shares(out, *exact(q, k, v, log_weights))


def clustered(n: int) -> tuple[str, float, float]:
    """90 % of the keys in one cell: what the count of chunks in the certificate is for."""
    rng = np.random.default_rng(3)
    k = np.concatenate([1e-3 * rng.normal(size=(9 * n // 10, 2)), rng.uniform(-2.5, 2.5, (n // 10, 2))])
    q, v, log_weights = rng.uniform(-2.5, 2.5, (n, 2)), rng.normal(size=(n, 2)), rng.normal(size=n)
    out = mf.attend(q, k, v, log_weights, method="grid", tol=1e-8)
    some = rng.integers(0, n, 20)
    cut = type(out)(*(a[some] for a in (out.values, out.error_bound, out.log_normalizer, out.log_normalizer_error)))
    return "clustered", *shares(cut, *exact(q[some], k, v, log_weights))


def main() -> None:
    count, first = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (4400, 0)
    worst: dict[str, list[float]] = {}
    refused = 0
    for seed in track(range(first, first + count), description="problems", console=CONSOLE):
        try:
            family, values, log_z = one(seed)
        except MeasureformerError as error:
            raise SystemExit(f"seed {seed}: {type(error).__name__}: {error}") from error
        refused += bool(np.isnan(values))
        if max(values, log_z) > 1:
            raise SystemExit(f"seed {seed}, {family}: error over bound {values:.3g} (values), {log_z:.3g} (log Z)")
        worst.setdefault(family, []).append(np.nanmax([values, log_z, 0]))
    if count > 1000:
        worst["clustered, n = 10⁶"] = [max(clustered(10**6)[1:])]
    lines = ["| family | problems | worst error over bound |", "|---|---|---|"]
    lines += [f"| {family} | {len(found)} | {max(found):.3g} |" for family, found in worst.items()]
    lines += ["", f"{count} problems from seed {first} on, {refused} refused, no violation."]
    print("\n".join(lines))
    if count > 1000:
        text = "\n".join(["# grid_certificate", "", "Against long double, without slack.", "", *lines, ""])
        write_atomically(RESULTS / "grid_certificate.md", text.encode(), do="Choose another folder.")


if __name__ == "__main__":
    main()
