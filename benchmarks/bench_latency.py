"""How long a user waits: imports, help, the first call and the second; `import jax` in the same run to compare with."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

TOUCH = "import measureformer as mf; mf.Discrete"
FIRST = """
import numpy as np, time, measureformer as mf
X = np.random.default_rng(0).normal(size=(1000, 8))
G, mu = mf.Attention.head(np.eye(8), np.eye(8), np.eye(8)), mf.Discrete.uniform(X)
start = time.perf_counter(); G(mu, X); first = time.perf_counter() - start
start = time.perf_counter(); G(mf.Discrete.uniform(X[:999]), X[:999]); second = time.perf_counter() - start
print(first, second)
"""
PROGRAM = str(Path(sys.executable).with_name("measureformer"))


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return time.perf_counter() - start


@pytest.mark.parametrize("line", ["pass", "import measureformer", TOUCH, "import jax"])
def test_imports(benchmark: object, line: str) -> None:
    benchmark.pedantic(seconds, ([sys.executable, "-c", line],), rounds=7, warmup_rounds=1)  # type: ignore[attr-defined]


def test_help(benchmark: object) -> None:
    benchmark.pedantic(seconds, ([PROGRAM, "--help"],), rounds=7, warmup_rounds=1)  # type: ignore[attr-defined]


def test_first_and_second_call(benchmark: object) -> None:
    def run() -> None:
        done = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True, timeout=120)
        first, second = map(float, done.stdout.split())
        benchmark.extra_info.update(first_call=first, second_call_other_n=second)  # type: ignore[attr-defined]
        print(f"\nfirst call {first:.3f} s, second call with another n {1e3 * second:.1f} ms")

    benchmark.pedantic(run, rounds=3)  # type: ignore[attr-defined]
