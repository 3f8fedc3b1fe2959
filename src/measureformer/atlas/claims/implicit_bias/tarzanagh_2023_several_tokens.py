"""Where training keeps several tokens, W is a finite part that mixes them and a growing part that drops the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.implicit_bias import Decomposition, decompose, descend_all, generate

PUBLISHED = {4: (0.035, 0.07, 0.16), 6: (0.017, 0.044, 0.145), 8: (0.011, 0.015, 0.14), 10: (0.0056, 0.0088, 0.12)}
"""Mean of 1 − cos at step 2000 with W_fin + C·W_mm, with W_mm, with the SVM of single tokens, for each dimension."""
NAMES = ("both", "margin_only", "single")


@dataclass(frozen=True)
class Config:
    problems: int = 64
    steps: int = 2001
    dims: int = 1
    """How many of the dimensions 4, 6, 8, 10."""


def _parts(key: Any, config: Config) -> dict[int, list[Decomposition]]:
    first, second = jax.random.split(key)
    found = {}
    for d in list(PUBLISHED)[: config.dims]:
        runs = descend_all(generate("several", first, count=config.problems, d=d), "ngd", config.steps, second)
        found[d] = [decompose(run) for run in runs]
    return found


def _means(parts: list[Decomposition]) -> np.ndarray:
    return np.array([np.mean([getattr(part, name)[-1] for part in parts]) for name in NAMES])


def _outcome(key: Any, config: Config, *, with_finite: bool) -> Outcome:
    found = _parts(key, config)
    settled = {d: [part for part in parts if part.decided and part.grows] for d, parts in found.items()}
    means = {d: _means(parts) for d, parts in settled.items()}
    everything = _means([part for parts in found.values() for part in parts])
    ours = 0 if with_finite else 1
    ratio = max(float(mean[ours] / mean[1]) for mean in means.values())
    worst = max(float(mean[ours] / mean[2]) for mean in means.values())
    checks = [
        Check(
            "runs that are decided and grow, fewest in a dimension",
            float(min(len(s) for s in settled.values())),
            low=5,
        ),
        Check("mean 1 − cos with W_fin + C·W_mm over that with W_mm, worst dimension", ratio, high=0.97),
        Check("the same over that with the SVM of single tokens", worst, high=0.5),
        Check("the first over all runs, undecided ones included", float(everything[ours] / everything[1]), high=0.5),
        Check(
            "mean 1 − cos over the published one, largest",
            max(float(mean[ours] / PUBLISHED[d][ours]) for d, mean in means.items()),
            high=2.0,
        ),
    ]
    dims = tuple(map(float, means))
    labels = ("W_fin + C·W_mm", "W_mm", "SVM of single tokens")
    figure = Figure(
        "Several tokens are kept",
        "dimension",
        "mean 1 − cos after 2001 steps",
        (
            *(
                Series(label, dims, tuple(float(mean[i]) for mean in means.values()), "points")
                for i, label in enumerate(labels)
            ),
            *(
                Series(
                    f"published, {label}",
                    tuple(map(float, PUBLISHED)),
                    tuple(p[i] for p in PUBLISHED.values()),
                    "dashed",
                )
                for i, label in enumerate(labels[:2])
            ),
        ),
        yscale="log",
        caption=(
            f"Of {config.problems} runs in each dimension, decided ones that drop a token: "
            + ", ".join(f"{len(s)} for d = {d}" for d, s in settled.items())
            + ". Runs that are undecided, or keep all tokens, are counted in a check and not in this figure."
        ),
    )
    return Outcome(tuple(checks), figure if with_finite else None)


claim = Claim(
    name="tarzanagh-2023-several-tokens",
    title="A finite part mixes tokens, a growing part drops the rest",
    statement=(
        "With a head for which a mixture of tokens is best, W_k ≈ W_fin + C_k·W_mm: W_fin gives the kept tokens the "
        "probabilities that they end with, W_mm is the SVM that separates kept from dropped tokens and does not tell "
        "the kept ones apart. This describes W better than W_mm alone, and much better than the SVM of single tokens."
    ),
    hypotheses=(
        "a conjecture",
        "head Σ relu(Vx), 3 examples of 4 tokens, at least one label −1",
        "normalised steps of 0.1",
    ),
    reference="tarzanagh2023",
    run=lambda key, config: _outcome(key, config, with_finite=True),
    control=lambda key, config: _outcome(key, config, with_finite=False),
    control_statement="W_fin is left out.",
    quick=Config(),
    full=Config(problems=500, dims=4),
)
