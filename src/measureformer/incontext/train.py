"""`train_learner`: a model learns a task from fresh prompts, by the shared training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError, TrainingError
from measureformer.incontext.models import InContextModel
from measureformer.incontext.observe import observables
from measureformer.incontext.saved import write_model
from measureformer.incontext.tasks import AbstractTask, Curriculum, Task
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key, PathLike
from measureformer.storage.folder import RunFolder
from measureformer.training.devices import part_of
from measureformer.training.loop import Observer, Run, trained
from measureformer.training.optimization import Optimization


@dataclass(frozen=True)
class Trained:
    """A trained model, the loss before each step over the mean square of labels, and what was recorded."""

    model: InContextModel
    losses: Float[np.ndarray, " s"]
    records: dict[str, np.ndarray]
    """With `watch`, one entry per look: "step", "error", "sparsity", "norm", …; see `observables`."""


class InContextLoss(eqx.Module):
    """The mean over fresh prompts, and over all numbers of examples, of the loss of a prediction."""

    task: AbstractTask
    curriculum: Curriculum | None
    batch: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __call__(self, model: InContextModel, key: Any, step: Any) -> Array:
        return self.part(model, key, step, 0, 1)

    def part(self, model: InContextModel, key: Any, step: Any, index: Any, count: int) -> Array:
        """The mean over part `index` of `count` of the prompts."""
        dtype, (of_prompts, of_sizes) = model.read_in.dtype, jax.random.split(key)
        length = self.points if model.reading == "sequence" else 2 * self.points
        draw: Callable[[Any], Any] = lambda k: self.task.prompt(k, length, dtype)  # noqa: E731
        shares = jnp.ones(self.points, dtype)
        if self.curriculum is not None:
            task, plan = self.task, self.curriculum
            assert isinstance(task, Task)  # see `train_learner`
            draw = lambda k: task.prompt(k, length, dtype, plan.size(plan.dims, step, task.dim))  # noqa: E731
            shares = (jnp.arange(self.points) < plan.size(plan.points, step, self.points)).astype(dtype)
        prompts = jax.vmap(draw)(part_of(jax.random.split(of_prompts, self.batch), index, count))
        if model.reading == "sequence":
            found, truth = model.predictions(prompts.x, prompts.y), prompts.y
        else:
            # one context of a random number of examples, at least one, and many questions about it
            n, shares = self.points, jnp.ones(self.points, dtype)
            most = n if self.curriculum is None else self.curriculum.size(self.curriculum.points, step, n)
            drawn = jax.random.randint(of_sizes, (self.batch, 1), 1, jnp.maximum(most, 2))
            seen = part_of(drawn, index, count)
            log_weights = jnp.where(jnp.arange(n) < seen, 0, -jnp.inf).astype(dtype)
            found = model.at(prompts.x[:, :n], prompts.y[:, :n], log_weights, prompts.x[:, n:])
            truth = prompts.y[:, n:]
        losses = (found - truth) ** 2 if self.task.loss == "square" else jax.nn.softplus(-truth * found)
        return jnp.sum(jnp.mean(losses, axis=0) * shares) / jnp.sum(shares) / self.task.scale.astype(dtype)


@checked
def train_learner(
    task: AbstractTask,
    model: InContextModel,
    key: Key,
    *,
    points: int = 11,
    optimization: Optimization | None = None,
    curriculum: Curriculum | None = None,
    watch: int | None = None,
    save: PathLike | None = None,
) -> Trained:
    """Train a model on fresh prompts of a task.

    The loss is averaged over the predictions at x_i after i examples, i < points; for a model that reads measures, over
    random numbers of examples and independent questions. An interrupted training resumes with the same bits on as many
    devices (see `mf.use_cores`).

    Arguments:
        task: the task.
        model: the model before training, in the dimension of the task.
        key: randomness of the prompts.
        points: examples in each prompt.
        optimization: how to train; 4000 steps of 64 prompts if omitted.
        curriculum: start with fewer dimensions and points; only for a `Task`.
        watch: record `observables` every this many steps.
        save: folder for the state; the same call resumes from it, and `load_learner` reads the trained model.

    Statement   min_θ E (1/n) Σ_{i<n} loss(M_θ(x_1, f(x_1), …, x_i, f(x_i), x_{i+1}), f(x_{i+1}))
    Cost        about 6 · parameters · tokens · batch operations for each step.
    Ref         garg2022, Section 2.

    >>> import jax, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(1), mf.Architecture(width=8, layers=1, heads=1)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 1, small, points=3)
    >>> optimization = mf.Optimization(steps=5, batch=8)
    >>> found = mf.incontext.train_learner(task, model, jax.random.key(1), points=3, optimization=optimization)
    >>> found.losses.shape
    (5,)
    """
    optimization = Optimization(steps=4000) if optimization is None else optimization
    points = _checked(task, model, points, curriculum)
    objective = InContextLoss(task, curriculum, optimization.batch, points)
    about = {
        "model": model.about(),
        "task": described(task),
        "points": points,
        "curriculum": described(curriculum),
        "training": asdict(optimization),
        "watch": watch,
    }
    observer = None
    if watch is not None:
        every = positive_int(watch, "watch")
        prompts = task.sample(jax.random.fold_in(prng_key(key), 2**31 - 1), 64, points, dtype=model.read_in.dtype)
        observer = Observer(lambda weights: observables(weights, prompts, task), every)
    # create the folder last, so that a rejected call leaves nothing behind
    with RunFolder.of(save, about, [key, *jax.tree.leaves((model, task)), *_seen(task)]) as folder:
        run = trained(model, objective, optimization, prng_key(key), folder=folder, observer=observer, last=False)
        if folder is not None:
            write_model(folder.path, run.good if run.failed else run.weights)
    if run.failed:
        raise not_finite(run, folder)
    return Trained(run.weights, run.losses, run.records)


def _seen(task: AbstractTask) -> list[np.ndarray]:
    """Prompts drawn with a fixed key: functions of one name can differ in their closures.

    Rounded, since the last digits depend on the processor.
    """
    drawn = task.sample(jax.random.key(0), 2, 8)
    return [np.round(np.asarray(leaf, float), 4) + 0.0 for leaf in (drawn.x, drawn.y)]


def not_finite(run: Run, folder: RunFolder | None) -> TrainingError:
    where = "`error.last` holds the last model with a finite loss"
    kept = "" if folder is None else f"; {folder.path} keeps it too"
    return TrainingError(
        got=f"a loss that is not finite at step {run.done}",
        need="finite losses",
        do=f"Take a smaller rate; {where}{kept}.",
        last=run.good,
    )


def _checked(task: AbstractTask, model: InContextModel, points: int, curriculum: Curriculum | None) -> int:
    points = positive_int(points, "points")
    if task.dim != model.dim:
        raise DimensionMismatchError(
            got=f"a task in R^{task.dim} and a model for R^{model.dim}", need="one dimension", do="Change one of them."
        )
    check_points(model, points)
    if curriculum is not None and not isinstance(task, Task):
        raise OptionError(
            got=f"a curriculum for a {type(task).__name__}", need="a Task, whose inputs can be cut", do="Leave it out."
        )
    return points


def check_points(model: InContextModel, points: int) -> None:
    """Refuse more examples than a model with positions can read."""
    if model.positions is not None and model.positions.shape[0] < 2 * points:
        raise DimensionMismatchError(
            got=f"{points} points, and positions for {model.positions.shape[0] // 2}",
            need="a position for every token",
            do="Make the model with points=…, or without positions, or as a measure.",
        )


def described(thing: Any) -> Any:
    """A task or a curriculum as JSON, with types and functions by name, so that two can be compared."""
    if isinstance(thing, (jax.Array, np.ndarray)):
        return np.asarray(thing).tolist() if thing.size <= 16 else f"array of shape {thing.shape}"
    if is_dataclass(thing) and not isinstance(thing, type):
        entries = {field.name: described(getattr(thing, field.name)) for field in fields(thing)}
        return {"kind": type(thing).__qualname__, **entries}
    if callable(thing):
        return f"{thing.__module__}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    return list(thing) if isinstance(thing, tuple) else thing
