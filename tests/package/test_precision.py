"""64-bit by default, whichever is imported first, unless the user has said no."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
{first}
{second}
import numpy as np, measureformer as mf
mu = mf.Discrete.uniform(np.eye(2))
G = mf.Attention.head(np.eye(2), np.eye(2), np.eye(2))
single = mf.Discrete.uniform(np.eye(2, dtype=np.float32))
kept = mf.Identity()(single, np.zeros(2, np.float32)).dtype
print(mu.points.dtype, G(mu, [0, 1]).dtype, kept, jax.numpy.ones(1).dtype)
"""


def run(first: str, second: str, x64: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    if x64 is not None:
        environment["JAX_ENABLE_X64"] = x64
    program = PROGRAM.format(first=first, second=second)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["jax", "measureformer"])
def test_double_precision_whichever_comes_first(first: str) -> None:
    second = "measureformer" if first == "jax" else "jax"
    assert run(f"import {first}", f"import {second}", None) == "float64 float64 float32 float64"


def test_the_users_choice_is_respected() -> None:
    assert run("import measureformer", "import jax", "0") == "float32 float32 float32 float32"
