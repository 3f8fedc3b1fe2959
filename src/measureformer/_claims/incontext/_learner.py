"""Transformers trained for claims: each is trained once in a process, whichever claim asks first."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer.incontext import Architecture, InContextModel, Trained, Training, observables
from measureformer.incontext._train import InContextLoss
from measureformer.incontext.models import Reading
from measureformer.incontext.tasks import Prompts, Task
from measureformer.training.loop import Observer, trained


@dataclass(frozen=True)
class Learner:
    """A small model and its training."""

    dim: int = 1
    points: int = 5
    width: int = 16
    layers: int = 1
    heads: int = 2
    steps: int = 400
    batch: int = 64
    rate: float = 1e-2
    reading: Reading = "measure"
    looks: int = 4
    """How often it is looked at during training."""

    def plain(self, **changes: Any) -> Learner:
        """Without what a claim has added: claims that ask for the same learner get the same."""
        return Learner(**{field.name: getattr(self, field.name) for field in fields(Learner)} | changes)


class Blended(eqx.Module):
    """y_i = ⟨w_i, x_i⟩ with w_i = w for blend 0, and w_i independent of each other for blend 1."""

    blend: Any

    def __call__(self, key: Any, x: Any) -> Any:
        w = jax.random.normal(key, (x.shape[0] + 1, x.shape[1]), x.dtype)
        return jnp.sum(x * jnp.where(self.blend > 0, w[1:], w[0]), axis=1)


def task(dim: int, *, blend: float = 0.0) -> Task:
    """Linear functions; blended ones share the compiled program."""
    return Task(dim, Blended(np.asarray(blend)), scale=float(dim))


def prompts(key: Any, learner: Learner, count: int, points: int | None = None) -> Prompts:
    """Fresh prompts of linear functions, drawn without compiling anything."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    x = rng.normal(size=(count, learner.points if points is None else points, learner.dim)).astype(np.float32)
    y = np.einsum("bnd,bd->bn", x, rng.normal(size=(count, learner.dim))).astype(np.float32)
    return Prompts(x, y, x, y)


def start(key: Any, learner: Learner) -> InContextModel:
    """The model before training."""
    architecture = Architecture(learner.width, learner.layers, learner.heads)
    positions = learner.points if learner.reading == "sequence" else None
    return InContextModel.random(
        jax.random.fold_in(key, 1), learner.dim, architecture, points=positions, reading=learner.reading
    )


def learned(key: Any, learner: Learner, *, blend: float = 0.0) -> Trained:
    """The model after training with this key, and what was seen meanwhile."""
    return _learned(tuple(int(word) for word in np.asarray(jax.random.key_data(key))), learner, blend)


@lru_cache(maxsize=8)
def _learned(words: tuple[int, ...], learner: Learner, blend: float) -> Trained:
    key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32))
    law, seen = task(learner.dim, blend=blend), prompts(key, learner, 64)
    training = Training(steps=learner.steps, batch=learner.batch, rate=learner.rate)
    look = lambda model: observables(model, seen, law, steepness=False)  # noqa: E731
    run = trained(
        start(key, learner),
        InContextLoss(law, None, learner.batch, learner.points),
        training,
        key,
        observer=Observer(look, max(learner.steps // learner.looks, 1)),
        last=False,
    )
    return Trained(run.weights, run.losses, run.records)
