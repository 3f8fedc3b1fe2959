"""Tokens on the sphere: ours against a loop of Euler steps in NumPy at the same accuracy, and a phase diagram.

Euler's error falls like its step, ours like the eighth power of its: at our default accuracy the loop would not end.
Both are therefore asked for the same error at the last time, `ERROR` in the largest coordinate, against a reference at
rtol = 1e-10. Ours gets the loosest power of ten for `rtol` that reaches it. For the loop, the error at two numbers of
steps is measured, must halve, and tells how many steps are needed; these are not all run: their time is that of `TIMED`
steps, in turns with ours, times their number. Steps of Euler are x ← normalise(x + h·drift), as in the authors' code.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time

import diffrax
import jax
import numpy as np
from compare import CONSOLE, Number, Row, interleaved, machine, write

import measureformer as mf

FAST = "--fast" in sys.argv
N, TIME, ERROR = (200, 10.0, 1e-4) if FAST else (2000, 30.0, 1e-4)
DIMS = (3, 16) if FAST else (3, 16, 64)
BETA = 4.0
PROBE, TIMED = 300, 10


def start(dim: int) -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(N, dim))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def euler(X: np.ndarray, h: float, steps: int) -> np.ndarray:
    for _ in range(steps):
        weights = np.exp(BETA * (X @ X.T) - BETA)
        seen = weights @ X / weights.sum(axis=1, keepdims=True)
        X = X + h * (seen - np.sum(seen * X, axis=1, keepdims=True) * X)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def ours(X: np.ndarray, rtol: float) -> np.ndarray:
    velocity = mf.Tangent(mf.Attention.head(*[np.eye(X.shape[1])] * 3, scale=BETA))
    control = diffrax.PIDController(rtol=rtol, atol=rtol, pcoeff=0.3, icoeff=0.4)
    return np.asarray(mf.flow(velocity, mf.Discrete.uniform(X), [0.0, TIME], steps=control).points[1])


def euler_steps(X: np.ndarray, exact: np.ndarray) -> int:
    """How many steps reach ERROR, from the errors with PROBE steps and twice as many."""
    coarse, fine = (float(np.abs(euler(X, TIME / k, k) - exact).max()) for k in (PROBE, 2 * PROBE))
    if not 1.6 < coarse / fine < 2.5:
        raise SystemExit(f"Euler's error goes from {coarse:.2g} to {fine:.2g} with half the step: not of first order")
    return math.ceil(2 * PROBE * fine / ERROR)


def against_euler(dim: int) -> Row:
    X = start(dim)
    with CONSOLE.status(f"d={dim}: the settings that reach the error {ERROR:g}"):
        exact = ours(X, 1e-10)
        rtol = 1e-2
        while float(np.abs(ours(X, rtol) - exact).max()) > ERROR:
            rtol /= 10
        steps = euler_steps(X, exact)
        runs = {"ours": lambda: ours(X, rtol), "loop": lambda: euler(X, TIME / steps, TIMED)}
        seconds = interleaved(runs, rounds=5)
    mine, loop = seconds["ours"], [s * steps / TIMED for s in seconds["loop"]]
    each = [b / a for a, b in zip(mine, loop, strict=True)]
    ratio = statistics.median(loop) / statistics.median(mine), min(each), max(each)
    work = f"sphere, n={N}, d={dim}, T={TIME:g}, error {ERROR:g}: rtol {rtol:.0e} against {steps} Euler steps"
    CONSOLE.print(f"{work}: {statistics.median(mine):.3g} s, {ratio[0]:.1f}×")
    return Row(work, statistics.median(mine), {"NumPy Euler": ratio}, {"NumPy Euler": 10})


def phase(dim: int, batches: int, limit: float) -> Number:
    """Seconds for n = 32, 90 values of β, T = 30: compiled before, so that it is the work that is measured."""
    betas, times = np.linspace(0.1, 9, 90), np.linspace(0, 30, 61)
    run = lambda b: mf.clustering.phase_diagram(  # noqa: E731
        jax.random.key(0), betas, times, ensemble=mf.clustering.Ensemble(dim=dim, batches=b)
    )
    run(64)
    begin = time.perf_counter()
    run(batches)
    seconds = time.perf_counter() - begin
    CONSOLE.print(f"phase diagram, d={dim}: {seconds:.3g} s")
    return Number(f"phase diagram, n=32, 90 β, {batches} starts, T=30, d={dim}", seconds, limit, "s")


def main() -> None:
    rows = [against_euler(dim) for dim in DIMS]
    batches = 64 if FAST else 2048
    numbers = [phase(dim, batches, limit) for dim, limit in ((2, 300), (8, 300), (64, 600))]
    write("sphere-fast" if FAST else "sphere", rows, numbers, machine({"ours": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
