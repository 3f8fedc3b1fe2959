"""`Model`: a pretrained transformer from disk, as a sequence of in-context maps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import FamilyError, OptionError, TextError
from measureformer.lens.checkpoint import Checkpoint, Source, open_checkpoint
from measureformer.lens.families import Anatomy, Block, Family, Table, family_of, gpt2
from measureformer.lens.text import find_tokenizer, no_tokenizer, token_numbers
from measureformer.lens.trace import Step, Trace
from measureformer.maps import AbstractInContextMap
from measureformer.maps.call import push_through
from measureformer.measures import SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import cast, common_dtype
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key, Size
from measureformer.text.tokens import Tokenizer

Kept = TypeVar("Kept")

BOX = Path(__file__).parent / "box"
"""The model that comes with the package."""


@checked
def load(path: Source | None = None, *, config: Mapping[str, object] | None = None, keep: bool = True) -> Model:
    """Open a pretrained transformer from disk. Weights are read layer by layer as they are used; no network, no pickle.

    Arguments:
        path: a folder in Hugging Face layout, a .safetensors or .gguf file, or a dictionary of arrays; defaults to the
            bundled model.
        config: what config.json says; needed for a dictionary, and replaces the file otherwise.
        keep: False forgets each layer after use, for models larger than the memory.

    >>> import jax, measureformer as mf
    >>> from measureformer.lens.families.gpt2 import random_weights
    >>> weights, config = random_weights(jax.random.key(0), dim=4, depth=1, heads=2)
    >>> model = mf.lens.load(weights, config=config)
    >>> print(model.layers[0])
    Causal(Residual(MLP ⋄ LayerNorm) ⋄ Residual(AffineAttention[2 heads] ⋄ LayerNorm))
    >>> model.logits([1, 2, 3]).shape
    (3, 64)
    """
    path = BOX if path is None else path
    checkpoint = open_checkpoint(path, config)
    return Model(checkpoint, family_of(checkpoint), keep=keep)


@checked
def untrained(key: Key, *, dim: Size, depth: Size, heads: Size, vocabulary: Size = 64) -> Model:
    """A GPT-2 with random weights and no tokenizer, for tests and as a control.

    Arguments:
        key: JAX random key of the weights.
        dim: dimension of the tokens.
        depth: number of layers.
        heads: attention heads of each layer; they divide `dim`.
        vocabulary: number of tokens.

    >>> import jax, measureformer as mf
    >>> mf.lens.untrained(jax.random.key(0), dim=8, depth=2, heads=2).embed([3, 1, 4]).points.shape
    (3, 8)
    """
    weights, config = gpt2.random_weights(key, dim=dim, depth=depth, heads=heads, vocabulary=vocabulary)
    return Model(Checkpoint(weights, config, source="random weights"), family_of(Checkpoint({}, config)))


class Model:
    """A pretrained transformer, made by `mf.lens.load`: a text becomes a measure, and layers are in-context maps.

    Arguments:
        checkpoint: its weights and configuration.
        family: the one that reads them.
        keep: whether layers stay in memory after use.
    """

    def __init__(self, checkpoint: Checkpoint, family: Family, *, keep: bool = True) -> None:
        self.checkpoint = checkpoint
        self.family = family
        self.anatomy: Anatomy = family.read(checkpoint)
        self.layers = Layers(self.anatomy, keep=keep)
        self._keep = keep
        self._tokenizer: Tokenizer | None = None
        self._looked = False
        self._ends: dict[str, AbstractInContextMap] = {}

    @property
    def config(self) -> dict[str, Any]:
        """What config.json, or the metadata of a GGUF file, says."""
        return self.checkpoint.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer beside the weights, or in the GGUF file; None if there is none."""
        if not self._looked:
            self._tokenizer, self._looked = find_tokenizer(self.checkpoint), True
        return self._tokenizer

    def __repr__(self) -> str:
        a = self.anatomy
        return f"<{self.family.name} from {self.checkpoint.source}: {a.depth} layers, dim {a.dim}, {a.heads} heads>"

    def tokens(self, text: str | ArrayLike) -> np.ndarray:
        """The token numbers (n,) of a text that fits into the context.

        Arguments:
            text: a string, or token numbers, which are checked and returned.
        """
        if self.anatomy.reads != "text":
            raise TextError(got="a text", need="a table", do="Pass mf.lens.Table(X, y, queries).")
        return self._numbers(text, self.anatomy.limit)

    def tokenized(self, text: str) -> np.ndarray:
        """The token numbers of a text of any length, to be cut to the length of the context.

        Arguments:
            text: a string.
        """
        return self._numbers(text, None)

    def _numbers(self, text: str | ArrayLike, limit: int | None) -> np.ndarray:
        tokenizer = self.tokenizer if isinstance(text, str) else None
        if isinstance(text, str) and tokenizer is None:
            raise no_tokenizer(self.checkpoint)
        return token_numbers(text, tokenizer, self.anatomy, limit)

    def embed(self, text: str | ArrayLike | Table) -> AbstractAtomic:
        """The measure that enters the first layer: a `SpaceTime` with times 0, 1, … for causal models, else `Discrete`.

        Arguments:
            text: a string, or token numbers (n,); for a model of tables, a `Table`.
        """
        if self.anatomy.reads == "table":
            if not isinstance(text, Table):
                raise TextError(
                    got=f"{type(text).__name__} for a learner of tables",
                    need="a table",
                    do="Pass mf.lens.Table(X, y, queries).",
                )
            return push_through([self._end("entry")], self.anatomy.tokens(text))
        if isinstance(text, Table):
            raise TextError(got="a table", need="a text", do="Pass a string, or token numbers.")
        measure = push_through([self._end("entry")], self.anatomy.tokens(self.tokens(text)))
        return measure.space() if isinstance(measure, SpaceTime) and not self.anatomy.causal else measure

    def steps(self, text: str | ArrayLike | Table) -> Iterator[Step]:
        """Iterate over the layers, each with the measures before, between and after its halves.

        Keeps nothing from layer to layer, for texts whose trace would not fit into memory.

        Arguments:
            text: as in `embed`.
        """
        measure = self.embed(text)
        for i in range(self.anatomy.depth):
            step = Step.of(i, self.layers.block(i), measure)
            yield step
            measure = step.after

    def trace(self, text: str | ArrayLike | Table) -> Trace:
        """All measures from the embedding to the exit; heads are computed on demand.

        Arguments:
            text: as in `embed`.
        """
        return Trace(self, text if isinstance(text, Table) else self.tokens(text), tuple(self.steps(text)))

    def logits(self, text: str | ArrayLike | Table, *, last: bool = False) -> Float[Array, "n v"]:
        """Logits over the vocabulary for the token after each token.

        Arguments:
            text: as in `embed`.
            last: only the row of the last token.
        """
        if self.anatomy.head is None:
            raise FamilyError(
                got=f"a {self.family.name} checkpoint without a head",
                need="the weights of what predicts tokens",
                do="Use model.trace(text); its last measure is what a head would read.",
            )
        measure = push_through(self.layers, self.embed(text))
        if last:
            measure = measure.rows(np.array([measure.n - 1]))
        return push_through([self._end("exit"), self._end("head")], measure).points

    def _end(self, name: Literal["entry", "exit", "head"]) -> AbstractInContextMap:
        """What comes before the first layer, or after the last."""
        if name not in self._ends:
            self._ends[name] = _ready(getattr(self.anatomy, name)())
        return self._ends[name]

    def shuffled(self, seed: int = 0) -> Model:
        """A control: the same model with the entries of every weight matrix in random order. Norms and biases stay.

        Arguments:
            seed: seed of the orders.
        """
        return Model(_Shuffled(self.checkpoint, seed), self.family, keep=self._keep)


class Layers(Sequence[AbstractInContextMap]):
    """The layers of a model, read from the checkpoint when they are used; each an in-context map like any other."""

    def __init__(self, anatomy: Anatomy, *, keep: bool) -> None:
        self._anatomy, self._keep = anatomy, keep
        self._blocks: dict[int, Block] = {}
        self._maps: dict[int, AbstractInContextMap] = {}

    def __len__(self) -> int:
        return self._anatomy.depth

    def block(self, i: int) -> Block:
        """Layer i in its parts: normalisations, heads, perceptron."""
        if not -len(self) <= i < len(self):
            raise OptionError(got=f"layer {i}", need=f"0 to {len(self) - 1}", do="Layers are counted from 0.")
        return self._kept(self._blocks, i, self._anatomy.block)

    def map(self, i: int) -> AbstractInContextMap:
        """Layer i as one map."""
        return self._kept(self._maps, i, lambda i: _ready(self.block(i).map))

    def _kept(self, kept: dict[int, Kept], i: int, make: Callable[[int], Kept]) -> Kept:
        i = 0 if self._anatomy.tied else i % len(self)
        if i in kept:
            return kept[i]
        made = make(i)
        if self._keep or self._anatomy.tied:
            kept[i] = made
        return made

    @overload
    def __getitem__(self, index: int) -> AbstractInContextMap: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AbstractInContextMap]: ...
    def __getitem__(self, index: int | slice) -> AbstractInContextMap | Sequence[AbstractInContextMap]:
        if isinstance(index, slice):
            return [self.map(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"layer {index} of {len(self)}")  # what ends a loop over a sequence
        return self.map(index)


def _ready(G: AbstractInContextMap) -> AbstractInContextMap:
    """The map with all of its numbers in the precision of its weights: otherwise each call would convert them again."""
    return cast(G, common_dtype(G))


class _Shuffled(Checkpoint):
    """The same checkpoint, with the entries of every matrix in random order, except those that are tables."""

    def __init__(self, inner: Checkpoint, seed: int) -> None:
        found = {name: inner.entry(name) for name in inner.names}
        super().__init__(found, inner.config, source=f"{inner.source}, shuffled", folder=inner.folder)
        self.seed = seed

    def tensor(self, name: str, shape: tuple[int | None, ...] | None = None) -> np.ndarray:
        array = super().tensor(name, shape)
        if array.ndim < 2:
            return array
        # every tensor has an order of its own, whatever is read before it
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        order = np.random.default_rng(int.from_bytes(digest[:8], "little")).permutation(array.size)
        return array.reshape(-1)[order].reshape(array.shape)
