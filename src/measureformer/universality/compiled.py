"""`Compiled`: a transformer made from an expression, with its census, its certificate and its explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DomainError
from measureformer.maps.attention import Attention
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import at_own_atoms
from measureformer.maps.compose import Residual
from measureformer.maps.mlp import MLP, Activation, Linear
from measureformer.maps.rows import all_rows
from measureformer.maps.transformer import Transformer
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import host, is_spread, is_traced
from measureformer.numerics.types import PathLike

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


def blank(dim: int, components: int) -> Layers:
    """A layer of a compiled network that does nothing, and has no hidden units."""
    size = dim + 3 * components
    Q, K, V, W = (np.zeros((components, *shape)) for shape in ((dim, size), (dim, size), (1, size), (size, 1)))
    return Layers(Q, K, V, W, np.zeros((0, size)), np.zeros(0), np.zeros((size, 0)), np.zeros(size))


def stacked(layers: Sequence[Layers], like: Layers) -> Layers:
    """Layers in one stack, with hidden layers padded to one width by units that read and write nothing."""
    if not layers:
        return Layers(*(np.zeros((0, *leaf.shape)) for leaf in like))
    most = max(len(layer.b1) for layer in layers)
    whole: list[Layers] = []
    for layer in layers:
        more = most - len(layer.b1)
        W1, W2 = np.pad(layer.W1, ((0, more), (0, 0))), np.pad(layer.W2, ((0, 0), (0, more)))
        whole.append(layer._replace(W1=W1, b1=np.pad(layer.b1, (0, more)), W2=W2))
    return Layers(*(np.stack(leaves) for leaves in zip(*whole, strict=True)))


class Weights(NamedTuple):
    """A network: affine embedding (D, d + 1), stacked layers, affine read-out (e, D + 1); biases are last columns."""

    embed: Any
    layers: Layers
    readout: Any


@dataclass(frozen=True)
class Census:
    """Size of a compiled transformer.

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
    """An in-context map made by `compile`, computed by the transformer in `.transformer`.

    With relu, it refuses points outside the domain on which `error_bound` holds. Under a trace, where nothing can be
    refused, its values there are NaN. The transformer itself does neither. `mf.Causal(net)` is the masked version.

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
    story: tuple[str, ...] = eqx.field(static=True)
    """What each layer does."""

    @property
    def activation(self) -> str:
        return "quadratic" if self.cells is None else "relu"

    @property
    def error_bound(self) -> float:
        """Bound for |net(mu, x) − expression(mu, x)| in the Euclidean norm, in the domain, rounding errors included."""
        return float(np.linalg.norm(np.asarray(self.bounds)))

    @property
    def in_dim(self) -> int:
        return self.embed.shape[1] - 1

    def out_dim(self, dim: int) -> int:
        return self.readout.shape[0]

    @property
    def transformer(self) -> Transformer:
        """The same network as an ordinary `Transformer`: embedding, layers, read-out. It knows no domain."""
        return as_transformer(self.weights(), _ACTIVATIONS[self.activation], self.widths)

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

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        own = at_own_atoms(mu, x, t)
        found = values(self.weights(), _ACTIVATIONS[self.activation], mu, None if own else x, None if own else t)
        return self._flagged(mu, x, found)

    def _flagged(self, mu: Any, x: Any, found: Array) -> Array:
        """NaN where nothing is certified: a layer before this one may have left the domain."""
        if self.cells is None:
            return found
        held = jnp.all(self.domain.inside(mu.points) | (mu.log_weights == -jnp.inf))
        return jnp.where((held & self.domain.inside(x))[:, None], found, jnp.nan)

    def weights(self) -> Weights:
        return Weights(self.embed, self.layers, self.readout)

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
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

    def explain(self) -> str:
        """What each layer does, in words."""
        dim, parts = self.in_dim, self.readout.shape[0]
        constants = ", ".join(f"{value:g}" for value in np.asarray(self.readout)[:, -1])
        lines = [
            f"tokens (x ∈ R^{dim}; y, p, z ∈ R^{parts}) in R^{dim + 3 * parts}: x is kept, y collects the sum, p the "
            "product, z what a head has read",
            " 0  embedding: x ↦ (x; 0, 1, 1)",
        ]
        for number, (text, width) in enumerate(zip(self.story, self.widths, strict=True), start=1):
            first, *more = text.split("\n")
            lines += [f"{number:2d}  {first}", *(f"    {line}" for line in more)]
            lines.append(f"    z ← 1 by a perceptron with {width} {self.activation} units")
        lines.append(f"{len(self.widths) + 1:2d}  read-out: y plus constants ({constants})")
        if self.cells is None:
            lines.append("exact for all measures and points, but for rounding")
        return "\n".join([*lines, f"error ≤ {self.error_bound:.3g} for measures and points in the domain"])

    def save(self, path: PathLike) -> None:
        """Write all weights to a safetensors file, in the layout of a plain torch module; see `load_compiled`.

        Arguments:
            path: the file; an existing one is replaced.
        """
        from measureformer.universality.export import write

        write(self, path)

    def __str__(self) -> str:
        return f"Compiled[{len(self.widths)} layers, {self.activation}]"


def values(weights: Weights, activation: Activation, mu: Any, x: Any, t: Any) -> Array:
    """The network at queries x, or at the atoms of mu for None; all layers in one loop, however many there are."""
    embed, readout = weights.embed, weights.readout

    def through(state: tuple[Array, ...], layer: Layers) -> tuple[tuple[Array, ...], None]:
        heads = Attention(layer.Q, layer.K, layer.V, layer.W, scale=jnp.ones((), layer.Q.dtype))
        context = mu.with_points(state[0])
        moved = [heads.at_atoms(context), *(heads.evaluate(context, rows, t) for rows in state[1:])]
        return tuple(_perceptron(layer, activation, a + b) for a, b in zip(state, moved, strict=True)), None

    tokens = tuple(rows @ embed[:, :-1].T + embed[:, -1] for rows in ((mu.points,) if x is None else (mu.points, x)))
    return jax.lax.scan(through, tokens, weights.layers)[0][-1] @ readout[:, :-1].T + readout[:, -1]


def _perceptron(layer: Layers, activation: Activation, tokens: Array) -> Array:
    def one(token: Array) -> Array:
        return token + layer.W2 @ activation(layer.W1 @ token + layer.b1) + layer.b2

    together = max(1, HIDDEN // max(1, layer.b1.shape[0]))
    many = tokens.shape[0] > together
    return cast("Array", jax.lax.map(one, tokens, batch_size=together) if many else jax.vmap(one)(tokens))


def as_transformer(weights: Weights, activation: Activation, widths: tuple[int, ...]) -> Transformer:
    """The network as a composition of the library's maps: embedding, layers, read-out."""
    leaves = [np.asarray(leaf) for leaf in weights.layers]
    blocks: list[AbstractInContextMap] = []
    for layer, width in enumerate(widths):
        Q, K, V, W, W1, b1, W2, b2 = (leaf[layer] for leaf in leaves)
        perceptron = MLP(W1[:width], b1[:width], W2[:, :width], b2, activation=activation, skip=True)
        heads: list[Any] = [Q, K, V, W]
        blocks.append(perceptron @ Residual(Attention(*heads)))
    embed, readout = np.asarray(weights.embed), np.asarray(weights.readout)
    return Transformer(Linear(embed[:, :-1], embed[:, -1]), *blocks, Linear(readout[:, :-1], readout[:, -1]))


_ACTIVATIONS: dict[str, Activation] = {"relu": jax.nn.relu, "quadratic": jnp.square}
