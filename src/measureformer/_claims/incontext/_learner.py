"""Transformers trained for claims: each is trained once in a process, whichever claim asks first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer.incontext import Architecture, InContextModel, Trained, Training, train
from measureformer.incontext.models import Reading
from measureformer.incontext.tasks import Task


@dataclass(frozen=True)
class Learner:
    """A small model and its training."""

    dim: int = 1
    points: int = 5
    width: int = 16
    layers: int = 2
    heads: int = 1
    steps: int = 600
    batch: int = 64
    rate: float = 3e-3
    reading: Reading = "sequence"
    watch: int = 0


class Blended(eqx.Module):
    """y_i = ⟨w_i, x_i⟩ with w_i = w for blend 0, and w_i independent of each other for blend 1."""

    blend: Any

    def __call__(self, key: Any, x: Any) -> Any:
        common, each = jax.random.split(key)
        w = jax.random.normal(common, x.shape[-1:], x.dtype)
        others = jax.random.normal(each, x.shape, x.dtype)
        return jnp.sum(x * jnp.where(self.blend > 0, others, w), axis=1)


def task(dim: int, *, blend: float = 0.0) -> Task:
    """Linear functions; blended ones share the compiled program."""
    return Task(dim, Blended(jnp.asarray(blend)), scale=dim)


def start(key: Any, learner: Learner) -> InContextModel:
    """The model before training."""
    architecture = Architecture(learner.width, learner.layers, learner.heads)
    positions = learner.points if learner.reading == "sequence" else None
    return InContextModel.random(
        jax.random.fold_in(key, 1), learner.dim, architecture, points=positions, reading=learner.reading
    )


def learned(key: Any, learner: Learner, *, blend: float = 0.0) -> Trained:
    """The model after training with this key."""
    return _learned(tuple(int(word) for word in np.asarray(jax.random.key_data(key))), learner, blend)


@lru_cache(maxsize=8)
def _learned(words: tuple[int, ...], learner: Learner, blend: float) -> Trained:
    key = jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32))
    training = Training(steps=learner.steps, batch=learner.batch, rate=learner.rate)
    return train(
        task(learner.dim, blend=blend),
        start(key, learner),
        key,
        points=learner.points,
        training=training,
        watch=learner.watch or None,
    )
