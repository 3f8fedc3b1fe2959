"""Flows of a measure in pieces, by workers or alone on several devices; leaves what was found in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import measureformer as mf
from measureformer.flows import run as _run
from measureformer.flows import steps as _steps

folder = Path(sys.argv[1])
mesh = mf.join_workers()
given = dict(np.load(folder / "inputs.npz"))
mu = mf.Discrete.weighted(given["points"], given["weights"])
spread = mf.shard(mu, mesh)
layers = [mf.Attention.random(jax.random.key(i), mu.dim) for i in range(2)]
found: dict[str, Any] = {}
compiled: list[str] = []


def in_pieces(traj: Any) -> bool:
    states = [(traj.points, 1), *((nu.points, 0) for nu in traj.measures)]
    return all(a.sharding.spec[axis] == "tokens" and not a.is_fully_replicated for a, axis in states)


def listen(event: str, seconds: float, **details: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        compiled.append(event)


for name, options in (("adaptive", {}), ("equal", {"solver": "rk4", "steps": 4})):
    traj = mf.flow(layers, spread, given["times"], **options)
    found[f"{name}: pieces"] = in_pieces(traj)
    found[name] = np.stack([mf.gather(nu).points[: mu.n] for nu in traj.measures])
try:
    mf.flow(mf.Linear(1e4 * np.eye(mu.dim)), spread, [0.0, 1.0])
except mf.MeasureformerError as error:
    found["blow-up"] = type(error).__name__

if jax.process_count() == 1:
    whole = mf.flow(layers, spread, given["times"], save=folder / "run")
    found["saved"] = np.stack([mf.gather(nu).points[: mu.n] for nu in whole.measures])
    found["saved: pieces"] = in_pieces(whole)
    jax.monitoring.register_event_duration_secs_listener(listen)
    mf.flow(layers, mf.shard(mf.Discrete.uniform(given["points"][:-5]), mesh), given["times"] + 1)
    found["compiled"] = len(compiled)

    # what the devices exchange while a step is taken
    traj = mf.flow(layers, spread, [0.0, 1.0])
    run = _run.Run(traj.velocity, spread, traj.schedule, traj.settings, mesh)
    problem, stand = run.legs[0].problem, run.begin()
    with jax.set_mesh(mesh):
        program = _steps._advance.lower(problem, stand.state, np.asarray(0), run.times, np.asarray(8), mesh).compile()
    text = program.compiled.as_text()
    words = ("collective-permute", "all-gather", "all-to-all", "all-reduce", "reduce-scatter")
    found["exchanges"] = [word for word in words if f" {word}(" in text or f" {word}-start(" in text]
else:
    try:
        mf.flow(layers, spread, given["times"], save=folder / "run")
    except mf.MeasureformerError as error:
        found["save"] = str(error)
np.savez(folder / f"found{jax.process_index()}.npz", **found)
