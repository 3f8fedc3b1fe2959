"""A causal transformer does not see the future: not a little, not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Transformer


@dataclass(frozen=True)
class Config:
    n: int = 24
    dim: int = 4
    depth: int = 1
    changed_from: int = 16
    noticed: float = 1e-3


def _changes(key: Any, config: Config, *, causal: bool) -> np.ndarray:
    """How much each output token moves when the tokens from `changed_from` on are replaced."""
    net = Transformer.random(key, dim=config.dim, depth=config.depth, heads=2, causal=causal)
    rng = generator(key)
    before = rng.normal(size=(config.n, config.dim))
    after = before.copy()
    after[config.changed_from :] = 3 * rng.normal(size=(config.n - config.changed_from, config.dim))
    return np.abs(np.asarray(net.tokens(after)) - np.asarray(net.tokens(before))).max(axis=1)


def _outcome(changes: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    past, future = changes[: config.changed_from], changes[config.changed_from :]
    checks = (
        Check("largest change before", float(past.max()), low=0.0, high=0.0),
        # the experiment would be empty if nothing changed after the replaced tokens either
        Check("smallest change after", float(future.min()), low=config.noticed),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    masked, unmasked = _changes(key, config, causal=True), _changes(key, config, causal=False)
    places = tuple(float(i + 1) for i in range(config.n))
    curves = [tuple(float(v) for v in np.maximum(change, 1e-17)) for change in (masked, unmasked)]
    edge = config.changed_from + 0.5
    figure = Figure(
        "Who notices that later tokens were replaced",
        "position of the token",
        "change of its output",
        (
            Series("control: not masked", places, curves[1], "line"),
            Series("causal", places, curves[0], "points"),
            Series("tokens to the right are replaced", (edge, edge), (1e-17, max(curves[1])), "dashed"),
        ),
        yscale="log",
        caption="Exact zeros are drawn at 1e-17.",
    )
    return _outcome(masked, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_changes(key, config, causal=False), config)


claim = Claim(
    name="furuya-2024-causality",
    title="Causal attention does not see the future",
    statement=(
        "For every prompt and every i: replacing the tokens after position i leaves the outputs at positions ≤ i of a "
        "masked transformer of any depth unchanged, exactly (0.0 in floating point)."
    ),
    hypotheses=("one token per time", "every attention layer is masked; all other layers act on single tokens"),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The same transformer without the mask.",
    quick=Config(),
    full=Config(n=2048, dim=16, depth=6, changed_from=1024),
)
