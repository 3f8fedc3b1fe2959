"""The lens on a model folder: where the tokens of a text go, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.explore.points import curve
from measureformer.figures.figure import Figure, Series

LONGEST = 200
"""Tokens of a text that are looked at."""
MOST_WORDS = 80
"""Tokens that are written beside their dots: more would cover each other."""


@dataclass(frozen=True)
class Look:
    """A model on a text: tokens after each layer, seen in the plane of their two largest directions."""

    name: str
    words: tuple[str, ...]
    plane: np.ndarray
    """(layers + 1, n, 2), all layers in one scale."""
    rank: np.ndarray
    """Effective rank of the cloud after each layer."""
    cosine: np.ndarray
    """Mean cosine of two tokens after each layer."""


def opened(folder: str) -> Any:
    """The model in that folder; that of the package without one."""
    return mf.lens.load(folder.strip() or None)


def look(model: Any, text: str) -> Look:
    """What the model does to the tokens of the text."""
    trace = model.trace(model.tokens(asked(text))[:LONGEST])
    clouds = np.stack([np.asarray(measure.points, float) for measure in trace.measures])
    words = tuple(trace.words)
    return Look(repr(model).strip("<>"), words, flat(clouds), *np.array([numbers_of(cloud) for cloud in clouds]).T)


def asked(text: str) -> str | list[int]:
    """A text, or token numbers where nothing but numbers was written: for models without a tokenizer.

    >>> asked("3 1 4"), asked("to be")
    ([3, 1, 4], 'to be')
    """
    words = text.split()
    return [int(word) for word in words] if words and all(word.isdecimal() for word in words) else text


def flat(clouds: Any) -> np.ndarray:
    """Clouds (t, n, d) in the plane: each centred and divided by its size, then seen along two directions of all.

    >>> flat(np.random.default_rng(0).normal(size=(3, 5, 4))).shape
    (3, 5, 2)
    """
    clouds = np.asarray(clouds, float)
    centred = clouds - clouds.mean(axis=1, keepdims=True)
    sizes = np.sqrt(np.mean(centred**2, axis=(1, 2), keepdims=True))
    scaled = centred / np.where(sizes > 0, sizes, 1)
    together = scaled.reshape(-1, clouds.shape[2])
    directions = np.linalg.svd(together, full_matrices=False)[2][:2]
    plane = scaled @ directions.T
    plane = np.concatenate([plane, np.zeros((*plane.shape[:2], 2 - plane.shape[2]))], axis=2)
    return plane / max(float(np.abs(plane).max()), 1e-12)


def numbers_of(cloud: Any) -> tuple[float, float]:
    """Effective rank (e to the entropy of the spectrum) of a cloud, and the mean cosine of two of its tokens.

    >>> rank, cosine = numbers_of(np.eye(3))
    >>> round(rank, 6), round(cosine, 6)
    (2.0, 0.0)
    """
    cloud = np.asarray(cloud, float)
    values = np.linalg.svd(cloud - cloud.mean(axis=0), compute_uv=False) ** 2
    shares = values[values > 1e-12 * values.max(initial=1e-300)] / values.sum()
    unit = cloud / np.maximum(np.linalg.norm(cloud, axis=1, keepdims=True), 1e-300)
    n = len(cloud)
    cosine = (np.sum(unit.sum(axis=0) ** 2) - n) / max(n * (n - 1), 1)
    return float(np.exp(-np.sum(shares * np.log(shares)))), float(cosine)


def curves(found: Look, layer: int) -> list[dict[str, Any]]:
    """The tokens after a layer as dots, with the way of each from the layer before; few enough have their words."""
    ways = found.plane[max(layer - 1, 0) : layer + 1]
    lines = [curve(ways[:, i], 5, width=0.8) for i in range(ways.shape[1])] if layer else []
    words = [visible(word) for word in found.words] if len(found.words) <= MOST_WORDS else []
    return [*lines, curve(ways[-1], 0, style="dots", width=3, words=words)]


def visible(word: str) -> str:
    """A token as it is shown: blanks can be seen, and long ones are cut.

    >>> visible(" to"), visible("\\n"), visible("incomprehensibilities")
    ('␣to', '⏎', 'incomprehens…')
    """
    shown = word.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    return shown if len(shown) <= 13 else f"{shown[:12]}…"


def figure(found: Look) -> Figure:
    """The effective rank after each layer."""
    depth = np.arange(len(found.rank))
    return Figure("Effective rank of the cloud", "layer", "rank", (Series("rank", depth, found.rank, role="measured"),))


def cosine_figure(found: Look) -> Figure:
    """The mean cosine of two tokens after each layer."""
    depth = np.arange(len(found.cosine))
    return Figure(
        "Mean cosine of two tokens", "layer", "cosine", (Series("cosine", depth, found.cosine, role="measured"),)
    )
