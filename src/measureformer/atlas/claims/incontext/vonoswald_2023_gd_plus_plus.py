"""K layers: moving inputs too (GD++) beats plain gradient descent; one step has a closed form."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.incontext.linear import LinearModel, one_step

DIM, EXAMPLES = 10, 10
VARIANCE, FOURTH = 1 / 12, 1 / 80  # of U(−1/2, 1/2)


@dataclass(frozen=True)
class Config:
    tasks: int = 3000
    etas: int = 9
    """Rates that are tried."""
    best: float = 13.0
    """Rate of GD++ at depth 2."""
    gamma: float = 1.79
    """Times the mean over examples: ten times what multiplies the sum."""


def _losses(key: Key, config: Config, models: list[LinearModel]) -> np.ndarray:
    """Half of the squared errors, (models, tasks), on the same tasks."""
    rng = generator(key)
    x = rng.uniform(-0.5, 0.5, size=(config.tasks, EXAMPLES + 1, DIM))
    y = np.einsum("bnd,bd->bn", x, rng.normal(size=(config.tasks, DIM)))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    return np.asarray(_halves(stacked, x[:, :-1], y[:, :-1], x[:, -1], y[:, -1]))


@jax.jit
def _halves(models: LinearModel, x: jax.Array, y: jax.Array, q: jax.Array, answer: jax.Array) -> jax.Array:
    return jax.vmap(lambda model: (model.predict(x, y, q) - answer) ** 2 / 2)(models)


def _model(depth: int, eta: float, gamma: float = 0.0) -> LinearModel:
    """`depth` equal layers with rate η; inputs move by γ times the mean of x xᵀ."""
    return LinearModel.descent(np.tile(eta * np.eye(DIM), (depth, 1, 1)), np.full(depth, gamma / eta))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    law = one_step(DIM, EXAMPLES, variance=VARIANCE, fourth=FOURTH)
    eta = 1 / VARIANCE if variant == "rate-of-many-examples" else law.eta
    gamma = -config.gamma if variant == "opposite-gamma" else config.gamma
    etas = np.linspace(1.0, 11.0, config.etas)
    one = _losses(key, config, [_model(1, eta), *(_model(1, eta) for eta in etas)])
    two = _losses(key, config, [_model(2, config.best, gamma), *(_model(2, eta) for eta in etas)])
    gap, error = abs(one[0].mean() - law.error / 2), 5 * one[0].std() / np.sqrt(config.tasks)
    plain = two[1:].mean(axis=1)
    ratio, many = 2 * one[0].mean() / law.error, "rate-of-many-examples"
    checks = (
        Check("one step at the best rate, loss over its closed form", ratio, 0.9, 1.1, rejected_by=many),
        Check("loss minus closed form, in five standard errors", gap / error, high=1.0, rejected_by=many),
        Check("GD++ over the best GD, two layers", two[0].mean() / plain.min(), high=0.9, rejected_by="opposite-gamma"),
    )
    if variant != "claim":
        return Outcome(checks)
    figure = Figure(
        "Steps of gradient descent in context",
        "rate η",
        "half of the mean squared error",
        (
            Series("1 layer", etas, one[1:].mean(axis=1), role="measured"),
            Series("2 layers", etas, plain, role="measured"),
            Series("2 layers of GD++", etas[[0, -1]], np.full(2, two[0].mean()), role="measured"),
            Series("closed form of the best single step", [law.eta], [law.error / 2], "points", role="theory"),
        ),
        caption=(
            f"{config.tasks} tasks y = ⟨w, x⟩, x uniform in [−1/2, 1/2]^10, 10 examples. GD++ has rate "
            f"{config.best:g} and γ = {config.gamma:g}."
        ),
    )
    return Outcome(checks, figure)


claim = Claim(
    name="vonoswald-2023-gd-plus-plus",
    title="Layers that move inputs beat gradient descent",
    kind="observation",
    statement=(
        "For y = ⟨w, x⟩ with w ~ N(0, I) and independent coordinates of x: the best single step has rate η* = d s²/T "
        "and error s²(d − (d s²)²/T), T = (d m₄ + d(d−1)s⁴)/N + (1 − 1/N) d s⁴. Observed: with two layers that also "
        "send x to (I − γ ∫ x xᵀ) x, the loss is below 0.9 times that of two steps at their best common rate."
    ),
    hypotheses=("d = N = 10, x uniform in [−1/2, 1/2]^10", "both layers have the same weights"),
    reference="vonoswald2023, Section 3",
    measure=measure,
    controls={
        "rate-of-many-examples": "The single step has the rate 1/s², which is the limit of η* for N → ∞.",
        "opposite-gamma": "γ has the opposite sign, so that large eigenvalues of ∫ x xᵀ grow.",
    },
    quick=Config(),
    full=Config(tasks=40_000, etas=41),
)
