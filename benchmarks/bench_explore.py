"""How long an app of the explorer computes between two moves of a hand, with 200 points; in a browser: explore.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from measureformer.explore import compile as compiling
from measureformer.explore import counterexample, drawing, gaussian, incontext, memory, particles, svm

N = 200


def _particles(space: Any) -> Callable[[], Any]:
    layer, points = particles.Layer.preset("attract: V = I", space, beta=4.0), particles.start(space, N)

    def move() -> None:
        found = particles.run(layer, points, 4.0)
        particles.paths(layer, found)
        particles.lipschitz(layer, points)
        drawing.heat(particles.attention_matrix(layer, points), "attention")
        drawing.picture(particles.figure(found))
        drawing.picture(particles.cluster_figure(found))

    return move


def _gaussian() -> None:
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    drawing.picture(gaussian.figure(gaussian.run([[1, 0], [2, 0], [1, 1]], np.eye(2), np.eye(2), turn)))


POINTS = np.random.default_rng(0).uniform(size=(N, 2))
MOVES: dict[str, Callable[[], Any]] = {
    "particles on the circle": _particles("circle"),
    "particles on the sphere": _particles("sphere"),
    "gaussian": _gaussian,
    "counterexample": lambda: counterexample.gap_figure(1000, softening=0.1),
    "compile, cells": lambda: compiling.refined(np.sin, "mean"),
    "compile, products": lambda: compiling.by_products(np.sin, 8, 128),
    "memory": lambda: memory.recall(POINTS, 20.0),
    "svm": lambda: svm.train(svm.start(3), steps=1000),
    "incontext": lambda: incontext.learn(POINTS),
}


@pytest.mark.parametrize("app", MOVES)
def test_a_move(benchmark: Any, app: str) -> None:
    benchmark.pedantic(MOVES[app], rounds=10, warmup_rounds=1)
