"""Alternatives to attention: which mixers tell contexts apart, and what hybrids of them learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.sequences_hybrids import train
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.sequences.mixers import told_apart

NETS = {
    "attention": ("attention", "attention"),
    "half": ("attention", "bilinear"),
    "bilinear": ("bilinear", "bilinear"),
    "conv": ("conv", "conv"),
    "none": ("none", "none"),
}


@dataclass(frozen=True)
class Config:
    n: int = 3
    dim: int = 6
    steps: int = 600
    batch: int = 64


def _sorted(X: np.ndarray) -> np.ndarray:
    return np.sort(X, axis=-2)


def _each_alone(X: np.ndarray) -> np.ndarray:
    return np.sin(4 * X)


def _conv(X: np.ndarray, *kernels: np.ndarray) -> np.ndarray:
    """One convolution with a skip after another; tokens beyond the ends count as 0."""
    for kernel in kernels:
        reach = len(kernel) // 2
        wide = np.pad(X, ((0, 0), (reach, reach), (0, 0)))
        X = X + sum(weight * wide[:, s : s + X.shape[1]] for s, weight in enumerate(kernel))
    return X


def _told(key: Key, variant: str) -> dict[str, float]:
    """1 for mixers that are contextual mappings on all sequences of 4 out of 5 tokens, with random weights."""
    rng = generator(key)
    P, kernels, over_all = rng.normal(size=(4, 4)), rng.normal(size=(3, 3)), rng.normal(size=7)
    shares = np.full((4, 4), 0.25) if variant == "equal-shares" else P
    one = over_all if variant == "kernel-over-all-tokens" else kernels[0]
    several = kernels[:2] if variant == "two-convolutions" else kernels
    layers: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "one Bilinear": lambda X: X + shares @ X,
        "one SeparableConv": lambda X: _conv(X, one),
        "three SeparableConv": lambda X: _conv(X, *several),
        "none": lambda X: np.sin(X + P @ X if variant == "mixed-before" else X),
    }
    return {name: float(told_apart(G, tokens=5, n=4).contextual) for name, G in layers.items()}


@once
def _trained(key: Key, config: Config, f: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Errors and numbers of parameters of the networks."""
    nets = train(f, list(NETS.values()), key, n=config.n, dim=config.dim, steps=config.steps, batch=config.batch)
    return np.array([net.error for net in nets]), np.array([net.parameters for net in nets])


def measure(key: Key, config: Config, variant: str) -> Outcome:
    told = _told(key, variant)
    errors, sizes = _trained(key, config, _each_alone if variant == "each-token-alone" else _sorted)
    ratios = dict(zip(NETS, errors[-1] / errors, strict=True))
    checks = (
        Check("one Bilinear is a contextual mapping", told["one Bilinear"], low=1.0, rejected_by="equal-shares"),
        Check("one SeparableConv is one", told["one SeparableConv"], high=0.0, rejected_by="kernel-over-all-tokens"),
        Check("three SeparableConv are one", told["three SeparableConv"], low=1.0, rejected_by="two-convolutions"),
        Check("no mixer is one", told["none"], high=0.0, rejected_by="mixed-before"),
        # what the comparison assumes, and the same whatever is learnt
        Check("largest network over smallest", sizes.max() / sizes.min(), high=1.05, context=True),
        *(
            Check(f"error without mixers over that of {name}", ratios[name], low=1.5, rejected_by="each-token-alone")
            for name in list(NETS)[:4]
        ),
    )
    if variant != "claim":
        return Outcome(checks)
    figure = Figure(
        "Mixers in two layers, equal parameters",
        "mixers",
        "L2 error on unseen sequences",
        (Series("sorting", range(len(errors)), errors, "bars", role="measured"),),
        xticks=("attention", "attention + bilinear", "bilinear", "conv", "none"),
        caption=f"{config.n} numbers are to be sorted; {sizes.min()} to {sizes.max()} parameters.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="yun-2020-mixers",
    title="What can stand in for attention",
    kind="observation",
    statement=(
        "A fixed mixture X + WXP with generic P is a contextual mapping for sequences of fixed length; one separable "
        "convolution, which sees neighbours only, is not, but three are for n = 4; perceptrons alone are not. "
        "Observed: hybrids of equal size with mixers in all or half of their layers learn to sort, with at most two "
        "thirds of the error without mixers."
    ),
    hypotheses=("positions are known; sequences of fixed length",),
    reference="yun2020, Section 5",
    measure=measure,
    controls={
        "equal-shares": "P is not generic: all tokens have equal shares in the mixture.",
        "kernel-over-all-tokens": "The kernel of the single convolution reaches over all tokens.",
        "two-convolutions": "Two convolutions in place of three: the ends do not see each other.",
        "mixed-before": "The perceptrons get a fixed mixture of the tokens.",
        "each-token-alone": "A target that looks at each token alone: mixers do not help.",
    },
    quick=Config(),
    # two convolutions over three neighbours reach over five: sorting more numbers than three is beyond their ends
    full=Config(dim=12, steps=1500, batch=256),
)
