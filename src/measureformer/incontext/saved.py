"""Models on disk: `model.json` says what it is, `model.safetensors` holds its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from measureformer.errors import MeasureformerError
from measureformer.incontext.blocks import Architecture
from measureformer.incontext.models import InContextModel
from measureformer.numerics.arrays import on_device
from measureformer.storage.files import write_atomically
from measureformer.storage.folder import DO, damaged, read_json, read_tensors
from measureformer.storage.safetensors import to_safetensors


def write_model(folder: Path, model: InContextModel) -> None:
    """Both files, each whole or not there."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    entries = {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}
    write_atomically(folder / "model.json", json.dumps(model.about(), indent=1).encode(), do=DO)
    write_atomically(folder / "model.safetensors", to_safetensors(entries), do=DO)


def load_learner(folder: Any) -> InContextModel:
    """The model that `train(…, save=folder)` left there.

    >>> import jax, pathlib, tempfile, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(1), mf.incontext.Architecture(width=8, layers=1, heads=1)
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
        names = ("width", "layers", "heads", "norm", "branch")
        architecture = Architecture(**{name: about[name] for name in names})
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
