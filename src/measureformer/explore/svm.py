"""Which tokens training selects: a prompt vector in the plane, its descent, and the support vector machine behind
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import measureformer as mf
from measureformer.errors import InfeasibleError, ShapeError
from measureformer.explore.points import curve, ring
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias.descent import Method

TOKENS = 3
"""Tokens in an example; the first of each is the one that should be selected."""
STARTS = 8
STEPS = (300, 1000, 3000)
SHORTEST = 0.3


@dataclass(frozen=True)
class Descents:
    """Descents of the prompt vector from several starts, and the direction that theory predicts."""

    steps: np.ndarray
    prompts: np.ndarray
    """(starts, steps, 2)"""
    direction: np.ndarray | None
    """That of the support vector machine; None if the tokens cannot be separated."""
    margin: float
    """1 over the norm of the SVM: the largest margin of a vector of length 1."""

    @property
    def misalignments(self) -> np.ndarray | None:
        """1 − cos of each prompt and the direction, (starts, steps)."""
        if self.direction is None:
            return None
        norms = np.linalg.norm(self.prompts, axis=2)
        return 1 - (self.prompts @ self.direction) / np.where(norms > 0, norms, 1)


def problem_of(points: Any) -> Any:
    """Examples of three tokens in the plane, one after the other; the first of each has the best score.

    >>> problem_of([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]).optimal().tolist()
    [0]
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 2 or not len(points) or len(points) % TOKENS:
        raise ShapeError(
            got=f"points of shape {points.shape}", need=f"{TOKENS} tokens for each example", do="Add some."
        )
    keys = points.reshape(-1, TOKENS, 2)
    # a third coordinate is the score: the head reads it, attention does not see it
    scores = np.broadcast_to(np.array([1.0, 0.0, 0.5])[:, None], (*keys.shape[:2], 1))
    X = np.concatenate([keys, scores], axis=2)
    return mf.implicit_bias.Problem.prompt(X, np.ones(len(X)), [0.0, 0.0, 1.0], np.eye(3)[:2])


def train(points: Any, *, method: Method = "ngd", steps: int = 1000) -> Descents:
    """Train the prompt from starts on a circle, and solve the support vector machine of the best tokens.

    >>> found = train([[1.0, 0.0], [-1.0, 0.2], [-1.0, -0.2]], steps=300)
    >>> abs(found.direction).round(3).tolist(), bool(found.misalignments[:, -1].max() < 0.05)
    ([1.0, 0.0], True)
    """
    problem = problem_of(points)
    angles = 2 * np.pi * (np.arange(STARTS) + 0.5) / STARTS
    starts = SHORTEST * np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, :, None]
    runs = mf.implicit_bias.descend_all([problem] * STARTS, method, steps, starts=list(starts))
    most = max((run.steps for run in runs), key=len)
    # a run that ended early stays where it is
    ways = [np.concatenate([run.W, np.repeat(run.W[-1:], len(most) - len(run.W), axis=0)]) for run in runs]
    machine = problem.svm()
    direction = None
    if machine.feasible:
        direction = np.asarray(machine.W)[:, 0] / machine.norm
    return Descents(most, np.stack(ways)[..., 0], direction, 1 / machine.norm if machine.feasible else 0.0)


def seen(prompts: Any, size: float = 2.2) -> np.ndarray:
    """Vectors as they are drawn: directions as they are, lengths r as log(1 + 20r), the longest of them `size` long.

    >>> seen([[0.0, 0.0], [1.0, 0.0], [1e3, 0.0]]).round(2).tolist()
    [[0.0, 0.0], [0.68, 0.0], [2.2, 0.0]]
    """
    prompts = np.asarray(prompts, float)
    norms = np.linalg.norm(prompts, axis=-1, keepdims=True)
    lengths = np.log1p(20 * norms)
    return size * lengths / max(float(lengths.max()), 1e-12) * prompts / np.where(norms > 0, norms, 1)


def curves(points: Any, found: Descents) -> list[dict[str, Any]]:
    """The ways of the prompts, the direction of the SVM, and a ring around each token that should be selected."""
    best = np.asarray(points, float).reshape(-1, TOKENS, 2)[:, 0]
    parts = [curve(way, 5, width=1.4) for way in seen(found.prompts)]
    if found.direction is not None:
        parts.append(curve([[0, 0], 2.4 * found.direction], "ink", style="dashed", width=1.6))
    return parts + [ring(place, 0.14 * np.eye(2)) | {"color": "ink"} for place in best]


def figure(found: Descents) -> Figure:
    """How fast directions get close to that of the SVM."""
    if found.misalignments is None:
        return Figure("No line separates these tokens", "step", "1 − cos", ())
    worst, best = found.misalignments.max(axis=0), found.misalignments.min(axis=0)
    later = found.steps > 0
    lines = (
        Series("worst start", found.steps[later], worst[later], role="measured"),
        Series("best start", found.steps[later], np.maximum(best[later], 1e-16), role="measured"),
    )
    return Figure("Distance to the direction of the SVM", "step", "1 − cos", lines, xscale="log", yscale="log")


def inseparable() -> InfeasibleError:
    """What is said where no direction selects the best tokens: a ringed token lies between the others of its
    example."""
    return InfeasibleError(
        got="tokens that no direction separates",
        need="each ringed token outside of the hull of the others of its example, all in one direction",
        do="Drag a ringed token outwards.",
    )


def warm_up(method: Method, examples: int) -> None:
    """Compile training for so many examples, and for all of `STEPS`: their records fill one bucket."""
    train(start(examples), method=method, steps=STEPS[0])


def start(examples: int) -> np.ndarray:
    """Tokens to begin with: (3·examples, 2)."""
    places = [
        [1.0, 0.3],
        [-0.9, 0.6],
        [-0.4, -0.9],
        [0.8, -0.6],
        [-1.1, -0.3],
        [0.1, 1.1],
        [1.3, -0.1],
        [-0.3, 0.4],
        [-1.0, 1.2],
    ]
    return np.array(places[: TOKENS * examples])
