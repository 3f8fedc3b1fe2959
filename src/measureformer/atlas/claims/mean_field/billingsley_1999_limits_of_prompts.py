"""Limits of prompts: grids, random tokens, the Cantor measure and a sum of all kinds; and prompts without a limit.

A softmax head with logits by on the line returns L(b) = M'(b)/M(b), M the moment generating function of the context:
L = e^b/(e^b − 1) − 1/b on the uniform law, ½ + Σ 3^{-k} tanh(b 3^{-k}) on the Cantor measure, and M'/M of the sum on a
sum. Centres of intervals have the error h² in smooth averages: order −2 in the number of tokens for a grid, and
−2 log 3 / log 2 for the 2^k tokens of level k of the Cantor measure; independent tokens have −1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention
from measureformer.measures import Discrete

CANTOR = 2 * math.log(3) / math.log(2)
SHARES = (0.2, 0.5, 0.3)
"""Of an atom at 0, the uniform law, the Cantor measure."""


@dataclass(frozen=True)
class Config:
    b: float = 3.0
    levels: int = 6
    repetitions: int = 400
    allowed: float = 0.15


def _transforms(b: float) -> tuple[tuple[float, float], ...]:
    """M(b) and M'(b) of the atom at 0, of the uniform law, and of the Cantor measure."""
    k = 3.0 ** -np.arange(1, 40)
    uniform = (math.expm1(b) / b, (math.exp(b) - math.expm1(b) / b) / b)
    m = math.exp(b / 2) * float(np.cosh(b * k).prod())
    return (1.0, 0.0), uniform, (m, m * (0.5 + float((k * np.tanh(b * k)).sum())))


def _grid(n: int) -> Discrete:
    return Discrete.uniform(((np.arange(n) + 0.5) / n)[:, None])


def _blocks(n: int) -> Discrete:
    """The first n tokens of 0 11 0000 11111111 …: blocks of equal tokens, each twice as long as the one before."""
    block = np.floor(np.log2(np.arange(n) + 1))
    return Discrete.uniform((block % 2)[:, None])


def _value(mu: Discrete, b: float) -> float:
    return float(Attention.head([[1.0]], [[1.0]], [[1.0]])(mu, [b])[0])


def _errors(key: Any, config: Config, *, blocks: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numbers of tokens, and how far attention is from its value on the limit, for each kind of prompt."""
    rng, b, sizes = generator(key), config.b, [2**level for level in range(3, 3 + config.levels)]
    transforms = _transforms(b)
    exact = [slope / value for value, slope in transforms]
    sums = [sum(share * pair[i] for share, pair in zip(SHARES, transforms, strict=True)) for i in (0, 1)]

    def mixture(n: int) -> Discrete:
        parts = Discrete.dirac([0.0]), _grid(n), Discrete.cantor(int(math.log2(n)))
        return SHARES[0] * parts[0] + SHARES[1] * parts[1] + SHARES[2] * parts[2]

    def random(n: int) -> float:
        # all repetitions of one size in one call: the softmax mean of each row
        y = rng.uniform(size=(config.repetitions, n))
        w = np.exp(b * y)
        return float(np.sqrt((((w * y).sum(axis=1) / w.sum(axis=1) - exact[1]) ** 2).mean()))

    found = {
        "grid": [abs(_value(_blocks(n) if blocks else _grid(n), b) - exact[1]) for n in sizes],
        "independent tokens": [random(n) for n in sizes],
        "Cantor measure": [abs(_value(Discrete.cantor(int(math.log2(n))), b) - exact[2]) for n in sizes],
        "sum of three kinds": [abs(_value(mixture(n), b) - sums[1] / sums[0]) for n in sizes],
    }
    return np.array(sizes), {name: np.array(values) for name, values in found.items()}


def _subsequences(config: Config) -> float:
    """How far attention on the prompt of blocks is from its two limits, at the ends of blocks of 1 and of 0."""
    e = math.exp(config.b)
    gaps = [
        abs(_value(_blocks(2**j - 1), config.b) - (2 * e / (1 + 2 * e) if j % 2 == 0 else e / (e + 2)))
        for j in (11, 12)
    ]
    return max(gaps)


def _outcome(sizes: np.ndarray, errors: dict[str, np.ndarray], config: Config, figure: Figure | None = None) -> Outcome:
    slopes = {name: float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) for name, values in errors.items()}
    orders = {"grid": -2.0, "independent tokens": -0.5, "Cantor measure": -CANTOR, "sum of three kinds": -2.0}
    checks = [
        Check(f"order in n: {name}", slopes[name], order - config.allowed, order + config.allowed)
        for name, order in orders.items()
    ]
    checks.append(Check("blocks: distance to the limits of two subsequences", _subsequences(config), high=2e-3))
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    sizes, errors = _errors(key, config, blocks=False)
    _, without = _errors(key, config, blocks=True)
    n = tuple(map(float, sizes))
    series = [Series(name, n, tuple(map(float, values)), "points") for name, values in errors.items()]
    series.append(Series("control: blocks of 0 and 1", n, tuple(map(float, without["grid"])), "line"))
    figure = Figure(
        "Attention on prompts that have a limit",
        "number of tokens n",
        "distance to the value on the limit",
        tuple(series),
        xscale="log",
        yscale="log",
        caption=f"Softmax mean on [0, 1] with logits {config.b:g}·y; closed forms of all limits.",
    )
    return _outcome(sizes, errors, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_errors(key, config, blocks=True), config)


claim = Claim(
    name="billingsley-1999-limits-of-prompts",
    title="Prompts that converge, whatever their limit is made of",
    statement=(
        "If prompts μ_n tend weakly to μ on [0, 1], then Γ[μ_n](x) → Γ[μ](x), be μ atomic, with a density, singular, "
        "or a sum of such: with order −2 in n for midpoints, −1/2 for independent tokens, −2 log 3/log 2 for the "
        "Cantor measure. A prompt of blocks of 0 and 1, each twice as long as the one before, has no limit, but its "
        "prefixes that end with a block of one kind have."
    ),
    hypotheses=("tokens in a compact set", "one softmax head"),
    reference="billingsley1999, Sections 2 and 5; furuya2025, equations (24) and (25)",
    run=_run,
    control=_control,
    control_statement="The prompt of blocks in the place of the grid: its averages oscillate for ever.",
    quick=Config(),
    full=Config(levels=10, repetitions=4000),
)
