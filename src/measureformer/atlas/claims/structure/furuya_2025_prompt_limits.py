"""Prompts that converge to a measure with an atom, a density and a singular part: attention converges with them.

The moment generating function of a δ_0 + b·Uniform + c·Cantor on [0, 1] is
M(s) = a + b (e^s − 1)/s + c e^{s/2} Π_k cosh(s 3^{−k}), and the softmax mean at the query x is M'(s)/M(s), s = x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.structure.black_box import Atoms, w1

SHARES = np.array([0.2, 0.5, 0.3])
DEEP = 40
QUERIES = np.array([-3.0, -0.5, 0.7, 2.5])


@dataclass(frozen=True)
class Config:
    finest: int = 11
    levels: int = 3
    allowed: float = 2e-3


def exact(s: np.ndarray) -> np.ndarray:
    """M'(s)/M(s) of the mixture."""
    thirds = 3.0 ** -np.arange(1, DEEP)
    cantor = np.exp(s / 2) * np.prod(np.cosh(np.multiply.outer(s, thirds)), axis=-1)
    mean = 0.5 + (thirds * np.tanh(np.multiply.outer(s, thirds))).sum(axis=-1)
    # at 0 by their series
    small, t = np.abs(s) < 1e-3, np.where(np.abs(s) < 1e-3, 1.0, s)
    uniform = np.where(small, 1 + s / 2, np.expm1(t) / t)
    slope = np.where(small, 0.5 + s / 3, (np.exp(t) * (t - 1) + 1) / t**2)
    a, b, c = SHARES
    return (b * slope + c * cantor * mean) / (a + b * uniform + c * cantor)


def prompt(level: int, *, singular: bool) -> Atoms:
    """The atom at 0, midpoints of 2^level cells, and those of the 2^level intervals of Cantor's construction."""
    n = 2**level
    cells = (np.arange(n) + 0.5) / n
    digits = (np.arange(n)[:, None] >> np.arange(level)) & 1
    cantor = digits @ (2 * 3.0 ** -np.arange(1, level + 1)) + 0.5 * 3.0**-level
    parts = [np.zeros(1), cells, cantor if singular else cells]
    weights = [np.full(len(p), share / len(p)) for p, share in zip(parts, SHARES, strict=True)]
    return Atoms(np.concatenate(parts)[:, None], np.concatenate(weights))


def _errors(config: Config, variant: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of atoms; errors of attention at the queries; W_1 of the images to that of the finest prompt."""
    G = Attention.head([[1.0]], [[1.0]], [[1.0]])
    fine = prompt(config.finest, singular=True)
    limit = Atoms(exact(fine.points[:, 0])[:, None], fine.weights)
    sizes, errors, apart = [], [], []
    for level in np.linspace(2, config.finest - 1, config.levels).astype(int):
        mu = prompt(int(level), singular=variant != "no-singular-part")
        # queries are passive tokens: one program computes all values
        points, weights = np.concatenate([mu.points, QUERIES[:, None]]), np.append(mu.weights, np.zeros(len(QUERIES)))
        values = np.asarray(G.push(Discrete.weighted(points, weights)).points)
        errors.append(np.abs(values[mu.n :, 0] - exact(QUERIES)).max())
        apart.append(w1(Atoms(values[: mu.n], mu.weights), limit))
        sizes.append(mu.n)
    return np.array(sizes), np.array(errors), np.array(apart)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    sizes, errors, apart = _errors(config, variant)
    values = {
        "error of attention on the longest prompt": (errors[-1], config.allowed),
        "W_1 of its image to the image of the limit": (apart[-1], config.allowed),
        "error on the longest over that on the shortest": (errors[-1] / errors[0], 0.1),
    }
    checks = tuple(
        Check(name, value, high=high, rejected_by="no-singular-part") for name, (value, high) in values.items()
    )
    return Outcome(checks, _figure(config, sizes, errors, apart) if variant == "claim" else None)


def _figure(config: Config, sizes: np.ndarray, errors: np.ndarray, apart: np.ndarray) -> Figure:
    _, wrong, _ = _errors(config, "no-singular-part")
    return Figure(
        "Prompts that converge",
        "atoms of μ_n",
        "distance to the limit",
        (
            Series("|Γ[μ_n](x) − Γ[μ](x)|", sizes, errors, "points", role="measured"),
            Series("W_1 of the push-forwards", sizes, apart, "points", role="measured"),
            Series("control: no singular part", sizes, wrong, role="control"),
        ),
        xscale="log",
        yscale="log",
        caption="0.2 δ_0 + 0.5 Uniform + 0.3 Cantor on [0, 1]; the limit of attention in closed form.",
    )


claim = Claim(
    name="furuya-2025-prompt-limits",
    title="Prompts that converge have convergent answers",
    kind="theorem",
    statement=(
        "If μ_n → μ in W_1 then Γ[μ_n](x) → Γ[μ](x) for every x and Γ[μ_n]♯μ_n → Γ[μ]♯μ in W_1, whether μ is atomic, "
        "has a density, or is singular: here μ = 0.2 δ_0 + 0.5 Uniform + 0.3 Cantor, where attention has a closed form."
    ),
    hypotheses=("compact domain", "softmax attention with Q = K = V = 1"),
    reference="furuya2025, equations (24) and (25)",
    measure=measure,
    controls={
        "no-singular-part": "The uniform part replaces the singular one: the prompts converge to another measure."
    },
    quick=Config(),
    full=Config(finest=15, levels=10, allowed=1e-3),
)
