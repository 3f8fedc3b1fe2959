"""Linear attention in context: constructions that equal gradient descent, closed-form optima, and training.

A context of N examples is the measure mu = (1/N) Σ δ_(x_i, y_i) on R^(d+e); a question is the point (x, −W0 x), and the
prediction is minus its y-entry after all layers. Sums over examples are integrals over mu, so the layers do not depend
on N.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.incontext.linear_model import Comparison as Comparison
from measureformer.incontext.linear_model import LinearLoss as LinearLoss
from measureformer.incontext.linear_model import LinearModel as LinearModel
from measureformer.incontext.linear_model import LinearTrained as LinearTrained
from measureformer.incontext.linear_model import compared as compared
from measureformer.incontext.linear_model import train_linear as train_linear
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.compose import Residual
from measureformer.maps.variants import LinearAttention
from measureformer.measures import Discrete
from measureformer.numerics.arrays import finite, floats, positive_int, shaped
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


@checked
def gd_layer(eta: ArrayLike, W0: ArrayLike) -> Residual:
    """One layer of linear attention that is one step of gradient descent on (1/2N) Σ |W x_i − y_i|².

    It sends (x, y) to (x, y − ΔW x) with ΔW = −η ∫ (W0 x − y) xᵀ dmu. K stacked layers are K steps, since
    W0 x − (y − ΔW x) = (W0 + ΔW) x − y is the next residual.

    Arguments:
        eta: step size η.
        W0: matrix from which descent starts, (e, d).

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


@checked
def gd_plus_plus_layer(eta: ArrayLike, gamma: ArrayLike, W0: ArrayLike) -> Residual:
    """GD++: a step of gradient descent that also moves inputs, x ← (I − γ ∫ x xᵀ dmu) x.

    An eigenvalue λ of ∫ x xᵀ becomes λ (1 − γ λ)², so the next step has a better conditioned problem.

    Arguments:
        eta: step size η.
        gamma: factor γ of the mean of x xᵀ; N times the γ of the reference, which multiplies the sum over examples.
        W0: matrix from which descent starts, (e, d); 0 for stacked layers, since the question moves too.

    Ref         vonoswald2023, Section 3.

    >>> import measureformer as mf
    >>> layer = mf.incontext.linear.gd_plus_plus_layer(0.5, 0.1, [[0.0]])
    >>> layer.push(mf.Discrete.uniform([[1.0, 2.0], [2.0, 4.0]])).points[:, 0].tolist()
    [0.75, 1.5]
    """
    return _descent(eta, gamma, W0)


def _descent(eta: ArrayLike, gamma: ArrayLike, W0: ArrayLike) -> Residual:
    start, step, shrinking = shaped(floats(W0, "W0"), "W0", "e d"), floats(eta, "eta"), floats(gamma, "gamma")
    for name, value in (("W0", start), ("eta", step), ("gamma", shrinking)):
        finite(value, name)
    e, d = start.shape
    reads_x = np.concatenate([np.eye(d), np.zeros((d, e))], axis=1)
    V = np.zeros((d + e, d + e))
    V[:d, :d] = -float(shrinking) * np.eye(d)
    V[d:, :d], V[d:, d:] = float(step) * np.asarray(start), -float(step) * np.eye(e)
    return Residual(LinearAttention.head(reads_x, reads_x, V))


@checked
def prediction(
    G: AbstractInContextMap, x: ArrayLike, y: ArrayLike, query: ArrayLike, W0: ArrayLike | None = None
) -> Float[Array, " e"]:
    """The answer of a construction: minus the y-entry of G(mu, (query, −W0 query)), with mu the examples.

    Arguments:
        G: the layers.
        x: inputs (n, d).
        y: labels (n,) or (n, e).
        query: the question (d,).
        W0: matrix from which descent starts, (e, d); 0 if omitted.

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


@checked
def gradient_descent(x: ArrayLike, y: ArrayLike, eta: float, steps: int, W0: ArrayLike) -> Float[np.ndarray, "e d"]:
    """W after gradient descent on (1/2N) Σ |W x_i − y_i|², as a plain loop: the oracle of the layers.

    Arguments:
        x: inputs (n, d).
        y: labels (n,) or (n, e).
        eta: step size.
        steps: number of steps.
        W0: matrix from which descent starts, (e, d).

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
    """The best step size of one step of gradient descent from 0, and its error E (w·x − ŷ)²."""

    eta: float
    error: float


@checked
def one_step(dim: int, examples: int, *, variance: float = 1.0, fourth: float | None = None) -> OneStep:
    """The best step of gradient descent on N examples y = ⟨w, x⟩, w ~ N(0, I), with independent coordinates of x.

    Arguments:
        dim: dimension d of the inputs.
        examples: number N of examples.
        variance: s² = E x_j².
        fourth: m₄ = E x_j⁴; that of a Gaussian if omitted.

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


@checked
def optimum(covariance: ArrayLike, examples: int) -> Optimum:
    """The global optimum of one layer of linear attention, for x ~ N(0, Λ), w ~ N(0, I), and N examples.

    Arguments:
        covariance: covariance Λ of the inputs, (d, d).
        examples: number N of examples.

    Statement   P = Γ⁻¹,  Γ = (1 + 1/N) Λ + (tr Λ/N) I,  error = tr Λ(I − Γ⁻¹Λ)
    Hypotheses  checked: Λ symmetric and positive definite.
    Ref         zhang2024, Theorem 4.1; ahn2023, Theorem 1.

    >>> import numpy as np, measureformer as mf
    >>> round(mf.incontext.linear.optimum(np.diag([2, 1.5, 1, 0.5, 0.25]), 10).error, 4)
    1.8216
    >>> mf.incontext.linear.optimum(np.eye(5), 10).error
    1.875
    """
    Lam = np.asarray(shaped(floats(covariance, "covariance"), "covariance", "d d"))
    N = positive_int(examples, "examples")
    if Lam.shape[0] != Lam.shape[1] or not np.allclose(Lam, Lam.T) or np.linalg.eigvalsh(Lam)[0] <= 0:
        raise OptionError(
            got=f"a covariance of shape {Lam.shape} that is no symmetric positive definite matrix",
            need="the covariance of the inputs",
            do="Pass np.eye(d) for standard normal inputs.",
        )
    inverse = np.linalg.inv((1 + 1 / N) * Lam + np.trace(Lam) / N * np.eye(len(Lam)))
    return Optimum(inverse, float(np.trace(Lam @ (np.eye(len(Lam)) - inverse @ Lam))))


@checked
def noisy_optimum(dim: int, examples: int, noise: float) -> OneStep:
    """The optimum for standard normal inputs and noisy labels: one step of another size.

    Arguments:
        dim: dimension d of the inputs.
        examples: number N of examples.
        noise: standard deviation σ of the noise on labels.

    Statement   η = N/(N + d + 1 + σ²) on the mean gradient,  error = d(d + 1 + σ²)/(N + d + 1 + σ²) + σ²
    Ref         mahankali2024, Theorem 1.

    >>> import measureformer as mf
    >>> mf.incontext.linear.noisy_optimum(5, 10, 0.0).error == mf.incontext.linear.one_step(5, 10).error
    True
    """
    d, N = positive_int(dim, "dim"), positive_int(examples, "examples")
    total = N + d + 1 + noise**2
    return OneStep(N / total, d * (d + 1 + noise**2) / total + noise**2)
