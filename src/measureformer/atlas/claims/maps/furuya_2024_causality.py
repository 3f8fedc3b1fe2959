"""A causal transformer does not see the future: not a little, not at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Transformer


@dataclass(frozen=True)
class Config:
    n: int = 24
    dim: int = 4
    depth: int = 1
    changed_from: int = 16
    noticed: float = 1e-3


def _changes(key: Key, config: Config, variant: str) -> np.ndarray:
    """How much each output token moves when the tokens from `changed_from` on, or the last alone, are replaced."""
    causal = variant != "not-masked"
    net = Transformer.random(key, dim=config.dim, depth=config.depth, heads=2, causal=causal)
    rng = generator(key)
    before = rng.normal(size=(config.n, config.dim))
    new = 3 * rng.normal(size=before[config.changed_from :].shape)
    replaced = config.n - 1 if variant == "last-token-alone" else config.changed_from
    after = np.concatenate([before[:replaced], new[replaced - config.changed_from :]])
    return np.abs(np.asarray(net.tokens(after)) - np.asarray(net.tokens(before))).max(axis=1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    changes = _changes(key, config, variant)
    past, future = changes[: config.changed_from], changes[config.changed_from :]
    checks = (
        Check("largest change before", past.max(), low=0.0, high=0.0, rejected_by="not-masked"),
        # the experiment would be empty if nothing changed after the replaced tokens either
        Check("smallest change after", future.min(), low=config.noticed, rejected_by="last-token-alone"),
    )
    if variant != "claim":
        return Outcome(checks)
    places, edge = np.arange(config.n) + 1, config.changed_from + 0.5
    causal, unmasked = (np.maximum(found, 1e-17) for found in (changes, _changes(key, config, "not-masked")))
    figure = Figure(
        "Who notices that later tokens were replaced",
        "position of the token",
        "change of its output",
        (
            Series("control: not masked", places, unmasked, role="control"),
            Series("causal", places, causal, "points", role="measured"),
            Series("tokens to the right are replaced", (edge, edge), (1e-17, unmasked.max()), "dashed", role="theory"),
        ),
        yscale="log",
        caption="Exact zeros are drawn at 1e-17.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="furuya-2024-causality",
    title="Causal attention does not see the future",
    kind="theorem",
    statement=(
        "For every prompt and every i: replacing the tokens after position i leaves the outputs at positions ≤ i of a "
        "masked transformer of any depth unchanged, exactly (0.0 in floating point)."
    ),
    hypotheses=("one token per time", "every attention layer is masked; all other layers act on single tokens"),
    reference="furuya2024",
    measure=measure,
    controls={
        "not-masked": "The same transformer without the mask.",
        "last-token-alone": "Only the last token is replaced: the tokens between do not notice.",
    },
    quick=Config(),
    full=Config(n=2048, dim=16, depth=6, changed_from=1024),
)
