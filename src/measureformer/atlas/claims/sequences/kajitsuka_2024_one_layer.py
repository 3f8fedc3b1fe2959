"""One softmax layer of rank 1 tells contexts apart; one layer of hard attention does not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series
from measureformer.sequences import boltzmann
from measureformer.sequences.boltzmann import Memory

Case = tuple[str, np.ndarray, int]
COLD = 1e9
"""With logits that are so many times larger, softmax is hardmax in float64."""


@dataclass(frozen=True)
class Config:
    tokens: int = 5


def _cases(config: Config) -> list[Case]:
    """Equally spaced tokens on the line, and corners of a polygon; all sets of n of them."""
    cases: list[Case] = []
    for count in range(3, config.tokens + 1):
        cases += [(f"{count} on a line, n = {n}", 1 + np.arange(count)[:, None] / 2, n) for n in (2, 3) if n < count]
        angles = 2 * np.pi * np.arange(count) / count + 0.3
        if count > 3:
            cases.append((f"{count} on a circle, n = 3", 1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1), 3))
    return cases


class Row(NamedTuple):
    lemma: float
    """log10 of the separation with the temperature of the lemma."""
    theorem: float
    """log10 of the separation that the theorem guarantees."""
    scanned: float
    """log10 of the separation with the scanned temperature."""
    told: float
    """Share of the (token, context) pairs whose number is shared with no other."""
    error: float
    """Largest error of what is memorised."""


def _hardened(net: Memory, X: np.ndarray, Y: np.ndarray) -> Memory:
    """The same head with hardmax, and a look-up of the codes it gives: one that has several targets keeps the first."""
    cold = replace(net, c=COLD * net.c)
    codes, first = np.unique(cold.code(X), return_index=True)
    least = np.diff(codes).min() if len(codes) == Y.size else 0.0
    separation = math.log10(least) if least > 0 else -math.inf
    return replace(cold, codes=codes, values=Y.reshape(-1, 1)[first], log_separation=separation)


def _measured(case: Case, *, hard: bool) -> Row:
    _, tokens, n = case
    X = tokens[np.array(list(itertools.combinations(range(len(tokens)), n)))]
    Y = np.sin(np.arange(X.shape[0] * n * 1.0)).reshape(X.shape[0], n, 1)
    practical = boltzmann.memorize(X, Y)
    if hard:
        certified = practical = _hardened(practical, X, Y)
    else:
        certified = boltzmann.memorize(X, Y, "certified")
    error = max(np.abs(net.run(X) - Y).max() for net in (certified, practical))
    _, counts = np.unique(np.round(practical.code(X), 13), return_counts=True)
    told = (counts == 1).sum() / Y.size
    return Row(certified.log_separation, certified.log_bound, practical.log_separation, told, error)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rows = {case[0]: _measured(case, hard=variant == "hardmax") for case in _cases(config)}
    checks: list[Check] = []
    for name, row in rows.items():
        won = row.lemma - row.theorem
        checks += [
            Check(f"{name}: digits won over the theorem", won, low=0.0, rejected_by="hardmax"),
            Check(f"{name}: share of contexts told apart", row.told, low=1.0, rejected_by="hardmax"),
            Check(f"{name}: error of what is memorised", row.error, high=1e-9, rejected_by="hardmax"),
        ]
    return Outcome(tuple(checks), _figure(rows) if variant == "claim" else None)


def _figure(rows: dict[str, Row]) -> Figure:
    def digits(label: str, logs: Iterable[float], role: Role) -> Series:
        return Series(label, range(len(rows)), [-log for log in logs], "points", role=role)

    return Figure(
        "How far apart one softmax layer keeps contexts",
        "tokens and contexts",
        "digits: −log10 of the separation",
        (
            digits("theorem", (row.theorem for row in rows.values()), "theory"),
            digits("temperature of the lemma", (row.lemma for row in rows.values()), "measured"),
            digits("scanned temperature", (row.scanned for row in rows.values()), "measured"),
        ),
        yscale="log",
        xticks=tuple(name.replace(" on a ", ", ").replace(", n = ", "/") for name in rows),
        caption="Number of tokens, where they lie / tokens in a context. float64 has 16 digits.",
    )


claim = Claim(
    name="kajitsuka-2024-one-layer",
    title="One softmax layer of rank 1 is a contextual mapping",
    kind="construction",
    statement=(
        "For finitely many tokens and sets of n different ones among them, one softmax head with W_Q, W_K, W_V of "
        "rank 1 gives every (token, context) a value of its own, at least as far apart as the theorem says, so that "
        "a perceptron memorises any targets."
    ),
    hypotheses=("different tokens within a context, none of them 0",),
    reference="kajitsuka2024, Theorem 2",
    measure=measure,
    controls={"hardmax": "The same layer with hardmax: contexts that share the token it picks are the same."},
    quick=Config(tokens=4),
    full=Config(tokens=6),
)
