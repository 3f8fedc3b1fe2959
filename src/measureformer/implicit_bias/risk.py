"""The training loss as a function of W, in pure JAX; goes through jit, grad and vmap.

Attention that has chosen its tokens has a tiny gradient, and plain softmax loses it: in Σ_t s_t (g_t − ⟨s, g⟩) k_t the
term of the chosen token is a difference of nearly equal numbers, so that below 1e-14 only rounding is left. Here logits
are taken relative to the largest one, whose own entry is the constant 0. Its derivative is then 0 exactly, the terms of
the other tokens have no cancellation, and the direction of the gradient is right until e^{−gap} underflows at 1e-308.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

if TYPE_CHECKING:
    from measureformer.implicit_bias.problem import Problem


class Loss(NamedTuple):
    """A decreasing function ℓ of the margin, and ℓ(a − b) − ℓ(a) for b ≥ 0 without cancellation."""

    value: Callable[[Array], Array]
    rise: Callable[[Array, Array], Array]


LOSSES = {
    "logistic": Loss(lambda m: jax.nn.softplus(-m), lambda a, b: jnp.log1p(jax.nn.sigmoid(-a) * jnp.expm1(b))),
    "exponential": Loss(lambda m: jnp.exp(-m), lambda a, b: jnp.exp(-a) * jnp.expm1(b)),
    "linear": Loss(lambda m: -m, lambda a, b: b),
}


def loss_of(problem: Problem) -> Loss:
    loss = problem.kind
    if isinstance(loss, str):
        return LOSSES[loss]
    return Loss(loss, lambda a, b: loss(a - b) - loss(a))


def logits(problem: Problem, W: Array) -> Array:
    """k_it · W z_i, (n, T); −∞ for tokens that are not visible."""
    return jnp.where(problem.visible, jnp.einsum("ntk,nk->nt", problem.keys, problem.z @ W.T), -jnp.inf)


def probabilities(values: Array) -> Array:
    """Softmax along the last axis, with the accurate derivative described above."""
    first = jnp.argmax(values, axis=-1, keepdims=True) == jnp.arange(values.shape[-1])
    largest = jnp.sum(jnp.where(first, values, 0), axis=-1, keepdims=True)
    weights = jnp.exp(jnp.where(first, 0.0, values - largest))
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def head_margin(problem: Problem, x: Array) -> Array:
    """y·h(x) of a head with one output; with several, its output at the label minus log Σ exp of the others.

    x is (n, d), or (n, T, d) for tokens. The logistic loss of the second is the cross-entropy.
    """
    flat = x.reshape(-1, x.shape[-1])
    values = problem.head.evaluate(None, flat, None).reshape(*x.shape[:-1], -1)  # pyright: ignore[reportArgumentType] no context
    y = problem.y.reshape(-1, *[1] * (values.ndim - 2))
    if values.shape[-1] == 1:
        return y * values[..., 0]
    own = y[..., None] == jnp.arange(values.shape[-1])
    others = jax.nn.logsumexp(jnp.where(own, -jnp.inf, values), axis=-1)
    return jnp.sum(jnp.where(own, values, 0), axis=-1) - others


def scores(problem: Problem) -> Array:
    """The margin that the head gives to each token alone, (n, T); −∞ for tokens that are not visible."""
    return jnp.where(problem.visible, head_margin(problem, problem.X), -jnp.inf)


def risk(problem: Problem, W: Array) -> Array:
    """L(W), the mean of ℓ(margin of Σ_t s_it x_it)."""
    return risk_and_rest(problem, W)[0]


def risk_and_rest(problem: Problem, W: Array) -> tuple[Array, Array]:
    """L(W), and the probability Σ s_it of all tokens but the most attended one, (n,)."""
    s = probabilities(logits(problem, W))
    mixed = jnp.einsum("nt,ntd->nd", s, problem.X)
    rest = jnp.sum(jnp.where(jnp.arange(s.shape[-1]) == jnp.argmax(s, axis=-1, keepdims=True), 0, s), axis=-1)
    return jnp.mean(loss_of(problem).value(head_margin(problem, mixed))), rest


def rounding(problem: Problem) -> Array:
    """What rounding adds to the gradient for each unit of `rest`, (n,), up to a factor of order 1.

    Σ_{t≠a} s_t (g_t − ⟨s, g⟩)(k_t − k_a) z: where an example keeps a mixture of tokens, and its gradient is 0 there, an
    error of this size is left of it. Where one token is chosen, `rest` is tiny and so is the error.
    """
    gamma = jnp.max(jnp.where(problem.visible, jnp.abs(scores(problem)), 0), axis=-1)
    keys = jnp.sqrt(jnp.max(jnp.sum(problem.keys**2, axis=-1), axis=-1))
    unit = float(jnp.finfo(problem.X.dtype).eps) / problem.X.shape[0]
    return unit * gamma * keys * jnp.sqrt(jnp.sum(problem.z**2, axis=-1))


def excess(problem: Problem, W: Array) -> Array:
    """L(W) minus the mean of ℓ(largest score), to full relative accuracy, for a linear head with one output."""
    s, gamma = probabilities(logits(problem, W)), scores(problem)
    best = jnp.max(gamma, axis=-1)
    missing = jnp.sum(s * jnp.where(problem.visible, best[:, None] - gamma, 0), axis=-1)
    return jnp.mean(loss_of(problem).rise(best, missing))
