"""Recovery by a flattened ψ: rounding on the support, first order in the width where the new atom meets an old one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.structure_zoo import pushed, residual_head, softmax
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.measures import Discrete
from measureformer.structure import recover, regular_derivative
from measureformer.structure.black_box import BlackBox

A = np.array([[1.0, 0.4], [-0.3, 0.8]])
LAYER = residual_head(A)


@dataclass(frozen=True)
class Config:
    n: int = 4
    aimed: int = 3
    widths: int = 3
    rounding: float = 1e-9


def _errors(key: Any, config: Config, *, shrink: bool) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Widths; largest |error| at points aimed at atoms; error on the support by the recipe, and by reading weights."""
    rng = generator(key)
    points, box = rng.uniform(-1, 1, (config.n, 2)), BlackBox(pushed(LAYER))
    mu, weights = Discrete.uniform(points), np.full(config.n, 1 / config.n)
    values = LAYER(points, weights)
    widths = 10.0 ** -np.arange(2, 2 + config.widths)
    directions = rng.normal(size=(config.aimed, 2))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    errors = []
    for width in widths:
        at = float(width) if shrink else float(widths[0])
        worst = 0.0
        for direction in directions:
            x = points[0] + 0.3 * at * direction
            exact = x + softmax((x @ A.T @ points.T)[None], weights)[0] @ points
            found = regular_derivative(box, mu, x, lambda y: np.asarray(y)[:, 0], width=at)
            worst = max(worst, abs(found.value - exact[0]))
        errors.append(worst)
    recipe = regular_derivative(box, mu, points[0], lambda y: np.asarray(y)[:, 0])
    read = np.asarray(recover(box)(mu, points))
    return widths, np.array(errors), abs(recipe.value - values[0, 0]), float(np.abs(read - values).max())


def _outcome(measured: tuple[np.ndarray, np.ndarray, float, float], config: Config, figure: Figure | None) -> Outcome:
    widths, errors, recipe, read = measured
    slope = float(np.polyfit(np.log(widths), np.log(errors), 1)[0])
    return Outcome(
        (
            Check("exponent of the width in the error off the support", slope, 0.9, 1.1),
            Check("largest error over width", float((errors / widths).max()), high=1.0),
            Check("error on the support", recipe, high=config.rounding),
            Check("error on the support, read off by weight", read, high=1e-12),
        ),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    measured = _errors(key, config, shrink=True)
    widths, errors, _, _ = measured
    at = tuple(map(float, widths))
    figure = Figure(
        "Recovery next to an atom",
        "width h of the balls on which ψ is flat",
        "error of G(μ, x)",
        (
            Series("x aimed at an atom", at, tuple(map(float, errors)), "points"),
            Series("h", at, at, "dashed"),
            Series("control: width kept", at, tuple(map(float, _errors(key, config, shrink=False)[1])), "line"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Residual attention on {config.n} atoms; x at 0.3 h from an atom, in {config.aimed} directions.",
    )
    return _outcome(measured, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_errors(key, config, shrink=False), config, None)


claim = Claim(
    name="furuya-2025-recovery-error",
    title="Recovery is exact on the support and of first order next to it",
    statement=(
        "G_k(μ,x) = D̄f(μ,x,ψ_k) with ψ_k(y) = y_k flattened on balls of radius h around the atoms of f(μ): the error "
        "is rounding for x in the support of μ and at most h + modulus of G(ε) elsewhere, and of order h where G(μ,x) "
        "lies within h of an atom."
    ),
    hypotheses=("G is Lipschitz", "h is less than half the distance of atoms of f(μ)"),
    reference="furuya2025, equation (44)",
    run=_run,
    control=_control,
    control_statement="The width is kept while the ruler shrinks.",
    quick=Config(),
    full=Config(n=12, aimed=16, widths=5),
)
