"""Retrieval against learning: GINC, a mixture of hidden Markov models, and its exact Bayes predictor.

A concept θ is a hidden Markov model. A prompt consists of examples drawn from one concept, joined by a delimiter. The
forward algorithm computes the posterior over all concepts at once.
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
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Key

DELIMITER = 0


class TokenPrompts(NamedTuple):
    """Prompts of examples and a question.

    Arguments:
        tokens: the prompts, (b, t).
        concepts: the concept of each, (b,).
        labels: the most probable next token under that concept, (b,).
    """

    tokens: Int[np.ndarray, "b t"]
    concepts: Int[np.ndarray, " b"]
    labels: Int[np.ndarray, " b"]


class Belief(NamedTuple):
    """The answer of Bayes' rule to prompts.

    Arguments:
        posterior: probability of each concept, (b, c).
        next: probability of each next token, averaged over concepts, (b, v).
    """

    posterior: Float[np.ndarray, "b c"]
    next: Float[np.ndarray, "b v"]


class Ginc(eqx.Module):
    """Hidden Markov models with states (value, slot) that share what a state emits and how values change.

    A state emits one symbol; those of slot 0 emit the delimiter. Concepts differ in how slots follow each other.
    Made by `ginc`.

    Arguments:
        transitions: stochastic matrices from row to column, one for each concept, (c, s, s).
        starts: law of the first state of each concept, (c, s).
        emissions: symbol of each state, (s,).
        slots: number of slots; state = value·slots + slot.
        symbols: size of the vocabulary.

    Ref         xie2022, Section 4.

    >>> import jax, measureformer as mf
    >>> world = mf.incontext.bayes.ginc(jax.random.key(0))
    >>> world.transitions.shape, world.emissions.shape
    ((5, 100, 100), (100,))
    """

    transitions: Float[Any, "c s s"]
    starts: Float[Any, "c s"]
    emissions: Int[Any, " s"]
    slots: int = eqx.field(static=True)
    symbols: int = eqx.field(static=True)

    @property
    def concepts(self) -> int:
        """Number of concepts."""
        return self.transitions.shape[0]

    def smoothed(self, eps: float) -> Ginc:
        """The world with transitions mixed with uniform ones: every prompt is then possible under every concept.

        Arguments:
            eps: share of the uniform transitions, in [0, 1].
        """
        if not 0 <= eps <= 1:
            raise OptionError(got=f"eps = {eps}", need="a number in [0, 1]", do="Try 0.05.")
        states = self.transitions.shape[1]
        mixed = (1 - eps) * np.asarray(self.transitions) + eps / states
        return Ginc(mixed, self.starts, self.emissions, self.slots, self.symbols)

    def documents(self, key: Key, count: int, length: int) -> Int[Array, "b t"]:
        """Training documents: token sequences, each from a concept drawn uniformly. Pure JAX.

        Arguments:
            key: randomness of the documents.
            count: number of documents.
            length: tokens in each.

        >>> import jax, measureformer as mf
        >>> mf.incontext.bayes.ginc(jax.random.key(0)).documents(jax.random.key(1), 2, 12).shape
        (2, 12)
        """
        return _documents(self, prng_key(key), positive_int(count, "count"), positive_int(length, "length"))

    def prompts(self, key: Key, count: int, *, examples: int, length: int) -> TokenPrompts:
        """Prompts of examples and a question, each from a concept of its own.

        All examples of a prompt start in one slot, never that of the delimiter, with a random value each. The label is
        the most probable next token under the true concept, given the tokens of the question and its slot.

        Arguments:
            key: randomness of the prompts.
            count: number of prompts.
            examples: examples in each, ≥ 0.
            length: tokens of an example; the question has one less.

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

    def believe(self, tokens: ArrayLike) -> Belief:
        """Posterior over concepts with equal priors, and law of the next token, by the forward algorithm.

        Arguments:
            tokens: prompts (b, t), whole numbers from 0 to symbols − 1.

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
                got=f"tokens of shape {tokens.shape} and type {tokens.dtype}, some possibly out of range",
                need=f"(b, t) whole numbers from 0 to {self.symbols - 1}",
                do="Pass tokens from `prompts` or `documents`.",
            )
        # in buckets, so that a new length compiles nothing; −1 stands for no token
        padded = np.pad(tokens, ((0, 0), (0, bucket(max(tokens.shape[1], 1)) - tokens.shape[1])), constant_values=-1)
        return Belief(*jax.device_get(_forward(self, padded)))


@checked
def ginc(
    key: Key, *, concepts: int = 5, values: int = 10, slots: int = 10, symbols: int = 50, permutations: int = 10
) -> Ginc:
    """A random world as in the reference: slots follow a random mixture of permutations, values mostly stay.

    Arguments:
        key: randomness of the world.
        concepts: number of hidden Markov models.
        values: values of a state.
        slots: slots of a state, ≥ 2; slot 0 emits the delimiter.
        symbols: size of the vocabulary, ≥ 2; symbol 0 is the delimiter.
        permutations: permutations that are mixed into each transition matrix.

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
