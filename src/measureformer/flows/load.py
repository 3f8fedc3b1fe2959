"""`load_flow`: a trajectory from the folder in which `flow` has saved it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from measureformer.errors import MeasureformerError, SavedRunError
from measureformer.flows.particles import Trajectory
from measureformer.flows.saved import KINDS, read_initial, read_points, read_reached
from measureformer.flows.schedule import Schedule, checked_times, scheduled
from measureformer.flows.settings import Settings, settings_from
from measureformer.flows.velocity import Velocity, checked_layers
from measureformer.numerics.arrays import cast, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.folder import FORMAT, RunFolder, damaged

MOST_LAYERS = 10**6


@checked
def load_flow(folder: PathLike, velocity: Velocity | None = None) -> Trajectory:
    """The trajectory that `mf.flow(…, save=folder)` has written: the times that the run has reached so far.

    Arguments:
        folder: what was passed to `mf.flow` as `save`.
        velocity: the velocity of the flow, which `map`, `log_density` and times in between need: files hold points, not
            code. Any other velocity is refused.

    >>> import tempfile, measureformer as mf
    >>> G, mu = mf.Linear([[1.0]]), mf.Discrete.dirac([1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     traj = mf.flow(G, mu, [0.0, 1.0], save=folder)
    ...     mf.flows.load_flow(folder).measures[-1].same_as(traj.measures[-1])
    True
    """
    path = Path(folder)
    if not os.path.exists(path / "problem.json"):
        raise SavedRunError(
            got=f"{str(path)[:300]}, in which there is no problem.json",
            need="a folder that mf.flow has written",
            do="Pass what was passed as save.",
        )
    run, about = RunFolder.existing(path)
    schedule, settings = _described(path, about)
    reached, error = read_reached(run, len(schedule.times))
    if reached == 0:
        raise SavedRunError(
            got=f"{path}, a run that has not come to its second time yet",
            need="points at two times",
            do="Wait, or pass the folder to mf.flow as save to resume it.",
        )
    initial = read_initial(run, about["kind"])
    layers = None
    if velocity is not None:
        layers = cast(checked_layers(velocity), initial.points.dtype)
        if fingerprint(layers) != about["velocity"]:
            raise SavedRunError(
                got=f"{path}, which holds the flow of another velocity",
                need="the folder of the same flow",
                do="Pass the velocity of that flow, or leave it out.",
            )
    parts = read_points(run, reached, initial.points.shape, initial.points.dtype)
    points = on_device(np.concatenate([np.asarray(initial.points)[None], *parts]))
    return Trajectory(layers, initial, points, schedule.cut(reached), settings, None if settings.tol is None else error)


def _described(path: Path, about: dict[str, Any]) -> tuple[Schedule, Settings]:
    """When and how the flow was solved, from a JSON file that may be anybody's."""
    try:
        if about["format"] == FORMAT and about["kind"] in KINDS and 1 <= about["layers"] <= MOST_LAYERS:
            settings = settings_from(about)
            if settings is not None and (about["steps"] is None) == (about["control"] is not None):
                return scheduled(checked_times(about["times"]), about["layers"], about["steps"]), settings
    except (MeasureformerError, ArithmeticError, KeyError, TypeError, ValueError):
        pass
    raise damaged(path / "problem.json", f"is not that of a flow in the format {FORMAT}")
