"""The class of a head belongs to the measure: for a Gaussian context it has a closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention
from measureformer.measures import Discrete, Gaussian
from measureformer.memory import head_class

STRENGTHS = np.linspace(0.1, 3.0, 12)


@dataclass(frozen=True)
class Config:
    tokens: int = 20_000


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    points = rng.normal(size=(config.tokens, 2)) @ np.array([[1.0, 0.3], [0.0, 0.6]])
    cov = np.array([[1.0, 0.3], [0.3, 0.45]])
    mu, gaussian = Discrete.uniform(points), Gaussian([0.0, 0.0], cov)
    # queries along one direction with Ax of growing size
    G = Attention.head(np.eye(2), np.eye(2), np.eye(2))
    x = STRENGTHS[:, None] * np.array([[0.8, -0.6]])
    s = np.sqrt(np.sum(x @ cov * x, axis=1, keepdims=True))
    # the deviation of s x is s²
    exact = head_class(G, gaussian, s * x if variant == "variance-for-deviation" else x).shares[0]
    measured = head_class(G, mu, x).shares[0]
    error = 5 * np.sqrt(0.25 / config.tokens) + 0.5 / np.sqrt(config.tokens) * np.exp(0.5 * STRENGTHS.max() ** 2 * 0.45)
    gap, wrong = np.abs(measured - exact).max(), "variance-for-deviation"
    check = Check("largest difference to the closed form", gap, high=min(error, 0.05), rejected_by=wrong)
    return Outcome((check,), _figure(config, measured, exact) if variant == "claim" else None)


def _figure(config: Config, measured: np.ndarray, exact: np.ndarray) -> Figure:
    return Figure(
        "How much of a Gaussian context a query reads",
        "size of the query",
        "part of the mass with 90 % of the attention",
        (
            Series(f"{config.tokens} tokens", STRENGTHS, measured, "points", role="measured"),
            Series("Φ(Φ⁻¹(0.9) − s)", STRENGTHS, exact, "dashed", role="theory"),
        ),
        caption="Class I above 1/2, II above 1/8, III above 1/32, IV below.",
    )


claim = Claim(
    name="ramsauer-2020-head-classes",
    title="Head classes of a Gaussian context",
    kind="theorem",
    statement=(
        "The smallest part of N(m, Σ) that holds 90 % of the attention of x is Φ(Φ⁻¹(0.9) − s) with s = |Σ^{1/2} A "
        "x|; the shares k/N of n tokens drawn from it tend to that."
    ),
    hypotheses=("softmax attention", "n large"),
    reference="ramsauer2020, Section 3",
    measure=measure,
    controls={"variance-for-deviation": "The variance s² in place of the standard deviation."},
    quick=Config(),
    full=Config(tokens=200_000),
)
