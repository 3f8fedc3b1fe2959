"""Recovery by a flattened ψ: rounding on the support, first order in the width where the new atom meets an old one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.structure_zoo import pushed, residual_head, softmax
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.structure import recover, regular_derivative
from measureformer.structure.black_box import BlackBox, atoms_of

A = np.array([[1.0, 0.4], [-0.3, 0.8]])
LAYER = residual_head(A)


@dataclass(frozen=True)
class Config:
    n: int = 4
    aimed: int = 3
    widths: int = 3
    rounding: float = 1e-9


def _errors(key: Key, config: Config, variant: str) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Widths; largest |error| at points aimed at atoms; error on the support by the recipe, and by reading weights."""
    rng = generator(key)
    points, box = rng.uniform(-1, 1, (config.n, 2)), BlackBox(pushed(LAYER))
    mu, weights = Discrete.uniform(points), np.full(config.n, 1 / config.n)
    values = LAYER(points, weights)
    widths = 10.0 ** -np.arange(2, 2 + config.widths)
    directions = rng.normal(size=(config.aimed, 2))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def first_coordinate(x: np.ndarray, width: float | None = None) -> float:
        found = regular_derivative(box, mu, x, lambda y: np.asarray(y)[:, 0], width=width)
        return found.value + (found.irregular if variant == "unflattened" else 0.0)

    errors = []
    for width in widths:
        at = widths[0] if variant == "width-kept" else width
        worst = 0.0
        for direction in directions:
            x = points[0] + 0.3 * at * direction
            exact = x + softmax((x @ A.T @ points.T)[None], weights)[0] @ points
            worst = max(worst, abs(first_coordinate(x, at) - exact[0]))
        errors.append(worst)
    read = box.image(atoms_of(mu)).points[:1] if variant == "unmarked" else np.asarray(recover(box)(mu, points))
    return widths, np.array(errors), abs(first_coordinate(points[0]) - values[0, 0]), np.abs(read - values).max()


def measure(key: Key, config: Config, variant: str) -> Outcome:
    widths, errors, recipe, read = _errors(key, config, variant)
    slope, ratio = np.polyfit(np.log(widths), np.log(errors), 1)[0], (errors / widths).max()
    checks = (
        Check("exponent of the width in the error off the support", slope, 0.9, 1.1, rejected_by="width-kept"),
        Check("largest error over width", ratio, high=1.0, rejected_by="width-kept"),
        Check("error on the support", recipe, high=config.rounding, rejected_by="unflattened"),
        Check("error on the support, read off by weight", read, high=1e-12, rejected_by="unmarked"),
    )
    return Outcome(checks, _figure(key, config, widths, errors) if variant == "claim" else None)


def _figure(key: Key, config: Config, widths: np.ndarray, errors: np.ndarray) -> Figure:
    kept = _errors(key, config, "width-kept")[1]
    return Figure(
        "Recovery next to an atom",
        "width h of the balls on which ψ is flat",
        "error of G(μ, x)",
        (
            Series("x aimed at an atom", widths, errors, "points", role="measured"),
            Series("h", widths, widths, "dashed", role="theory"),
            Series("control: width kept", widths, kept, role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Residual attention on {config.n} atoms; x at 0.3 h from an atom, in {config.aimed} directions.",
    )


claim = Claim(
    name="furuya-2025-recovery-error",
    title="Recovery is exact on the support and of first order next to it",
    kind="theorem",
    statement=(
        "G_k(μ,x) = D̄f(μ,x,ψ_k) with ψ_k(y) = y_k flattened on balls of radius h around the atoms of f(μ): the error "
        "is rounding for x in the support of μ and at most h + modulus of G(ε) elsewhere, and of order h where G(μ,x) "
        "lies within h of an atom."
    ),
    hypotheses=("G is Lipschitz", "h is less than half the distance of atoms of f(μ)"),
    reference="furuya2025, equation (44)",
    measure=measure,
    controls={
        "width-kept": "The balls keep their radius while h shrinks.",
        "unflattened": "ψ_k(y) = y_k as it is, not flattened around the atoms.",
        "unmarked": "No atom is marked: all have the same mass, and the first image is taken for each.",
    },
    quick=Config(),
    full=Config(n=12, aimed=16, widths=5),
)
