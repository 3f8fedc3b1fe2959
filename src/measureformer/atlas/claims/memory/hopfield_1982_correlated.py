"""Correlated patterns break the classical memory, and not the modern one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.memory_patterns import signs
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.memory import Classical, masked, pictures, recall

NAMES = ("classical", "dense", "modern")


@dataclass(frozen=True)
class Config:
    hidden: float = 0.5


def _outcome(key: Any, config: Config, *, correlated: bool) -> Outcome:
    images = pictures()
    if not correlated:
        images = signs(generator(key), len(images), images[0].size).reshape(images.shape)
    queries = masked(images, config.hidden)
    flat = images.reshape(len(images), -1)
    wrong = {}
    for name in NAMES:
        values = recall(images, queries, generation=name).values.reshape(flat.shape)
        wrong[name] = np.mean(np.sign(values) != flat, axis=1)
    overlap = np.corrcoef(flat)[np.triu_indices(len(flat), 1)].mean()
    fixed = Classical.store(flat, rule="pseudo-inverse").stable()
    checks = (
        Check("share of pictures that the classical memory recalls", float((wrong["classical"] == 0).mean()), high=0.3),
        Check("share that the exponential one recalls", float((wrong["dense"] == 0).mean()), low=1.0),
        Check("share that the modern one recalls", float((wrong["modern"] == 0).mean()), low=1.0),
        Check("share that the pseudo-inverse rule makes fixed", float(fixed.mean()), low=1.0),
    )
    at = tuple(float(i) for i in range(len(flat)))
    figure = Figure(
        "Pictures recalled from their upper halves",
        "picture",
        "share of wrong pixels",
        tuple(Series(name, at, tuple(map(float, wrong[name])), "bars") for name in NAMES),
        xticks=tuple(str(i) for i in range(len(flat))),
        caption=f"Ten pictures of 24 × 24 pixels; their mean correlation is {overlap:.2f}.",
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, correlated=True)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, correlated=False)


claim = Claim(
    name="hopfield-1982-correlated",
    title="Correlated patterns",
    statement=(
        "Hebb's rule fails on correlated patterns far below its capacity: of ten pictures of 576 pixels it recalls "
        "few from halves of them. Exponential and modern memories recall all, and the pseudo-inverse rule makes all "
        "fixed points."
    ),
    hypotheses=("the pictures are mostly white, hence correlated",),
    reference="hopfield1982; ramsauer2020, Appendix A",
    run=_run,
    control=_control,
    control_statement="As many patterns of independent bits, which the classical memory recalls.",
    quick=Config(),
    full=Config(),
)
