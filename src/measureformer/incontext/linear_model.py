"""Linear attention with all entries free: its weights as gradient descent, its training, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError
from measureformer.incontext.train import not_finite
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import Residual
from measureformer.maps.transformer import Transformer
from measureformer.maps.variants import LinearAttention
from measureformer.numerics.arrays import floats, positive_int, prng_key, shaped
from measureformer.numerics.types import ArrayLike, Key
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization


class LinearModel(eqx.Module):
    """Layers of linear attention Z ← Z + P Z M Zᵀ Q Z/N on tokens (x, y), all entries of P and Q free.

    M removes the question, which no token sees. With P = diag(0, 1) and Q = −diag(A, 0) a layer is one step of descent
    with preconditioner A. Made by `random` or `descent`.

    Arguments:
        P: output matrices, (l, d + 1, d + 1).
        Q: query–key matrices, (l, d + 1, d + 1).
    """

    P: Float[Array, "l t t"]
    Q: Float[Array, "l t t"]

    @staticmethod
    def random(key: Key, dim: int, layers: int = 1, *, size: float = 0.3) -> LinearModel:
        """The start of the theorem, P = size·diag(0, 1) and Q = −size·diag(ΘΘᵀ, 0), Θ random, plus a little noise.

        From weights that are random in all entries, some trainings end at a critical point with a larger loss.

        Arguments:
            key: randomness of Θ and the noise.
            dim: dimension d of the inputs.
            layers: number of layers.
            size: size of the weights; the noise is 0.05 of it.
        """
        d, L = positive_int(dim, "dim"), positive_int(layers, "layers")
        of_theta, of_noise = jax.random.split(prng_key(key))
        P, Q = 0.05 * size * jax.random.normal(of_noise, (2, L, d + 1, d + 1))
        theta = jax.random.normal(of_theta, (L, d, d))
        square = theta @ theta.swapaxes(1, 2)
        square = square / jnp.linalg.norm(square, axis=(1, 2), keepdims=True)
        return LinearModel(P.at[:, d, d].add(size), Q.at[:, :d, :d].add(-size * square))

    @staticmethod
    def descent(preconditioners: ArrayLike, gammas: ArrayLike | None = None) -> LinearModel:
        """The weights of preconditioned gradient descent.

        Arguments:
            preconditioners: matrix A of each step, (l, d, d).
            gammas: factors (l,) that also move inputs, as in GD++.
        """
        A = np.asarray(shaped(floats(preconditioners, "preconditioners"), "preconditioners", "l d d"))
        L, d, _ = A.shape
        P, Q = np.zeros((L, d + 1, d + 1)), np.zeros((L, d + 1, d + 1))
        P[:, d, d], Q[:, :d, :d] = 1, -A
        if gammas is not None:
            P[:, :d, :d] = np.asarray(gammas)[:, None, None] * np.eye(d)
        return LinearModel(jnp.asarray(P), jnp.asarray(Q))

    def predict(self, x: ArrayLike, y: ArrayLike, query: ArrayLike) -> Float[Array, " b"]:
        """Predictions for one question after each list of examples. Pure JAX.

        Arguments:
            x: inputs (b, n, d).
            y: labels (b, n).
            query: questions (b, d).
        """
        x, y, query = jnp.asarray(x), jnp.asarray(y), jnp.asarray(query)
        Z = jnp.concatenate([x, y[..., None]], axis=2)
        z = jnp.concatenate([query, jnp.zeros_like(query[:, :1])], axis=1)
        n = x.shape[1]
        for P, Q in zip(self.P, self.Q, strict=True):
            step = jnp.einsum("bni,bnj->bij", Z, Z) / n @ Q
            Z, z = Z + jnp.einsum("op,bpi,bni->bno", P, step, Z), z + jnp.einsum("op,bpi,bi->bo", P, step, z)
        return -z[:, -1]

    @property
    def map(self) -> AbstractInContextMap:
        """The same model as maps of this library: residual layers of linear attention."""
        eye = np.eye(self.P.shape[1])
        return Transformer(*(Residual(LinearAttention.head(Q, eye, P)) for P, Q in zip(self.P, self.Q, strict=True)))


class LinearLoss(eqx.Module):
    """E (y − ŷ)² over fresh prompts of N examples and one question, x ~ N(0, Λ), w ~ N(0, I).

    Arguments:
        root: a square root of Λ, (d, d).
        examples: number N of examples.
        batch: prompts in each step.
        shuffled: shift the labels of the examples cyclically by one, so that nothing can be learned from them.
    """

    root: Float[Any, "d d"]
    examples: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    shuffled: Any = False

    @eqx.filter_jit
    def prompts(self, key: Key, batch: int) -> tuple[Array, Array, Array, Array]:
        """Prompts (x, y, query, answer).

        Arguments:
            key: randomness of the prompts.
            batch: number of prompts.
        """
        of_x, of_w = jax.random.split(key)
        d = self.root.shape[0]
        x = jax.random.normal(of_x, (batch, self.examples + 1, d)) @ self.root
        y = jnp.einsum("bnd,bd->bn", x, jax.random.normal(of_w, (batch, d)))
        seen = jnp.where(self.shuffled, jnp.roll(y[:, :-1], 1, axis=1), y[:, :-1])
        return x[:, :-1], seen, x[:, -1], y[:, -1]

    def __call__(self, model: LinearModel, key: Any, step: Any) -> Array:
        x, y, query, answer = self.prompts(key, self.batch)
        return jnp.mean((model.predict(x, y, query) - answer) ** 2)


@dataclass(frozen=True)
class LinearTrained:
    """Trained linear attention, and the loss before each step."""

    model: LinearModel
    losses: np.ndarray


def train_linear(
    model: LinearModel,
    covariance: ArrayLike,
    key: Key,
    *,
    examples: int,
    optimization: Optimization | None = None,
    shuffled: bool = False,
) -> LinearTrained:
    """Train all entries of linear attention on fresh prompts, x ~ N(0, Λ), w ~ N(0, I).

    Arguments:
        model: the model before training.
        covariance: covariance Λ of the inputs, (d, d).
        key: randomness of the prompts.
        examples: number N of examples in each prompt.
        optimization: how to train; 3000 steps of 256 prompts if omitted.
        shuffled: shift the labels cyclically by one: the control, from which nothing can be learned.

    Ref         zhang2024; ahn2023.

    >>> import jax, numpy as np, measureformer as mf
    >>> from measureformer.incontext.linear_model import LinearModel, train_linear
    >>> start = LinearModel.random(jax.random.key(0), 2)
    >>> few = mf.Optimization(steps=20, rate=0.02)
    >>> train_linear(start, np.eye(2), jax.random.key(1), examples=4, optimization=few).losses.shape
    (20,)
    """
    optimization = Optimization(steps=3000, batch=256, rate=0.02, clip=None) if optimization is None else optimization
    Lam = np.asarray(shaped(floats(covariance, "covariance"), "covariance", "d d"))
    if len(Lam) != model.P.shape[1] - 1:
        raise DimensionMismatchError(
            got=f"inputs in R^{len(Lam)} and a model for R^{model.P.shape[1] - 1}",
            need="one dimension",
            do="Change one.",
        )
    root = jnp.asarray(np.linalg.cholesky(Lam).T)
    run = trained(
        model,
        LinearLoss(root, examples, optimization.batch, np.asarray(shuffled)),
        optimization,
        prng_key(key),
        last=False,
    )
    if run.failed:
        raise not_finite(run, None)
    return LinearTrained(run.weights, run.losses)


class Comparison(NamedTuple):
    """Differences between a trained model and a construction, over many prompts."""

    prediction: float
    """Root mean square difference of predictions, over that of the construction's predictions."""
    cosine: float
    """Mean cosine of the derivatives of the predictions in the question."""
    sensitivity: float
    """Mean length of the difference of these derivatives, over the mean length of the construction's."""
    first: float
    """Mean square error of the trained model."""
    second: float
    """That of the construction."""
    interpolated: float
    """That of the model half-way between their weights, after rescaling; as small if both are the same algorithm."""


def compared(
    model: LinearModel, construction: LinearModel, prompts: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
) -> Comparison:
    """Compare two models on prompts: predictions, sensitivities, and the half-way model.

    Only the product of P and Q matters; both models are rescaled to a common size before their weights are averaged.

    Arguments:
        model: the trained model.
        construction: the model it is compared with.
        prompts: (x, y, query, answer), as from `LinearLoss.prompts`.

    Ref         vonoswald2023, Section 3.

    >>> import jax, numpy as np
    >>> from measureformer.incontext.linear_model import LinearLoss, LinearModel, compared
    >>> gd = LinearModel.descent(0.5 * np.eye(2)[None])
    >>> prompts = LinearLoss(np.eye(2), 4, 64).prompts(jax.random.key(0), 64)
    >>> found = compared(gd, gd, prompts)
    >>> found.prediction, round(found.cosine, 12)
    (0.0, 1.0)
    """
    return Comparison(*map(float, _compared(model, construction, *prompts)))


@jax.jit
def _compared(model: Any, construction: Any, x: Any, y: Any, query: Any, answer: Any) -> tuple[Any, ...]:
    def slope(m: LinearModel) -> Array:
        return jax.grad(lambda q: jnp.sum(m.predict(x, y, q)))(query)

    mine, theirs = model.predict(x, y, query), construction.predict(x, y, query)
    a, b = slope(model), slope(construction)
    lengths = jnp.linalg.norm(a, axis=1), jnp.linalg.norm(b, axis=1)
    cosine = jnp.sum(a * b, axis=1) / jnp.maximum(lengths[0] * lengths[1], 1e-30)

    def scaled(m: LinearModel) -> LinearModel:
        d = m.Q.shape[1] - 1
        size = -jnp.mean(jnp.diagonal(m.Q[:, :d, :d], axis1=1, axis2=2), axis=1)[:, None, None]
        return LinearModel(m.P * size, m.Q / size)

    half = jax.tree.map(lambda p, q: (p + q) / 2, scaled(model), scaled(construction))
    error = lambda found: jnp.mean((found - answer) ** 2)  # noqa: E731
    return (
        jnp.sqrt(jnp.mean((mine - theirs) ** 2) / jnp.mean(theirs**2)),
        jnp.mean(cosine),
        jnp.mean(jnp.linalg.norm(a - b, axis=1)) / jnp.mean(lengths[1]),
        error(mine),
        error(theirs),
        error(half.predict(x, y, query)),
    )
