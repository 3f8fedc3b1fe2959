"""Masked: a compiled transformer at time t computes the polynomial on what has been seen until then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.universality_blocks import SQUARE, expression, largest
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Causal
from measureformer.measures import SpaceTime
from measureformer.universality import compile


@dataclass(frozen=True)
class Config:
    n: int = 16
    queries: int = 5


def _measured(key: Any, config: Config, *, masked: bool) -> tuple[np.ndarray, np.ndarray]:
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


def _outcome(errors: np.ndarray, figure: Figure | None = None) -> Outcome:
    return Outcome((Check("largest difference", float(errors.max()), high=1e-12),), figure)


def _run(key: Any, config: Config) -> Outcome:
    times, errors = _measured(key, config, masked=True)
    blind = _measured(key, config, masked=False)[1]
    places = tuple(times.tolist())
    series = tuple(
        Series(label, places, tuple(np.maximum(found, 1e-17).tolist()), "points")
        for label, found in (("masked", errors), ("control: not masked", blind))
    )
    figure = Figure(
        "A compiled transformer against the polynomial on the truncated measure",
        "time of the query",
        "difference",
        series,
        yscale="log",
        caption="Zeros are drawn at 1e-17.",
    )
    return _outcome(errors, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_measured(key, config, masked=False)[1])


claim = Claim(
    name="furuya-2024-masked-compile",
    title="Masked transformers, compiled",
    statement=(
        "With every attention masked, the compiled transformer at (x, t) equals the polynomial in blocks on the "
        "restriction of the space–time measure to times ≤ t."
    ),
    hypotheses=("mass at a time ≤ t", "quadratic activation, so that the equality is exact"),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The same transformer without the mask.",
    quick=Config(),
    full=Config(n=256, queries=20),
)
