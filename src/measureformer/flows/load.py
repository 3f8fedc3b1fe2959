"""`load_flow`: a trajectory from the folder in which `flow` has saved it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from measureformer.errors import MeasureformerError, SavedRunError
from measureformer.flows.flow import Trajectory, checked_layers
from measureformer.flows.integrate import Settings
from measureformer.flows.saved import Folder
from measureformer.flows.schedule import checked_times, planned
from measureformer.numerics.arrays import cast, on_device
from measureformer.storage.fingerprint import fingerprint


def load_flow(folder: Any, velocity: Any = None) -> Trajectory:
    """The trajectory that `mf.flow(…, save=folder)` has written: all of it, or the times that a run has reached so far.

    Files hold points, not code: `map`, times in between and `log_density` need the velocity, which is passed again and
    refused if it is not the one that the flow was made with.

    >>> import tempfile, measureformer as mf
    >>> G, mu = mf.Linear([[1.0]]), mf.Discrete.dirac([1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     traj = mf.flow(G, mu, [0.0, 1.0], save=folder)
    ...     mf.flows.load_flow(folder).measures[-1].same_as(traj.measures[-1])
    True
    """
    saved = Folder.at(folder)
    if saved is None:
        raise SavedRunError(
            got=f"{Path(folder)}, in which there is no flow.json",
            need="a folder that mf.flow has written",
            do="Pass what was passed as save.",
        )
    about, initial, reached = saved.about, saved.initial(), saved.reached()
    if reached == 0:
        raise SavedRunError(
            got=f"{saved.path}, a run that has not come to its second time yet",
            need="points at two times",
            do="Wait, or pass the folder to mf.flow as save to go on.",
        )
    try:
        plan = planned(checked_times(about["times"]), about["layers"], about["steps"]).cut(reached)
    except (MeasureformerError, ArithmeticError) as error:
        raise SavedRunError(
            got=f"{saved.path}, whose flow.json is of no flow ({error})",
            need="a folder that mf.flow has written",
            do="Run the flow again, into a new folder.",
        ) from error
    layers = None
    if velocity is not None:
        layers = cast(checked_layers(velocity, initial), initial.points.dtype)
        if fingerprint(layers) != about["velocity"]:
            raise saved.other("velocity")
    parts = saved.points(reached, initial.points.shape, initial.points.dtype)
    points = on_device(np.concatenate([np.asarray(initial.points)[None], *parts]))
    tolerances = (None if about.get(name) is None else np.asarray(about[name]) for name in ("rtol", "atol", "tol"))
    error = None if about.get("tol") is None else saved.error()
    return Trajectory(layers, initial, points, plan, Settings(about["solver"], *tolerances), error)
