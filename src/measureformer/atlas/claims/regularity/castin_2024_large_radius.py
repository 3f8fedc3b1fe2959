"""Far from the origin softmax is a maximum, and the constant counts how many tokens look at the same one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.regularity_heads import DIM, head
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
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
    return X, float((ranked[:, -1] - ranked[:, -2]).min()), limit


def _constant(X: np.ndarray) -> float:
    return local_lipschitz(head(np.eye(DIM)), Discrete.uniform(X)).lower


def _outcome(key: Any, config: Config, exponent: float, figure: Figure | None = None) -> Outcome:
    rng = generator(key)
    errors: list[float] = []
    for _ in range(config.draws):
        X, gap, limit = _draw(rng, config.n)
        errors.append(abs(_constant(math.sqrt(exponent / gap) * X) / limit - 1))
    return Outcome((Check("largest relative distance from the limit", max(errors), high=config.tolerance),), figure)


def _run(key: Any, config: Config) -> Outcome:
    X, gap, limit = _draw(generator(key), config.n)
    exponents = tuple(float(e) for e in np.geomspace(0.01, 100, 25))
    figure = Figure(
        "A cloud that is scaled up",
        "scale² · smallest gap of the logits",
        "local constant",
        (
            Series("local constant", exponents, tuple(_constant(math.sqrt(e / gap) * X) for e in exponents), "line"),
            Series("limit", (exponents[0], exponents[-1]), (limit, limit), "dashed"),
        ),
        xscale="log",
        caption=f"{config.n} random tokens in dimension 3, A = V = I.",
    )
    return _outcome(key, config, 60.0, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, 4.0)


claim = Claim(
    name="castin-2024-large-radius",
    title="The constant of a cloud of large radius",
    statement=(
        "For n tokens ρx_i, with unique maxima j(i) of ⟨Ax_i, x_j⟩ in j: as ρ → ∞ the local constant tends to "
        "‖V‖ · (largest number of i with the same j(i))^½, which is at most ‖V‖√n."
    ),
    hypotheses=("ρ² times the smallest gap between the two largest logits is large (60 here)",),
    reference="castin2024",
    run=_run,
    control=_control,
    control_statement="ρ² times the smallest gap is only 4.",
    quick=Config(),
    full=Config(draws=400),
)
