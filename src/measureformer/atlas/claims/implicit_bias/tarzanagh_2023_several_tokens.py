"""Where training keeps several tokens, W is a finite part that mixes them and a growing part that drops the others."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.implicit_bias import decompose, descend_all, random_problems
from measureformer.implicit_bias.decompose import Decomposition

PUBLISHED = {4: (0.035, 0.07, 0.16), 6: (0.017, 0.044, 0.145), 8: (0.011, 0.015, 0.14), 10: (0.0056, 0.0088, 0.12)}
"""Mean of 1 − cos at step 2000 with W_fin + C·W_mm, with W_mm, with the SVM of single tokens, for each dimension."""
PARTS = {"both": "W_fin + C·W_mm", "margin_only": "W_mm", "single": "SVM of single tokens"}


@dataclass(frozen=True)
class Config:
    problems: int = 64
    steps: int = 2001
    dims: int = 1
    """How many of the dimensions 4, 6, 8, 10."""


@once
def _parts(key: Key, config: Config, steps: int) -> dict[int, list[Decomposition]]:
    first, second = jax.random.split(key)
    found = {}
    for d in list(PUBLISHED)[: config.dims]:
        runs = descend_all(random_problems("several", first, count=config.problems, d=d), "ngd", steps, second)
        found[d] = [decompose(run) for run in runs]
    return found


def _means(parts: list[Decomposition]) -> np.ndarray:
    found = [[getattr(part, name)[-1] for name in PARTS] for part in parts]
    return np.mean(found, axis=0) if found else np.full(len(PARTS), np.nan)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _parts(key, config, config.steps // 20 if variant == "stopped-early" else config.steps)
    settled = {d: [part for part in parts if part.decided and part.grows] for d, parts in found.items()}
    means = np.array([_means(parts) for parts in settled.values()])
    everything = _means([part for parts in found.values() for part in parts])
    published = np.array([PUBLISHED[d] for d in settled])
    ours = {"no-finite-part": 1, "single-tokens": 2}.get(variant, 0)
    fewest = min(map(len, settled.values()))
    finite, single, known = ((means[:, ours] / other).max() for other in (means[:, 1], means[:, 2], published[:, 0]))
    both = "no-finite-part", "single-tokens"
    checks = (
        Check("runs that are decided and grow, fewest in a dimension", fewest, low=5, rejected_by="stopped-early"),
        Check(
            "mean 1 − cos with W_fin + C·W_mm over that with W_mm, worst dimension", finite, high=0.97, rejected_by=both
        ),
        Check("the same over that with the SVM of single tokens", single, high=0.5, rejected_by=both[1]),
        Check(
            "the first over all runs, undecided ones included",
            everything[ours] / everything[1],
            high=0.5,
            rejected_by=both,
        ),
        Check("mean 1 − cos over the published one, largest", known, high=2.0, rejected_by=both[1]),
    )
    return Outcome(checks, _figure(config, settled, means) if variant == "claim" else None)


def _figure(config: Config, settled: dict[int, list[Decomposition]], means: np.ndarray) -> Figure:
    labels, dims = tuple(PARTS.values()), tuple(settled)
    return Figure(
        "Several tokens are kept",
        "dimension",
        "mean 1 − cos after 2001 steps",
        (
            *(Series(label, dims, means[:, i], "points", role="measured") for i, label in enumerate(labels)),
            *(
                Series(
                    f"published, {label}",
                    tuple(PUBLISHED),
                    [row[i] for row in PUBLISHED.values()],
                    "dashed",
                    role="theory",
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
    measure=measure,
    controls={
        "no-finite-part": "W_fin is left out.",
        "single-tokens": "The SVM of the single tokens with most attention describes W.",
        "stopped-early": "Training stops after a twentieth of the steps, before it drops tokens.",
    },
    quick=Config(),
    full=Config(problems=500, dims=4),
)
