"""What a flow costs beyond its velocities, and beside a loop of diffrax written by hand.

    make bench                                   all of it, about a quarter of an hour
    .venv/bin/python benchmarks/flow.py --fast   smaller sizes, one minute, to try it
    .venv/bin/python benchmarks/flow.py --loops  only the loops written by hand

50 layers of 20 000 tokens are compared with as many bare calls of `attend`. Euler's method has one velocity in each
layer, "tsit5" in equal steps has six, and one more at the start. The loops written by hand have the dense formula as
their field, and the same solver, tolerances and norm of errors; their seconds are those of the processor.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from compare import CONSOLE, Row, interleaved, machine, row, write

import measureformer as mf

FAST = "--fast" in sys.argv
TOKENS, DIM, LAYERS, ROUNDS = (4096, 16, 10, 3) if FAST else (20_000, 16, 50, 3)
MOST = 1.3
"""How many times as long a flow may take as its velocities alone."""
PEER = "attend alone"
LOOP = 1.2
"""How many times as long a flow may take as a loop written by hand."""


def by_hand(n: int, dim: int, steps: int | None) -> Row:
    """A flow of small clouds in float64 beside `diffeqsolve`: adaptive, or in equal steps."""
    import diffrax
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(1)
    points, (Q, K, V) = rng.normal(size=(n, dim)), rng.normal(size=(3, dim, dim)) / dim**0.5
    velocity, mu = mf.Attention.head(Q, K, -V @ V.T), mf.Discrete.uniform(points)
    adaptive = diffrax.PIDController(1e-6, 1e-6, norm=lambda y: jnp.max(jnp.abs(y)))

    def field(t: Any, x: Any, layer: Any) -> Any:
        Q, K, V = layer
        return jax.nn.softmax((x @ Q.T) @ (x @ K.T).T, axis=1) @ (x @ V.T)

    @jax.jit
    def loop(layer: Any, x: Any) -> Any:
        equal = None if steps is None else 1 / steps
        control: Any = adaptive if steps is None else diffrax.ConstantStepSize()
        term, solver = diffrax.ODETerm(field), diffrax.Tsit5()
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, equal, x, layer, stepsize_controller=control).ys

    layer = jax.device_put((Q, K, -V @ V.T))

    def ours() -> Any:
        return mf.flow(velocity, mu, [0.0, 1.0], solver="tsit5", steps=steps).points[-1].block_until_ready()

    def theirs() -> Any:
        return loop(layer, points)[-1].block_until_ready()

    np.testing.assert_allclose(ours(), theirs(), atol=1e-5)
    work = f"tsit5, {'adaptive' if steps is None else f'{steps} steps'}, n={n}, d={dim}, float64, beside a loop"
    return row(
        work, {"ours": ours, "diffrax by hand": theirs}, clock=time.process_time, bars={"diffrax by hand": 1 / LOOP}
    )


def loops() -> list[Row]:
    return [by_hand(n, dim, steps) for n, dim in ((100, 2), (1000, 16)) for steps in (None, 10)]


def main() -> None:
    about = machine({"ours": len(os.sched_getaffinity(0))})
    write("flow-loops", loops(), [], {**about, "clock of": "the processor"})
    if "--loops" in sys.argv:
        return
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
    write("flow-fast" if FAST else "flow", rows, [], about)


if __name__ == "__main__":
    main()
