"""One softmax layer of rank 1 tells contexts apart; one layer of hard attention does not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import boltzmann

Case = tuple[str, np.ndarray, int]


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


def _contexts(tokens: np.ndarray, n: int) -> np.ndarray:
    return tokens[np.array(list(itertools.combinations(range(len(tokens)), n)))]


def _measured(case: Case) -> tuple[float, float, float, float]:
    """log10 of the separation with the lemma's temperature, of the theorem's, of the scanned one; largest error."""
    _, tokens, n = case
    X = _contexts(tokens, n)
    Y = np.sin(np.arange(X.shape[0] * n * 1.0)).reshape(X.shape[0], n, 1)
    certified, practical = boltzmann.memorize(X, Y, "certified"), boltzmann.memorize(X, Y)
    error = max(float(np.abs(net.run(X) - Y).max()) for net in (certified, practical))
    return certified.log_separation, certified.log_bound, practical.log_separation, error


def _told(case: Case, *, soft: bool) -> float:
    """Share of the (token, context) pairs whose number is shared with no other."""
    _, tokens, n = case
    X = _contexts(tokens, n)
    net = boltzmann.memorize(X, np.zeros((len(X), n, 1)))
    p = X @ net.v
    if soft:
        codes = net.code(X)
    else:
        logits = net.c * p[:, :, None] * p[:, None, :]
        codes = p + net.reach * np.take_along_axis(p, logits.argmax(axis=2), axis=1)
    _, counts = np.unique(np.round(codes, 13), return_counts=True)
    return float((counts == 1).sum() / codes.size)


def _outcome(config: Config, *, soft: bool, figure: Figure | None) -> Outcome:
    checks: list[Check] = []
    for case in _cases(config):
        separation, bound, _, error = _measured(case)
        checks += [
            Check(f"{case[0]}: digits won over the theorem", separation - bound, low=0.0),
            Check(f"{case[0]}: share of contexts told apart", _told(case, soft=soft), low=1.0),
            Check(f"{case[0]}: error of what is memorised", error, high=1e-9),
        ]
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    cases = _cases(config)
    rows = [_measured(case) for case in cases]
    places = tuple(float(i) for i in range(len(cases)))
    figure = Figure(
        "How far apart one softmax layer keeps contexts",
        "tokens and contexts",
        "digits: −log10 of the separation",
        (
            Series("theorem", places, tuple(-r[1] for r in rows), "points"),
            Series("temperature of the lemma", places, tuple(-r[0] for r in rows), "points"),
            Series("scanned temperature", places, tuple(-r[2] for r in rows), "points"),
        ),
        yscale="log",
        xticks=tuple(case[0].replace(" on a ", ", ").replace(", n = ", "/") for case in cases),
        caption="Number of tokens, where they lie / tokens in a context. float64 has 16 digits.",
    )
    return _outcome(config, soft=True, figure=figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(config, soft=False, figure=None)


claim = Claim(
    name="kajitsuka-2024-one-layer",
    title="One softmax layer of rank 1 is a contextual mapping",
    statement=(
        "For finitely many tokens and sets of n different ones among them, one softmax head with W_Q, W_K, W_V of "
        "rank 1 gives every (token, context) a value of its own, at least as far apart as the theorem says, so that "
        "a perceptron memorises any targets."
    ),
    hypotheses=("different tokens within a context, none of them 0",),
    reference="kajitsuka2024, Theorem 2",
    run=_run,
    control=_control,
    control_statement="The same layer with hardmax: contexts that share the token it picks are the same.",
    quick=Config(tokens=4),
    full=Config(tokens=6),
)
