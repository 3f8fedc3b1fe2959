"""`error_curve`, `epsilon`: how well a model learns in context, with bootstrap confidence intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, NotFiniteError, OptionError
from measureformer.incontext.models import InContextModel
from measureformer.incontext.observe import errors_of
from measureformer.incontext.tasks import AbstractTask, Prompts
from measureformer.incontext.train import check_points
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator, two_keys
from measureformer.numerics.types import ArrayLike, Key

Learner = InContextModel | Callable[[Prompts], ArrayLike]
RESAMPLES = 1000
"""Of the bootstrap."""


@dataclass(frozen=True)
class Curve:
    """Normalised error after 0, 1, 2, … examples, with the ends of a bootstrap confidence interval.

    An entry is NaN if the model makes no prediction: for a model that reads measures, before the first example.
    """

    examples: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Estimate:
    """A number estimated from samples, with a confidence interval."""

    value: float
    low: float
    high: float


@checked
def error_curve(
    model: Learner, task: AbstractTask, key: Key, *, points: int = 11, prompts: int = 1280, confidence: float = 0.9
) -> Curve:
    """Error of a model or baseline after i examples of fresh prompts, for i = 0, …, points − 1.

    The error is the mean square error over the mean square of noise-free labels, so predicting 0 has error 1; for
    classification, the share of wrong signs, where 0 counts as wrong. The interval is a bootstrap over prompts.

    Arguments:
        model: an `InContextModel`, or a function from `Prompts` to predictions (b, n), as in `baselines`.
        task: the task of the prompts.
        key: randomness of the prompts and the bootstrap.
        points: examples in each prompt.
        prompts: number of prompts.
        confidence: probability that the interval aims to cover, in (0, 1).

    Ref         garg2022, Section 3.

    >>> import jax, numpy as np, measureformer as mf
    >>> task = mf.incontext.tasks.linear(4)
    >>> curve = mf.incontext.error_curve(
    ...     mf.incontext.baselines.least_squares, task, jax.random.key(0), points=6, prompts=2000
    ... )
    >>> bool(np.allclose(curve.error, [1, 0.75, 0.5, 0.25, 0, 0], atol=0.1))
    True
    """
    errors, rng = _errors(model, task, key, points, prompts, confidence)
    low, high = _bootstrap(errors, rng, confidence)
    value = errors.mean(axis=0)
    return Curve(np.arange(points, dtype=float), value, low, high)


@checked
def epsilon(
    model: Learner, task: AbstractTask, key: Key, *, examples: int = 10, prompts: int = 1280, confidence: float = 0.9
) -> Estimate:
    """The ε up to which a model learns a task in context, with a confidence interval.

    Arguments:
        model: an `InContextModel` or a baseline, as in `error_curve`.
        task: the task of the prompts.
        key: randomness of the prompts and the bootstrap.
        examples: number k of examples before the question.
        prompts: number of prompts.
        confidence: probability that the interval aims to cover, in (0, 1).

    Statement   E loss(M(x_1, f(x_1), …, x_k, f(x_k), x), f(x)) ≤ ε,  f ~ D_F and x, x_i ~ D_X; loss as in `error_curve`
    Ref         garg2022, Section 2.

    >>> import jax, measureformer as mf
    >>> task = mf.incontext.tasks.linear(4)
    >>> found = mf.incontext.epsilon(mf.incontext.baselines.zero, task, jax.random.key(0), examples=2)
    >>> found.low < 1 < found.high
    True
    """
    points = positive_int(examples, "examples") + 1
    curve = error_curve(model, task, key, points=points, prompts=prompts, confidence=confidence)
    return Estimate(float(curve.error[-1]), float(curve.low[-1]), float(curve.high[-1]))


def _errors(
    model: Learner, task: AbstractTask, key: Key, points: int, prompts: int, confidence: float
) -> tuple[np.ndarray, np.random.Generator]:
    if not 0 < confidence < 1:
        raise OptionError(got=f"confidence = {confidence}", need="a number between 0 and 1", do="Take 0.9.")
    of_prompts, of_bootstrap = two_keys(key)
    points = positive_int(points, "points")
    if not isinstance(model, InContextModel):
        drawn = task.sample(of_prompts, prompts, points)
        found = np.asarray(model(drawn))
        if found.shape != drawn.y.shape:
            raise DimensionMismatchError(
                got=f"predictions of shape {found.shape} for labels of shape {drawn.y.shape}",
                need="a prediction after every number of examples",
                do="Give the prediction at queries[:, i] after examples 0, …, i − 1 in column i.",
            )
        return errors_of(found, np.asarray(drawn.answers), task), generator(of_bootstrap)
    if model.dim != task.dim:
        raise DimensionMismatchError(
            got=f"a task in R^{task.dim} and a model for R^{model.dim}", need="one dimension", do="Change one of them."
        )
    check_points(model, points)
    drawn = task.sample(of_prompts, prompts, points, dtype=model.read_in.dtype)
    errors = np.array(_model_errors(model, drawn, drawn.asks_others, task), float)
    if not np.isfinite(errors).all():
        raise NotFiniteError(got="a prediction that is not finite", need="finite ones", do="Train with a smaller rate.")
    if model.reading == "measure":
        errors[:, 0] = np.nan
    return errors, generator(of_bootstrap)


@eqx.filter_jit
def _model_errors(model: InContextModel, drawn: Prompts, asks_others: bool, task: AbstractTask) -> Array:
    found = model.answers(drawn.x, drawn.y, drawn.queries) if asks_others else model.predictions(drawn.x, drawn.y)
    return errors_of(found, drawn.answers, task)


def _bootstrap(errors: np.ndarray, rng: np.random.Generator, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of the mean over prompts; multinomial counts are draws with replacement."""
    n = len(errors)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    means = counts @ errors / n
    tail = 50 * (1 - confidence)
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high
