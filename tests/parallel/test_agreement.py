"""Many devices, and many processes, give the answer of one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from launching import launched, run_program

Answers = dict[str, Any]
# both sides round differently; what they compute is of order 1
ROUNDING = 1e-13


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 9, 3), "k": (2, 33, 3), "v": (2, 33, 2), "log_weights": (33,), "points": (101, 3), "x": (5, 3)}
    made = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    made["log_weights"][1:20] = -np.inf
    made["weights"] = rng.uniform(0.1, 1, 101)
    made["query_times"], made["key_times"] = rng.uniform(0, 1, 9), rng.uniform(0, 1, 33)
    made["key_times"][0] = 0.0
    return made


@pytest.fixture(scope="module")
def expected(inputs: dict[str, np.ndarray]) -> Answers:
    """The same on one device, with the attention of the definition for what the ring computes."""
    seen = inputs["key_times"][None, :] <= inputs["query_times"][:, None]

    def attention(q: Any, k: Any, v: Any, log_weights: Any) -> tuple[Any, Any]:
        logits = jnp.where(seen, jnp.einsum("hmk,hnk->hmn", q, k) + log_weights, -jnp.inf)
        return jax.nn.softmax(logits) @ v, jax.nn.logsumexp(logits, axis=-1)

    def loss(*arrays: Any) -> Any:
        values, log_z = attention(*arrays)
        return jnp.sum(jnp.sin(values)) + jnp.sum(jnp.cos(log_z))

    arrays = [jnp.asarray(inputs[name]) for name in ("q", "k", "v", "log_weights")]
    gradient = jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*arrays)
    values, log_z = attention(*arrays)
    mu = mf.Discrete.weighted(inputs["points"], inputs["weights"])
    net = mf.Residual(mf.Attention.random(jax.random.key(0), 3))
    return {
        "values": values,
        "log_normalizer": log_z,
        **dict(zip(("dq", "dk", "dv", "dlog_weights"), gradient, strict=True)),
        "pushed": net.push(mu).points,
        "at queries": net(mu, inputs["x"]),
        "mean": mu.mean(),
    }


def compare(answers: Answers, expected: Answers) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(answers[name], value, rtol=0, atol=ROUNDING, err_msg=name)
    error = np.linalg.norm(answers["values"] - expected["values"], axis=-1)
    assert (error <= answers["bound"]).all()
    assert (answers["bound"] < 1e-11).all()
    assert answers["in pieces"]
    assert answers["sum of parts"]


def test_three_devices_agree_with_one(inputs: Answers, expected: Answers, tmp_path: Path) -> None:
    # three: a ring in which left and right differ, and that no bucket size divides
    np.savez(tmp_path / "inputs.npz", **inputs)
    run_program("compute.py", str(tmp_path), devices=3)
    answers = dict(np.load(tmp_path / "answers0.npz"))
    assert answers["devices"] == 3
    compare(answers, expected)


@pytest.mark.slow
def test_two_processes_agree_with_one(inputs: Answers, expected: Answers, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **inputs)
    with launched(tmp_path, "compute.py") as run:
        assert run.wait() == 0, run.err
    for worker in range(2):
        answers = dict(np.load(tmp_path / f"answers{worker}.npz"))
        assert answers["processes"] == answers["devices"] == 2
        compare(answers, expected)
        assert "several machines; need all atoms in one place. Take mf.gather(mu)" in str(answers["compact"])
        # one address for the exchanges, and in worker 0 one for the meeting; none is open to the network
        assert all(str(address).endswith("0100007F") for address in answers["listening"])
        assert len(answers["listening"]) == (2 - worker if sys.platform == "linux" else 0)
    # whatever the transport has to say does not stand between the results
    assert run.out == ""
