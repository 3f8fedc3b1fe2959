"""Models on disk: `model.json` holds the shape, `model.safetensors` the weights."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import jax
import numpy as np

from measureformer.errors import MeasureformerError
from measureformer.incontext.models import InContextModel
from measureformer.numerics.arrays import on_device
from measureformer.numerics.types import PathLike
from measureformer.storage.files import write_atomically
from measureformer.storage.folder import damaged, read_json, read_tensors
from measureformer.storage.safetensors import to_safetensors
from measureformer.training.architecture import Architecture


def write_model(folder: Path, model: InContextModel) -> None:
    """Write both files, each atomically."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    entries = {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}
    write_atomically(folder / "model.json", json.dumps(model.about(), indent=1).encode())
    write_atomically(folder / "model.safetensors", to_safetensors(entries))


def load_learner(folder: PathLike) -> InContextModel:
    """Load the model that `train_learner(…, save=folder)` saved.

    Arguments:
        folder: the folder of the training.

    >>> import jax, pathlib, tempfile, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(1), mf.Architecture(width=8, layers=1, heads=1)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 1, small, points=3)
    >>> optimization = mf.Optimization(steps=5, batch=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = mf.incontext.train_learner(
    ...         task, model, jax.random.key(1), points=3, optimization=optimization, save=folder
    ...     )
    ...     mf.incontext.load_learner(folder).parameters
    961
    """
    file = Path(folder) / "model.json"
    about = read_json(file)
    try:
        architecture = Architecture(**{entry.name: about[entry.name] for entry in fields(Architecture)})
        shell = InContextModel.random(
            jax.random.key(0), about["dim"], architecture, points=about["points"], reading=about["reading"]
        )
    except (KeyError, TypeError, MeasureformerError) as error:
        raise damaged(file, f"is not what training writes ({error})") from error
    tensors, _ = read_tensors(file.with_suffix(".safetensors"))
    leaves, structure = jax.tree_util.tree_flatten_with_path(shell)
    wanted = {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}
    for name, shape in wanted.items():
        if name not in tensors or tensors[name].shape != shape:
            found = tensors[name].shape if name in tensors else "nothing"
            raise damaged(file.with_suffix(".safetensors"), f"has {found} where {name} of shape {shape} should be")
    return jax.tree.unflatten(structure, [on_device(tensors[name]) for name in wanted])
