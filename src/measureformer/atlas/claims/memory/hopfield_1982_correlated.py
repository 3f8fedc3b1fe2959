"""Correlated patterns break the classical memory, and not the modern one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.memory_patterns import signs
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.memory import Classical, Dense, Polynomial, masked, recall
from measureformer.memory.images import pictures


@dataclass(frozen=True)
class Config:
    hidden: float = 0.5


def measure(key: Key, config: Config, variant: str) -> Outcome:
    images = pictures()
    if variant == "independent-bits":
        images = signs(generator(key), len(images), images[0].size).reshape(images.shape)
    queries = masked(images, config.hidden)
    flat = images.reshape(len(images), -1)
    dense = Dense.store(flat, interaction=Polynomial(3) if variant == "cubic-interaction" else None)
    recalled = {
        "classical": recall(images, queries, generation="classical").values,
        "dense": dense.retrieve(queries.reshape(flat.shape)).state,
        "modern": recall(images, queries, beta=3.0 if variant == "too-hot" else None).values,
    }
    wrong = {name: np.mean(np.sign(found.reshape(flat.shape)) != flat, axis=1) for name, found in recalled.items()}
    share = {name: np.mean(part == 0) for name, part in wrong.items()}
    fixed = Classical.store(flat, rule="hebb" if variant == "hebb-rule" else "pseudo-inverse").stable()
    pictures_of = "share of pictures that the classical memory"
    checks = (
        Check(f"{pictures_of} recalls", share["classical"], high=0.3, rejected_by="independent-bits"),
        Check("share that the exponential one recalls", share["dense"], low=1.0, rejected_by="cubic-interaction"),
        Check("share that the modern one recalls", share["modern"], low=1.0, rejected_by="too-hot"),
        Check("share that the pseudo-inverse rule makes fixed", fixed.mean(), low=1.0, rejected_by="hebb-rule"),
    )
    return Outcome(checks, _figure(flat, wrong) if variant == "claim" else None)


def _figure(flat: np.ndarray, wrong: dict[str, np.ndarray]) -> Figure:
    overlap = np.corrcoef(flat)[np.triu_indices(len(flat), 1)].mean()
    at = np.arange(len(flat))
    return Figure(
        "Pictures recalled from their upper halves",
        "picture",
        "share of wrong pixels",
        tuple(Series(name, at, part, "bars", role="measured") for name, part in wrong.items()),
        xticks=tuple(map(str, at)),
        caption=f"Ten pictures of 24 × 24 pixels; their mean correlation is {overlap:.2f}.",
    )


claim = Claim(
    name="hopfield-1982-correlated",
    title="Correlated patterns",
    kind="observation",
    statement=(
        "Hebb's rule fails on correlated patterns far below its capacity: observed on ten pictures of 576 pixels, it "
        "recalls at most three from halves of them, while exponential and modern memories recall all. The "
        "pseudo-inverse rule makes all fixed points."
    ),
    hypotheses=("the pictures are mostly white, hence correlated",),
    reference="hopfield1982; ramsauer2020, Appendix A",
    measure=measure,
    controls={
        "independent-bits": "As many patterns of independent bits, which the classical memory recalls.",
        "cubic-interaction": "The dense memory has F = z³ in place of e^z.",
        "too-hot": "The modern memory has β = 3, below what it needs to store the pictures.",
        "hebb-rule": "Hebb's rule in place of the pseudo-inverse rule.",
    },
    quick=Config(),
    full=Config(),
)
