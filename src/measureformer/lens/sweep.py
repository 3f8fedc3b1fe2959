"""How a layer changes as the context grows: Lipschitz constants against the number of tokens, with fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.maps import Causal
from measureformer.maps.call import measured
from measureformer.numerics.buckets import bucket
from measureformer.numerics.types import ArrayLike
from measureformer.regularity.local import stretch

if TYPE_CHECKING:
    from measureformer.lens.model import Model

SHORTEST = 8
SMALLEST_PAD = 64
"""Tokens to which shorter pieces are padded: a program of their own would take longer than the padding."""
WINDOWS = 3
ASKED, DRAWS = 16, 8
"""Queries, and draws of each size, for the error of drawn contexts."""


@dataclass(frozen=True)
class Exponent:
    """L ~ n^exponent, fitted on a log-log scale, with its 95 % interval.

    >>> found = fit_exponent([8, 16, 32, 64], [2.0, 2.9, 4.0, 5.6])
    >>> round(found.exponent, 2), found.low < 0.5 < found.high
    (0.49, True)
    """

    exponent: float
    low: float
    high: float
    factor: float


def fit_exponent(n: ArrayLike, values: ArrayLike) -> Exponent:
    """Least squares of log values against log n; the interval is Student's, from the residuals.

    Arguments:
        n: positive numbers (m,).
        values: positive values at them, (m,).
    """
    from scipy.special import stdtrit

    x, y = np.log(np.asarray(n, float)), np.log(np.asarray(values, float))
    centred = x - x.mean()
    spread = float(centred @ centred)
    if len(x) < 3 or spread == 0:
        return Exponent(math.nan, -math.inf, math.inf, math.nan)
    slope = float(centred @ y) / spread
    residuals = y - y.mean() - slope * centred
    freedom = len(x) - 2
    error = math.sqrt(float(residuals @ residuals) / freedom / spread) * float(stdtrit(freedom, 0.975))
    return Exponent(slope, slope - error, slope + error, math.exp(float(y.mean() - slope * x.mean())))


@dataclass(frozen=True)
class Sweep:
    """Lipschitz constants of attention at several context lengths, for some layers."""

    layers: tuple[int, ...]
    lengths: tuple[int, ...]
    """One entry per measurement: several windows of the text have the same length."""
    constants: dict[int, tuple[float, ...]]
    """Layer -> constant at each length."""
    radii: dict[int, tuple[float, ...]]
    """Layer -> radius of the cloud at each length."""
    samples: tuple[int, ...]
    """Numbers of tokens that are drawn from the whole context, with repetition."""
    sampling: dict[int, tuple[float, ...]]
    """Layer -> root mean square error of attention on so many drawn tokens, relative to that on all of them."""

    def exponent(self, layer: int) -> Exponent:
        return fit_exponent(self.lengths, self.constants[layer])

    def sampling_exponent(self, layer: int) -> Exponent:
        """Of the error in the number of drawn tokens: −1/2 once the drawn tokens stand for the cloud."""
        return fit_exponent(self.samples, self.sampling[layer])


def sweep(model: Model, tokens: Any, *, layers: Sequence[int] | None = None, windows: int = WINDOWS) -> Sweep:
    """Local constants of attention on pieces of a text, from eight tokens to all of it.

    Pieces are padded to few sizes, so that few compiled programs serve all of them.
    """
    ids, depth = model.tokens(tokens), model.anatomy.depth
    layers = sorted({0, depth // 2, depth - 1}) if layers is None else list(layers)
    pieces = [ids[start : start + n] for n in lengths_up_to(len(ids)) for start in starts(len(ids), n, windows)]
    constants: dict[int, list[float]] = {layer: [] for layer in layers}
    radii: dict[int, list[float]] = {layer: [] for layer in layers}
    for piece in pieces:
        measure = model.embed(piece).padded(bucket(max(len(piece), min(SMALLEST_PAD, len(ids)))))
        for i in range(max(layers) + 1):
            block = model.layers.block(i)
            if i in constants:
                seen = block.attention.before.push(measure)
                constants[i].append(constant_at(Causal(block.heads) if block.causal else block.heads, seen))
                radii[i].append(float(seen.radius()))
            measure = block.map.push(measure)
    samples = lengths_up_to(len(ids))
    steps = (step for step in model.steps(ids) if step.index in layers)
    return Sweep(
        tuple(layers),
        tuple(len(piece) for piece in pieces),
        {layer: tuple(found) for layer, found in constants.items()},
        {layer: tuple(found) for layer, found in radii.items()},
        tuple(samples),
        {step.index: sampling_errors(*_all_visible(step.heads), samples) for step in steps},
    )


def _all_visible(heads: Any) -> tuple[Any, Any, Any]:
    """The queries of the last tokens, and keys and values of those before, all of which they see in every model."""
    asked = min(ASKED, heads.q.shape[1] // 2)
    return heads.q[:, -asked:], heads.k[:, :-asked], heads.v[:, :-asked]


def sampling_errors(q: Any, k: Any, v: Any, samples: Sequence[int]) -> tuple[float, ...]:
    """How far attention on n tokens, drawn at random from the cloud, is from attention on the whole cloud.

    Relative to the size of what attention does, its distance to the mean value.
    """
    q, k, v = (np.asarray(part, np.float64) for part in (q, k, v))
    logits, rng = np.einsum("hmk,hnk->hmn", q, k), np.random.default_rng(0)
    whole = _attended(logits, v)
    size = math.sqrt(float(((whole - v.mean(axis=1, keepdims=True)) ** 2).mean())) or 1.0
    found: list[float] = []
    for n in samples:
        drawn = (rng.integers(0, k.shape[1], n) for _ in range(DRAWS))
        squares = [float(((_attended(logits[:, :, i], v[:, i]) - whole) ** 2).mean()) for i in drawn]
        found.append(math.sqrt(sum(squares) / DRAWS) / size)
    return tuple(found)


def _attended(logits: np.ndarray, v: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    return weights @ v / weights.sum(axis=2, keepdims=True)


def lengths_up_to(n: int) -> list[int]:
    """8, 16, 32, … and n."""
    doubled = [SHORTEST << i for i in range(32) if SHORTEST << i < n]
    return [*doubled, n]


def starts(n: int, length: int, windows: int) -> list[int]:
    """Where windows of this length begin, evenly spread over the text."""
    return sorted({round(i * (n - length) / max(windows - 1, 1)) for i in range(windows)})


def constant_at(G: Any, mu: Any, tol: float = 1e-2) -> float:
    """The local Lipschitz constant from below, at a measure that is padded already."""
    return float(_at(G, mu, tol).value)


def worst_step(G: Any, mu: Any, tol: float = 1e-2) -> np.ndarray:
    """The displacement of equal atoms, of norm 1 in root mean square, that the token map stretches most."""
    step = np.asarray(_at(G, mu, tol).right, np.float64).reshape(mu.points.shape)
    return step / np.sqrt((step**2).sum(axis=1).mean())


def _at(G: Any, mu: Any, tol: float) -> Any:
    return measured(G, _stretched, mu, np.asarray(tol))


def _stretched(G: Any, mu: Any, tol: Any) -> Any:
    start = jax.random.normal(jax.random.key(0), mu.points.shape, mu.points.dtype)
    return stretch(G, mu, start, tol=tol, max_iterations=jnp.asarray(300))
