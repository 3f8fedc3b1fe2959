"""Retrieval against learning: GINC, a mixture of hidden Markov models, and its exact Bayes predictor.

A concept θ is a hidden Markov model. A prompt consists of examples drawn from one of them, joined by a delimiter. Who
knows all concepts finds out which one it is: the posterior is computed by the forward algorithm, for all concepts at
once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from measureformer.errors import OptionError
from measureformer.numerics.arrays import at_least, positive_int, prng_key
from measureformer.numerics.buckets import bucket
from measureformer.numerics.random import generator

DELIMITER = 0


class TokenPrompts(NamedTuple):
    """Prompts of n examples and a question; `labels` are what the true concept would say next."""

    tokens: Int[Any, "b t"]
    concepts: Int[Any, " b"]
    labels: Int[Any, " b"]


class Belief(NamedTuple):
    """What Bayes' rule makes of prompts."""

    posterior: Float[Any, "b c"]
    """Probability of each concept."""
    next: Float[Any, "b v"]
    """Probability of each next token, averaged over concepts."""


class Ginc(eqx.Module):
    """Hidden Markov models with states (value, slot) that share what a state emits and how values change.

    A state emits one symbol; those of slot 0 emit the delimiter. Concepts differ in how slots follow each other.

    Ref         xie2022, Section 4.

    >>> import jax, measureformer as mf
    >>> world = mf.incontext.bayes.ginc(jax.random.key(0))
    >>> world.transitions.shape, world.emissions.shape
    ((5, 100, 100), (100,))
    """

    transitions: Float[Any, "c s s"]
    """From row to column, one matrix for each concept."""
    starts: Float[Any, "c s"]
    emissions: Int[Any, " s"]
    slots: int = eqx.field(static=True)
    symbols: int = eqx.field(static=True)

    @property
    def concepts(self) -> int:
        return self.transitions.shape[0]

    def smoothed(self, eps: float) -> Ginc:
        """Transitions mixed with the uniform ones: no prompt is then impossible under any concept."""
        if not 0 <= eps <= 1:
            raise OptionError(got=f"eps = {eps}", need="a number in [0, 1]", do="Try 0.05.")
        states = self.transitions.shape[1]
        mixed = (1 - eps) * np.asarray(self.transitions) + eps / states
        return Ginc(mixed, self.starts, self.emissions, self.slots, self.symbols)

    def documents(self, key: Any, count: int, length: int) -> Int[Array, "b t"]:
        """Token sequences, each from a concept drawn uniformly: what a model is trained on. Pure JAX.

        >>> import jax, measureformer as mf
        >>> mf.incontext.bayes.ginc(jax.random.key(0)).documents(jax.random.key(1), 2, 12).shape
        (2, 12)
        """
        return _documents(self, prng_key(key), positive_int(count, "count"), positive_int(length, "length"))

    def prompts(self, key: Any, count: int, *, examples: int, length: int) -> TokenPrompts:
        """`examples` examples of `length` tokens and a question of length − 1, from a concept drawn for each prompt.

        All examples of a prompt start in one slot, never that of the delimiter, with a random value each. The label is
        the most probable next token under the true concept, given the tokens of the question and its slot.

        >>> import jax, measureformer as mf
        >>> world = mf.incontext.bayes.ginc(jax.random.key(0))
        >>> world.prompts(jax.random.key(1), 3, examples=2, length=4).tokens.shape      # 2 · (4 + 1) + 3
        (3, 13)
        """
        count, length = positive_int(count, "count"), positive_int(length, "length")
        examples = at_least(examples, "examples", 0)
        rng, states = generator(key), self.transitions.shape[1]
        values = states // self.slots
        concepts = rng.integers(self.concepts, size=count)
        slot = rng.integers(1, self.slots, size=count)
        cumulative = np.cumsum(np.asarray(self.transitions), axis=2)
        emissions, pieces = np.asarray(self.emissions), []
        for example in range(examples + 1):
            state = rng.integers(values, size=count) * self.slots + slot
            for place in range(length if example < examples else length - 1):
                if place:
                    ahead = cumulative[concepts, state]
                    state = (ahead < rng.uniform(size=(count, 1)) * ahead[:, -1:]).sum(axis=1)
                pieces.append(emissions[state])
            if example < examples:
                pieces.append(np.full(count, DELIMITER))
        tokens = np.stack(pieces, axis=1) if pieces else np.zeros((count, 0), int)
        question = tokens[:, tokens.shape[1] - (length - 1) :]
        at_slot = (np.arange(states) % self.slots == slot[:, None]).astype(float)
        belief = at_slot / at_slot.sum(axis=1, keepdims=True)
        return TokenPrompts(tokens, concepts, _labels(self, belief, concepts, question))

    def believe(self, tokens: Any) -> Belief:
        """The posterior over concepts, with equal priors, and the law of the next token: the forward algorithm.

        Statement   p(θ | o) ∝ Σ_h p(h_1 | θ) Π p(h_{i+1} | h_i, θ) 1{o_i = emission of h_i}
        Cost        O(c s²) for each token.
        Ref         xie2022, Section 2.

        >>> import jax, numpy as np, measureformer as mf
        >>> world = mf.incontext.bayes.ginc(jax.random.key(0)).smoothed(0.05)
        >>> found = world.believe(world.prompts(jax.random.key(1), 3, examples=4, length=5).tokens)
        >>> bool(np.allclose(found.posterior.sum(axis=1), 1)), found.next.shape
        (True, (3, 50))
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or ((tokens < 0) | (tokens >= self.symbols)).any():
            raise OptionError(
                got=f"tokens of shape {tokens.shape} and type {tokens.dtype}, some of which may be no symbol",
                need=f"(b, t) whole numbers from 0 to {self.symbols - 1}",
                do="Pass what `prompts` or `documents` gives.",
            )
        # in buckets, so that a new length compiles nothing; −1 stands for no token
        padded = np.pad(tokens, ((0, 0), (0, bucket(max(tokens.shape[1], 1)) - tokens.shape[1])), constant_values=-1)
        return Belief(*jax.device_get(_forward(self, padded)))


def ginc(
    key: Any, *, concepts: int = 5, values: int = 10, slots: int = 10, symbols: int = 50, permutations: int = 10
) -> Ginc:
    """Random concepts as in the literature: slots follow a random mixture of permutations, values mostly stay.

    Ref         xie2022, Appendix F.

    >>> import jax, measureformer as mf
    >>> mf.incontext.bayes.ginc(jax.random.key(0), concepts=2, values=3, slots=4, symbols=8).starts.shape
    (2, 12)
    """
    for name, size in (("concepts", concepts), ("values", values), ("permutations", permutations)):
        positive_int(size, name)
    for name, size in (("slots", slots), ("symbols", symbols)):
        at_least(size, name, 2)  # one is the delimiter's
    rng = generator(key)

    def mixture(size: int) -> np.ndarray:
        weights = np.exp((rng.uniform(size=permutations) - 0.5) / 0.1)
        perms = np.stack([np.eye(size)[rng.permutation(size)] for _ in range(permutations)])
        return np.einsum("p,pij->ij", weights / weights.sum(), perms)

    between_values = 0.9 * np.eye(values) + 0.1 * mixture(values)
    transitions = np.stack([np.kron(between_values, mixture(slots)) for _ in range(concepts)])
    starts = np.exp((rng.uniform(size=(concepts, values * slots)) - 0.5) / 10)
    memory = rng.integers(1, symbols, size=(values, slots))
    memory[:, 0] = DELIMITER
    return Ginc(transitions, starts / starts.sum(axis=1, keepdims=True), memory.reshape(-1), slots, symbols)


@eqx.filter_jit
def _documents(world: Ginc, key: Any, count: int, length: int) -> Array:
    logits, first = jnp.log(jnp.asarray(world.transitions)), jnp.log(jnp.asarray(world.starts))
    emissions = jnp.asarray(world.emissions)

    def one(key: Any) -> Array:
        of_concept, of_start, of_walk = jax.random.split(key, 3)
        concept = jax.random.randint(of_concept, (), 0, first.shape[0])
        start = jax.random.categorical(of_start, first[concept])

        def step(state: Array, key: Any) -> tuple[Array, Array]:
            return jax.random.categorical(key, logits[concept, state]), emissions[state]

        return jax.lax.scan(step, start, jax.random.split(of_walk, length))[1]

    return jax.vmap(one)(jax.random.split(key, count))


@eqx.filter_jit
def _forward(world: Ginc, tokens: Any) -> tuple[Array, Array]:
    T, emissions = jnp.asarray(world.transitions), jnp.asarray(world.emissions)
    count, concepts = tokens.shape[0], T.shape[0]
    first = jnp.broadcast_to(jnp.asarray(world.starts), (count, concepts, T.shape[1]))

    def step(carry: tuple[Array, Array], token: Array) -> tuple[tuple[Array, Array], None]:
        ahead, log_likelihood = carry
        seen = jnp.where(emissions == token[:, None, None], ahead, 0)
        mass = jnp.sum(seen, axis=2)
        # a concept under which the prompt is impossible is out, and its states do not matter any more
        state = jnp.where(mass[..., None] > 0, seen, ahead) / jnp.where(mass > 0, mass, 1)[..., None]
        moved = jnp.einsum("bcs,cst->bct", state, T), log_likelihood + jnp.log(mass)
        there = token >= 0
        return (jnp.where(there[:, None, None], moved[0], ahead), jnp.where(there[:, None], moved[1], carry[1])), None

    (ahead, log_likelihood), _ = jax.lax.scan(step, (first, jnp.zeros((count, concepts))), tokens.T)
    top = jnp.max(log_likelihood, axis=1, keepdims=True)
    posterior = jax.nn.softmax(log_likelihood - jnp.where(jnp.isfinite(top), top, 0), axis=1)
    # impossible under all: nothing was learned
    posterior = jnp.where(jnp.isfinite(top), posterior, 1 / concepts)
    return posterior, _emitted(jnp.einsum("bc,bcs->bs", posterior, ahead), emissions, world.symbols)


def _emitted(states: Array, emissions: Array, symbols: int) -> Array:
    """Probabilities of symbols from those of states."""
    return states @ jax.nn.one_hot(emissions, symbols, dtype=states.dtype)


def _labels(world: Ginc, belief: np.ndarray, concepts: np.ndarray, question: np.ndarray) -> np.ndarray:
    """The most probable next token under the true concept, from a belief about the first state."""
    T, emissions = np.asarray(world.transitions)[concepts], np.asarray(world.emissions)
    for token in question.T:
        seen = np.where(emissions == token[:, None], belief, 0)
        belief = np.einsum("bs,bst->bt", seen / seen.sum(axis=1, keepdims=True), T)
    return np.argmax(belief @ np.eye(world.symbols)[emissions], axis=1)
