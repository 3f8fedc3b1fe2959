"""Transformers trained for claims: each is trained once in a process, whichever claim asks first."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer.atlas.toolkit import generator, once
from measureformer.incontext import InContextModel, observables
from measureformer.incontext.models import Reading
from measureformer.incontext.tasks import Prompts, Task
from measureformer.incontext.train import InContextLoss, Trained
from measureformer.training.architecture import Architecture
from measureformer.training.loop import Observer, trained
from measureformer.training.optimization import Optimization

Kind = Literal["linear", "tree"]
KINDS = ("linear", "tree")


@dataclass(frozen=True)
class Learner:
    """A small model and its training."""

    dim: int = 2
    points: int = 5
    width: int = 16
    layers: int = 1
    heads: int = 2
    steps: int = 800
    batch: int = 64
    rate: float = 1e-2
    reading: Reading = "measure"
    looks: int = 4
    """How often it is looked at during training."""
    kind: Kind = "linear"
    depth: int = 1
    """Of trees."""
    room: int = 0
    """Examples and question that a sequence has positions for, if that is more than in training."""

    def plain(self, **changes: Any) -> Learner:
        """Without what a claim has added: claims that ask for the same learner get the same."""
        return Learner(**{field.name: getattr(self, field.name) for field in fields(Learner)} | changes)


class Function(eqx.Module):
    """Linear functions and trees, of which blend 1 gives every example one of its own.

    Which one it is, is an argument of the program, so that claims share what is compiled.
    """

    kind: Any
    blend: Any
    depth: int = eqx.field(static=True)

    def __call__(self, key: Any, x: Any) -> Any:
        n, d = x.shape
        of_weights, of_choices, of_leaves = jax.random.split(key, 3)
        rows = jnp.where(self.blend > 0, jnp.arange(1, n + 1), 0)
        w = jax.random.normal(of_weights, (n + 1, d), x.dtype)[rows]
        choices = jax.random.randint(of_choices, (2**self.depth - 1,), 0, d)
        leaves = jax.random.normal(of_leaves, (n + 1, 2**self.depth), x.dtype)
        grown = leaves[rows, leaf(x, choices)]
        return jnp.where(self.kind == KINDS.index("tree"), grown, jnp.sum(x * w, axis=1))


def leaf(x: Any, choices: Any) -> Any:
    """In which leaf of a full binary tree the rows of x end: node i looks at the sign of coordinate choices[i]."""
    node, rows = 0 * x[:, 0].astype(int), np.arange(x.shape[0])
    for _ in range(len(choices).bit_length()):
        node = 2 * node + 1 + (x[rows, choices[node]] > 0)
    return node - len(choices)


def task(learner: Learner, *, blend: float = 0.0) -> Task:
    """What the learner is trained on; blended, every label is that of another function."""
    function = Function(np.asarray(KINDS.index(learner.kind)), np.asarray(blend), learner.depth)
    return Task(learner.dim, function, scale=float(learner.dim if learner.kind == "linear" else 1))


def prompts(key: Any, learner: Learner, count: int, points: int | None = None) -> Prompts:
    """Fresh prompts of the same law, drawn without compiling anything."""
    rng = generator(key)
    x = rng.normal(size=(count, learner.points if points is None else points, learner.dim)).astype(np.float32)
    w = rng.normal(size=(count, learner.dim))
    y = np.einsum("bnd,bd->bn", x, w)
    if learner.kind == "tree":
        choices = rng.integers(learner.dim, size=(count, 2**learner.depth - 1))
        leaves = rng.normal(size=(count, 2**learner.depth))
        y = np.stack([row[leaf(of, by)] for row, of, by in zip(leaves, x, choices, strict=True)])
    y = y.astype(np.float32)
    return Prompts(x, y, x, y)


def start(key: Any, learner: Learner) -> InContextModel:
    """The model before training."""
    architecture = Architecture(learner.width, learner.layers, learner.heads)
    positions = max(learner.points, learner.room) if learner.reading == "sequence" else None
    return InContextModel.random(
        jax.random.fold_in(key, 1), learner.dim, architecture, points=positions, reading=learner.reading
    )


@once
def learned(key: Any, learner: Learner, *, blend: float = 0.0) -> Trained:
    """The model after training with this key, and what was seen meanwhile."""
    law, seen = task(learner, blend=blend), prompts(key, learner, 64)
    optimization = Optimization(steps=learner.steps, batch=learner.batch, rate=learner.rate)
    look = lambda model: observables(model, seen, law, steepness=False)  # noqa: E731
    run = trained(
        start(key, learner),
        InContextLoss(law, None, learner.batch, learner.points),
        optimization,
        key,
        observer=Observer(look, max(learner.steps // learner.looks, 1)),
        last=False,
    )
    return Trained(run.weights, run.losses, run.records)
