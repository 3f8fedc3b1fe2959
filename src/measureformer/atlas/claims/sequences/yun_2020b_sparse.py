"""O(n) connections suffice: conditions with certificates, connections that grow like n, and the construction itself."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series
from measureformer.sequences import sparse as sparsity
from measureformer.sequences.sparse.patterns import Family

NAMES: tuple[Family, ...] = ("star", "window", "longformer")


@dataclass(frozen=True)
class Config:
    largest: int = 256


def _sizes(config: Config) -> list[int]:
    return [n for n in (16, 64, 256, 1024) if n <= config.largest]


def _pattern(name: Family, n: int, variant: str) -> np.ndarray:
    seen = sparsity.sparse_pattern(name, n)
    if variant == "causal":
        return seen & np.tri(n, dtype=bool)
    return seen | sparsity.sparse_pattern("window", n, width=math.isqrt(n)) if variant == "wide-windows" else seen


def _exact(name: Family, variant: str) -> float:
    """Share of all sequences, n = 3 and δ = 1/4, that the construction along this pattern answers exactly."""
    net = sparsity.compile_sparse(lambda X: np.cumsum(X, axis=-2), sparsity.sparse_pattern(name, 3), d=1, delta=1 / 4)
    mask = _pattern(name, 3, variant)[0]
    net = replace(net, shifts=tuple(replace(layer, mask=mask) for layer in net.shifts))
    X = (np.array(list(itertools.product(range(4), repeat=3)))[:, :, None] + 0.5) / 4
    return (net.run(X, "integer") == np.cumsum(X, axis=1)).all(axis=(1, 2)).mean()


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sizes, checks = _sizes(config), list[Check]()
    for i, name in enumerate(NAMES):
        for n in sizes:
            found = sparsity.check_pattern(_pattern(name, n, variant))
            universal, per_token = found.universal == "yes", found.connections[0] / n
            checks += [
                Check(f"pattern {i}, n = {n}: universal", universal, low=1.0, rejected_by="causal"),
                Check(f"pattern {i}, n = {n}: connections per token", per_token, high=7.0, rejected_by="wide-windows"),
            ]
        share = _exact(name, variant)
        checks.append(Check(f"pattern {i}: share of sequences answered exactly", share, low=1.0, rejected_by="causal"))
    return Outcome(tuple(checks), _figure(sizes) if variant == "claim" else None)


def _figure(sizes: list[int]) -> Figure:
    def curve(name: Family, role: Role) -> Series:
        counts = [sum(sparsity.check_pattern(sparsity.sparse_pattern(name, n)).connections) / n for n in sizes]
        return Series(name, range(len(sizes)), counts, role=role)

    measured = [curve(name, "measured") for name in ("dense", "strided", "fixed", "star", "window")]
    return Figure(
        "Connections of patterns",
        "tokens n",
        "connections per token",
        (*measured, curve("causal", "control")),
        yscale="log",
        xticks=tuple(map(str, sizes)),
        caption="All are universal but the causal one, in which the first token never hears of the last.",
    )


claim = Claim(
    name="yun-2020b-sparse",
    title="O(n) connections are enough",
    kind="construction",
    statement=(
        "Sparse attention is universal if every query sees itself, some order of the tokens is a chain of "
        "connections, and after finitely many layers all have seen all. Stars, windows and Longformers satisfy this "
        "with O(n) connections, and the network of the proof answers every sequence of a grid exactly."
    ),
    hypotheses=("trained positions; sequences on a grid of 4 cells, n = 3, for the network",),
    reference="yun2020b, Theorem 1",
    measure=measure,
    controls={
        "causal": "The same patterns with a causal mask: the first token never hears of the last.",
        "wide-windows": "The same patterns with windows of √n tokens to each side: connections grow like n√n.",
    },
    quick=Config(),
    full=Config(largest=1024),
)
