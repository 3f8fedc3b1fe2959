"""Without the factor 1/√d_k, gradients through the softmax shrink as the dimension of keys grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator


@dataclass(frozen=True)
class Config:
    tokens: int = 16
    draws: int = 2000
    largest: int = 4096
    """Dimension of queries and keys; the least is 16, each four times the one before."""


def _slopes(key: Key, config: Config, *, scaled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dimensions; the mean of 1 − Σ s², the trace of the derivative of the softmax; its standard error."""
    rng = generator(key)
    dims = 4 ** np.arange(2, round(np.log(config.largest) / np.log(4)) + 1)
    means, errors = [], []
    for d in dims:
        q, k = rng.normal(size=(config.draws, d)), rng.normal(size=(config.tokens, d))
        logits = q @ k.T / (np.sqrt(d) if scaled else 1.0)
        s = np.exp(logits - logits.max(axis=1, keepdims=True))
        s /= s.sum(axis=1, keepdims=True)
        trace = 1 - (s**2).sum(axis=1)
        means.append(trace.mean())
        errors.append(trace.std() / np.sqrt(config.draws))
    return dims, np.array(means), np.array(errors)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    dims, means, errors = _slopes(key, config, scaled=variant == "scaled")
    slope = np.polyfit(np.log(dims[1:]), np.log(means[1:]), 1)[0]
    relative = 5 * np.hypot(errors[0] / means[0], errors[-1] / means[-1])
    size, ratio = "size of the derivative at the largest over that at the least dimension", means[-1] / means[0]
    checks = (
        Check(size, ratio, high=0.25, error=relative * ratio, rejected_by="scaled"),
        Check("exponent of d_k, from 64 on", slope, low=-0.6, high=-0.4, rejected_by="scaled"),
    )
    if variant != "claim":
        return Outcome(checks)
    _, other, _ = _slopes(key, config, scaled=True)
    figure = Figure(
        "The factor 1/√d_k",
        "dimension of queries and keys, d_k",
        "mean of 1 − Σ s²",
        (
            Series("without the factor", dims, means, "points", role="measured"),
            Series("with the factor", dims, other, "points", role="control"),
            Series("d_k^(−1/2)", dims, means[-1] * np.sqrt(dims[-1] / dims), "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Standard normal queries and keys, {config.tokens} tokens. 1 − Σ s² is the trace of ∂s/∂logits.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="vaswani-2017-scale",
    title="The factor 1/√d_k keeps gradients alive",
    kind="observation",
    statement=(
        "For queries and keys with independent standard normal entries, logits have variance d_k, the softmax "
        "saturates and its derivative shrinks, on average like d_k^{−1/2}: that is the probability that the two "
        "largest logits are within 1 of each other. Observed: an exponent between −0.6 and −0.4 from d_k = 64 on."
    ),
    hypotheses=("independent standard normal entries, as at the start of training", "one softmax over 16 tokens"),
    reference="vaswani2017",
    measure=measure,
    controls={"scaled": "Logits are divided by √d_k."},
    quick=Config(),
    full=Config(draws=20_000, largest=16_384),
)
