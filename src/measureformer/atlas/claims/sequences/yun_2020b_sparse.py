"""O(n) connections suffice: conditions with certificates, connections that grow like n, and the construction itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import sparse as sparsity

GOOD, BAD = ("star", "window", "longformer"), ("causal", "block-diagonal", "causal")


@dataclass(frozen=True)
class Config:
    largest: int = 256


def _sizes(config: Config) -> list[int]:
    return [n for n in (16, 64, 256, 1024) if n <= config.largest]


def _exact(name: str) -> float:
    """Share of all sequences, n = 3 and δ = 1/4, that the construction along this pattern answers exactly."""
    mask = sparsity.pattern(name, 3)
    if sparsity.check(mask).universal != "yes":
        return 0.0
    net = sparsity.compile(lambda X: np.cumsum(X, axis=-2), mask, d=1, delta=1 / 4)
    X = (np.array(list(itertools.product(range(4), repeat=3)))[:, :, None] + 0.5) / 4
    return float((net.run(X, "integer") == np.cumsum(X, axis=1)).all(axis=(1, 2)).mean())


def _outcome(config: Config, names: tuple[str, ...], figure: Figure | None) -> Outcome:
    checks: list[Check] = []
    for i, name in enumerate(names):
        for n in _sizes(config):
            found = sparsity.check(sparsity.pattern(name, n))
            checks.append(Check(f"pattern {i}, n = {n}: universal", float(found.universal == "yes"), low=1.0))
            checks.append(Check(f"pattern {i}, n = {n}: connections per token", found.connections[0] / n, high=7.0))
        checks.append(Check(f"pattern {i}: share of sequences answered exactly", _exact(name), low=1.0))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    sizes = _sizes(config)
    series = [
        Series(
            name,
            tuple(float(i) for i in range(len(sizes))),
            tuple(sum(sparsity.check(sparsity.pattern(name, n)).connections) / n for n in sizes),
            "line",
        )
        for name in ("dense", "causal", "strided", "fixed", "star", "window")
    ]
    figure = Figure(
        "Connections of patterns",
        "tokens n",
        "connections per token",
        tuple(series),
        yscale="log",
        xticks=tuple(map(str, sizes)),
        caption="All are universal but the causal one, in which the first token never hears of the last.",
    )
    return _outcome(config, GOOD, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, BAD, None)


claim = Claim(
    name="yun-2020b-sparse",
    title="O(n) connections are enough",
    statement=(
        "Sparse attention is universal if every query sees itself, some order of the tokens is a chain of "
        "connections, and after finitely many layers all have seen all. Stars, windows and Longformers satisfy this "
        "with O(n) connections, and the network of the proof answers every sequence of a grid exactly."
    ),
    hypotheses=("trained positions; sequences on a grid of 4 cells, n = 3, for the network",),
    reference="yun2020b, Theorem 1",
    run=_run,
    control=_control,
    control_statement="Causal and block-diagonal masks: some token never hears of another.",
    quick=Config(),
    full=Config(largest=1024),
)
