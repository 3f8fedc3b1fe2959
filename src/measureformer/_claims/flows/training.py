"""An infinitely deep transformer can be trained to zero loss: small initial loss, many heads, separated contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer._claims._random import generator
from measureformer._claims.base import Claim
from measureformer.flows._training import Problem, Stack, Training, resting, started, updated
from measureformer.result import Check, Figure, Outcome, Series

DIM = 2


@dataclass(frozen=True)
class Config:
    seeds: int = 2
    pairs: int = 4
    n: int = 4
    heads: int = 4
    pieces: int = 2
    depth: int = 2
    steps: int = 300
    rate: float = 0.05
    values: int = 3
    """Values of each of the three quantities, a factor 4 apart: below the base for heads and separation."""
    initial: float = 0.5
    """Distance of the targets from the point; the initial loss is its square."""
    separation: float = 1.0
    reached: float = 1e-4


class Variant(NamedTuple):
    """One training: how far the targets are, how many heads, how far apart the contexts of a pair."""

    initial: float
    heads: int
    separation: float


def _sweeps(config: Config) -> dict[str, list[Variant]]:
    """The three sweeps, each with the base among its values."""
    base = Variant(config.initial, config.heads, config.separation)
    factors = [4.0**i for i in range(config.values)]
    return {
        "initial": [base._replace(initial=base.initial * factor) for factor in factors],
        "heads": [base._replace(heads=max(1, round(base.heads / 2**i))) for i in range(config.values)],
        "separation": [base._replace(separation=base.separation / factor**2) for factor in factors],
    }


def _problem(rng: np.random.Generator, config: Config, variant: Variant) -> tuple[Problem, float]:
    """One query in all contexts, which come in pairs with different targets; and the floor if pairs coincide."""
    first, noise = rng.normal(size=(2, config.pairs, config.n, DIM))
    angles = rng.uniform(0, 2 * np.pi, 2 * config.pairs)
    x = rng.normal(size=DIM)
    y = x + variant.initial * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([first, first + variant.separation * noise])
    count = len(points)
    queries = np.broadcast_to(x, (count, 1, DIM))
    shares = np.full((count, 1), 1 / count)
    problem = Problem(points, np.full((count, config.n), -np.log(config.n)), queries, y[:, None], shares)
    # two targets of one point: the mean of |T − y₁|² and |T − y₂|² is at least |y₁ − y₂|²/4, at T half-way
    return problem, float(((y[: config.pairs] - y[config.pairs :]) ** 2).sum(axis=1).mean() / 4)


@eqx.filter_jit
def _losses(stacks: Stack, problems: Problem, training: Training) -> Array:
    """The loss before each step, for a batch of trainings at once."""

    def one(stack: Stack, problem: Problem) -> Array:
        def step(state: Any, _: None) -> tuple[Any, Array]:
            return updated(state, problem, training)

        return jax.lax.scan(step, started(stack, training), None, training.steps)[1]

    return jax.vmap(one)(stacks, problems)


def _trained(key: Any, config: Config, variants: list[Variant]) -> tuple[np.ndarray, np.ndarray]:
    """First and last loss, and the floor, of each variant and seed: shapes (v, s, 2) and (v, s)."""
    entropy = generator(key).integers(2**32)
    keys = jax.random.split(key, config.seeds)
    problems, stacks, floors = [], [], []
    for variant in variants:
        for seed in range(config.seeds):
            # all variants see the same numbers
            problem, floor = _problem(np.random.default_rng([entropy, seed]), config, variant)
            start = resting(keys[seed], DIM, config.heads, config.pieces)
            start.V[:, variant.heads :] = 0  # a head without values stays without influence
            problems, stacks, floors = [*problems, problem], [*stacks, start], [*floors, floor]
    stack, problem = (jax.tree.map(lambda *leaves: np.stack(leaves), *group) for group in (stacks, problems))
    training = Training(
        steps=config.steps, method="adam", rate=config.rate, solver="euler", depth=config.depth, tol=1e-30
    )
    losses = np.asarray(_losses(stack, problem, training))
    shape = len(variants), config.seeds
    return losses[:, [0, -1]].reshape(*shape, 2), np.reshape(floors, shape)


def _measured(key: Any, config: Config, *, separated: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Last over first loss in each sweep, (values, seeds), and the loss of coinciding contexts over the floor."""
    sweeps = _sweeps(config)
    variants = [variant for sweep in sweeps.values() for variant in sweep]
    if not separated:
        variants = [variant._replace(separation=0.0) for variant in variants]
    variants.append(Variant(config.initial, config.heads, 0.0))
    losses, floors = _trained(key, config, variants)
    shares = losses[:, :, 1] / losses[:, :, 0]
    size = config.values
    found = {name: shares[i * size : (i + 1) * size] for i, name in enumerate(sweeps)}
    return found, losses[-1, :, 1] / floors[-1]


def _outcome(shares: dict[str, np.ndarray], floor: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    base = float(shares["heads"][0].max())
    middle = {name: np.median(found, axis=1) for name, found in shares.items()}
    checks = [Check("last over first loss, worst seed", base, high=config.reached)]
    for name, words in (
        ("initial", "far targets over near ones"),
        ("heads", "fewest heads over all"),
        ("separation", "close contexts over separated ones"),
    ):
        checks.append(Check(f"last loss, {words}", float(middle[name][-1] / middle[name][0]), low=10.0))
    checks += [
        Check("one context with two targets: loss over floor, least", float(floor.min()), low=1 - 1e-9),
        Check("one context with two targets: loss over floor, largest", float(floor.max()), high=1.05),
    ]
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    shares, floor = _measured(key, config, separated=True)
    sweeps = _sweeps(config)
    curves = []
    for name, label in (
        ("initial", "initial loss"),
        ("heads", "number of heads"),
        ("separation", "separation of contexts"),
    ):
        found = np.median(shares[name], axis=1)
        values = np.array([getattr(variant, name) for variant in sweeps[name]], float)
        values = (values / values[0]) ** (2 if name == "initial" else 1)
        curves.append(Series(label, tuple(map(float, values)), tuple(map(float, found)), "line"))
    at = [x for curve in curves for x in curve.x]
    figure = Figure(
        "Training an infinitely deep transformer",
        "the quantity over its value in the base problem",
        "last over first loss, median",
        (*curves, Series("required", (min(at), max(at)), (config.reached, config.reached), "dashed")),
        xscale="log",
        yscale="log",
        caption=(
            f"{2 * config.pairs} contexts of {config.n} tokens in the plane, one query; {config.pieces} pieces of "
            f"depth with at most {config.heads} heads; {config.steps} steps of Adam."
        ),
    )
    return _outcome(shares, floor, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_measured(key, config, separated=False), config)


claim = Claim(
    name="barboni-2026-training",
    title="An infinitely deep transformer can be trained to zero loss",
    statement=(
        "For θ(t) = heads of softmax attention, constant on pieces of the depth, training of the mean of "
        "|T_θ[μ^k](x^k) − y^k|² ends at zero if the initial loss is small, heads are many and contexts are separated; "
        "here without any of the three a loss is left that is at least ten times as large. Where two contexts "
        "coincide, with one query x and targets y₁, y₂, the mean of their two terms is at least |y₁ − y₂|²/4, and "
        "training ends there."
    ),
    hypotheses=(
        "in the theorem: infinitely many heads and gradient flow, for log-sum-exp functions of the contexts that are "
        "linearly independent modulo affine functions",
        "here: finitely many heads, equal steps in depth, Adam; the network starts as the identity",
    ),
    reference="barboni2026",
    run=_run,
    control=_control,
    control_statement="The two contexts of each pair coincide, and their targets differ.",
    quick=Config(),
    full=Config(seeds=8, pairs=8, n=8, heads=16, pieces=4, steps=1500, values=4),
)
