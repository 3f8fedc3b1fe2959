"""What a small call costs beyond its arithmetic, and how long a user waits for the first one.

    .venv/bin/python benchmarks/latency.py           a minute; a table to benchmarks/results/latency.md
    .venv/bin/python benchmarks/latency.py --print   the same, printed only

Small calls are compared with the formula alone: softmax(XQᵀKXᵀ + log a)XVᵀ under a bare `jax.jit`, called with NumPy
arrays and waited for; `Discrete.uniform` with the same checks and the same copy in NumPy. Both sides take turns, and
the table shows medians. All times are those of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

import measureformer as mf

ROUNDS, CALLS = 60, 40
SIZES = 10, 30, 100
LIMITS = {"G(mu, x)": 2.0, "G.push(mu)": 2.0, "G.tokens(X)": 2.0, "Discrete.uniform(X)": 8.0}
WAITS = {
    "python": "pass",
    "import jax": "import jax",
    "import measureformer": "import measureformer",
    "touch mf.Discrete": "import measureformer as mf; mf.Discrete",
    "first G(mu, X), n = 1000, d = 8": "import numpy as np, measureformer as mf; I = np.eye(8); "
    "mf.Attention.head(I, I, I)(mf.Discrete.uniform(np.ones((1000, 8))), np.ones((1000, 8)))",
}
HELP = [str(Path(sys.executable).with_name("measureformer")), "--help"]


@jax.jit
def bare(Q: Any, K: Any, V: Any, X: Any, log_weights: Any) -> Any:
    return jax.nn.softmax((X @ Q.T) @ (X @ K.T).T + log_weights, axis=1) @ (X @ V.T)


@jax.jit
def bare_at(Q: Any, K: Any, V: Any, X: Any, log_weights: Any, x: Any) -> Any:
    return jax.nn.softmax((x @ Q.T) @ (X @ K.T).T + log_weights, axis=1) @ (X @ V.T)


def checked(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """What `Discrete.uniform` promises, in plain NumPy."""
    rows = np.array(X, dtype=float)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("not finite")
    return rows, np.full(len(rows), -np.log(len(rows)))


def pairs(n: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(ours, the formula alone) for every call."""
    rng = np.random.default_rng(n)
    Q, K, V, X, x = (rng.normal(size=shape) for shape in ((2, 2), (2, 2), (2, 2), (n, 2), (n, 2)))
    G, mu = mf.Attention.head(Q, K, V), mf.Discrete.uniform(X)
    layer, log_weights = jax.device_put((Q, K, V)), np.full(n, -np.log(n))

    def formula() -> Any:
        return bare(*layer, X, log_weights).block_until_ready()

    def formula_at() -> Any:
        return bare_at(*layer, X, log_weights, x).block_until_ready()

    np.testing.assert_allclose(G.tokens(X), formula(), atol=1e-12)
    return {
        "G(mu, x)": (lambda: G(mu, x), formula_at),
        "G.push(mu)": (lambda: G.push(mu).points, formula),
        "G.tokens(X)": (lambda: G.tokens(X), formula),
        "Discrete.uniform(X)": (lambda: mf.Discrete.uniform(X), lambda: checked(X)),
        "mf.attend(X, X, X)": (lambda: mf.attend(X, X, X).values, formula),
    }


def microseconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        run()
    return 1e6 * (time.process_time() - start) / CALLS


def compared(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float, float]:
    """Medians of both, and of the ratio of neighbouring rounds, which feels the load of the machine least."""
    ours(), theirs()
    found = [(microseconds(ours), microseconds(theirs)) for _ in range(ROUNDS)]
    return median(a for a, _ in found), median(b for _, b in found), median(a / b for a, b in found)


def small_calls() -> list[str]:
    lines = ["| call | n | µs | formula alone | ratio | limit |", "|---|---|---|---|---|---|"]
    for n in SIZES:
        for name, (ours, theirs) in pairs(n).items():
            a, b, ratio = compared(ours, theirs)
            limit = f"{LIMITS[name]:g}" if name in LIMITS else ""
            lines.append(f"| `{name}` | {n} | {a:.0f} | {b:.1f} | {ratio:.2f} | {limit} |")
    return lines


def seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def waits() -> list[str]:
    commands = {name: [sys.executable, "-c", line] for name, line in WAITS.items()} | {"measureformer --help": HELP}
    rows = [f"| `{name}` | {median(seconds(command) for _ in range(5)):.2f} |" for name, command in commands.items()]
    return ["| program | seconds |", "|---|---|", *rows]


if __name__ == "__main__":
    text = "\n".join(
        ["# Latency of small calls, d = 2, one head; times of the processor", "", *small_calls(), "", *waits(), ""]
    )
    print(text)
    if "--print" not in sys.argv:
        target = Path(__file__).parent / "results" / "latency.md"
        target.write_text(text, encoding="utf-8")
