"""No model of a text has a smaller surprise than its entropy rate, and counting pairs of tokens gets there."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.text import ngram


@dataclass(frozen=True)
class Config:
    vocabulary: int = 6
    chains: int = 12
    shortest: int = 500
    lengths: int = 4
    """Each text is four times as long as the one before."""


@once
def _texts(key: Key, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Random transition matrices (c, v, v), and a text that each of them wrote, (c, length)."""
    law, draws = jax.random.split(key)
    v, length = config.vocabulary, config.shortest * 4 ** (config.lengths - 1)
    P = generator(law).dirichlet(np.full(v, 2.0), (config.chains, v))

    def step(token: Array, key: Array) -> tuple[Array, Array]:
        logits = jnp.log(P)[jnp.arange(config.chains), token]
        following = jax.random.categorical(key, logits)
        return following, following

    texts = jax.lax.scan(step, jnp.zeros(config.chains, int), jax.random.split(draws, length))[1]
    return P, np.asarray(texts).T


def _excess(P: np.ndarray, text: np.ndarray, variant: str) -> float:
    """The mean surprise of the model of a text, minus that of the chain which wrote it."""
    v = len(P)
    if variant == "seen-text":
        pairs = np.bincount(text[:-1] * v + text[1:], minlength=v * v).reshape(v, v) / (len(text) - 1)
    else:
        # all rows of a high power are the stationary law
        pairs = np.linalg.matrix_power(P, 4096)[0][:, None] * P
    model = ngram(text, v, order=1 if variant == "single-tokens" else 2)
    every = np.stack(np.divmod(np.arange(v * v), v), axis=1).ravel()
    guessed = model.probabilities(every)[2 - model.order :: 2].reshape(v, v)
    return np.sum(pairs * np.log(P / guessed))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    lengths = config.shortest * 4 ** np.arange(config.lengths)
    P, texts = _texts(key, config)
    excess = np.array([[_excess(p, text[:n], variant) for n in lengths] for p, text in zip(P, texts, strict=True)])
    mean = excess.mean(axis=0)
    order = np.polyfit(np.log(lengths), np.log(np.maximum(mean, 1e-300)), 1)[0]
    checks = (
        Check("excess over the entropy rate, least", excess.min(), low=0.0, rejected_by="seen-text"),
        Check("order of the excess in the length of the text", order, -1.2, -0.8, rejected_by="single-tokens"),
    )
    # an estimate of k free numbers from N tokens costs k/2N on average
    cost = config.vocabulary * (config.vocabulary - 1) / (2 * lengths)
    figure = Figure(
        "What a model of pairs loses to the source of the text",
        "tokens of the text, N",
        "excess over the entropy rate",
        (
            Series("pairs of tokens, mean over chains", lengths, mean, "points", role="measured"),
            Series("free numbers / 2N", lengths, cost, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"{config.chains} random Markov chains on {config.vocabulary} tokens; Kneser–Ney smoothing.",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="shannon-1948-entropy-rate",
    title="Perplexity is bounded by the entropy rate, and counts reach the bound",
    kind="theorem",
    statement=(
        "For a text written by a Markov chain of entropy rate h, the expected surprise −log p(next token) of every "
        "model is at least h. That of a model of pairs, counted in N tokens, exceeds h by about 1/N."
    ),
    hypotheses=("an ergodic chain on finitely many tokens, all transitions positive",),
    reference="shannon1948, Theorem 5",
    measure=measure,
    controls={
        "seen-text": "The surprise is that on the text in which the pairs were counted.",
        "single-tokens": "The model counts single tokens and knows nothing of the one before.",
    },
    quick=Config(),
    full=Config(vocabulary=12, chains=40, shortest=2000, lengths=5),
)
