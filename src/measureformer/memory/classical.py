"""`Classical`: the network of 1982, patterns of ±1 in a matrix of couplings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from measureformer.errors import OptionError, ShapeError
from measureformer.memory.base import Walk, iterate
from measureformer.memory.bits import (
    AbstractBinaryMemory,
    BinaryCertificate,
    Mode,
    binary_certificate,
    binary_patterns,
    binary_states,
    changed_bits,
)
from measureformer.numerics import edge
from measureformer.numerics.arrays import finite, floats, host
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key

Rule = Literal["hebb", "pseudo-inverse"]
LARGEST = 8192
"""Most bits: couplings are d × d numbers, half a gigabyte there."""
EXACT = 2.0**53
"""Integers below it are exact in float64."""


class Classical(AbstractBinaryMemory):
    """Couplings W = Σ_i x_i x_iᵀ of patterns x_i ∈ {−1, 1}^d; ξ_l ← sign((Wξ − b)_l), ties keep the sign.

    Statement   W symmetric with w_ll ≥ 0: E(ξ) = −½ ξᵀWξ + bᵀξ never rises in asynchronous updates, which end in a
                fixed point; synchronous ones may end in a two-cycle
    Proof       a change δ of bit l changes E by −δ (Wξ − b)_l − ½ w_ll δ², and δ has the sign of (Wξ − b)_l.
    Ref         hopfield1982; ramsauer2020, Appendix A.

    With Hebb's rule and an integer bias all numbers are integers and the arithmetic is exact.

    >>> import measureformer as mf
    >>> memory = mf.memory.Classical.store([[1, 1, 1, 1], [1, -1, 1, -1]])
    >>> found = memory.retrieve([1, 1, 1, 0])
    >>> found.state.tolist(), found.trace.energies.tolist()
    ([1.0, 1.0, 1.0, 1.0], [-2.0, -4.0, -4.0])
    """

    patterns: Int8[np.ndarray, "n d"]
    couplings: Float[np.ndarray, "d d"]
    bias: Float[np.ndarray, " d"]
    exact: bool = eqx.field(static=True)

    @staticmethod
    @checked
    def store(
        patterns: ArrayLike, *, rule: Rule = "hebb", zero_diagonal: bool = True, bias: ArrayLike | None = None
    ) -> Classical:
        """Store patterns in a matrix of couplings.

        Arguments:
            patterns: entries ±1, (n, d), with d at most 8192.
            rule: "hebb", or "pseudo-inverse" for the projection on the span of the patterns, which makes patterns
                fixed points however correlated they are.
            zero_diagonal: set w_ll = 0, so that no bit supports itself.
            bias: b, (d,); zero by default.
        """
        patterns = binary_patterns(patterns)
        n, d = patterns.shape
        if d > LARGEST:
            raise OptionError(
                got=f"patterns of {d} bits",
                need=f"at most {LARGEST}, since couplings are d × d numbers",
                do="Make the patterns smaller, or use mf.memory.Dense or Modern, which need no couplings.",
            )
        X = patterns.astype(np.float64)
        if rule == "hebb":
            W = X.T @ X
        elif rule == "pseudo-inverse":
            # rows of Vᵀ with a singular value span the patterns
            _, values, V = np.linalg.svd(X, full_matrices=False)
            V = V[values > values[0] * max(n, d) * np.finfo(float).eps]
            W = V.T @ V
        else:
            raise OptionError(got=f"rule = {rule!r}", need='"hebb" or "pseudo-inverse"', do="Leave it out for Hebb's.")
        if zero_diagonal:
            np.fill_diagonal(W, 0.0)
        b = np.zeros(d) if bias is None else np.asarray(host(floats(bias, "bias")), np.float64)
        if b.shape != (d,):
            raise ShapeError(got=f"a bias of shape {b.shape}", need=f"({d},)", do="Give one number per bit.")
        finite(b, "bias")
        whole = bool((b == np.round(b)).all()) and float(2 * (n * d * d + np.abs(b).sum())) < EXACT
        return Classical(patterns, W, b, rule == "hebb" and whole)

    @property
    def slack(self) -> float:
        """Bound of the rounding error of a field: 0 where the arithmetic is exact."""
        if self.exact:
            return 0.0
        size = np.abs(self.couplings).sum(axis=1) + np.abs(self.bias)
        return float(2 * self.dim * np.finfo(float).eps * size.max())

    def fields(self, state: ArrayLike) -> np.ndarray:
        """Wξ − b."""
        rows, single = binary_states(state, self.dim)
        fields = rows @ self.couplings - self.bias
        return fields[0] if single else fields

    def energy(self, state: ArrayLike) -> np.ndarray:
        """−½ ξᵀWξ + bᵀξ; exact if `exact`."""
        rows, single = binary_states(state, self.dim)
        energies = -0.5 * np.sum(rows * (rows @ self.couplings), axis=1) + rows @ self.bias
        return np.asarray(energies[0]) if single else energies

    def update(self, state: ArrayLike, *, mode: Mode = "asynchronous", key: Key | None = None) -> np.ndarray:
        """Update all bits once; see `retrieve` for `mode` and `key`."""
        return self.retrieve(state, mode=mode, key=key, steps=1).state

    def walked(
        self, start: np.ndarray, limit: np.ndarray, key: Key | None, *, synchronous: bool, size: int
    ) -> tuple[Walk, Array]:
        network = edge.Layer((self.couplings, self.bias, np.asarray(self.slack), synchronous, size))
        return edge.run(network, _walk, (_NO_ATOMS, ()), (start, limit, key), edge.Layout((), (), (0,)))

    def certificate(self, state: ArrayLike) -> BinaryCertificate:
        rows, single = binary_states(state, self.dim)
        return binary_certificate(self.patterns, rows, rows * self.fields(rows), self.slack, single=single)

    def stable(self) -> np.ndarray:
        return self.certificate(self.patterns).fixed


def sweeper(W: Array, slack: Any) -> Callable[[Array, Array, Array], Array]:
    """The asynchronous update of all bits in an order, for states in rows and their fields."""

    def one(carry: tuple[Array, Array], bit: Array) -> tuple[tuple[Array, Array], None]:
        state, fields = carry
        new = _sign(fields[:, bit], state[:, bit], slack)
        change = new - state[:, bit]
        # late sweeps change little
        fields = jax.lax.cond(jnp.any(change != 0), lambda: fields + change[:, None] * W[bit][None], lambda: fields)
        return (state.at[:, bit].set(new), fields), None

    return lambda state, fields, order: jax.lax.scan(one, (state, fields), order)[0][0]


def _sign(field: Array, old: Array, slack: Any) -> Array:
    return jnp.where(jnp.abs(field) <= slack, old, jnp.sign(field))


_NO_ATOMS = jax.tree.structure(())


def _walk(network: Any, _: Any, start: Any, limit: Any, key: Any) -> Any:
    W, b, slack, synchronous, size = network
    d, sweep = W.shape[0], sweeper(W, slack)

    def step(state: Array, t: Array) -> tuple[Array, Array]:
        fields = state @ W - b
        energies = -0.5 * jnp.sum(state * (fields + b), axis=1) + state @ b
        if synchronous:
            return energies, _sign(fields, state, slack)
        order = jnp.arange(d) if key is None else jax.random.permutation(jax.random.fold_in(key, t), d)
        return energies, sweep(state, fields, order)

    return iterate(step, changed_bits, start, limit, tol=0, size=size)
