"""Training a deep transformer with few different layers ends at zero loss: many heads, separated contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.flows.training import Depth, FlowLoss, Problem, Stack, resting
from measureformer.training.loop import started, updated
from measureformer.training.optimization import Optimization

DIM = 2


@dataclass(frozen=True)
class Config:
    seeds: int = 2
    pairs: int = 4
    n: int = 4
    heads: int = 8
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


class Setting(NamedTuple):
    """One training: how far the targets are, how many heads, how far apart the contexts of a pair."""

    distance: float
    heads: int
    separation: float


def _sweeps(config: Config) -> dict[str, list[Setting]]:
    base = Setting(config.distance, config.heads, config.separation)
    return {
        "distance": [base._replace(distance=base.distance * 4.0 ** (i - 1)) for i in range(config.distances)],
        "heads": [base._replace(heads=base.heads >> i) for i in range(base.heads.bit_length())],
        "separation": [base._replace(separation=base.separation / 16**i) for i in range(config.separations)],
        "coinciding": [base._replace(separation=0.0)],
    }


def _problem(rng: np.random.Generator, config: Config, setting: Setting) -> tuple[Problem, float]:
    """One query in all contexts, which come in pairs with different targets; and the floor if pairs coincide."""
    first, noise = rng.normal(size=(2, config.pairs, config.n, DIM))
    angles = rng.uniform(0, 2 * np.pi, 2 * config.pairs)
    x = rng.normal(size=DIM)
    y = x + setting.distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.concatenate([first, first + setting.separation * noise])
    count = len(points)
    queries = np.broadcast_to(x, (count, 1, DIM))
    shares = np.full((count, 1), 1 / count)
    problem = Problem(points, np.full((count, config.n), -np.log(config.n)), queries, y[:, None], shares)
    # two targets of one point: the mean of |T − y₁|² and |T − y₂|² is at least |y₁ − y₂|²/4, at T half-way
    return problem, ((y[: config.pairs] - y[config.pairs :]) ** 2).sum(axis=1).mean() / 4


@eqx.filter_jit
def _losses(stacks: Stack, problems: Problem, optimization: Optimization, depth: Depth) -> Array:
    """The loss before each step, for a batch of trainings at once."""

    def one(stack: Stack, problem: Problem) -> Array:
        def step(state: Any, _: None) -> tuple[Any, Array]:
            return updated(state, FlowLoss(problem, depth), optimization, jax.random.key(0))  # no fresh data

        return jax.lax.scan(step, started(stack, optimization), None, optimization.steps)[1]

    return jax.vmap(one)(stacks, problems)


@once
def _trained(key: Key, config: Config, settings: tuple[Setting, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First loss, last loss and the floor, for each setting and seed."""
    entropy = int(generator(key).integers(2**32))
    keys = jax.random.split(key, config.seeds)
    problems, stacks, floors = [], [], []
    for setting in settings:
        for seed in range(config.seeds):
            # all settings see the same numbers
            problem, floor = _problem(np.random.default_rng([entropy, seed]), config, setting)
            start = resting(keys[seed], DIM, config.heads, config.pieces)
            start.V[:, setting.heads :] = 0  # a head without values stays without influence
            problems, stacks, floors = [*problems, problem], [*stacks, start], [*floors, floor]
    stack, problem = (jax.tree.map(lambda *leaves: np.stack(leaves), *group) for group in (stacks, problems))
    optimization = Optimization(config.steps, config.rate, clip=None, warmup=0.0, final=0.0, tol=1e-30)
    depth = Depth(config.pieces, "euler", config.depth)
    losses = np.asarray(_losses(stack, problem, optimization, depth))
    first, last, least = (np.reshape(part, (-1, config.seeds)) for part in (losses[:, 0], losses[:, -1], floors))
    return first, last, least


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sweeps = _sweeps(config)
    settings = [setting for sweep in sweeps.values() for setting in sweep]
    if variant == "coinciding-contexts":
        settings = [setting._replace(separation=0.0) for setting in settings]
    first, last, floors = _trained(key, config, tuple(settings))
    ends = np.cumsum([len(sweep) for sweep in sweeps.values()])[:-1]
    shares = dict(zip(sweeps, np.split(last / first, ends), strict=True))
    few, many = shares["heads"][-1], shares["heads"][0]
    close, apart = shares["separation"][-1], shares["separation"][0]
    left = last[ends[1] if variant == "separate-contexts" else -1]
    floor = left / (floors[-1] / 2 if variant == "one-target" else floors[-1])
    heads, contexts = "last loss of one head over that of all", "last loss of close contexts over that of separate ones"
    twice, coinciding = "one context with two targets: loss over floor", "coinciding-contexts"
    checks = (
        Check("last over first loss, worst seed", many.max(), high=config.reached, rejected_by=coinciding),
        Check(f"{heads}, median", np.median(few / many), low=100.0, rejected_by=coinciding),
        Check(f"{contexts}, median", np.median(close / apart), low=100.0, rejected_by=coinciding),
        Check(f"{twice}, least", floor.min(), low=1 - 1e-9, rejected_by="separate-contexts"),
        Check(f"{twice}, largest", floor.max(), high=1.01, rejected_by="one-target"),
    )
    return Outcome(checks, _figure(config, sweeps, shares) if variant == "claim" else None)


def _figure(config: Config, sweeps: dict[str, list[Setting]], shares: dict[str, np.ndarray]) -> Figure:
    curves = []
    for name, label in (
        ("distance", "initial loss"),
        ("heads", "number of heads"),
        ("separation", "separation of contexts"),
    ):
        values = np.array([getattr(setting, name) for setting in sweeps[name]], float)
        relative = (values / config.distance) ** 2 if name == "distance" else values / values[0]
        curves.append(Series(label, relative, np.median(shares[name], axis=1), "line", role="measured"))
    at = [x for curve in curves for x in curve.x]
    required = Series("required", (min(at), max(at)), (config.reached, config.reached), "dashed", role="theory")
    return Figure(
        "Training a deep transformer in context",
        "initial loss, heads, separation: each over its value in the base problem",
        "last over first loss, median",
        (*curves, required),
        xscale="log",
        yscale="log",
        caption=(
            f"{2 * config.pairs} contexts of {config.n} tokens in the plane, one query; {config.pieces} pieces of "
            f"depth with at most {config.heads} heads; {config.steps} steps of Adam. A small initial loss makes "
            "training slow, since only W is learned while it is small; a large one sometimes leaves it stuck."
        ),
    )


claim = Claim(
    name="barboni-2026-training",
    title="Training a deep transformer in context ends at zero loss",
    kind="observation",
    statement=(
        "For θ(t) = heads of softmax attention, constant on 2 or 4 pieces of the depth, training of the mean of "
        "|T_θ[μ^k](x^k) − y^k|² is observed to end below 10⁻⁴ of the initial loss for targets at distance 1/2, 4 or 8 "
        "heads and separated contexts; with one head, or contexts that are 16 to 256 times closer, more than a hundred "
        "times as much is left. Where two contexts coincide, with one query x and targets y₁, y₂, the mean of "
        "|T − y₁|² and |T − y₂|² is at least |y₁ − y₂|²/4, and training ends within 1 % of that."
    ),
    hypotheses=(
        "in the theorem: infinitely many heads and gradient flow, for log-sum-exp functions of the contexts that are "
        "linearly independent modulo affine functions",
        "here: finitely many heads, equal steps in depth, Adam; the network starts as the identity",
        "other initial losses appear in the figure only, and the depth is not refined, so the limit is not tested",
    ),
    reference="barboni2026",
    measure=measure,
    controls={
        "coinciding-contexts": "The two contexts of each pair coincide, and their targets differ.",
        "separate-contexts": "The floor is claimed for two contexts that do not coincide.",
        "one-target": "The floor is halved, as if one of the two targets were met: |y₁ − y₂|²/8.",
    },
    quick=Config(),
    full=Config(seeds=5, pairs=6, heads=8, pieces=4, steps=500, distances=5, separations=4),
)
