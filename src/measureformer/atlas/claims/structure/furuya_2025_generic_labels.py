"""Which image belongs to which atom: masses say it, continuously, if the weights are generic."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.helpers.structure_zoo import pushed
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.measures import Discrete
from measureformer.structure import generic
from measureformer.structure.black_box import Atoms, BlackBox

TURN = 0.7


@dataclass(frozen=True)
class Config:
    n: int = 5
    paths: int = 12
    smallest: float = 1e-6
    eps: float = 0.05


def _map(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    c, s = np.cos(TURN), np.sin(TURN)
    return x @ np.array([[c, s], [-s, c]]) + 0.3 * np.tanh(a @ x)


def _labels(box: BlackBox, mu: Atoms) -> np.ndarray:
    """The image of each atom by mass alone: the k-th lightest goes to the k-th lightest, ties by place."""
    nu = box.image(mu)
    images = nu.points[np.lexsort((nu.points[:, 1], nu.points[:, 0], np.round(nu.weights, 12)))]
    order = np.argsort(np.round(mu.weights, 12), kind="stable")
    values = np.empty_like(images)
    values[order] = images
    return values


@once
def _changes(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps h, and the largest change of a label over steps of that size, where images pass each other."""
    rng, box = generator(key), BlackBox(pushed(_map))
    steps = np.geomspace(0.1, config.smallest, 6)
    worst = np.zeros(len(steps))
    for path in range(config.paths):
        mu = Discrete.uniform(rng.uniform(-1, 1, (config.n, 2)))
        nu = mu if variant == "equal-weights" else generic(mu, config.eps, jax.random.fold_in(key, path))
        points, weights = np.asarray(nu.points), np.asarray(nu.weights)
        # a place on the path at which the first coordinates of two images are equal
        tie = points.copy()
        image = _map(points, weights)
        away = image[1, 0] - image[0, 0]
        sideways = np.array([np.cos(TURN), -np.sin(TURN)])  # moves the image along the first axis
        tie[0] += away * sideways
        for k, step in enumerate(steps):
            sides = []
            for sign in (1, -1):
                moved = tie.copy()
                moved[0] += sign * step * sideways
                sides.append(_labels(box, Atoms(moved, weights)))
            worst[k] = max(worst[k], np.abs(sides[0] - sides[1]).max())
    return steps, worst


def measure(key: Key, config: Config, variant: str) -> Outcome:
    steps, worst = _changes(key, config, variant)
    slope, control = np.polyfit(np.log(steps), np.log(worst), 1)[0], "equal-weights"
    checks = (
        Check("change of labels over the smallest step", worst[-1], high=10 * steps[-1], rejected_by=control),
        Check("exponent of the step in the change", slope, 0.9, 1.1, rejected_by=control),
    )
    return Outcome(checks, _figure(key, config, steps, worst) if variant == "claim" else None)


def _figure(key: Key, config: Config, steps: np.ndarray, worst: np.ndarray) -> Figure:
    _, jumps = _changes(key, config, "equal-weights")
    return Figure(
        "Labels by mass",
        "step h",
        "largest change of a label",
        (
            Series("generic weights", steps, worst, "points", role="measured"),
            Series("h", steps, steps, "dashed", role="theory"),
            Series("control: equal weights", steps, jumps, role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.paths} measures with {config.n} atoms, while two images pass each other.",
    )


claim = Claim(
    name="furuya-2025-generic-labels",
    title="Labels are continuous on generic weights",
    kind="theorem",
    statement=(
        "On measures whose sets of atoms have different masses, a continuous support-preserving f assigns to each atom "
        "x_i its image y_i by mass alone, and (aⁿ,xⁿ) → (a,x) implies y_iⁿ → y_i for every i. Such measures are dense."
    ),
    hypotheses=("f continuous and support preserving", "generic weights"),
    reference="furuya2025, Lemmas 1 and 4",
    measure=measure,
    controls={
        "equal-weights": "Equal weights: masses tell nothing, and labels by place jump where images pass each other."
    },
    quick=Config(),
    full=Config(n=12, paths=200),
)
