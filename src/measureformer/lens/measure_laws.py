"""Is a model a map on measures? Its context repeated and reordered; and a tied layer applied beyond its depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from measureformer.lens.families import Table

if TYPE_CHECKING:
    from measureformer.lens.model import Model

BEYOND = 4
"""Times the trained depth to which a tied layer is iterated."""


def laws(model: Model, given: Any) -> dict[str, float]:
    """Relative changes of what the model answers, when its context is repeated and when it is reordered.

    For a table: the answers to all questions, with the labelled rows twice, and in another order. For a text: the last
    token after the last layer, with all tokens before it twice, and in another order. A map on measures gives zeros.
    """
    rng = np.random.default_rng(0)
    if isinstance(given, Table):
        rows = len(given.X)
        answers = lambda index: _answers(model, given, index)  # noqa: E731
    else:
        limit = model.anatomy.limit
        given = given if limit is None else given[: (limit + 1) // 2]
        rows = len(given) - 1
        answers = lambda index: _last(model, np.append(given[index], given[-1]))  # noqa: E731
    base = answers(np.arange(rows))
    size = max(float(np.linalg.norm(base)), 1e-300)
    changed = {"repeated": np.tile(np.arange(rows), 2), "reordered": rng.permutation(rows)}
    return {name: float(np.linalg.norm(answers(index) - base)) / size for name, index in changed.items()}


def _answers(model: Model, table: Table, index: np.ndarray) -> np.ndarray:
    asked = Table(table.X[index], table.y[index], table.queries, table.weights[index])
    return np.asarray(model.trace(asked).exit().points, np.float64)[len(index) :]


def _last(model: Model, ids: np.ndarray) -> np.ndarray:
    measure = model.embed(ids)
    for layer in model.layers:
        measure = layer.push(measure)
    return np.asarray(measure.points, np.float64)[-1]


def cosine(points: np.ndarray) -> float:
    """Mean cosine of the angle between two different rows."""
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    directions = points / np.where(norms > 0, norms, 1)
    n = len(directions)
    return float((np.sum(directions.sum(axis=0) ** 2) - n) / (n * (n - 1))) if n > 1 else float("nan")


def iterated(model: Model, given: Any) -> list[float]:
    """Mean cosine of two tokens after 0, 1, 2, … layers, for a tied model, up to a multiple of its depth; else none."""
    if not model.anatomy.tied:
        return []
    measure, layer = model.embed(given), model.layers[0]
    found = [cosine(np.asarray(measure.points, np.float64))]
    for _ in range(BEYOND * model.anatomy.depth):
        measure = layer.push(measure)
        found.append(cosine(np.asarray(measure.points, np.float64)))
    return found
