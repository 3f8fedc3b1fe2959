"""Training an infinitely deep transformer ends at zero loss: small initial loss, many heads, separated contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.flows.training import FlowLoss, Problem, Stack, Training, resting
from measureformer.training.loop import started, updated

DIM = 2


@dataclass(frozen=True)
class Config:
    seeds: int = 2
    pairs: int = 4
    n: int = 4
    heads: int = 4
    pieces: int = 2
    depth: int = 1
    steps: int = 250
    rate: float = 0.05
    distance: float = 0.5
    """Of the targets from the point; the initial loss is its square."""
    distances: int = 4
    """How many there are, each four times the one before; the second is `distance`."""
    separation: float = 1.0
    separations: int = 3
    """How many there are, each a sixteenth of the one before."""
    reached: float = 1e-4


class Variant(NamedTuple):
    """One training: how far the targets are, how many heads, how far apart the contexts of a pair."""

    distance: float
    heads: int
    separation: float


def _sweeps(config: Config) -> dict[str, list[Variant]]:
    base = Variant(config.distance, config.heads, config.separation)
    return {
        "distance": [base._replace(distance=base.distance * 4.0 ** (i - 1)) for i in range(config.distances)],
        "heads": [base._replace(heads=base.heads >> i) for i in range(base.heads.bit_length())],
        "separation": [base._replace(separation=base.separation / 16**i) for i in range(config.separations)],
    }


def _problem(rng: np.random.Generator, config: Config, variant: Variant) -> tuple[Problem, float]:
    """One query in all contexts, which come in pairs with different targets; and the floor if pairs coincide."""
    first, noise = rng.normal(size=(2, config.pairs, config.n, DIM))
    angles = rng.uniform(0, 2 * np.pi, 2 * config.pairs)
    x = rng.normal(size=DIM)
    y = x + variant.distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
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
            return updated(state, FlowLoss(problem, training), training, jax.random.key(0))  # no fresh data

        return jax.lax.scan(step, started(stack, training), None, training.steps)[1]

    return jax.vmap(one)(stacks, problems)


def _trained(key: Any, config: Config, variants: list[Variant]) -> tuple[np.ndarray, np.ndarray]:
    """First and last loss, and the floor, of each variant and seed: shapes (v, s, 2) and (v, s)."""
    entropy = int(generator(key).integers(2**32))
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
    variants.append(Variant(config.distance, config.heads, 0.0))
    losses, floors = _trained(key, config, variants)
    shares = losses[:, :, 1] / losses[:, :, 0]
    ends = np.cumsum([len(sweep) for sweep in sweeps.values()])
    found = dict(zip(sweeps, np.split(shares[:-1], ends[:-1]), strict=True))
    return found, losses[-1, :, 1] / floors[-1]


def _outcome(shares: dict[str, np.ndarray], floor: np.ndarray, config: Config, figure: Figure | None = None) -> Outcome:
    few, many = shares["heads"][-1], shares["heads"][0]
    close, apart = shares["separation"][-1], shares["separation"][0]
    checks = (
        Check("last over first loss, worst seed", float(many.max()), high=config.reached),
        Check("last loss of one head over that of all, median", float(np.median(few / many)), low=100.0),
        Check(
            "last loss of close contexts over that of separate ones, median", float(np.median(close / apart)), low=100.0
        ),
        Check("one context with two targets: loss over floor, least", float(floor.min()), low=1 - 1e-9),
        Check("one context with two targets: loss over floor, largest", float(floor.max()), high=1.01),
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    shares, floor = _measured(key, config, separated=True)
    curves = []
    for name, label in (
        ("distance", "initial loss"),
        ("heads", "number of heads"),
        ("separation", "separation of contexts"),
    ):
        found = np.median(shares[name], axis=1)
        values = np.array([getattr(variant, name) for variant in _sweeps(config)[name]], float)
        relative = (values / config.distance) ** 2 if name == "distance" else values / values[0]
        curves.append(Series(label, tuple(map(float, relative)), tuple(map(float, found)), "line"))
    at = [x for curve in curves for x in curve.x]
    figure = Figure(
        "Training an infinitely deep transformer",
        "initial loss, heads, separation: each over its value in the base problem",
        "last over first loss, median",
        (*curves, Series("required", (min(at), max(at)), (config.reached, config.reached), "dashed")),
        xscale="log",
        yscale="log",
        caption=(
            f"{2 * config.pairs} contexts of {config.n} tokens in the plane, one query; {config.pieces} pieces of "
            f"depth with at most {config.heads} heads; {config.steps} steps of Adam. A small initial loss makes "
            "training slow, since only W is learned while it is small; a large one sometimes leaves it stuck."
        ),
    )
    return _outcome(shares, floor, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(*_measured(key, config, separated=False), config)


claim = Claim(
    name="barboni-2026-training",
    title="Training an infinitely deep transformer ends at zero loss",
    statement=(
        "For θ(t) = heads of softmax attention, constant on pieces of the depth, training of the mean of "
        "|T_θ[μ^k](x^k) − y^k|² ends at zero if the initial loss is small, heads are many and contexts are separated. "
        "With one head, or contexts that are close, much of the loss is left. Where two contexts coincide, with one "
        "query x and targets y₁, y₂, the mean of |T − y₁|² and |T − y₂|² is at least |y₁ − y₂|²/4, and training ends "
        "there."
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
    full=Config(seeds=5, pairs=6, heads=8, pieces=4, steps=500, distances=5, separations=4),
)
