"""`Trace`: what a text does in a model, as measures; and what each head adds to the residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.lens.families import Block, Table
from measureformer.maps.affine import RotaryAttention
from measureformer.maps.call import measured
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.spacetime import SpaceTime
from measureformer.numerics.arrays import on_device

if TYPE_CHECKING:
    from measureformer.lens.model import Model


class HeadTrace(eqx.Module):
    """What the heads of one layer computed, per head and token.

    The contributions of the heads and the bias add up to what attention adds to the residual stream.
    """

    q: Float[Array, "h n k"]
    """Queries, times the scale; turned, where the model turns them."""
    k: Float[Array, "h n k"]
    v: Float[Array, "h n e"]
    log_normalizers: Float[Array, "h n"]
    """log ∫ e^{⟨q, k⟩} dmu over the normalised measure that each token sees."""
    contributions: Float[Array, "h n d"]
    """W_h times the attended values."""
    bias: Float[Array, " d"]

    def total(self) -> Float[Array, "n d"]:
        """What attention adds to the stream."""
        return on_device(np.asarray(self.contributions).sum(axis=0) + np.asarray(self.bias))


@dataclass(frozen=True)
class Step:
    """One layer on one text: the measures before it, between its halves and after it."""

    index: int
    block: Block
    before: AbstractAtomic
    middle: AbstractAtomic
    after: AbstractAtomic

    @staticmethod
    def of(index: int, block: Block, before: AbstractAtomic) -> Step:
        first, second = block.halves
        middle = first.push(before)
        return Step(index, block, before, middle, second.push(middle))

    @property
    def seen(self) -> AbstractAtomic:
        """The measure that the heads look at: the stream, normalised where the model does so."""
        return self.block.attention.before.push(self.before)

    @cached_property
    def heads(self) -> HeadTrace:
        """Queries, keys, values, normalisers and contributions of every head."""
        seen = self.seen
        out = measured(self.block.heads, _head_trace, seen.masked() if isinstance(seen, SpaceTime) else seen)
        n = seen.n
        parts = out.q, out.k, out.v, out.log_normalizers, out.contributions
        q, k, v, log_normalizers, contributions = (on_device(np.asarray(part)[:, :n]) for part in parts)
        return HeadTrace(q, k, v, log_normalizers, contributions, on_device(np.asarray(out.bias)))

    @property
    def A(self) -> Float[Array, "h d d"]:
        """KᵀQ/√k of every head: the logit of tokens x and y at one time is ⟨Ax, y⟩, up to biases."""
        return self.block.heads.A

    @property
    def VO(self) -> Float[Array, "h d d"]:
        """W_h V_h of every head: what a token that is looked at adds to the stream."""
        heads = self.block.heads
        return on_device(np.einsum("hoe,hed->hod", np.asarray(heads.W), np.asarray(heads.V)))


def _head_trace(G: Any, mu: Any) -> HeadTrace:
    t = getattr(mu, "times", None)
    q, k, v = G.project_at(mu, mu.points, mu.times) if isinstance(G, RotaryAttention) else G.project(mu, mu.points)
    out = attend(q, k, v, mu.log_weights, times=mu.visible(t))
    # relative to the mass that a token sees, so that a head that looks at everything alike has normaliser 0
    mass = mu.log_mass_until(t)
    contributions = jnp.einsum("hne,hoe->hno", out.values, G.W)
    return HeadTrace(q, k, v, out.log_normalizer - mass, contributions, G.bias)


@dataclass(frozen=True)
class Trace:
    """All layers of a model on one text: `measures` are the hidden states, `trace[i].heads` the heads of layer i."""

    model: Model
    tokens: np.ndarray | Table
    steps: tuple[Step, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, i: int) -> Step:
        return self.steps[i]

    @property
    def measures(self) -> list[AbstractAtomic]:
        """The measure that enters the first layer, and the one after each layer."""
        return [self.steps[0].before, *(step.after for step in self.steps)]

    @property
    def halves(self) -> list[AbstractAtomic]:
        """The same with the measures between attention and perceptron: two per layer."""
        return [self.steps[0].before, *(half for step in self.steps for half in (step.middle, step.after))]

    @property
    def words(self) -> list[str]:
        """The tokens as they are written in the vocabulary; nothing for a table."""
        if isinstance(self.tokens, Table):
            return []
        tokenizer = self.model.tokenizer
        return [str(token) for token in self.tokens] if tokenizer is None else tokenizer.words(self.tokens)

    def exit(self) -> AbstractAtomic:
        """The last measure after the model's last normalisation: what its head reads."""
        return self.model.anatomy.exit().push(self.steps[-1].after)
