"""`load_flow`: a trajectory from the folder in which `flow` has saved it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from measureformer.errors import MeasureformerError, SavedRunError
from measureformer.flows.particles import Trajectory
from measureformer.flows.saved import Folder
from measureformer.flows.schedule import checked_times, scheduled
from measureformer.flows.settings import settings_from
from measureformer.flows.velocity import Velocity, checked_layers
from measureformer.numerics.arrays import cast, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.fingerprint import fingerprint


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
            do="Wait, or pass the folder to mf.flow as save to resume it.",
        )
    try:
        schedule = scheduled(checked_times(about["times"]), about["layers"], about["steps"]).cut(reached)
    except (MeasureformerError, ArithmeticError) as error:
        raise SavedRunError(
            got=f"{saved.path}, whose flow.json is of no flow ({error})",
            need="a folder that mf.flow has written",
            do="Run the flow again, into a new folder.",
        ) from error
    layers = None
    if velocity is not None:
        layers = cast(checked_layers(velocity), initial.points.dtype)
        if fingerprint(layers) != about["velocity"]:
            raise saved.other("velocity")
    parts = saved.points(reached, initial.points.shape, initial.points.dtype)
    points = on_device(np.concatenate([np.asarray(initial.points)[None], *parts]))
    settings = settings_from(about)
    assert settings is not None  # `Folder.at` has refused everything else
    error = None if about.get("tol") is None else saved.error()
    return Trajectory(layers, initial, points, schedule, settings, error)
