"""Limits of prompts: grids, random tokens, the Cantor measure and a sum of all kinds; and prompts without a limit.

A softmax head with logits by on the line returns L(b) = M'(b)/M(b), M the moment generating function of the context:
L = e^b/(e^b − 1) − 1/b on the uniform law, ½ + Σ 3^{-k} tanh(b 3^{-k}) on the Cantor measure, and M'/M of the sum on a
sum. Centres of intervals have the error h² in smooth averages: order −2 in the number of tokens for a grid, and
−2 log 3 / log 2 for the 2^k tokens of level k of the Cantor measure; independent tokens have −1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention
from measureformer.measures import Discrete

CANTOR = 2 * math.log(3) / math.log(2)
SHARES = (0.2, 0.5, 0.3)
"""Of an atom at 0, the uniform law, the Cantor measure."""
ORDERS = {
    "grid": (-2.0, ("blocks", "left-ends")),
    "independent tokens": (-0.5, ("stratified",)),
    "Cantor measure": (-CANTOR, ("left-ends",)),
    "sum of three kinds": (-2.0, ("left-ends",)),
}
"""For each kind of prompt the order in n, and the controls in which it has another one."""


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


def _grid(n: int, shift: float) -> Discrete:
    return Discrete.uniform(((np.arange(n) + 0.5 + shift) / n)[:, None])


def _cantor(n: int, shift: float) -> Discrete:
    level = int(math.log2(n))
    mu = Discrete.cantor(level)
    return mu.with_points(mu.points + shift * 3.0**-level)


def _blocks(n: int) -> Discrete:
    """The first n tokens of 0 11 0000 11111111 …: blocks of equal tokens, each twice as long as the one before."""
    block = np.floor(np.log2(np.arange(n) + 1))
    return Discrete.uniform((block % 2)[:, None])


def _value(mu: Discrete, b: float) -> float:
    return float(Attention.head([[1.0]], [[1.0]], [[1.0]])(mu, [b])[0])


def _errors(key: Key, config: Config, variant: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numbers of tokens, and how far attention is from its value on the limit, for each kind of prompt."""
    rng, b, sizes = generator(key), config.b, [2**level for level in range(3, 3 + config.levels)]
    transforms = _transforms(b)
    exact = [slope / value for value, slope in transforms]
    sums = [sum(share * pair[i] for share, pair in zip(SHARES, transforms, strict=True)) for i in (0, 1)]
    # in units of an interval
    shift = -0.5 if variant == "left-ends" else 0.0

    def grid(n: int) -> Discrete:
        return _blocks(n) if variant == "blocks" else _grid(n, shift)

    def mixture(n: int) -> Discrete:
        return SHARES[0] * Discrete.dirac([0.0]) + SHARES[1] * _grid(n, shift) + SHARES[2] * _cantor(n, shift)

    def random(n: int) -> float:
        # all repetitions of one size in one call: the softmax mean of each row
        y = rng.uniform(size=(config.repetitions, n))
        if variant == "stratified":
            y = (np.arange(n) + y) / n
        w = np.exp(b * y)
        return float(np.sqrt((((w * y).sum(axis=1) / w.sum(axis=1) - exact[1]) ** 2).mean()))

    found = {
        "grid": [abs(_value(grid(n), b) - exact[1]) for n in sizes],
        "independent tokens": [random(n) for n in sizes],
        "Cantor measure": [abs(_value(_cantor(n, shift), b) - exact[2]) for n in sizes],
        "sum of three kinds": [abs(_value(mixture(n), b) - sums[1] / sums[0]) for n in sizes],
    }
    return np.array(sizes), {name: np.array(values) for name, values in found.items()}


def _subsequences(config: Config, variant: str) -> float:
    """How far attention on the prompt of blocks is from its two limits, at the ends of blocks of 1 and of 0."""
    e = math.exp(config.b)
    gaps = []
    for j in (11, 12):
        missing = 2 ** (j - 2) if variant == "half-blocks" else 0
        limit = 2 * e / (1 + 2 * e) if j % 2 == 0 else e / (e + 2)
        gaps.append(abs(_value(_blocks(2**j - 1 - missing), config.b) - limit))
    return max(gaps)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sizes, errors = _errors(key, config, variant)
    checks = [
        Check(
            f"order in n: {name}",
            np.polyfit(np.log(sizes), np.log(errors[name]), 1)[0],
            order - config.allowed,
            order + config.allowed,
            rejected_by=controls,
        )
        for name, (order, controls) in ORDERS.items()
    ]
    gap = _subsequences(config, variant)
    blocks = Check("blocks: distance to the limits of two subsequences", gap, high=2e-3, rejected_by="half-blocks")
    return Outcome((*checks, blocks), _figure(key, config, sizes, errors) if variant == "claim" else None)


def _figure(key: Key, config: Config, sizes: np.ndarray, errors: dict[str, np.ndarray]) -> Figure:
    _, without = _errors(key, config, "blocks")
    return Figure(
        "Attention on prompts that have a limit",
        "number of tokens n",
        "distance to the value on the limit",
        (
            *(Series(name, sizes, values, "points", role="measured") for name, values in errors.items()),
            Series("control: blocks of 0 and 1", sizes, without["grid"], role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Softmax mean on [0, 1] with logits {config.b:g}·y; closed forms of all limits.",
    )


claim = Claim(
    name="billingsley-1999-limits-of-prompts",
    title="Prompts that converge, whatever their limit is made of",
    kind="theorem",
    statement=(
        "If prompts μ_n tend weakly to μ on [0, 1], then Γ[μ_n](x) → Γ[μ](x), be μ atomic, with a density, singular, "
        "or a sum of such: with order −2 in n for midpoints, −1/2 for independent tokens, −2 log 3/log 2 for the "
        "Cantor measure. A prompt of blocks of 0 and 1, each twice as long as the one before, has no limit, but its "
        "prefixes that end with a block of one kind have."
    ),
    hypotheses=("tokens in a compact set", "one softmax head"),
    reference="billingsley1999, Sections 2 and 5; furuya2025, equations (24) and (25)",
    measure=measure,
    controls={
        "blocks": "The prompt of blocks in place of the grid: its averages oscillate forever.",
        "left-ends": "Tokens at the left ends of their intervals instead of the centres: errors of order h, not h².",
        "stratified": "One random token in each interval of length 1/n: not independent, and of a higher order.",
        "half-blocks": "Prefixes that end halfway through a block of one kind.",
    },
    quick=Config(),
    full=Config(levels=10, repetitions=4000),
)
