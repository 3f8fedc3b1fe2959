"""Error against parameters: greedy and trained approximations of targets of graded smoothness; all seeds are shown.

python benchmarks/universality.py [seeds]
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

import measureformer as mf
from measureformer.universality import Architecture, Search, error_curve, fit, graded, train

LINE = mf.Box([0.0], [1.0])


def vlasov(time: float = 0.5) -> Any:
    velocity = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    return mf.flow(velocity, mf.Discrete.dirac([0.0]), [0.0, time], solver="rk4", steps=4).map(time)


TARGETS = {
    "mean": (mf.universality.mean(1), LINE),
    "variance": (mf.universality.variance(1), LINE),
    "smooth quantile": (mf.universality.smooth_quantile(0.3, 0.2), LINE),
    "W_1 to uniform": (mf.universality.distance_to_uniform(), LINE),
    "soft distance": (mf.universality.softmin_distance(1, 0.5), LINE),
    "kernel regression": (mf.universality.kernel_regression(0.7), mf.Box([-1.0, -1.0], [1.0, 1.0])),
    "Vlasov": (vlasov(), mf.Box([-1.0], [1.0])),
}


def table(seeds: int) -> None:
    """Held-out sup error over the size of the target, with 10, 100 and all terms, for every seed."""
    for name, (target, domain) in TARGETS.items():
        for seed in range(seeds):
            found = fit(target, domain, jax.random.key(seed), tol=1e-9)
            at = {row.terms: row.held_out / found.scale for row in found.rows}
            shown = "  ".join(f"{k}: {v:.1e}" for k, v in at.items() if k >= 10)
            print(f"{name:18s} seed {seed}  {shown}  searched: {found.worst / found.scale:.1e}", flush=True)


def slopes(seeds: int) -> None:
    keys = [jax.random.key(seed) for seed in range(seeds)]
    for name, order in (("Lipschitz", 1), ("C1", 2), ("C2", 3), ("analytic", None)):
        curve = error_curve(graded(order), LINE, keys, search=Search(rounds=1))
        low, high = curve.interval
        print(f"{name:10s} slope {curve.slope:6.2f} in [{low:.2f}, {high:.2f}]; by seed {np.round(curve.slopes, 2)}")


def compared(seeds: int) -> None:
    """Compiled and trained, on one target and one axis."""
    target, domain = TARGETS["soft distance"]
    for seed in range(seeds):
        key = jax.random.key(seed)
        for size in (4, 8, 16):
            net = Architecture(layers=2, dim=size, width=2 * size)
            training = mf.flows.Training(steps=3000, rate=0.005, solver="euler")
            found = train(target, domain, key, architecture=net, training=training)
            print(
                f"trained   seed {seed}  {found.parameters:7d} parameters  {found.held_out / found.scale:.1e}",
                flush=True,
            )
        for terms in (10, 30, 100, 300):
            greedy = fit(target, domain, key, tol=1e-9, search=Search(terms=terms, rounds=1))
            count = greedy.compile(activation="quadratic").census.parameters
            print(
                f"compiled  seed {seed}  {count:7d} parameters  {greedy.rows[-1].held_out / greedy.scale:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    table(number)
    slopes(number)
    compared(number)
