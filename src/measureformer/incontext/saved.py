"""Models on disk: `model.json` holds the shape, `model.safetensors` the weights."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import jax

from measureformer.errors import MeasureformerError
from measureformer.incontext.models import InContextModel
from measureformer.numerics.arrays import on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.files import write_atomically
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.folder import damaged, named_leaves, read_json, read_tensors
from measureformer.storage.safetensors import sealed
from measureformer.training.architecture import Architecture


def write_model(folder: Path, model: InContextModel) -> None:
    """Write both files, each atomically."""
    text = json.dumps(model.about(), indent=1)
    write_atomically(folder / "model.json", text.encode())
    write_atomically(folder / "model.safetensors", sealed(named_leaves(model), {"about": fingerprint(text)}))


@checked
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
    except (ArithmeticError, KeyError, TypeError, ValueError, MeasureformerError) as error:
        raise damaged(file, f"is not what training writes ({error})") from error
    wanted = named_leaves(shell)
    tensors, metadata = read_tensors(weights := file.with_suffix(".safetensors"), wanted, seal=True)
    if metadata.get("about") != fingerprint(file.read_text(encoding="utf-8")):
        raise damaged(weights, f"belongs to another model than {file.name}")
    return jax.tree.unflatten(jax.tree.structure(shell), [on_device(tensors[name]) for name in wanted])
