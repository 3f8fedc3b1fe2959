"""Flows of measures that are spread over devices, or over processes: the answer of one device, and nobody collects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from launching import launched, run_program

# both sides round differently, and take the same steps; what they compute is of order 1
ROUNDING = 1e-12
Found = dict[str, Any]


@pytest.fixture(scope="module")
def inputs() -> Found:
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 1, 40)
    weights[:3] = 0.0
    return {"points": rng.normal(size=(40, 2)), "weights": weights, "times": np.array([0.0, 0.3, 0.5, 1.0])}


@pytest.fixture(scope="module")
def expected(inputs: Found) -> Found:
    mu = mf.Discrete.weighted(inputs["points"], inputs["weights"])
    layers = [mf.Attention.random(jax.random.key(i), mu.dim) for i in range(2)]
    return {
        "adaptive": mf.flow(layers, mu, inputs["times"]).points,
        "equal": mf.flow(layers, mu, inputs["times"], solver="rk4", steps=4).points,
    }


def compare(found: Found, expected: Found) -> None:
    for name, points in expected.items():
        np.testing.assert_allclose(found[name], points, rtol=0, atol=ROUNDING, err_msg=name)
    assert found["adaptive: pieces"]
    assert found["equal: pieces"]
    assert found["blow-up"] == "BlowUpError"


def test_three_devices_agree_with_one_and_nobody_collects(inputs: Found, expected: Found, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **inputs)
    run_program("flow.py", str(tmp_path), devices=3)
    found = dict(np.load(tmp_path / "found0.npz"))
    compare(found, expected)
    np.testing.assert_array_equal(found["saved"], found["adaptive"])
    assert found["saved: pieces"]
    assert found["compiled"] == 0
    # keys go round the ring; the largest error is one number. Kills: states that the compiler gathers between stages
    assert found["exchanges"].tolist() == ["collective-permute", "all-reduce"]


@pytest.mark.slow
def test_two_processes_agree_with_one(inputs: Found, expected: Found, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **inputs)
    with launched(tmp_path, "flow.py") as run:
        assert run.wait() == 0, run.err
    for worker in range(2):
        found = dict(np.load(tmp_path / f"found{worker}.npz"))
        compare(found, expected)
        assert "several machines; need a measure in one process" in str(found["save"])
