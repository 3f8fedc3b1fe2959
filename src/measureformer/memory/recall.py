"""`recall`: damaged pictures restored by a memory of each generation; `draw_recall` draws a sheet of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float

from measureformer.attention import attend
from measureformer.errors import ImageError, need
from measureformer.memory import retrieval
from measureformer.memory.base import Trace
from measureformer.memory.classical import Classical
from measureformer.memory.dense import Dense
from measureformer.memory.images import binary, checked_pictures
from measureformer.memory.modern import Modern
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike

Generation = Literal["classical", "dense", "modern"]
GENERATIONS: tuple[Generation, ...] = ("classical", "dense", "modern")
HOTTEST = 1e6
"""Largest default of the inverse temperature: equal patterns have no separation."""


class Recall(eqx.Module):
    """The pictures that a memory recalled, one per query.

    >>> import measureformer as mf
    >>> from measureformer.memory.images import pictures
    >>> images = pictures()
    >>> found = mf.memory.recall(images, mf.memory.masked(images))
    >>> found.nearest.tolist(), bool(found.converged.all())
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], True)
    """

    values: Float[np.ndarray, "m h w"]
    """The recalled pictures."""
    first: Float[np.ndarray, "m h w"]
    """The pictures after one update."""
    nearest: np.ndarray
    """The stored picture closest to each."""
    errors: np.ndarray
    """Root of the mean squared difference to `nearest`, over the pixels."""
    steps: np.ndarray
    """Updates that changed something."""
    converged: np.ndarray
    beta: float | None = eqx.field(static=True)
    """Inverse temperature of a modern memory."""


@checked
def recall(
    images: ArrayLike, queries: ArrayLike, *, generation: Generation = "modern", beta: float | None = None
) -> Recall:
    """Recall stored pictures from damaged versions of them.

    Arguments:
        images: stored pictures with values in [−1, 1], (n, h, w).
        queries: damaged pictures, (m, h, w); an unknown pixel is 0.
        generation: "classical" and "dense" (exponential) store black and white; "modern" stores differences to the
            mean picture, at norm 1, and recalls averages of the pictures.
        beta: inverse temperature of the modern memory; by default the smallest for which `ramsauer20_beta` proves that
            all pictures are stored.

    >>> import measureformer as mf
    >>> from measureformer.memory.images import pictures
    >>> images = pictures()
    >>> found = mf.memory.recall(images, mf.memory.masked(images), generation="classical")
    >>> bool((found.errors > 0.1).any())          # these pictures are correlated, and Hebb's rule mixes them up
    True
    """
    images, queries = checked_pictures(images), checked_pictures(queries)
    if images.ndim != 3 or queries.ndim != 3 or images.shape[1:] != queries.shape[1:]:
        raise ImageError(
            got=f"pictures of shape {images.shape} and queries of shape {queries.shape}",
            need="(n, h, w) and (m, h, w)",
            do="Resize them to one shape first.",
        )
    shape = queries.shape
    if generation != "modern":
        stored = np.where(binary(images) == 0, 1.0, binary(images)).reshape(len(images), -1)
        memory = Classical.store(stored) if generation == "classical" else Dense.store(stored)
        rows = binary(queries).reshape(len(queries), -1)
        found = memory.retrieve(rows)
        return _recalled(stored, found.state, memory.update(rows), found.trace, shape, None)
    flat = images.reshape(len(images), -1)
    patterns, turn = _normalised(flat)
    beta = _storing_beta(patterns) if beta is None else beta
    memory = Modern.store(patterns, beta)
    rows = turn(queries.reshape(len(queries), -1))
    found = memory.retrieve(rows)
    last, first = (np.asarray(attend(beta * np.asarray(xi), patterns, flat).values) for xi in (found.state, rows))
    return _recalled(flat, last, first, found.trace, shape, float(beta))


def _normalised(flat: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Differences to the mean at norm 1, and the function that makes them of queries; an unknown pixel stays 0."""
    mean = flat.mean(axis=0) if len(flat) > 1 else np.zeros(flat.shape[1])

    def unit(rows: np.ndarray) -> np.ndarray:
        size = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(size > 0, size, 1.0)

    return unit(flat - mean), lambda rows: unit(np.where(rows == 0, 0.0, rows - mean))


def _storing_beta(patterns: np.ndarray) -> float:
    least = float(Modern.store(patterns, 1.0).separation().min())
    return min(float(retrieval.ramsauer20_beta(least, len(patterns), 1.0)), HOTTEST) if least > 0 else HOTTEST


def _recalled(
    flat: np.ndarray, ends: np.ndarray, first: np.ndarray, trace: Trace, shape: tuple[int, ...], beta: float | None
) -> Recall:
    squares = np.sum(flat * flat, axis=1)
    nearest = np.argmin(squares[None] - 2 * ends @ flat.T, axis=1)
    errors = np.sqrt(np.mean((ends - flat[nearest]) ** 2, axis=1))
    values, first = ends.reshape(shape), first.reshape(shape)
    return Recall(values, first, nearest, errors, trace.steps, trace.converged, beta)


@checked
def draw_recall(
    images: ArrayLike,
    queries: ArrayLike,
    recalls: Mapping[str, Recall],
    *,
    kind: Literal["svg", "png", "pdf"] = "svg",
) -> bytes:
    """A sheet with one row per query: stored picture, query, and each memory's first update and final answer.

    Arguments:
        images: stored pictures, (n, h, w); their column is left out unless there is one for each query.
        queries: damaged pictures, (m, h, w).
        recalls: answers by the name of their columns, as {"modern": recall(…)}.
        kind: format of the file.

    >>> import measureformer as mf
    >>> from measureformer.memory.images import pictures
    >>> images = pictures()[:2]
    >>> queries = mf.memory.masked(images)
    >>> draw_recall(images, queries, {"modern": mf.memory.recall(images, queries)})[:5]
    b'<?xml'
    """
    need("matplotlib", "atlas")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    images, queries = checked_pictures(images), checked_pictures(queries)
    columns: list[tuple[str, np.ndarray]] = [("query", queries)]
    if len(images) == len(queries):
        columns.insert(0, ("stored", images))
    for name, found in recalls.items():
        columns += [(f"{name}:\nfirst update", found.first), (f"{name}:\nend", found.values)]
    high, wide = queries.shape[1:]
    cell = 0.75
    size = cell * len(columns), cell * high / wide * len(queries) + 0.45
    with mpl.rc_context({"font.family": ["STIXGeneral", "DejaVu Serif"], "svg.hashsalt": "measureformer"}):
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        axes = figure.subplots(len(queries), len(columns), squeeze=False)
        for j, (name, values) in enumerate(columns):
            axes[0, j].set_title(name, fontsize=8, parse_math=False)
            for i, picture in enumerate(values):
                axes[i, j].imshow(picture, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
                axes[i, j].set(xticks=[], yticks=[])
                axes[i, j].spines[:].set(linewidth=0.4, color="#999999")
        stream = BytesIO()
        details = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}.get(kind, {})
        figure.savefig(stream, format=kind, metadata=details, dpi=200)
    return stream.getvalue()
