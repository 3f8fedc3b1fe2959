"""The time of the grid grows like n, that of streaming like n²."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series, generator, once
from measureformer.attention import attend

Method = Literal["grid", "streaming"]


@dataclass(frozen=True)
class Config:
    smallest: int = 32768
    factor: int = 4
    sizes: int = 2
    repetitions: int = 2
    streamed: int = 2048
    """The smallest size for streaming, which takes too long on the others."""


def _sizes(config: Config, method: Method) -> list[int]:
    smallest = config.smallest if method == "grid" else config.streamed
    return [smallest * config.factor**i for i in range(config.sizes)]


@once
def _seconds(key: Key, config: Config, method: Method) -> np.ndarray:
    """The least time of several runs for each size, after one that compiles."""
    rng, found = np.random.default_rng(generator(key).integers(2**32)), []
    for n in _sizes(config, method):
        x, v = rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-0.5, 0.5, (n, 1))
        seconds = []
        for _ in range(config.repetitions + 1):
            # of all threads of this process: what else runs on the machine counts little
            start = time.process_time()
            attend(x, x, v, method=method, tol=1e-6 if method == "grid" else None).values.block_until_ready()
            seconds.append(time.process_time() - start)
        found.append(min(seconds[1:]))
    return np.array(found)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    method: Method = "streaming" if variant == "streaming" else "grid"
    order = np.polyfit(np.log(_sizes(config, method)), np.log(_seconds(key, config, method)), 1)[0]
    check = Check("order of the time in n", order, high=1.3, rejected_by="streaming")
    return Outcome((check,), _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    def series(label: str, method: Method, role: Role) -> Series:
        return Series(label, _sizes(config, method), _seconds(key, config, method), role=role)

    return Figure(
        "Time of attention on the line",
        "number of tokens n",
        "seconds of all threads",
        (series("grid, planning included", "grid", "measured"), series("control: streaming", "streaming", "control")),
        xscale="log",
        yscale="log",
        caption="Self-attention of n tokens in [−1.5, 1.5], tolerance 1e-6.",
    )


claim = Claim(
    name="fong-2009-linear-time",
    title="Attention in low dimension in linear time",
    kind="observation",
    statement=(
        "At fixed radius and tolerance, attention of n queries on n keys on a grid of Chebyshev nodes takes time of "
        "order n, planning included: observed on the line, an exponent below 1.3."
    ),
    hypotheses=(
        "dimension at most 3 in theory, 1 here",
        "the product of the radii of queries and keys is fixed",
    ),
    reference="fong2009, Section 2",
    measure=measure,
    controls={"streaming": "Streaming, which looks at every pair."},
    quick=Config(),
    full=Config(smallest=65536, sizes=4, repetitions=3, streamed=512),
)
