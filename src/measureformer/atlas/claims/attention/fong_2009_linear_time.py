"""The operations of the grid grow like n, those of streaming like n²."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Literal

import numpy as np

from measureformer.atlas.helpers.attention_operations import operations
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series, generator, once
from measureformer.attention import Grid, GridPlan, Streaming, attend

Method = Literal["grid", "streaming"]


@dataclass(frozen=True)
class Config:
    smallest: int = 32768
    factor: int = 4
    sizes: int = 2
    streamed: int = 512
    """The smallest size for streaming, whose count is of order n² long before."""


def _sizes(config: Config, method: Method) -> list[int]:
    smallest = config.smallest if method == "grid" else config.streamed
    return [smallest * config.factor**i for i in range(config.sizes)]


@once
def _needs(key: Key, config: Config, method: Method) -> np.ndarray:
    """Operations of the program for each size, and bytes in which its plan is made."""
    rng, rows = np.random.default_rng(generator(key).integers(2**32)), []
    for n in _sizes(config, method):
        x, v = rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-0.5, 0.5, (n, 1))
        # streaming plans nothing, the same for every n
        used, planned = (Streaming(), 1) if method == "streaming" else _planned(x)
        rows.append((operations(lambda x, v, used=used: attend(x, x, v, method=used).values, x, v), planned))
    return np.array(rows).T


def _planned(x: np.ndarray) -> tuple[Grid, int]:
    tracemalloc.start()
    try:
        return Grid(plan=GridPlan.make(x, x, tol=1e-6)), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure(key: Key, config: Config, variant: str) -> Outcome:
    method: Method = "streaming" if variant == "streaming" else "grid"
    sizes = np.log(_sizes(config, method))
    work, planned = (np.polyfit(sizes, np.log(counts), 1)[0] for counts in _needs(key, config, method))
    checks = (
        Check("order of the operations in n", work, high=1.1, rejected_by="streaming"),
        Check("order of the memory of planning in n", planned, high=1.1, context=True),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    def series(label: str, method: Method, role: Role) -> Series:
        return Series(label, _sizes(config, method), _needs(key, config, method)[0], role=role)

    return Figure(
        "Operations of attention on the line",
        "number of tokens n",
        "numbers computed by the program",
        (series("grid", "grid", "measured"), series("control: streaming", "streaming", "control")),
        xscale="log",
        yscale="log",
        caption="Self-attention of n tokens in [−1.5, 1.5], tolerance 1e-6.",
    )


claim = Claim(
    name="fong-2009-linear-time",
    title="Attention in low dimension in linear time",
    kind="construction",
    statement=(
        "At fixed radius and tolerance, attention of n queries on n keys on a grid of Chebyshev nodes takes a "
        "number of operations of order n: counted on the line, an exponent below 1.1."
    ),
    hypotheses=(
        "dimension at most 3 in theory, 1 here",
        "the product of the radii of queries and keys is fixed",
    ),
    reference="fong2009, Section 2",
    measure=measure,
    controls={"streaming": "Streaming, which looks at every pair."},
    quick=Config(),
    full=Config(smallest=65536, sizes=4),
)
