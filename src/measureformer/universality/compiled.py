"""`Compiled`: a transformer made from an expression, with its census, its certificate and its explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DomainError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.compose import Residual
from measureformer.maps.mlp import MLP, Linear
from measureformer.maps.transformer import Transformer
from measureformer.measures import AbstractAtomic
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import host, is_spread, is_traced

HIDDEN = 1 << 22
"""Numbers in a hidden layer that are kept at a time."""


class Layers(NamedTuple):
    """Weights of all layers, stacked, so that one loop goes through them: attention, then the perceptron."""

    Q: Any
    K: Any
    V: Any
    W: Any
    W1: Any
    b1: Any
    W2: Any
    b2: Any


@dataclass(frozen=True)
class Census:
    """How large a compiled transformer is.

    >>> import measureformer as mf
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> mf.universality.compile(x * x, mf.Box([0.0], [1.0]), activation="quadratic").census
    Census(layers=2, heads=1, token_dim=4, widths=(4, 6), parameters=143, nonzero=42)
    """

    layers: int
    """Layers of attention and perceptron; embedding and read-out are not counted."""
    heads: int
    token_dim: int
    widths: tuple[int, ...]
    """Hidden units of each perceptron."""
    parameters: int
    """Entries of all matrices and biases, embedding and read-out included."""
    nonzero: int


class Compiled(AbstractInContextMap):
    """What `compile` returns: an in-context map, computed by the transformer in `.transformer`.

    Called as a map it refuses points outside of the domain on which `error_bound` holds; the transformer itself does
    not. `mf.Causal(net)` is the masked version.

    >>> import measureformer as mf
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> net = mf.universality.compile(3 * x * x, mf.Box([0.0], [1.0]), tol=0.01)
    >>> net.error_bound <= 0.01, net.transformer.depth
    (True, 4)
    >>> print(net.explain())
    tokens (x ∈ R^1; y, p, z ∈ R^1) in R^4: x is kept, y collects the sum, p the product, z what a head has read
     0  embedding: x ↦ (x; 0, 1, 1)
     1  head 0 reads γ0 into z0; p0 ← γ0 (monomial 0, factor 1 of 2)
        z ← 1 by a perceptron with 4 relu units
     2  head 0 reads γ0 into z0; y0 ← y0 +3·p0·γ0, p0 ← 1 (monomial 0, factor 2 of 2)
        z ← 1 by a perceptron with 22 relu units
     3  read-out: y plus constants (0)
    error ≤ 0.00926 for measures and points in the domain
    """

    layers: Layers
    embed: Float[Array, "D d1"]
    readout: Float[Array, "e D1"]
    bounds: Float[np.ndarray, " e"]
    """Bound for the error of each component."""
    domain: AbstractDomain
    widths: tuple[int, ...] = eqx.field(static=True)
    cells: int | None = eqx.field(static=True)
    """Cells of each product; None for the quadratic activation."""
    story: str = eqx.field(static=True)

    @property
    def activation(self) -> str:
        return "quadratic" if self.cells is None else "relu"

    @property
    def error_bound(self) -> float:
        """Bound for |net(mu, x) − expression(mu, x)| in the Euclidean norm, in exact arithmetic."""
        return float(np.linalg.norm(np.asarray(self.bounds)))

    @property
    def in_dim(self) -> int:
        return self.embed.shape[1] - 1

    def out_dim(self, dim: int) -> int:
        return self.readout.shape[0]

    @property
    def transformer(self) -> Transformer:
        """The same network as an ordinary `Transformer`: embedding, layers, read-out. It does not look at the domain."""
        weights = [np.asarray(leaf) for leaf in self.layers]
        blocks: list[AbstractInContextMap] = []
        for layer, width in enumerate(self.widths):
            Q, K, V, W, W1, b1, W2, b2 = (leaf[layer] for leaf in weights)
            perceptron = MLP(
                W1[:width], b1[:width], W2[:, :width], b2, activation=_ACTIVATIONS[self.activation], skip=True
            )
            blocks.append(perceptron @ Residual(Attention(Q, K, V, W)))
        embed, readout = np.asarray(self.embed), np.asarray(self.readout)
        return Transformer(
            Linear(embed[:, :-1], embed[:, -1]), *blocks, Linear(readout[:, :-1], readout[:, -1])
        )

    @property
    def census(self) -> Census:
        leaves = [np.asarray(leaf) for leaf in (*self.layers, self.embed, self.readout)]
        size, heads = self.embed.shape[0], self.readout.shape[0]
        attention = sum(leaf[0].size for leaf in leaves[:4]) if self.widths else 0
        perceptrons = sum(width * (2 * size + 1) + size for width in self.widths)
        return Census(
            layers=len(self.widths),
            heads=heads,
            token_dim=size,
            widths=self.widths,
            parameters=len(self.widths) * attention + perceptrons + leaves[-2].size + leaves[-1].size,
            nonzero=int(sum(np.count_nonzero(leaf) for leaf in leaves)),
        )

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        """All layers in one loop: the program is as long for a thousand layers as for one."""

        def through(state: tuple[Array, Array], layer: Layers) -> tuple[tuple[Array, Array], None]:
            heads, context = _heads(layer), mu.with_points(state[0])
            atoms = self._perceptron(layer, state[0] + heads.at_atoms(context))
            return (atoms, self._perceptron(layer, state[1] + heads.evaluate(context, state[1], t))), None

        return self._read(jax.lax.scan(through, (self._embedded(mu.points), self._embedded(x)), self.layers)[0][1])

    def at_atoms(self, mu: Any) -> Any:
        def through(atoms: Array, layer: Layers) -> tuple[Array, None]:
            return self._perceptron(layer, atoms + _heads(layer).at_atoms(mu.with_points(atoms))), None

        return self._read(jax.lax.scan(through, self._embedded(mu.points), self.layers)[0])

    def _embedded(self, x: Array) -> Array:
        return x @ self.embed[:, :-1].T + self.embed[:, -1]

    def _read(self, tokens: Array) -> Array:
        return tokens @ self.readout[:, :-1].T + self.readout[:, -1]

    def _perceptron(self, layer: Layers, tokens: Array) -> Array:
        activation = _ACTIVATIONS[self.activation]

        def one(token: Array) -> Array:
            return token + layer.W2 @ activation(layer.W1 @ token + layer.b1) + layer.b2

        together = max(1, HIDDEN // max(1, layer.b1.shape[0]))
        if tokens.shape[0] <= together:
            return jax.vmap(one)(tokens)
        return jax.lax.map(one, tokens, batch_size=together)

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        if not isinstance(mu, AbstractAtomic):
            raise no_closed_form(self, mu)
        if self.cells is None or is_spread(mu, x) or is_traced(mu, x):
            return
        felt = host(mu.log_weights) > -np.inf
        for name, rows in (("an atom", host(mu.points)[felt]), ("a query", host(x))):
            outside = ~self.domain.contains(rows)
            if outside.any():
                raise DomainError(
                    got=f"{name} at {rows[int(outside.argmax())]}, outside of the domain",
                    need=f"points in {self.domain}: elsewhere the products are wrong and nothing is certified",
                    do="Compile for a larger domain, or use net.transformer at your own risk.",
                )

    def explain(self, mu: Any = None, x: Any = None, t: Any = None) -> str:
        """What each layer does, in words."""
        if mu is not None:
            # the hook of the base class after a value that is not finite
            self.examine(mu, x, t)
        dim, parts = self.in_dim, self.readout.shape[0]
        constants = ", ".join(f"{value:g}" for value in np.asarray(self.readout)[:, -1])
        lines = [
            f"tokens (x ∈ R^{dim}; y, p, z ∈ R^{parts}) in R^{dim + 3 * parts}: x is kept, y collects the sum, p the "
            "product, z what a head has read",
            " 0  embedding: x ↦ (x; 0, 1, 1)",
        ]
        stories = self.story.split("\x00") if self.widths else []
        for number, (text, width) in enumerate(zip(stories, self.widths, strict=True), start=1):
            first, *more = text.split("\n")
            lines += [f"{number:2d}  {first}", *(f"    {line}" for line in more)]
            lines.append(f"    z ← 1 by a perceptron with {width} {self.activation} units")
        lines.append(f"{len(self.widths) + 1:2d}  read-out: y plus constants ({constants})")
        exact = "exact for all measures and points"
        bound = f"error ≤ {self.error_bound:.3g} for measures and points in the domain"
        return "\n".join([*lines, exact if self.cells is None else bound])

    def save(self, path: Any) -> None:
        """Write all weights to a safetensors file, in the layout of a plain torch module; see `load`."""
        from measureformer.universality._export import write

        write(self, path)

    def __str__(self) -> str:
        return f"Compiled[{len(self.widths)} layers, {self.activation}]"


def _heads(layer: Layers) -> Attention:
    return Attention(layer.Q, layer.K, layer.V, layer.W, scale=jnp.ones((), layer.Q.dtype))


_ACTIVATIONS = {"relu": jax.nn.relu, "quadratic": jnp.square}
