"""A small transformer, trained, then forgotten: its in-context map comes back from its push-forward alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Transformer
from measureformer.measures import Discrete
from measureformer.numerics.arrays import on_device
from measureformer.structure import recover


@dataclass(frozen=True)
class Config:
    n: int = 8
    steps: int = 60
    batch: int = 16
    rate: float = 0.05
    tolerance: float = 1e-7


def _goal(X: Array) -> Array:
    """The task: every token learns the mean of its context, and turns by a right angle."""
    return jnp.mean(X, axis=0) + X @ jnp.array([[0.0, 0.5], [-0.5, 0.0]])


@eqx.filter_jit
def _trained(net: Transformer, batches: Array, rate: Array) -> tuple[Transformer, Array]:
    """Gradient descent on the mean squared error, one batch of contexts at a time, gradients clipped at norm 1."""
    # matrices only: the small number in a norm must stay positive
    arrays, rest = eqx.partition(net, lambda leaf: eqx.is_inexact_array(leaf) and leaf.ndim > 1)

    def loss(arrays: Any, contexts: Array) -> Array:
        whole = eqx.combine(arrays, rest)

        def one(X: Array) -> Array:
            tokens = whole.evaluate(Discrete(X, jnp.full(X.shape[0], -jnp.log(X.shape[0]))), X, None)
            return jnp.mean((tokens - _goal(X)) ** 2)

        return jnp.mean(jax.vmap(one)(contexts))

    def step(arrays: Any, contexts: Array) -> tuple[Any, Array]:
        value, slope = jax.value_and_grad(loss)(arrays, contexts)
        size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(slope)))
        return jax.tree.map(lambda a, s: a - rate * s / jnp.maximum(size, 1), arrays, slope), value

    arrays, losses = jax.lax.scan(step, arrays, batches)
    return eqx.combine(arrays, rest), losses


def _experiment(key: Any, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Losses; and true, recovered and guessed values at the tokens; errors off the support."""
    rng = generator(key)
    net = Transformer.random(key, dim=2, depth=1, norm="rms")
    batches = on_device(rng.uniform(-1, 1, (config.steps, config.batch, config.n, 2)))
    net, losses = _trained(net, batches, jnp.asarray(config.rate))

    def forgotten(mu: Discrete) -> Discrete:
        nu = net.push(mu)
        return nu.rows(np.lexsort(np.asarray(nu.points).T))

    X, elsewhere = rng.uniform(-1, 1, (config.n, 2)), rng.uniform(-1, 1, (config.n, 2))
    mu, G = Discrete.uniform(X), recover(forgotten)
    truth, found = np.asarray(net(mu, X)), np.asarray(G(mu, X))
    # the tempting guess: the image is a list, and so is the prompt
    guessed = np.asarray(forgotten(mu).points)
    off = np.linalg.norm(np.asarray(G(mu, elsewhere)) - np.asarray(net(mu, elsewhere)), axis=1)
    return np.asarray(losses), truth, found, guessed, off


def _outcome(
    losses: np.ndarray, truth: np.ndarray, read: np.ndarray, off: np.ndarray, config: Config, figure: Figure | None
) -> Outcome:
    return Outcome(
        (
            Check("loss after training over loss before", float(losses[-1] / losses[0]), high=0.5),
            Check("largest error at the tokens", float(np.abs(truth - read).max()), high=1e-12),
            Check("largest error off the support", float(off.max()), high=config.tolerance),
        ),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    losses, truth, found, guessed, off = _experiment(key, config)
    ends, at = (float(truth[:, 0].min()), float(truth[:, 0].max())), tuple(map(float, truth[:, 0]))
    figure = Figure(
        "A trained transformer, recovered",
        "first coordinate: the transformer",
        "first coordinate: recovered",
        (
            Series("equality", ends, ends, "dashed"),
            Series("marked atoms", at, tuple(map(float, found[:, 0])), "points"),
            Series("control: order of the image", at, tuple(map(float, guessed[:, 0])), "points"),
        ),
        equal=True,
        caption=f"One block, {config.steps} steps of gradient descent: loss {losses[0]:.3g} → {losses[-1]:.3g}.",
    )
    return _outcome(losses, truth, found, off, config, figure)


def _control(key: Any, config: Config) -> Outcome:
    losses, truth, _, guessed, off = _experiment(key, config)
    return _outcome(losses, truth, guessed, off, config, None)


claim = Claim(
    name="furuya-2025-trained-transformer",
    title="The map of a trained transformer comes back from its push-forward",
    statement=(
        "For a transformer T trained by gradient descent, known only through μ ↦ T(μ,·)♯μ with the order of the tokens "
        "lost: the recovered map equals T(μ,x), at the tokens of the prompt and at other points."
    ),
    hypotheses=("one block with RMSNorm, away from 0",),
    reference="furuya2025, equation (44)",
    run=_run,
    control=_control,
    control_statement="Images are assigned to tokens in the order in which they are listed.",
    quick=Config(),
    full=Config(n=32, steps=2000, batch=64),
)
