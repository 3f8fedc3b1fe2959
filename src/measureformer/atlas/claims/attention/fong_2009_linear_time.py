"""The time of the grid grows like n, that of streaming like n²."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import attend
from measureformer.figures.figure import Figure, Series


@dataclass(frozen=True)
class Config:
    smallest: int = 32768
    factor: int = 4
    sizes: int = 2
    repetitions: int = 2
    streamed: int = 2048
    """The smallest size for streaming, which takes too long on the others."""


def _seconds(run: Callable[[], Any], repetitions: int) -> float:
    run()
    found = []
    for _ in range(repetitions):
        # of all threads of this process: what else runs on the machine counts little
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def _sizes(config: Config, smallest: int) -> list[int]:
    return [smallest * config.factor**i for i in range(config.sizes)]


@lru_cache(maxsize=4)
def _measured(entropy: int, config: Config, method: Literal["grid", "streaming"]) -> np.ndarray:
    rng, found = np.random.default_rng(entropy), []
    for n in _sizes(config, config.smallest if method == "grid" else config.streamed):
        x, v = rng.uniform(-1.5, 1.5, (n, 1)), rng.uniform(-0.5, 0.5, (n, 1))
        tol = 1e-6 if method == "grid" else None
        run = lambda x=x, v=v, tol=tol: attend(x, x, v, method=method, tol=tol).values.block_until_ready()  # noqa: E731
        found.append(_seconds(run, config.repetitions))
    return np.array(found)


def _checks(seconds: np.ndarray, config: Config) -> tuple[Check, ...]:
    sizes = _sizes(config, config.smallest)
    return (Check("order of the time in n", float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), high=1.3),)


def _run(key: Any, config: Config) -> Outcome:
    entropy = int(generator(key).integers(2**32))
    found = {"grid": _measured(entropy, config, "grid"), "streaming": _measured(entropy, config, "streaming")}
    starts = {"grid": config.smallest, "streaming": config.streamed}
    names = {"grid": "grid, planning included", "streaming": "control: streaming"}
    figure = Figure(
        "Time of attention on the line",
        "number of tokens n",
        "seconds of all threads",
        tuple(
            Series(names[m], tuple(map(float, _sizes(config, starts[m]))), tuple(found[m].tolist()), "line")
            for m in found
        ),
        xscale="log",
        yscale="log",
        caption="Self-attention of n tokens in [−1.5, 1.5], tolerance 1e-6.",
    )
    return Outcome(_checks(found["grid"], config), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_measured(int(generator(key).integers(2**32)), config, "streaming"), config))


claim = Claim(
    name="fong-2009-linear-time",
    title="Attention in low dimension in linear time",
    statement=(
        "At fixed radius and tolerance, attention of n queries on n keys on a grid of Chebyshev nodes takes time of "
        "order n, planning included."
    ),
    hypotheses=("dimension at most 3", "the product of the radii of queries and keys is fixed"),
    reference="fong2009, Section 2",
    run=_run,
    control=_control,
    control_statement="Streaming, which looks at every pair.",
    quick=Config(),
    full=Config(smallest=65536, sizes=4, repetitions=3, streamed=512),
)
