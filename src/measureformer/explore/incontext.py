"""Lines learned from examples in the prompt: linear attention beside least squares and ridge regression."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.errors import ShapeError
from measureformer.explore.particles import SIZES
from measureformer.explore.points import curve
from measureformer.figures.figure import Figure, Series
from measureformer.numerics.buckets import pad_rows

GRID = np.linspace(-1.5, 1.5, 61)
MOST_LAYERS = 16


@dataclass(frozen=True)
class Learners:
    """What each learner answers at the places `GRID`, and the weights (intercept, slope) of those that are lines."""

    least_squares: np.ndarray
    ridge: np.ndarray
    attention: np.ndarray
    kernel: np.ndarray
    weights: dict[str, np.ndarray]


def features(x: Any) -> np.ndarray:
    """Inputs with an intercept, (n, 2).

    >>> features([0.5]).tolist()
    [[1.0, 0.5]]
    """
    x = np.asarray(x, float)
    return np.stack([np.ones_like(x), x], axis=1)


def learn(points: Any, *, eta: float = 0.8, layers: int = 4, penalty: float = 0.1, sharpness: float = 10.0) -> Learners:
    """Learn y from x in four ways, from the same examples (n, 2).

    Least squares and ridge regression; `layers` of linear attention, each one step of gradient descent with rate `eta`
    on the mean square error; and one head of softmax attention that weighs labels by e^{−sharpness·|x − x_i|²}.

    >>> found = learn([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], eta=1.0, layers=8)
    >>> found.weights["least squares"].round(6).tolist(), bool(abs(found.weights["linear attention"][1] - 1) < 0.01)
    ([0.0, 1.0], True)
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points):
        raise ShapeError(got=f"points of shape {points.shape}", need="examples (x, y)", do="Pass (n, 2).")
    X, y, n = features(points[:, 0]), points[:, 1], len(points)
    least = np.linalg.lstsq(X, y, rcond=None)[0]
    ridge = np.linalg.solve(X.T @ X + penalty * np.eye(2), X.T @ y)
    size = next((size for size in SIZES if n <= size), n)
    masses = np.r_[np.ones(n), np.zeros(size - n)]
    mu = mf.Discrete.weighted(pad_rows(np.column_stack([X, y]), size), masses)
    asked = np.column_stack([features(GRID), np.zeros(len(GRID))])
    steps = -np.asarray(network(layers, eta)(mu, asked))[:, 2]
    slope = (steps[-1] - steps[0]) / (GRID[-1] - GRID[0])
    weights = {
        "least squares": least,
        "ridge": ridge,
        "linear attention": np.array([steps[0] - slope * GRID[0], slope]),
    }
    line = features(GRID)
    return Learners(line @ least, line @ ridge, steps, kernel_answers(points, sharpness), weights)


@cache
def network(layers: int, eta: float) -> Any:
    """That many layers of linear attention, each of which is one step of gradient descent from 0."""
    layer = mf.incontext.linear.gd_layer(eta, np.zeros((1, 2)))
    return mf.Transformer(*[layer] * layers)


def kernel_answers(points: Any, sharpness: float) -> np.ndarray:
    """The answers of one head of L2 attention, whose keys are inputs and whose values are labels, on `GRID`.

    >>> kernel_answers([[0.0, 2.0]], 10.0)[:2].tolist()
    [2.0, 2.0]
    """
    points = np.asarray(points, float)
    n = len(points)
    size = next((size for size in SIZES if n <= size), n)
    mu = mf.Discrete.weighted(pad_rows(points, size), np.r_[np.ones(n), np.zeros(size - n)])
    look = np.array([[np.sqrt(sharpness), 0.0]])
    G = mf.L2Attention.head(look, look, np.array([[0.0, 1.0]]))
    return np.asarray(G(mu, np.column_stack([GRID, np.zeros(len(GRID))])))[:, 0]


def curves(found: Learners) -> list[dict[str, Any]]:
    """The answers, as curves of the widget."""

    def line(y: np.ndarray, color: int) -> dict[str, Any]:
        return curve(np.column_stack([GRID, y]), color, width=2)

    expected = curve(np.column_stack([GRID, found.least_squares]), "ink", style="dashed", width=2)
    return [expected, line(found.ridge, 2), line(found.kernel, 3), line(found.attention, 1)]


def figure(points: Any, eta: float, layers: int) -> Figure:
    """The error of linear attention on its examples against its number of layers, and that of least squares."""
    points = np.asarray(points, float)
    X, y = features(points[:, 0]), points[:, 1]
    depths = np.arange(MOST_LAYERS + 1)
    ways = [mf.incontext.linear.gradient_descent(X, y, eta, int(depth), np.zeros((1, 2)))[0] for depth in depths]
    errors = [error(points, way) for way in ways]
    floor = error(points, np.linalg.lstsq(X, y, rcond=None)[0])
    curves = (
        Series("linear attention", depths, errors, role="measured"),
        Series("least squares", [0, MOST_LAYERS], [floor, floor], "dashed", role="theory"),
        Series(f"now: {layers} layers", [layers], [errors[layers]], "points", role="measured"),
    )
    return Figure("Error on the examples", "layers", "mean square error", curves)


def error(points: Any, weights: Any) -> float:
    """The mean square error of a line on the examples.

    >>> error([[0.0, 1.0], [1.0, 1.0]], [1.0, 0.0])
    0.0
    """
    points = np.asarray(points, float)
    return float(np.mean((features(points[:, 0]) @ np.asarray(weights) - points[:, 1]) ** 2))


def warm_up(layers: int, n: int) -> None:
    """Compile that many layers, for as many examples as there are now."""
    learn(np.tile([[0.1, 0.2]], (n, 1)), layers=layers)
