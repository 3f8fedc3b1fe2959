"""Linear attention learns in context: constructions that are gradient descent, closed-form optima, and training.

A context of N examples is the measure mu = (1/N) Σ δ_(x_i, y_i) on R^(d+e); a question is the point (x, −W0 x), and the
prediction is minus its y-entry after all layers. Sums over examples are integrals over mu, so that N enters nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.incontext.train import not_finite
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import Residual
from measureformer.maps.variants import LinearAttention
from measureformer.measures import Discrete
from measureformer.numerics.arrays import finite, floats, positive_int, prng_key, shaped
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization


def gd_layer(eta: float, W0: Any) -> Residual:
    """One layer of linear attention that is one step of gradient descent on (1/2N) Σ |W x_i − y_i|², from W0 (e, d).

    It sends (x, y) to (x, y − ΔW x) with ΔW = −η ∫ (W0 x − y) xᵀ dmu. Layers may be stacked: K of them are K steps,
    since W0 x − (y − ΔW x) = (W0 + ΔW) x − y is the next residual.

    Statement   −[G(mu, (x, −W0 x))]_y = (W0 + ΔW) x,  ΔW = −η ∇_W (1/2) ∫ |W x − y|² dmu at W0
    Sharp?      equality.
    Ref         vonoswald2023, Proposition 1.

    >>> import numpy as np, measureformer as mf
    >>> layer = mf.incontext.linear.gd_layer(0.5, [[0.0]])
    >>> mu = mf.Discrete.uniform([[1.0, 2.0], [2.0, 4.0]])          # examples (x, y) of y = 2x
    >>> -layer(mu, [3.0, 0.0])[1]                                    # W after one step is 0.5 · (2 + 8)/2
    Array(7.5, dtype=float64)
    """
    return _descent(eta, 0.0, W0)


def gd_plus_plus_layer(eta: float, gamma: float, W0: Any) -> Residual:
    """A step of gradient descent that also moves inputs, x ← (I − γ ∫ x xᵀ dmu) x: GD++.

    In the literature γ multiplies the sum over examples; here it multiplies their mean, so this γ is N times theirs. An
    eigenvalue λ of ∫ x xᵀ becomes λ (1 − γ λ)², so that the next step meets a better conditioned problem. Only W0 = 0
    makes sense for stacked layers, since the question moves too.

    Ref         vonoswald2023, Section 3.

    >>> import measureformer as mf
    >>> layer = mf.incontext.linear.gd_plus_plus_layer(0.5, 0.1, [[0.0]])
    >>> layer.push(mf.Discrete.uniform([[1.0, 2.0], [2.0, 4.0]])).points[:, 0].tolist()
    [0.75, 1.5]
    """
    return _descent(eta, gamma, W0)


def _descent(eta: Any, gamma: Any, W0: Any) -> Residual:
    W0 = shaped(floats(W0, "W0"), "W0", "e d")
    for name, value in (("W0", W0), ("eta", floats(eta, "eta")), ("gamma", floats(gamma, "gamma"))):
        finite(value, name)
    e, d = W0.shape
    reads_x = np.concatenate([np.eye(d), np.zeros((d, e))], axis=1)
    V = np.zeros((d + e, d + e))
    V[:d, :d] = -float(gamma) * np.eye(d)
    V[d:, :d], V[d:, d:] = float(eta) * np.asarray(W0), -float(eta) * np.eye(e)
    return Residual(LinearAttention.head(reads_x, reads_x, V))


def prediction(G: AbstractInContextMap, x: Any, y: Any, query: Any, W0: Any = None) -> Float[Array, " e"]:
    """What a construction answers: minus the y-entry of G(mu, (query, −W0 query)), with mu the examples x (n, d), y.

    >>> import numpy as np, measureformer as mf
    >>> x = np.array([[1.0], [2.0]])
    >>> mf.incontext.linear.prediction(mf.incontext.linear.gd_layer(0.5, [[0.0]]), x, 2 * x, [3.0]).tolist()
    [7.5]
    """
    x, query = np.asarray(floats(x, "x")), np.asarray(floats(query, "query"))
    y = np.asarray(floats(y, "y")).reshape(len(x), -1)
    start = np.zeros((y.shape[1], x.shape[1])) if W0 is None else np.asarray(W0)
    mu = Discrete.uniform(np.concatenate([x, y], axis=1))
    return -G(mu, np.concatenate([query, -start @ query]))[x.shape[1] :]


def gradient_descent(x: Any, y: Any, eta: float, steps: int, W0: Any) -> Float[np.ndarray, "e d"]:
    """W after so many steps on (1/2N) Σ |W x_i − y_i|², computed as everyone would: the oracle of the layers.

    >>> import numpy as np, measureformer as mf
    >>> x = np.array([[1.0], [2.0]])
    >>> mf.incontext.linear.gradient_descent(x, 2 * x, 0.5, 1, [[0.0]]).tolist()
    [[2.5]]
    """
    x, W = np.asarray(x, float), np.array(W0, float)
    y = np.asarray(y, float).reshape(len(x), -1)
    for _ in range(steps):
        W = W - eta * (W @ x.T - y.T) @ x / len(x)
    return W


# --- closed forms ----------------------------------------------------------------------------------------------------


class OneStep(NamedTuple):
    """The best step size of one step of gradient descent from 0, and the error E (w·x − ŷ)² that it leaves."""

    eta: float
    error: float


def one_step(dim: int, examples: int, *, variance: float = 1.0, fourth: float | None = None) -> OneStep:
    """One step on N examples y = ⟨w, x⟩ with w ~ N(0, I) and independent coordinates of given moments.

    `fourth` is E x_j⁴; left out, that of a Gaussian.

    Statement   T = (d m₄ + d(d−1) s⁴)/N + (1 − 1/N) d s⁴,  η* = d s²/T,  error = s² (d − (d s²)²/T)
    Ref         vonoswald2023; mahankali2024.

    >>> import measureformer as mf
    >>> best = mf.incontext.linear.one_step(10, 10, variance=1 / 12, fourth=1 / 80)
    >>> round(best.eta, 4), round(best.error / 2, 5)
    (6.0606, 0.20623)
    """
    d, N = positive_int(dim, "dim"), positive_int(examples, "examples")
    if not variance > 0 or (fourth is not None and fourth < variance**2):
        raise OptionError(
            got=f"variance = {variance}, fourth = {fourth}",
            need="variance > 0 and fourth ≥ variance², as every law has",
            do="Leave fourth out for a Gaussian.",
        )
    m4 = 3 * variance**2 if fourth is None else fourth
    T = (d * m4 + d * (d - 1) * variance**2) / N + (1 - 1 / N) * d * variance**2
    return OneStep(d * variance / T, variance * (d - (d * variance) ** 2 / T))


class Optimum(NamedTuple):
    """The best linear attention: ŷ = xᵀ P (1/N) Σ y_i x_i, and its error E (y − ŷ)²."""

    preconditioner: Float[np.ndarray, "d d"]
    error: float


def optimum(covariance: Any, examples: int) -> Optimum:
    """The global optimum of one layer of linear attention, for x ~ N(0, Λ), w ~ N(0, I), and N examples.

    Statement   P = Γ⁻¹,  Γ = (1 + 1/N) Λ + (tr Λ/N) I,  error = tr Λ(I − Γ⁻¹Λ)
    Hypotheses  checked: Λ symmetric and positive definite.
    Ref         zhang2024, Theorem 4.1; ahn2023, Theorem 1.

    >>> import numpy as np, measureformer as mf
    >>> round(mf.incontext.linear.optimum(np.diag([2, 1.5, 1, 0.5, 0.25]), 10).error, 4)
    1.8216
    >>> mf.incontext.linear.optimum(np.eye(5), 10).error
    1.875
    """
    Lam, N = (
        np.asarray(shaped(floats(covariance, "covariance"), "covariance", "d d")),
        positive_int(examples, "examples"),
    )
    if Lam.shape[0] != Lam.shape[1] or not np.allclose(Lam, Lam.T) or np.linalg.eigvalsh(Lam)[0] <= 0:
        raise OptionError(
            got=f"a covariance of shape {Lam.shape} that is no symmetric positive definite matrix",
            need="the covariance of the inputs",
            do="Pass np.eye(d) for standard normal inputs.",
        )
    inverse = np.linalg.inv((1 + 1 / N) * Lam + np.trace(Lam) / N * np.eye(len(Lam)))
    return Optimum(inverse, float(np.trace(Lam @ (np.eye(len(Lam)) - inverse @ Lam))))


def noisy_optimum(dim: int, examples: int, noise: float) -> OneStep:
    """The optimum for standard normal inputs and labels with noise of standard deviation σ: a step of another size.

    Statement   η = N/(N + d + 1 + σ²) on the mean gradient,  error = d(d + 1 + σ²)/(N + d + 1 + σ²) + σ²
    Ref         mahankali2024, Theorem 1.

    >>> import measureformer as mf
    >>> mf.incontext.linear.noisy_optimum(5, 10, 0.0).error == mf.incontext.linear.one_step(5, 10).error
    True
    """
    d, N = positive_int(dim, "dim"), positive_int(examples, "examples")
    total = N + d + 1 + noise**2
    return OneStep(N / total, d * (d + 1 + noise**2) / total + noise**2)


# --- training --------------------------------------------------------------------------------------------------------


class LinearModel(eqx.Module):
    """Layers of linear attention Z ← Z + P Z M Zᵀ Q Z/N on tokens (x, y), all entries of P and Q free.

    M drops the question, which is read and not seen. With P = diag(0, 1) and Q = −diag(A, 0) a layer is one step of
    descent with preconditioner A.
    """

    P: Float[Array, "l t t"]
    Q: Float[Array, "l t t"]

    @staticmethod
    def random(key: Any, dim: int, layers: int = 1, *, size: float = 0.3) -> LinearModel:
        """The start of the theorem, P = size·diag(0, 1) and Q = −size·diag(ΘΘᵀ, 0), Θ random, plus a little noise.

        From weights that are random in all entries some trainings end elsewhere, at a larger loss.
        """
        d, L = positive_int(dim, "dim"), positive_int(layers, "layers")
        of_theta, of_noise = jax.random.split(prng_key(key))
        P, Q = 0.05 * size * jax.random.normal(of_noise, (2, L, d + 1, d + 1))
        theta = jax.random.normal(of_theta, (L, d, d))
        square = theta @ theta.swapaxes(1, 2)
        square = square / jnp.linalg.norm(square, axis=(1, 2), keepdims=True)
        return LinearModel(P.at[:, d, d].add(size), Q.at[:, :d, :d].add(-size * square))

    @staticmethod
    def descent(preconditioners: Any, gammas: Any = None) -> LinearModel:
        """The weights of descent with given preconditioners (l, d, d); `gammas` (l,) also move inputs, as in GD++."""
        A = np.asarray(shaped(floats(preconditioners, "preconditioners"), "preconditioners", "l d d"))
        L, d, _ = A.shape
        P, Q = np.zeros((L, d + 1, d + 1)), np.zeros((L, d + 1, d + 1))
        P[:, d, d], Q[:, :d, :d] = 1, -A
        if gammas is not None:
            P[:, :d, :d] = np.asarray(gammas)[:, None, None] * np.eye(d)
        return LinearModel(jnp.asarray(P), jnp.asarray(Q))

    def predict(self, x: Any, y: Any, query: Any) -> Float[Array, " b"]:
        """Predictions for examples x (b, n, d), y (b, n) and one question each, (b, d). Pure JAX."""
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
        from measureformer.maps.transformer import Transformer

        eye = np.eye(self.P.shape[1])
        return Transformer(*(Residual(LinearAttention.head(Q, eye, P)) for P, Q in zip(self.P, self.Q, strict=True)))


class LinearLoss(eqx.Module):
    """E (y − ŷ)² over fresh prompts of N examples and one question, x ~ N(0, Λ), w ~ N(0, I).

    `shuffled` moves the labels of the examples round by one: nothing can then be learned from them.
    """

    root: Float[Any, "d d"]
    examples: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    shuffled: Any = False

    @eqx.filter_jit
    def prompts(self, key: Any, batch: int) -> tuple[Array, Array, Array, Array]:
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
    covariance: Any,
    key: Any,
    *,
    examples: int,
    optimization: Optimization | None = None,
    shuffled: bool = False,
) -> LinearTrained:
    """Trains all entries of linear attention on fresh prompts, x ~ N(0, Λ), w ~ N(0, I).

    Ref         zhang2024; ahn2023.

    >>> import jax, numpy as np, measureformer as mf
    >>> start = mf.incontext.linear.LinearModel.random(jax.random.key(0), 2)
    >>> few = mf.Optimization(steps=20, rate=0.02)
    >>> mf.incontext.linear.train_linear(start, np.eye(2), jax.random.key(1), examples=4, optimization=few).losses.shape
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
    """How alike a trained model and a construction are, over many prompts."""

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
    """That of the model half-way between their weights, after rescaling: as good, if both are the same algorithm."""


def compared(model: LinearModel, construction: LinearModel, prompts: tuple[Any, Any, Any, Any]) -> Comparison:
    """Compares two models on prompts (x, y, query, answer): predictions, sensitivities, and the half-way model.

    Only the product of P and Q matters; they are rescaled to a common size before the middle is taken.

    Ref         vonoswald2023, Section 3.

    >>> import jax, numpy as np, measureformer as mf
    >>> gd = mf.incontext.linear.LinearModel.descent(0.5 * np.eye(2)[None])
    >>> prompts = mf.incontext.linear.LinearLoss(np.eye(2), 4, 64).prompts(jax.random.key(0), 64)
    >>> found = mf.incontext.linear.compared(gd, gd, prompts)
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
