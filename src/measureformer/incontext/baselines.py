"""Baselines: classical learners, and the closed forms of their errors.

A baseline takes `Prompts` and returns predictions (b, n): in column i the answer to queries[:, i] after the first i
examples. A baseline with settings is returned by a function of the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError, need
from measureformer.incontext.tasks import Prompts
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key
from measureformer.training.loop import started, updated
from measureformer.training.optimization import Optimization

Baseline = Callable[[Prompts], np.ndarray]
Step = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Examples x (b, k, d), y (b, k), and questions (b, d) ↦ answers (b,), for k ≥ 1."""


def _prefixes(prompts: Prompts, step: Step, counts: Iterable[int] | None = None) -> Float[np.ndarray, "b n"]:
    """The answers after 0, 1, 2, … examples, 0 after none; with `counts`, only after that many, 0 elsewhere."""
    x, y, queries = (np.asarray(entry, float) for entry in (prompts.x, prompts.y, prompts.queries))
    found = np.zeros(y.shape)
    for k in range(1, y.shape[1]) if counts is None else counts:
        found[:, k] = step(x[:, :k], y[:, :k], queries[:, k])
    return found


@checked
def zero(prompts: Prompts) -> Float[np.ndarray, "b n"]:
    """Predict 0, with error 1.

    Arguments:
        prompts: the prompts.

    >>> import jax, measureformer as mf
    >>> float(abs(mf.incontext.baselines.zero(mf.incontext.tasks.linear(2).sample(jax.random.key(0), 1, 3))).max())
    0.0
    """
    return np.zeros(np.shape(prompts.y))


@checked
def least_squares(prompts: Prompts) -> Float[np.ndarray, "b n"]:
    """Minimum-norm least squares.

    Arguments:
        prompts: the prompts.

    Statement   for y = ⟨w, x⟩, x and w standard normal in R^d: error 1 − k/d for k ≤ d examples, 0 after
    Ref         garg2022, Section 3.

    >>> import jax, numpy as np, measureformer as mf
    >>> prompts = mf.incontext.tasks.linear(2).sample(jax.random.key(0), 3, 4)
    >>> bool(np.allclose(mf.incontext.baselines.least_squares(prompts)[:, 2:], prompts.y[:, 2:]))
    True
    """
    return _prefixes(prompts, lambda x, y, q: np.einsum("bd,bdk,bk->b", q, np.linalg.pinv(x), y))


@checked
def ridge(penalty: float) -> Baseline:
    """Ridge regression. With penalty σ² it is the Bayes predictor of y = ⟨w, x⟩ + σ·noise with w ~ N(0, I).

    Arguments:
        penalty: factor of |w|² in Σ (⟨w, x_i⟩ − y_i)² + penalty·|w|², > 0.

    Ref         garg2022.

    >>> import jax, measureformer as mf
    >>> mf.incontext.baselines.ridge(1.0)(mf.incontext.tasks.linear(2).sample(jax.random.key(0), 3, 4)).shape
    (3, 4)
    """
    if not penalty > 0:
        raise OptionError(got=f"penalty = {penalty}", need="a positive number", do="Use least_squares for 0.")

    def step(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
        gram = np.einsum("bki,bkj->bij", x, x) + penalty * np.eye(x.shape[2])
        return np.einsum("bd,bd->b", q, np.linalg.solve(gram, np.einsum("bki,bk->bi", x, y)[..., None])[..., 0])

    return partial(_prefixes, step=step)


@checked
def averaging(prompts: Prompts) -> Float[np.ndarray, "b n"]:
    """ŷ = ⟨w, x⟩ with w the mean of y_i x_i.

    Arguments:
        prompts: the prompts.

    Statement   for y = ⟨w, x⟩, standard normal: error (d + 1)/k, more than that of 0 for k ≤ d
    Ref         garg2022, Section 3.

    >>> import jax, measureformer as mf
    >>> mf.incontext.baselines.averaging(mf.incontext.tasks.linear(2).sample(jax.random.key(0), 3, 4)).shape
    (3, 4)
    """
    return _prefixes(prompts, lambda x, y, q: np.einsum("bd,bkd,bk->b", q, x, y) / x.shape[1])


@checked
def nearest(neighbours: int = 3) -> Baseline:
    """The mean label of the nearest examples.

    Arguments:
        neighbours: number of nearest examples.

    Ref         garg2022, Section 3.

    >>> import jax, measureformer as mf
    >>> mf.incontext.baselines.nearest(3)(mf.incontext.tasks.linear(2).sample(jax.random.key(0), 3, 4)).shape
    (3, 4)
    """
    most = positive_int(neighbours, "neighbours")

    def step(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
        distances = ((x - q[:, None]) ** 2).sum(axis=2)
        closest = np.argsort(distances, axis=1, kind="stable")[:, :most]
        return np.take_along_axis(y, closest, axis=1).mean(axis=1)

    return partial(_prefixes, step=step)


def _fitted(make: Callable[[], Any]) -> Step:
    """One regressor of scikit-learn for each prompt."""

    def step(x: np.ndarray, y: np.ndarray, q: np.ndarray) -> np.ndarray:
        return np.array([float(make().fit(x[i], y[i]).predict(q[i][None])[0]) for i in range(len(x))])

    return step


@checked
def lasso(alpha: float = 0.01, counts: Sequence[int] | None = None) -> Baseline:
    """The Lasso of scikit-learn, which minimises (1/2k)|Xw − y|² + α|w|_1: for sparse functions.

    Arguments:
        alpha: the penalty α.
        counts: numbers of examples after which it answers, 0 elsewhere; all of them if omitted.

    Ref         garg2022, Section 4.

    >>> import jax, measureformer as mf
    >>> mf.incontext.baselines.lasso()(mf.incontext.tasks.sparse(3, nonzero=1).sample(jax.random.key(0), 2, 4)).shape
    (2, 4)
    """
    need("sklearn", "atlas")
    from sklearn.linear_model import Lasso

    # a loose tolerance: a duality gap that stays open would only warn
    make = lambda: Lasso(alpha=alpha, fit_intercept=False, max_iter=10_000, tol=1e-3)  # noqa: E731
    return partial(_prefixes, step=_fitted(make), counts=counts)


@checked
def greedy_tree(depth: int | None = None) -> Baseline:
    """A regression tree of scikit-learn, grown greedily.

    Arguments:
        depth: largest depth; unbounded if omitted.

    Ref         garg2022, Section 5.

    >>> import jax, measureformer as mf
    >>> mf.incontext.baselines.greedy_tree(2)(mf.incontext.tasks.tree(3, depth=2).sample(jax.random.key(0), 2, 4)).shape
    (2, 4)
    """
    need("sklearn", "atlas")
    from sklearn.tree import DecisionTreeRegressor

    return partial(_prefixes, step=_fitted(lambda: DecisionTreeRegressor(max_depth=depth, random_state=0)))


@checked
def boosting(rounds: int = 50, *, depth: int = 4, rate: float = 0.1) -> Baseline:
    """Gradient boosting of trees, by scikit-learn.

    Arguments:
        rounds: number of trees.
        depth: largest depth of each tree.
        rate: factor of each tree.

    Ref         garg2022, Section 5.

    >>> import jax, measureformer as mf
    >>> fit = mf.incontext.baselines.boosting(3)
    >>> fit(mf.incontext.tasks.tree(3, depth=2).sample(jax.random.key(0), 2, 4)).shape
    (2, 4)
    """
    need("sklearn", "atlas")
    from sklearn.ensemble import GradientBoostingRegressor

    make = lambda: GradientBoostingRegressor(  # noqa: E731
        n_estimators=rounds, max_depth=depth, learning_rate=rate, random_state=0
    )
    return partial(_prefixes, step=_fitted(make))


@checked
def network(key: Key, *, width: int = 100, rate: float = 5e-3, steps: int = 100) -> Baseline:
    """A two-layer ReLU network, trained by Adam on the examples of each prompt.

    Arguments:
        key: randomness of the initial weights.
        width: hidden units.
        rate: learning rate.
        steps: updates for each prefix of each prompt.

    Ref         garg2022, Section 5.

    >>> import jax, measureformer as mf
    >>> fit = mf.incontext.baselines.network(jax.random.key(0), width=8, steps=5)
    >>> fit(mf.incontext.tasks.net(3, width=4).sample(jax.random.key(0), 2, 4)).shape
    (2, 4)
    """
    key, width = prng_key(key), positive_int(width, "width")
    settings = Optimization(steps=steps, rate=rate, clip=None, warmup=0.0, final=1.0)

    def predicted(prompts: Prompts) -> Float[np.ndarray, "b n"]:
        x, y, queries = (jnp.asarray(entry) for entry in (prompts.x, prompts.y, prompts.queries))
        found = _trained_networks(key, x, y, queries, width, settings)
        return np.asarray(found, float)

    return predicted


@eqx.filter_jit
def _trained_networks(key: Any, x: Array, y: Array, queries: Array, width: int, settings: Optimization) -> Array:
    inner, outer = jax.random.normal(key, (2, width, x.shape[2]), x.dtype)
    start = (inner * jnp.sqrt(2 / x.shape[2]).astype(x.dtype), outer[:, 0] / jnp.sqrt(width).astype(x.dtype))

    def value(weights: Any, rows: Array) -> Array:
        return jax.nn.relu(rows @ weights[0].T) @ weights[1]

    def after(x: Array, y: Array, query: Array, k: Array) -> Array:
        seen = jnp.arange(y.shape[0]) < k

        def loss(weights: Any, key: Any, step: Any) -> Array:
            return jnp.sum(jnp.where(seen, (value(weights, x) - y) ** 2, 0)) / jnp.maximum(k, 1)

        step = lambda _, state: updated(state, loss, settings, key)[0]  # noqa: E731
        trained = jax.lax.fori_loop(0, settings.steps, step, started(start, settings))
        return value(trained.weights, query[None])[0]

    counts = jnp.arange(y.shape[1])
    return jax.vmap(lambda x, y, q: jax.vmap(lambda q, k: after(x, y, q, k))(q, counts))(x, y, queries)


# --- closed forms ----------------------------------------------------------------------------------------------------


@checked
def least_squares_error(dim: int, examples: ArrayLike, *, noise: float = 0.0) -> np.ndarray:
    """Normalised error of minimum-norm least squares after k examples; with noise, infinite next to k = d.

    Arguments:
        dim: dimension d of the inputs.
        examples: numbers k of examples, of any shape.
        noise: standard deviation σ of the noise on labels.

    Statement   σ = 0: 1 − k/d for k ≤ d, 0 after.  σ > 0: 1 − k/d + σ²k/(d(d−k−1)) for k < d−1, σ²/(d(k−d−1))·d for
                k > d+1, and ∞ for k ≥ 1 in {d−1, d, d+1}: E|w|² = d, errors over d, without the noise of the question
    Ref         hastie2022; garg2022.

    >>> import measureformer as mf
    >>> mf.incontext.baselines.least_squares_error(4, [0, 2, 4, 6]).tolist()
    [1.0, 0.5, 0.0, 0.0]
    >>> mf.incontext.baselines.least_squares_error(4, [2, 4, 6], noise=1.0).tolist()
    [1.0, inf, 1.0]
    """
    d, k = positive_int(dim, "dim"), np.asarray(examples, float)
    bias = np.maximum(1 - k / d, 0)
    if noise == 0:
        return bias
    with np.errstate(divide="ignore", invalid="ignore"):
        few, many = noise**2 * k / (d * (d - k - 1)), noise**2 / (k - d - 1)
    # the mean of an inverse Wishart matrix: tr E (XᵀX)⁻¹ = d/(k − d − 1), over d after normalisation
    variance = np.where(k < d - 1, few, np.where(k > d + 1, many, np.inf))
    variance = np.where(k == 0, 0.0, variance)  # without examples the prediction is 0
    return bias + variance


@checked
def averaging_error(dim: int, examples: ArrayLike) -> np.ndarray:
    """Normalised error of `averaging` for standard normal inputs and weights, (d + 1)/k.

    Arguments:
        dim: dimension d of the inputs.
        examples: numbers k of examples, of any shape.

    Ref         garg2022.

    >>> import measureformer as mf
    >>> mf.incontext.baselines.averaging_error(20, [10, 20, 40]).tolist()
    [2.1, 1.05, 0.525]
    """
    with np.errstate(divide="ignore"):
        return (positive_int(dim, "dim") + 1) / np.asarray(examples, float)
