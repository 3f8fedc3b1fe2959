"""What a flow costs beyond its velocities: 50 layers of 20 000 tokens, against as many bare calls of `attend`.

    make bench                                  all of it, about a quarter of an hour
    .venv/bin/python benchmarks/flow.py --fast  smaller sizes, one minute, to try it

Euler's method has one velocity in each layer, "tsit5" in equal steps has six, and one more at the start.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from compare import CONSOLE, Row, interleaved, machine, write

import measureformer as mf

FAST = "--fast" in sys.argv
TOKENS, DIM, LAYERS, ROUNDS = (4096, 16, 10, 3) if FAST else (20_000, 16, 50, 3)
MOST = 1.3
"""How many times as long a flow may take as its velocities alone."""
PEER = "attend alone"


def main() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(TOKENS, DIM)).astype(np.float32)
    identity = np.eye(DIM, dtype=np.float32)
    # tokens move slowly towards the middle and stay finite
    velocity = mf.Attention.head(identity / DIM**0.5, identity, -0.1 * identity)
    mu = mf.Discrete.uniform(points)
    query, log_weights = points / np.float32(DIM**0.5), np.asarray(mu.log_weights)

    def bare() -> None:
        for _ in range(LAYERS):
            mf.attend(query, points, points, log_weights).values.block_until_ready()

    def run(solver: str, *, saved: bool, layers: int = LAYERS) -> None:
        options: dict[str, Any] = {"solver": solver, "steps": layers}
        if not saved:
            mf.flow(velocity, mu, [0.0, 1.0], **options)
            return
        with tempfile.TemporaryDirectory() as folder:
            mf.flow(velocity, mu, [0.0, 1.0], save=Path(folder), **options)

    def first_one_layer(solver: str, saved: bool) -> Callable[[], None]:
        """The rounds that warm up take one layer, which is the same program."""
        calls: list[None] = []

        def timed() -> None:
            calls.append(None)
            run(solver, saved=saved, layers=1 if len(calls) <= 2 else LAYERS)

        return timed

    runs: dict[str, Callable[[], object]] = {"bare": bare}
    for solver in ("euler", "tsit5"):
        for saved in (False, True):
            runs[f"{solver}, {'saved' if saved else 'in one program'}"] = first_one_layer(solver, saved)
    with CONSOLE.status(f"flows of {TOKENS} tokens"):
        seconds = interleaved(runs, rounds=ROUNDS)
    bare_ones = np.array(seconds.pop("bare")) / LAYERS
    rows = []
    for name, measured in seconds.items():
        velocities = LAYERS if name.startswith("euler") else 6 * LAYERS + 1
        theirs, ours = bare_ones * velocities, np.array(measured)
        ratios = float(np.median(theirs) / np.median(ours)), float(min(theirs / ours)), float(max(theirs / ours))
        work = f"{name}, n={TOKENS}, d={DIM}, {LAYERS} layers, {velocities} velocities"
        rows.append(Row(work, float(np.median(ours)), {PEER: ratios}, {PEER: 1 / MOST}))
        CONSOLE.print(f"{work}: {np.median(ours):.3g} s, {1 / ratios[0]:.2f} times as long as attend alone")
    write("flow-fast" if FAST else "flow", rows, [], machine({"ours": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
