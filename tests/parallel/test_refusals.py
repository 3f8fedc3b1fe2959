"""Meshes, measures and workers that cannot be used are refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from typer.testing import CliRunner

import measureformer as mf
from measureformer.cli.app import app
from measureformer.errors import DtypeError, LaunchError, MeshError, OptionError, TracedError, WorkerLost
from measureformer.parallel.launch import COORDINATOR, COUNT, INDEX, launch
from measureformer.parallel.workers import _is_loss, _place, _state, collective

HEADS = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("heads", "batch"))
GOOD = Mesh(np.array(jax.devices()[:1]), ("tokens",))
MU = mf.Discrete.uniform([[0.0], [1.0], [2.0]])
SCRIPT = Path(__file__)

REFUSALS: dict[str, tuple[type[Exception], Any, str]] = {
    "axis": (
        MeshError,
        lambda: mf.Sharded(mesh=HEADS),
        "axes are 'heads', 'batch', and none is 'tokens'; need an axis",
    ),
    "named axis": (MeshError, lambda: mf.Sharded(mesh=GOOD, axis="rows"), "axes are 'tokens', and none is 'rows'"),
    "no mesh": (DtypeError, lambda: mf.Sharded(mesh=None), "mesh = None of type NoneType; need a jax.sharding.Mesh"),
    "no devices": (MeshError, lambda: mf.Sharded(mesh=Mesh(np.array([]), ("tokens",))), "without devices"),
    "no devices here": (
        MeshError,
        lambda: mf.attend(MU.points, MU.points, MU.points, method=mf.Sharded(mesh=AbstractMesh((1,), ("tokens",)))),
        "type AbstractMesh",
    ),
    "block": (OptionError, lambda: mf.Sharded(mesh=GOOD, block=(0, 1)), "block"),
    "measure: axis": (MeshError, lambda: mf.shard(MU, HEADS), "none is 'tokens'"),
    "measure: no atoms": (DtypeError, lambda: mf.shard(mf.Gaussian([0.0], [[1.0]]), GOOD), "Gaussian, which has no"),
    "measure: each": (OptionError, lambda: mf.shard(MU, GOOD, each="half"), "each = 'half'"),  # type: ignore[arg-type]
    "measure: traced": (TracedError, lambda: jax.jit(lambda mu: mf.shard(mu, GOOD))(MU), "shard on traced arrays"),
    "late": (LaunchError, lambda: mf.join_workers("127.0.0.1:1", 2, 0), "before anything is computed"),
    "no workers": (LaunchError, lambda: launch(SCRIPT, workers=0), "got 0 workers; need at least one"),
    "no script": (LaunchError, lambda: launch(SCRIPT / "no.py", workers=2), r"no\.py', which is not a file"),
    "nowhere": (LaunchError, lambda: mf.join_workers("no.such.host.invalid:1", 2, 0), "no way from here"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, message = REFUSALS[case]
    with pytest.raises(error, match=message):
        call()


PLACES: dict[str, tuple[dict[str, str], tuple[str, int, int] | str | None]] = {
    "alone": ({}, None),
    "launched": ({COORDINATOR: "127.0.0.1:80", COUNT: "3", INDEX: "2"}, ("127.0.0.1:80", 3, 2)),
    "by name": ({COORDINATOR: "node-0:80", COUNT: "1", INDEX: "0"}, ("node-0:80", 1, 0)),
    "incomplete": ({COORDINATOR: "node-0:80", COUNT: "1"}, f"no {INDEX} where others are set"),
    "no port": ({COORDINATOR: "node-0", COUNT: "1", INDEX: "0"}, "coordinator 'node-0'"),
    "too many": ({COORDINATOR: "node-0:80", COUNT: "2", INDEX: "2"}, "2 workers, this one number 2"),
    "not a number": ({COORDINATOR: "node-0:80", COUNT: "two", INDEX: "0"}, "two workers"),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_worker_finds_its_place(case: str) -> None:
    variables, expected = PLACES[case]
    if isinstance(expected, str):
        with pytest.raises(LaunchError, match=expected):
            _place(None, None, None, variables)
    else:
        assert _place(None, None, None, variables) == expected


def test_arguments_come_before_the_environment() -> None:
    variables = {COORDINATOR: "node-0:80", COUNT: "4", INDEX: "3"}
    assert _place("node-1:81", None, 2, variables) == ("node-1:81", 4, 2)


def test_only_broken_exchanges_become_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ValueError("UNKNOWN: Gloo collective permute failed: Connection reset by peer")
    # alone, nobody can be lost
    with pytest.raises(ValueError, match="Gloo"), collective():
        raise broken
    monkeypatch.setattr(_state, "count", 2)
    monkeypatch.setattr(_state, "lost", False)
    with pytest.raises(WorkerLost, match=r"broken exchange in worker 0 of 2 \(UNKNOWN: Gloo"), collective():
        raise broken
    assert _state.lost
    assert _is_loss(jax.errors.JaxRuntimeError("UNAVAILABLE: the peer has closed the connection"))
    # neither the words of a message, nor what the caller did, nor used-up memory
    for other in (
        ValueError("a bad value"),
        ValueError("gloo: connection reset by peer"),
        RuntimeError("UNKNOWN: heartbeat"),
        KeyError("gloo"),
        MeshError(got="a peer", need="gloo", do="heartbeat"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory in a gloo exchange"),
        jax.errors.JaxRuntimeError("INVALID_ARGUMENT: a heartbeat by peer"),
    ):
        assert not _is_loss(other)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["launch", "-n", "0", str(SCRIPT)], "measureformer: got 0 workers; need at least one"),
        (["launch", "nothing.py"], "measureformer: got the script 'nothing.py', which is not a file"),
    ],
)
def test_the_command_refuses(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, arguments, prog_name="measureformer", catch_exceptions=False)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_mesh_of_one_device_changes_nothing() -> None:
    spread = mf.shard(MU, GOOD)
    assert spread.same_as(MU)
    assert mf.gather(spread).same_as(MU)
    out = mf.attend(MU.points, MU.points, MU.points, method=mf.Sharded(mesh=GOOD))
    np.testing.assert_allclose(out.values, mf.attend(MU.points, MU.points, MU.points).values, atol=1e-15)
