"""No change of the context moves the output of a trained layer further than its certified radius allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from measureformer.atlas.helpers.lens_data import model, needs, real_text
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once


@dataclass(frozen=True)
class Config:
    tokens: int = 32
    layer: int = 1
    sizes: int = 6
    """Changes of each kind, from small to large."""
    draws: int = 4
    """Random directions, and tokens that are exchanged, for each size."""


@dataclass(frozen=True)
class Heads:
    """The attention of a layer on n equal tokens in double precision, and bounds of it on balls of clouds."""

    A: np.ndarray
    shift: np.ndarray
    """K'b of each head, for the bias b of its queries: logits are ⟨Ax + shift, y⟩ up to constants."""
    VO: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        logits = np.einsum("hni,mi->hnm", np.einsum("hij,nj->hni", self.A, X) + self.shift[:, None], X)
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        return np.einsum("hoi,hni->no", self.VO, weights @ X / weights.sum(axis=2, keepdims=True))

    def constant(self, X: np.ndarray, far: float) -> float:
        """A Lipschitz constant for all clouds whose tokens are within `far` of those of X.

        In the derivative V Σ_j P_j (U_j + ξ_j⟨a, U_j⟩) + V C A U of one head at a token, |ξ| and the root of C are at
        most ρ, the radius of the cloud, and |a| = |Ax + shift| at most α, both enlarged by `far`. Each column of P sums
        to at most n, so that the norm is at most |V| (√n (1 + α²ρ²)^{1/2} + ρ²|A|); heads are added.
        """
        return self._constant(len(X), *self._extent(X), far)

    def radius(self, X: np.ndarray, moved: float) -> float:
        """Every cloud nearer to X than this, in root mean square, has its output within `moved` of that of X."""
        n, extent = len(X), self._extent(X)
        low, high = 0.0, moved / self._constant(n, *extent, 0.0)
        for _ in range(60):
            middle = (low + high) / 2
            # a distance ε in root mean square may be one token that moves by ε√n
            fits = middle * self._constant(n, *extent, middle * math.sqrt(n)) <= moved
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _extent(self, X: np.ndarray) -> tuple[float, np.ndarray]:
        """Radius of the cloud, and the largest |Ax + shift| of each head."""
        a = np.einsum("hij,nj->hni", self.A, X) + self.shift[:, None]
        return float(np.linalg.norm(X - X.mean(axis=0), axis=1).max()), np.linalg.norm(a, axis=2).max(axis=1)

    def _constant(self, n: int, rho: float, alpha: np.ndarray, far: float) -> float:
        size, out = self._norms
        rho, alpha = rho + far, alpha + size * far
        return float((out * (math.sqrt(n) * np.sqrt(1 + (alpha * rho) ** 2) + rho**2 * size)).sum())

    @cached_property
    def _norms(self) -> tuple[np.ndarray, np.ndarray]:
        size, out = (np.linalg.norm(stack, 2, axis=(1, 2)) for stack in (self.A, self.VO))
        return size, out


@once
def _probes(key: Key, config: Config) -> tuple[Heads, np.ndarray, dict[str, np.ndarray]]:
    """The layer, its tokens, and for each kind of change its sizes and the movements of the output, (2, changes)."""
    from measureformer.lens.sweep import worst_step

    rng, reader = generator(key), model("minilm")
    step = next(step for step in reader.steps(real_text(reader, config.tokens)) if step.index == config.layer)
    G, X = step.block.heads, np.asarray(step.seen.points, np.float64)
    shift = float(G.scale) * np.einsum("hki,hk->hi", *(np.asarray(part, np.float64) for part in (G.K, G.q_bias)))
    heads = Heads(np.asarray(step.A, np.float64), shift, np.asarray(step.VO, np.float64))
    sizes = _size(X) * np.geomspace(1e-4, 0.3, config.sizes)
    worst = worst_step(G, step.seen)
    random = [rng.normal(size=X.shape) for _ in range(config.draws)]
    exchanged = [_exchanged(X, *rng.choice(len(X), 2, replace=False)) for _ in range(config.draws * config.sizes)]
    changes = {
        "worst direction": [size * sign * worst for size in sizes for sign in (1, -1)],
        "random directions": [size * U / _size(U) for size in sizes for U in random],
        "one token exchanged": [change for change in exchanged if _size(change) > 0],
    }
    base = heads(X)
    return (
        heads,
        X,
        {kind: np.array([(_size(U), _size(heads(X + U) - base)) for U in steps]).T for kind, steps in changes.items()},
    )


def _exchanged(X: np.ndarray, place: int, other: int) -> np.ndarray:
    """The displacement that puts another token of the text into a place."""
    change = np.zeros_like(X)
    change[place] = X[other] - X[place]
    return change


def _size(step: np.ndarray) -> float:
    return float(np.sqrt((step**2).sum(axis=1).mean()))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    heads, X, found = _probes(key, config)
    sizes, moved = np.concatenate(list(found.values()), axis=1)
    if variant == "random-changes-alone":
        # what somebody would call robust who has tried random changes only
        size, movement = found["random directions"]
        radii = moved / (movement / size).max()
    else:
        radii = np.array([heads.radius(X, tau) for tau in moved])
    checks = (
        Check(
            "size of a change over the radius for what it moved, least",
            (sizes / radii).min(),
            low=1.0,
            rejected_by="random-changes-alone",
        ),
    )
    return Outcome(checks, _figure(config, heads, X, found) if variant == "claim" else None)


def _figure(config: Config, heads: Heads, X: np.ndarray, found: dict[str, np.ndarray]) -> Figure:
    ends = np.concatenate([moved for _, moved in found.values()])
    grid = np.geomspace(ends.min(), ends.max(), 30)
    return Figure(
        "How much must a context change to move the output?",
        "movement of the output",
        "size of the change of the context",
        (
            *(Series(kind, moved, sizes, "points", role="measured") for kind, (sizes, moved) in found.items()),
            Series("certified radius", grid, [heads.radius(X, tau) for tau in grid], role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Attention of layer {config.layer + 1} of all-MiniLM-L6-v2, {len(X)} tokens; root mean squares.",
    )


claim = Claim(
    name="castin-2024-certified-radius-on-real-text",
    title="A certified radius of the context",
    kind="theorem",
    statement=(
        "For the attention of a layer of all-MiniLM-L6-v2 on the tokens of a real text, and every τ: a change of the "
        "context that moves the output by τ in root mean square is larger than the certified radius of τ, which comes "
        "from the norms of the weights, the radius of this cloud and its logits. Tried are the direction that the "
        "layer stretches most, random ones, and exchanged tokens."
    ),
    hypotheses=("equal tokens, no mask", "norms of the weights to double precision"),
    reference="castin2024",
    measure=measure,
    controls={
        "random-changes-alone": "A radius from random changes alone, τ over their largest stretch: the worst change "
        "is inside it."
    },
    quick=Config(),
    full=Config(tokens=128, sizes=8, draws=8),
    needs=needs("minilm"),
)
