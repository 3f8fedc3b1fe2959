"""A small transformer, trained, then forgotten: its in-context map comes back from its push-forward alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
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


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    net = Transformer.random(key, dim=2, depth=1, norm="rms")
    batches = on_device(rng.uniform(-1, 1, (config.steps, config.batch, config.n, 2)))
    net, losses = _trained(net, batches, jnp.asarray(0.0 if variant == "untrained" else config.rate))

    def forgotten(mu: Discrete) -> Discrete:
        nu = net.push(mu)
        return nu.rows(np.lexsort(np.asarray(nu.points).T))

    X, elsewhere = rng.uniform(-1, 1, (config.n, 2)), rng.uniform(-1, 1, (config.n, 2))
    mu, G = Discrete.uniform(X), recover(forgotten, eps=1e-2 if variant == "heavy-mark" else None)
    # the tempting guess: the image is a list, and so is the prompt
    truth, guessed = np.asarray(net(mu, X)), np.asarray(forgotten(mu).points)
    found = guessed if variant == "order-of-image" else np.asarray(G(mu, X))
    off = np.linalg.norm(np.asarray(G(mu, elsewhere)) - np.asarray(net(mu, elsewhere)), axis=1).max()
    checks = (
        Check("loss after training over loss before", losses[-1] / losses[0], high=0.5, rejected_by="untrained"),
        Check("largest error at the tokens", np.abs(truth - found).max(), high=1e-12, rejected_by="order-of-image"),
        Check("largest error off the support", off, high=config.tolerance, rejected_by="heavy-mark"),
    )
    first = (truth[:, 0], found[:, 0], guessed[:, 0])
    return Outcome(checks, _figure(config, np.asarray(losses), *first) if variant == "claim" else None)


def _figure(config: Config, losses: np.ndarray, truth: np.ndarray, found: np.ndarray, guessed: np.ndarray) -> Figure:
    ends = (truth.min(), truth.max())
    return Figure(
        "A trained transformer, recovered",
        "first coordinate: the transformer",
        "first coordinate: recovered",
        (
            Series("equality", ends, ends, "dashed", role="theory"),
            Series("marked atoms", truth, found, "points", role="measured"),
            Series("control: order of the image", truth, guessed, "points", role="control"),
        ),
        equal=True,
        caption=f"One block, {config.steps} steps of gradient descent: loss {losses[0]:.3g} → {losses[-1]:.3g}.",
    )


claim = Claim(
    name="furuya-2025-trained-transformer",
    title="The map of a trained transformer comes back from its push-forward",
    kind="construction",
    statement=(
        "For a transformer T trained by gradient descent, known only through μ ↦ T(μ,·)♯μ with the order of the tokens "
        "lost: the recovered map equals T(μ,x), at the tokens of the prompt and at other points."
    ),
    hypotheses=("one block with RMSNorm, away from 0",),
    reference="furuya2025, equation (44)",
    measure=measure,
    controls={
        "order-of-image": "Images are assigned to tokens in the order in which they are listed.",
        "heavy-mark": "The added atoms have the mass 0.01, which is not light: the context moves with them.",
        "untrained": "Gradient descent with steps of size 0: nothing is learned.",
    },
    quick=Config(),
    full=Config(n=32, steps=2000, batch=64),
)
