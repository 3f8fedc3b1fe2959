"""Alternatives to attention: which mixers tell contexts apart, and what hybrids of them learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.sequences import hybrids
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
    dim: int = 8
    steps: int = 400
    batch: int = 128


def _sorted(X: np.ndarray) -> np.ndarray:
    return np.sort(X, axis=-2)


def _each_alone(X: np.ndarray) -> np.ndarray:
    return np.sin(4 * X)


def _conv(X: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    wide = np.pad(X, ((0, 0), (1, 1), (0, 0)))
    return X + sum(kernel[s] * wide[:, s : s + X.shape[1]] for s in range(3))


def _told(key: Any) -> dict[str, float]:
    """1 for mixers that are contextual mappings on all sequences of 4 out of 5 tokens, with random weights."""
    rng = generator(key)
    P, kernels = rng.normal(size=(4, 4)), rng.normal(size=(3, 3))
    layers = {
        "one Bilinear": lambda X: X + P @ X,
        "one SeparableConv": lambda X: _conv(X, kernels[0]),
        "three SeparableConv": lambda X: _conv(_conv(_conv(X, kernels[0]), kernels[1]), kernels[2]),
        "none": np.sin,
    }
    return {name: float(told_apart(G, tokens=5, n=4).contextual) for name, G in layers.items()}


def _errors(key: Any, config: Config, f: Any) -> dict[str, tuple[float, int]]:
    sizes = {"d": 1, "n": config.n, "dim": config.dim, "steps": config.steps, "batch": config.batch}
    nets = {name: hybrids.train(f, kinds, key, **sizes) for name, kinds in NETS.items()}
    return {name: (net.error, net.parameters) for name, net in nets.items()}


def _outcome(told: dict[str, float], errors: dict[str, tuple[float, int]], figure: Figure | None) -> Outcome:
    sizes = [size for _, size in errors.values()]
    best = errors["none"][0]
    checks = [
        Check("one Bilinear is a contextual mapping", told["one Bilinear"], low=1.0),
        Check("one SeparableConv is one", told["one SeparableConv"], high=0.0),
        Check("three SeparableConv are one", told["three SeparableConv"], low=1.0),
        Check("no mixer is one", told["none"], high=0.0),
        Check("largest network over smallest", max(sizes) / min(sizes), high=1.05),
        *(
            Check(f"error without mixers over that of {name}", best / errors[name][0], low=1.5)
            for name in list(NETS)[:4]
        ),
    ]
    return Outcome(tuple(checks), figure)


def _run(key: Any, config: Config) -> Outcome:
    errors = _errors(key, config, _sorted)
    places = tuple(float(i) for i in range(len(errors)))
    figure = Figure(
        "Mixers in two layers, equal parameters",
        "mixers",
        "L2 error on unseen sequences",
        (Series("sorting", places, tuple(e for e, _ in errors.values()), "bars"),),
        xticks=("attention", "attention + bilinear", "bilinear", "conv", "none"),
        caption=f"{config.n} numbers are to be sorted; {min(s for _, s in errors.values())} to "
        f"{max(s for _, s in errors.values())} parameters.",
    )
    return _outcome(_told(key), errors, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_told(key), _errors(key, config, _each_alone), None)


claim = Claim(
    name="yun-2020-mixers",
    title="What can stand in for attention",
    statement=(
        "A fixed mixture X + WXP with generic P is a contextual mapping for sequences of fixed length; one separable "
        "convolution, which sees neighbours only, is not, but three are for n = 4; perceptrons alone are not. "
        "Hybrids of equal size with attention in all, half or none of their layers learn to sort; without mixers "
        "nothing is learnt."
    ),
    hypotheses=("positions are known; sequences of fixed length",),
    reference="yun2020, Section 5",
    run=_run,
    control=_control,
    control_statement="A target that looks at each token alone: mixers do not help.",
    quick=Config(),
    # two convolutions over three neighbours reach over five: sorting more numbers than three is beyond their ends
    full=Config(dim=12, steps=1500, batch=256),
)
