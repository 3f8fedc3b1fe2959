"""One layer of linear attention is one step of gradient descent, and K layers are K steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.incontext.linear import gd_layer, gradient_descent
from measureformer.measures import Discrete


@dataclass(frozen=True)
class Config:
    problems: int = 3
    dim: int = 4
    labels: int = 2
    examples: int = 12
    questions: int = 8
    layers: int = 4
    eta: float = 0.3


def _answers(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Answers of K layers and of K steps, (K, problems, questions, labels)."""
    rng, found = generator(key), []
    for _ in range(config.problems):
        W, W0 = rng.normal(size=(2, config.labels, config.dim))
        x, q = rng.normal(size=(config.examples, config.dim)), rng.normal(size=(config.questions, config.dim))
        y = x @ W.T + 0.1 * rng.normal(size=(config.examples, config.labels))
        layer = gd_layer(config.eta, 0 * W0 if variant == "values-without-start" else W0)
        mu = Discrete.uniform(np.concatenate([x, y], axis=1))
        asked = np.concatenate([q, -q @ W0.T], axis=1)
        pairs = []
        for depth in range(1, config.layers + 1):
            # layer by layer, so that every depth runs the same program
            asked = np.asarray(layer(mu, asked))
            mu = mu if variant == "examples-stay" else layer.push(mu)
            pairs.append((-asked[:, config.dim :], q @ gradient_descent(x, y, config.eta, depth, W0).T))
        found.append(pairs)
    both = np.array(found)
    return both[:, :, 0].swapaxes(0, 1), both[:, :, 1].swapaxes(0, 1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    layers, steps = _answers(key, config, variant)
    gaps = np.abs(layers - steps).max(axis=(1, 2, 3)) / np.abs(steps).max()
    start, moved = "values-without-start", "examples-stay"
    checks = (
        Check("one layer against one step, relative difference", gaps[0], high=1e-12, rejected_by=start),
        Check(
            "K layers against K steps, largest relative difference", gaps.max(), high=1e-12, rejected_by=(start, moved)
        ),
    )
    return Outcome(checks, _figure(key, config, layers, steps) if variant == "claim" else None)


def _figure(key: Key, config: Config, layers: np.ndarray, steps: np.ndarray) -> Figure:
    control, _ = _answers(key, config, "values-without-start")
    depths = range(1, config.layers + 1)
    return Figure(
        "Layers of linear attention and steps of gradient descent",
        "K",
        "answer to one question",
        (
            Series("K layers", depths, layers[:, 0, 0, 0], "points", role="measured"),
            Series("control: values without W₀", depths, control[:, 0, 0, 0], "points", role="control"),
            Series("K steps", depths, steps[:, 0, 0, 0], "dashed", role="theory"),
        ),
        caption=f"{config.examples} examples in R^{config.dim}, first of {config.labels} labels, η = {config.eta:g}.",
    )


claim = Claim(
    name="vonoswald-2023-one-step",
    title="One layer of linear attention is one step of gradient descent",
    kind="construction",
    statement=(
        "For all examples (x_i, y_i) and all W₀, with Q = K = diag(I, 0) and V = η[[0, 0], [W₀, −I]]: K residual "
        "layers of linear attention send the question (x, −W₀x) to (x, −W_K x), where W_K is reached from W₀ by K "
        "steps of gradient descent with rate η on (1/2N) Σ |W x_i − y_i|²."
    ),
    hypotheses=("the question is a point, seen by no token", "linear attention, without softmax"),
    reference="vonoswald2023, Proposition 1",
    measure=measure,
    controls={
        "values-without-start": "The values leave out W₀, which the question still carries.",
        "examples-stay": "The layers move the question only, so that all of them see the residuals of W₀.",
    },
    quick=Config(),
    full=Config(problems=20, dim=10, labels=3, examples=40, layers=8),
)
