"""Far from the origin softmax is a maximum, and the constant counts how many tokens look at the same one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.regularity_heads import DIM, head
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.measures import Discrete
from measureformer.regularity import local_lipschitz


@dataclass(frozen=True)
class Config:
    draws: int = 10
    n: int = 12
    tolerance: float = 1e-6


def _draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, float, float]:
    """A cloud, the smallest gap between the two largest logits of a token, and the limit of the constant."""
    X = rng.normal(size=(n, DIM))
    logits = X @ X.T
    ranked = np.sort(logits, axis=1)
    limit = math.sqrt(np.bincount(logits.argmax(axis=1)).max())
    return X, (ranked[:, -1] - ranked[:, -2]).min(), limit


def _constant(X: np.ndarray, gap: float, exponent: float) -> float:
    """The constant of the cloud, scaled so that ρ² times the smallest gap is the exponent."""
    return local_lipschitz(head(np.eye(DIM)), Discrete.uniform(math.sqrt(exponent / gap) * X)).lower


def measure(key: Key, config: Config, variant: str) -> Outcome:
    exponent = 4.0 if variant == "moderate-radius" else 60.0
    rng, errors = generator(key), []
    for _ in range(config.draws):
        X, gap, limit = _draw(rng, config.n)
        errors.append(abs(_constant(X, gap, exponent) / limit - 1))
    name = "largest relative distance from the limit"
    checks = (Check(name, max(errors), high=config.tolerance, rejected_by="moderate-radius"),)
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    X, gap, limit = _draw(generator(key), config.n)
    exponents = np.geomspace(0.01, 100, 25)
    constants = [_constant(X, gap, exponent) for exponent in exponents]
    return Figure(
        "A cloud that is scaled up",
        "scale² · smallest gap of the logits",
        "local constant",
        (
            Series("local constant", exponents, constants, "line", role="measured"),
            Series("limit", exponents[[0, -1]], (limit, limit), "dashed", role="theory"),
        ),
        xscale="log",
        caption=f"{config.n} random tokens in dimension 3, A = V = I.",
    )


claim = Claim(
    name="castin-2024-large-radius",
    title="The constant of a cloud of large radius",
    kind="theorem",
    statement=(
        "For n tokens ρx_i, with unique maxima j(i) of ⟨Ax_i, x_j⟩ in j: as ρ → ∞ the local constant tends to "
        "‖V‖ · (largest number of i with the same j(i))^½, which is at most ‖V‖√n."
    ),
    hypotheses=("ρ² times the smallest gap between the two largest logits is large (60 here)",),
    reference="castin2024",
    measure=measure,
    controls={"moderate-radius": "ρ² times the smallest gap is only 4."},
    quick=Config(),
    full=Config(draws=400),
)
