"""Masked: a compiled transformer at time t computes the polynomial on what has been seen until then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.universality_blocks import SQUARE, expression, largest
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Causal
from measureformer.measures import SpaceTime
from measureformer.universality import compile


@dataclass(frozen=True)
class Config:
    n: int = 16
    queries: int = 5


def _errors(key: Key, config: Config, *, masked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Times of the tokens, and the largest error of a query at each."""
    rng = generator(key)
    e = expression(rng)
    net = compile(e, SQUARE, activation="quadratic")
    sigma = SpaceTime.weighted(
        rng.uniform(-1, 1, (config.n, 2)), np.sort(rng.uniform(size=config.n)), rng.uniform(0.1, 1, config.n)
    )
    x = rng.uniform(-1, 1, (config.queries, 2))
    times = np.asarray(sigma.times)
    seen = Causal(net)
    errors = [
        largest(np.asarray(seen(sigma, x, t) if masked else net(sigma.space(), x)) - np.asarray(e(sigma.until(t), x)))
        for t in times
    ]
    return times, np.asarray(errors)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    times, errors = _errors(key, config, masked=variant != "not-masked")
    check = Check("largest difference", errors.max(), high=1e-12, rejected_by="not-masked")
    if variant != "claim":
        return Outcome((check,))
    blind = _errors(key, config, masked=False)[1]
    figure = Figure(
        "A compiled transformer against the polynomial on the truncated measure",
        "time of the query",
        "difference",
        (
            Series("masked", times, np.maximum(errors, 1e-17), "points", role="measured"),
            Series("control: not masked", times, np.maximum(blind, 1e-17), "points", role="control"),
        ),
        yscale="log",
        caption="Zeros are drawn at 1e-17.",
    )
    return Outcome((check,), figure)


claim = Claim(
    name="furuya-2024-masked-compile",
    title="Masked transformers, compiled",
    kind="construction",
    statement=(
        "With every attention masked, the compiled transformer at (x, t) equals the polynomial in blocks on the "
        "restriction of the space–time measure to times ≤ t."
    ),
    hypotheses=("mass at a time ≤ t", "quadratic activation, so that the equality is exact"),
    reference="furuya2024",
    measure=measure,
    controls={"not-masked": "The same transformer without the mask."},
    quick=Config(),
    full=Config(n=256, queries=20),
)
