"""`Path`: the matrices of least loss in balls of growing radius."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import OptionError
from measureformer.implicit_bias import risk as _risk
from measureformer.implicit_bias.svm import ORDERS, Norm
from measureformer.numerics.arrays import finite, floats, host, shaped
from measureformer.numerics.types import ArrayLike

if TYPE_CHECKING:
    from measureformer.implicit_bias.problem import Problem


@dataclass(frozen=True)
class Path:
    """W_R = argmin of L(W) over ‖W‖ ≤ R, for each of the `radii`; see `Problem.path`.

    The loss is not convex in W. Each radius starts from the solution before it, the first from −∇L(0), and, for a
    linear head, also from the SVM direction of the optimal tokens; the lower result is kept. It is a stationary point
    up to `residual`, not a proven global minimum.

    Statement   W_R/R → W_mm/‖W_mm‖ as R → ∞, if optimal tokens are unique and can be separated
    Ref         tarzanagh2023.

    >>> import numpy as np, measureformer as mf
    >>> X = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    >>> problem = mf.implicit_bias.Problem(X, [[1.0]], [1], [1.0, 0.1])
    >>> path = problem.path([1.0, 10.0, 100.0])
    >>> [f"{mf.implicit_bias.misalignment(W, problem.svm().W):.0e}" for W in path.W]
    ['4e-03', '4e-05', '5e-07']
    """

    kind: Norm
    radii: np.ndarray
    W: np.ndarray
    """(r, k, q)"""
    loss: np.ndarray
    residual: np.ndarray
    """1 − ⟨−∇L, W⟩/(‖∇L‖_dual R): 0 where W is stationary on the sphere. Inside the ball, ‖∇L(W)‖/‖∇L(0)‖."""
    inside: np.ndarray
    """Whether the minimum lies inside the ball, where the constraint is inactive."""


def follow(problem: Problem, radii: ArrayLike, norm: Norm) -> Path:
    radii = np.asarray(host(shaped(floats(radii, "radii"), "radii", "r")), np.float64)
    finite(radii, "radii")
    if not len(radii) or radii.min() <= 0 or (np.diff(radii) <= 0).any():
        raise OptionError(
            got=f"radii {radii}", need="positive numbers that grow", do="np.geomspace(1, 100, 9) is usual."
        )
    if norm not in ORDERS:
        raise OptionError(got=f"norm = {norm!r}", need='"frobenius" or "nuclear"', do='Leave it out for "frobenius".')
    down = -np.asarray(problem.gradient(np.zeros(problem.shape)), np.float64)
    first = float(np.linalg.norm(down))
    if first == 0:
        # no descent direction at 0: any start will do
        down = np.eye(*problem.shape)
    others: list[np.ndarray] = []
    if problem.has_linear_head:
        svm = problem.svm(problem.best_sets(), norm)
        others = [svm.W] if svm.feasible and svm.W.any() else []
    found: list[tuple[np.ndarray, float, float, bool]] = []
    for radius in radii:
        answers = [_solved(problem, W, radius, norm, first) for W in (found[-1][0] if found else down, *others)]
        # the logarithm of the loss still differs below the rounding of the loss
        found.append(min(answers, key=lambda answer: answer[0])[1])
    W, loss, residual, inside = (np.array(column) for column in zip(*found, strict=True))
    return Path(norm, radii, W, loss, residual, inside)


def _solved(
    problem: Problem, start: np.ndarray, radius: float, norm: Norm, first: float
) -> tuple[float, tuple[np.ndarray, float, float, bool]]:
    """The objective, and W, the loss, the residual, and whether W is inside the ball."""
    from scipy.optimize import minimize

    shape, own, dual = problem.shape, *ORDERS[norm]
    leaves, structure = jax.tree.flatten(problem)
    options = {"maxiter": 3000, "maxfun": 6000, "gtol": 1e-6, "ftol": 1e-15, "maxcor": 30}

    def objective(flat: np.ndarray, on_sphere: bool) -> tuple[float, np.ndarray]:
        value, slope = _objective(structure, norm, leaves, flat, radius if on_sphere else None)
        return float(value), np.asarray(slope, np.float64)

    best = minimize(objective, _parameters(start, norm), (True,), "L-BFGS-B", jac=True, options=options)
    W = np.asarray(_matrix(best.x, radius, shape, norm))
    slope = np.asarray(problem.gradient(W), np.float64)
    if np.sum(slope * W) > 0 and np.linalg.norm(start, own) <= radius:
        # the loss falls towards the inside, where the constraint is inactive
        free = minimize(objective, start.ravel(), (False,), "L-BFGS-B", jac=True, options=options)
        inner = free.x.reshape(shape)
        if np.linalg.norm(inner, own) <= radius and free.fun <= best.fun:
            size = float(np.linalg.norm(np.asarray(problem.gradient(inner))))
            return float(free.fun), (inner, problem.loss(inner), size / (first or 1.0), True)
    along, size = -float(np.sum(slope * W)), float(np.linalg.norm(slope, dual))
    residual = 1 - along / (radius * size) if size > 0 else 0.0
    return float(best.fun), (W, problem.loss(W), max(residual, 0.0), False)


def _parameters(W: np.ndarray, norm: Norm) -> np.ndarray:
    """W itself, or K and Q of equal size with KQᵀ = W, one below the other; flat."""
    if norm == "frobenius":
        return W.ravel() / np.linalg.norm(W)
    U, values, V = np.linalg.svd(W, full_matrices=False)
    # a factor that is zero would stay zero
    root = np.sqrt(values + 1e-3 * values[0])
    return np.concatenate([U * root, V.T * root]).ravel() / np.sqrt(2 * values.sum())


def _matrix(flat: Any, radius: Any, shape: tuple[int, int], norm: Norm) -> Array:
    """A matrix of the norm `radius`, at most, from parameters of any length."""
    unit = flat / jnp.linalg.norm(flat)
    if norm == "frobenius":
        return radius * unit.reshape(shape)
    both = unit.reshape(sum(shape), -1)
    # ‖KQᵀ‖_* ≤ (‖K‖² + ‖Q‖²)/2, with equality where K and Q are balanced
    return 2 * radius * both[: shape[0]] @ both[shape[0] :].T


@partial(jax.jit, static_argnums=(0, 1))
def _objective(structure: Any, norm: Norm, leaves: list[Any], flat: Any, radius: Any) -> tuple[Array, Array]:
    """log(L − infimum), which has the same minima as L and a gradient of order 1 for all R; L for other heads.

    A solver calls this thousands of times: the problem comes as its leaves, which plain `jit` passes on fastest.
    """
    problem = jax.tree.unflatten(structure, leaves)

    def value(flat: Array) -> Array:
        W = flat.reshape(problem.shape) if radius is None else _matrix(flat, radius, problem.shape, norm)
        return jnp.log(_risk.excess(problem, W)) if problem.has_linear_head else _risk.risk(problem, W)

    return jax.value_and_grad(value)(flat)
