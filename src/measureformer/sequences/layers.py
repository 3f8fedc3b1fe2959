"""The two kinds of layers that constructions are made of, as data: explicit weights, and three ways to apply them.

Arrays are (batch, n, d), tokens in rows. In integer arithmetic the unit is delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from measureformer.sequences.activation import Activation

if TYPE_CHECKING:
    from measureformer.maps.base import AbstractInContextMap

Tag = Literal["quantise", "sweep", "global shift", "value", "clamp"]


@dataclass(frozen=True, eq=False)
class Shift:
    """An attention layer with heads of size 1: x_j ← x_j + Σ_h scale_h · e_0 · (average of u·x_k over the visible k).

    The logit of query j and key k is gain · (u·x_k)(query · u·x_j + bias): in the limit the average is the largest
    u·x_k where the bracket is positive, the smallest where it is negative, and the mean over all where it is 0.
    """

    tag: Tag
    u: np.ndarray
    """(d,): keys, queries and values are u·x."""
    query: int
    """1, or 0 for a query that does not look at its token."""
    biases: tuple[int, ...]
    """Of the queries, one for each head, in half units of delta."""
    scales: tuple[int, ...]
    cells: int
    """1/delta"""
    gain: float
    mask: np.ndarray | None = None
    """(n, n), mask[j, k]: whether the query j sees the token k; None for all."""

    def weights(self) -> dict[str, np.ndarray]:
        """W_K, W_Q, W_V (h, 1, d), b_Q (h, 1) and W_O (h, d, 1), as floats."""
        heads, d = len(self.scales), len(self.u)
        u = np.broadcast_to(self.u, (heads, 1, d)).astype(float)
        out = np.zeros((heads, d, 1))
        out[:, 0, 0] = self.scales
        bias = np.array(self.biases, float)[:, None] / (2 * self.cells)
        return {"W_K": u, "W_Q": self.query * u, "W_V": u, "b_Q": bias, "W_O": out}

    def as_map(self, ramp: float | None = None) -> AbstractInContextMap:
        """The layer on tokens (x, 1): residual hard attention, or softmax if the width of a ramp is given."""
        from measureformer.sequences.ordinary import attention_map

        return attention_map(self, soft=ramp is not None)

    def hard(self, X: np.ndarray) -> np.ndarray:
        ids, moved = X @ self.u, X.copy()
        largest, smallest, middle = self._extremes(ids)
        for bias, scale in zip(self.biases, self.scales, strict=True):
            t = self.query * ids + bias / (2 * self.cells)
            moved[..., 0] += float(scale) * np.where(t > 0, largest, np.where(t < 0, smallest, middle))
        return moved

    def soft(self, X: np.ndarray) -> np.ndarray:
        ids, moved = X @ self.u, X.copy()
        for bias, scale in zip(self.biases, self.scales, strict=True):
            logits = self.gain * (self.query * ids + bias / (2 * self.cells))[..., :, None] * ids[..., None, :]
            if self.mask is not None:
                logits = np.where(self.mask, logits, -np.inf)
            shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
            moved[..., 0] += float(scale) * ((shares * ids[..., None, :]).sum(axis=-1) / shares.sum(axis=-1))
        return moved

    def integer(self, Z: np.ndarray) -> np.ndarray:
        ids, moved = Z @ self.u.astype(Z.dtype), Z.copy()
        largest, smallest, middle = self._extremes(ids)
        for bias, scale in zip(self.biases, self.scales, strict=True):
            t = 2 * self.query * ids + bias
            moved[..., 0] += scale * np.where(t > 0, largest, np.where(t < 0, smallest, middle))
        return moved

    def _extremes(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Largest and smallest id that each query sees, and what it gets where all logits tie."""
        # a bracket that is 0 means an id that is 0, which is left only if all are equal: their mean is 0
        middle = np.zeros_like(ids)
        if self.mask is None:
            return ids.max(axis=-1, keepdims=True), ids.min(axis=-1, keepdims=True), middle
        seen = np.broadcast_to(ids[..., None, :], (*ids.shape, ids.shape[-1]))
        outside = ~self.mask
        top, low = ids.max() + 1, ids.min() - 1
        return np.where(outside, low, seen).max(axis=-1), np.where(outside, top, seen).min(axis=-1), middle


@dataclass(frozen=True, eq=False)
class Feed:
    """A perceptron with one hidden unit and a skip: x ← x + w2 φ(w1·x).

    Where w2 is the difference of a large and a small vector it is kept as two, so that no digit of the small one is
    lost: a large code is taken away, which leaves 0, and then a value is written.
    """

    tag: Tag
    w1: np.ndarray
    """(d,)"""
    activation: Activation
    w2: tuple[np.ndarray, ...]
    """One or more vectors (d,), whose sum is the output weight."""

    def weights(self) -> dict[str, Any]:
        """W1 (1, d), W2 (d, 1) and the activation; biases are in the activation."""
        return {
            "W1": self.w1[None].astype(float),
            "W2": np.sum(self.w2, axis=0)[:, None],
            "activation": self.activation,
        }

    def as_map(self, ramp: float | None = None) -> AbstractInContextMap:
        """The layer on tokens (x, 1): with jumps, or an `MLP` of four ReLUs if the width of a ramp is given."""
        from measureformer.sequences.ordinary import perceptron_map

        return perceptron_map(self, ramp)

    def hard(self, X: np.ndarray) -> np.ndarray:
        linear, constant = self.activation.parts(X @ self.w1)
        for part in (linear, constant):
            for w in self.w2:
                X = X + part[..., None] * w
        return X

    def soft(self, X: np.ndarray, ramp: float) -> np.ndarray:
        unit = self.activation.relus(ramp)(X @ self.w1)
        for w in self.w2:
            X = X + unit[..., None] * w
        return X


@dataclass(frozen=True, eq=False)
class Bumps:
    """Many layers x ← x + (A_i − G_i) φ(u·x − q_i) with φ = 1 on [−delta/2, delta/2) and 0 elsewhere, in turn.

    Their windows are disjoint, and what one has written triggers no other: `compile` makes sure of it.
    """

    u: np.ndarray
    codes: np.ndarray
    """(m,) whole numbers q_i, in units of delta."""
    states: np.ndarray
    """(m, d) whole numbers G_i: the token that has this code."""
    values: np.ndarray
    """(m, d) real numbers A_i, what is written."""
    cells: int

    def __len__(self) -> int:
        return len(self.codes)

    def layer(self, i: int) -> Feed:
        middle, half = float(self.codes[i]) / self.cells, 0.5 / self.cells
        window = Activation(0, 0, middle - half, 0, 1, middle + half, 0, 0)
        return Feed("value", self.u, window, (-self.states[i].astype(float) / self.cells, self.values[i]))

    def hard(self, X: np.ndarray) -> np.ndarray:
        tokens = X.reshape(-1, X.shape[-1]).copy()
        t = tokens @ self.u
        middles, states = self.codes.astype(float) / self.cells, self.states.astype(float) / self.cells
        lows, highs = middles - 0.5 / self.cells, middles + 0.5 / self.cells
        for i, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
            hit = np.flatnonzero((t >= low) & (t < high))
            if len(hit):
                # a bump is 0 elsewhere, so nothing else moves
                tokens[hit] = (tokens[hit] - states[i]) + self.values[i]
                t[hit] = tokens[hit] @ self.u
        return tokens.reshape(X.shape)

    def soft(self, X: np.ndarray, ramp: float) -> np.ndarray:
        for i in range(len(self)):
            X = self.layer(i).soft(X, ramp)
        return X

    def integer(self, Z: np.ndarray) -> np.ndarray:
        """The values written, and 0 where no code matches: the layers commute, so all of them at once."""
        ids = Z @ self.u.astype(Z.dtype)
        order = np.argsort(self.codes)
        place = np.minimum(np.searchsorted(self.codes[order], ids), len(order) - 1)
        found = self.codes[order][place] == ids
        return np.where(found[..., None], self.values[order][place], 0.0)
