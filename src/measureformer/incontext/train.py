"""`train`: a model learns a task from fresh prompts, by the loop that all training here shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError, TrainingError
from measureformer.incontext.models import InContextModel
from measureformer.incontext.observe import observables
from measureformer.incontext.saved import write_model
from measureformer.incontext.tasks import AbstractTask, Curriculum, Task
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.storage.folder import Folder
from measureformer.training.devices import part_of
from measureformer.training.loop import Observer, Run, trained

Method = Literal["adam", "sgd", "momentum", "normalized", "sign"]
METHODS = ("adam", "sgd", "momentum", "normalized", "sign")


@dataclass(frozen=True)
class Training:
    """How to train: number of steps, prompts in each, and the optimiser.

    The rate grows linearly over the first `warmup` share of the steps, then falls as a cosine to a hundredth of `rate`;
    `constant` keeps it. `clip` bounds the norm of the gradient. Methods: "adam", "sgd", "momentum" (0.9), "normalized"
    (the gradient over its norm), "sign" (the signs of its entries).

    >>> import measureformer as mf
    >>> mf.incontext.Training(steps=100, rate=3e-3).method
    'adam'
    """

    steps: int = 4000
    batch: int = 64
    rate: float = 1e-3
    method: Method = "adam"
    clip: float | None = 1.0
    warmup: float = 0.1
    constant: bool = False

    def __post_init__(self) -> None:
        positive_int(self.steps, "steps")
        positive_int(self.batch, "batch")
        if self.method not in METHODS:
            raise OptionError(
                got=f"method = {self.method!r}", need=f"one of {', '.join(METHODS)}", do='Leave it out for "adam".'
            )
        for name, value in (("rate", self.rate), ("clip", 1.0 if self.clip is None else self.clip)):
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise OptionError(got=f"{name} = {value!r}", need="a positive number", do="Leave it out.")
        if not 0 <= self.warmup < 1:
            raise OptionError(got=f"warmup = {self.warmup!r}", need="a share of the steps, in [0, 1)", do="Try 0.1.")

    @property
    def tol(self) -> None:
        """Fresh data have no last loss: training takes all its steps."""
        return

    @property
    def optimizer(self) -> Any:
        import optax

        rate = self.rate if self.constant else self._rate_at
        clipped = optax.identity() if self.clip is None else optax.clip_by_global_norm(self.clip)
        return optax.chain(clipped, direction(self.method), optax.scale_by_learning_rate(rate))

    def _rate_at(self, step: Any) -> Array:
        """The rate of a step, as a branch: the compiler would compute its cosine again for every weight otherwise."""
        rise, least = int(self.warmup * self.steps), self.rate / 100
        length = max(self.steps - rise, 1)
        grow = lambda s: self.rate * s / max(rise, 1)  # noqa: E731
        fall = lambda s: (  # noqa: E731
            least + (self.rate - least) * 0.5 * (1 + jnp.cos(math.pi * jnp.minimum((s - rise) / length, 1)))
        )
        return jax.lax.cond(step < rise, grow, fall, jnp.asarray(step, jnp.float32))


def direction(method: Method) -> Any:
    """What an optimiser makes of the gradient, before the rate."""
    import optax

    return {
        "adam": optax.scale_by_adam,
        "sgd": optax.identity,
        "momentum": lambda: optax.trace(0.9),
        "normalized": optax.normalize_by_update_norm,
        "sign": optax.scale_by_sign,
    }[method]()


@dataclass(frozen=True)
class Trained:
    """A trained model, the loss before each step over the mean square of labels, and what was watched meanwhile."""

    model: InContextModel
    losses: Float[np.ndarray, " s"]
    records: dict[str, np.ndarray]
    """What `watch` saw, each with an entry per look: "step", "error", "sparsity", "norm", …; see `observables`."""


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
            assert isinstance(task, Task)  # see `train`
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


def train_learner(
    task: Any,
    model: Any,
    key: Any,
    *,
    points: int = 11,
    training: Training | None = None,
    curriculum: Curriculum | None = None,
    watch: int | None = None,
    save: Any = None,
) -> Trained:
    """The model after training on fresh prompts of `points` examples each, drawn from the task with `key`.

    What is minimised is the average over i of the loss of the prediction at x_i after i examples, for i < points; for
    a model that reads measures, over random numbers of examples and independent questions. With `watch`, the model is
    looked at every so many steps. With `save`, a folder, the state is kept there, and the same call goes on from it,
    whatever ended it, with the same bits on as many devices (see `mf.use_cores`); the model lies there at the end, for
    `load`.

    Statement   min_θ E (1/n) Σ_{i<n} loss(M_θ(x_1, f(x_1), …, x_i, f(x_i), x_{i+1}), f(x_{i+1}))
    Cost        about 6 · parameters · tokens · batch operations for each step.
    Ref         garg2022, Section 2.

    >>> import jax, measureformer as mf
    >>> task, small = mf.incontext.tasks.linear(1), mf.incontext.Architecture(width=8, layers=1, heads=1)
    >>> model = mf.incontext.InContextModel.random(jax.random.key(0), 1, small, points=3)
    >>> training = mf.incontext.Training(steps=5, batch=8)
    >>> found = mf.incontext.train_learner(task, model, jax.random.key(1), points=3, training=training)
    >>> found.losses.shape
    (5,)
    """
    training = Training() if training is None else training
    points = _checked(task, model, points, curriculum)
    objective = InContextLoss(task, curriculum, training.batch, points)
    about = {
        "model": model.about(),
        "task": described(task),
        "points": points,
        "curriculum": described(curriculum),
        "training": asdict(training),
        "watch": watch,
    }
    observer = None
    if watch is not None:
        every = positive_int(watch, "watch")
        prompts = task.sample(jax.random.fold_in(prng_key(key), 2**31 - 1), 64, points, dtype=model.read_in.dtype)
        observer = Observer(lambda weights: observables(weights, prompts, task), every)
    # after everything that can be refused: a folder of a training that cannot be would be in the way of one that can
    folder = None if save is None else Folder.at(save, about, [key, *jax.tree.leaves((model, task)), *_seen(task)])
    run = trained(model, objective, training, prng_key(key), folder=folder, observer=observer, last=False)
    if folder is not None:
        write_model(folder.path, run.good if run.failed else run.weights)
    if run.failed:
        raise not_finite(run, folder)
    return Trained(run.weights, run.losses, run.records)


def _seen(task: AbstractTask) -> list[np.ndarray]:
    """What a task draws with a key of its own: functions of one name can differ in what they have captured.

    Rounded, since the last digits are those of a processor.
    """
    drawn = task.sample(jax.random.key(0), 2, 8)
    return [np.round(np.asarray(leaf, float), 4) + 0.0 for leaf in (drawn.x, drawn.y)]


def not_finite(run: Run, folder: Folder | None) -> TrainingError:
    where = "`error.last` holds the last model with a finite loss"
    kept = "" if folder is None else f"; {folder.path} keeps it too"
    return TrainingError(
        got=f"a loss that is not finite at step {run.done}",
        need="finite losses",
        do=f"Take a smaller rate; {where}{kept}.",
        last=run.good,
    )


def _checked(task: Any, model: Any, points: int, curriculum: Any) -> int:
    points = positive_int(points, "points")
    for name, given, kind in (("task", task, AbstractTask), ("model", model, InContextModel)):
        if not isinstance(given, kind):
            raise DtypeError(
                got=f"a {name} of type {type(given).__name__}",
                need=f"a {kind.__name__}",
                do="Pass mf.incontext.tasks.linear(5) and mf.incontext.InContextModel.random(key, 5, points=11), say.",
            )
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
    """A task or a plan as JSON: types, functions and numbers by name, so that two of them can be compared."""
    if isinstance(thing, (jax.Array, np.ndarray)):
        return np.asarray(thing).tolist() if thing.size <= 16 else f"array of shape {thing.shape}"
    if is_dataclass(thing) and not isinstance(thing, type):
        entries = {field.name: described(getattr(thing, field.name)) for field in fields(thing)}
        return {"kind": type(thing).__qualname__, **entries}
    if callable(thing):
        return f"{thing.__module__}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    return list(thing) if isinstance(thing, tuple) else thing
