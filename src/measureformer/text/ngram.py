"""`ngram`: counts of n consecutive tokens with interpolated Kneser–Ney smoothing."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Float

from measureformer.errors import TextError, TooManyAtomsError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Real

DISCOUNT = 0.75
"""Subtracted from every count; the usual value."""


class _Level(NamedTuple):
    """Counts of strings of one length; strings are numbers in base v whose last digit is the last token."""

    strings: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    kinds: np.ndarray
    """Number of different tokens that follow each context."""


class NGram(NamedTuple):
    """A trained n-gram model, made by `ngram`."""

    levels: tuple[_Level, ...]
    """From single tokens to strings of length n."""
    vocabulary: int

    @property
    def order(self) -> int:
        """The length n of the longest strings."""
        return len(self.levels)

    def probabilities(self, tokens: ArrayLike) -> Float[np.ndarray, " m"]:
        """p(token | the n − 1 tokens before it), for all tokens but the first n − 1.

        Arguments:
            tokens: token numbers (t,).
        """
        codes = _codes(np.asarray(tokens), self.order, self.vocabulary)
        found = np.full(len(codes), 1 / self.vocabulary)
        for length, level in enumerate(self.levels, 1):
            short = codes % self.vocabulary**length
            count = _looked_up(level.strings, level.counts, short)
            context = short // self.vocabulary
            total, kinds = (_looked_up(level.contexts, entry, context) for entry in (level.totals, level.kinds))
            seen = total > 0
            share = np.maximum(count - DISCOUNT, 0) + DISCOUNT * kinds * found
            found = np.where(seen, share / np.where(seen, total, 1), found)
        return found

    def perplexity(self, tokens: ArrayLike) -> float:
        """exp of the mean −log p over all tokens but the first n − 1.

        Arguments:
            tokens: token numbers (t,).
        """
        return float(np.exp(-np.mean(np.log(self.probabilities(tokens)))))


@checked
def ngram(tokens: Annotated[ArrayLike, Real(axes=1)], vocabulary: int, *, order: int = 3) -> NGram:
    """Train an n-gram model: counts of strings; shorter ones count the different tokens before them.

    Arguments:
        tokens: token numbers (t,), from 0 to vocabulary − 1.
        vocabulary: number of different tokens.
        order: length n of the longest strings.

    Statement   p_n(w|h) = (max(c(hw) − D, 0) + D·|{v: c(hv) > 0}|·p_{n−1}(w|h'))/c(h), and p_{n−1}(w|h') where c(h) = 0
    Ref         chen1999, Section 2.7.

    >>> import numpy as np, measureformer as mf
    >>> model = mf.text.ngram(np.tile([0, 1, 2], 30), 3)
    >>> model.perplexity(np.tile([0, 1, 2], 5)) < 1.1
    True
    """
    tokens, order = np.asarray(tokens), positive_int(order, "order")
    if len(tokens) <= order:
        raise TextError(
            got=f"{len(tokens)} tokens for strings of {order}", need="a longer text", do="Give it more text."
        )
    if vocabulary**order >= 2**62:
        raise TooManyAtomsError(
            got=f"{vocabulary}^{order} possible strings", need="fewer than 2^62", do="Take a smaller order."
        )
    strings, counts = np.unique(_codes(tokens, order, vocabulary), return_counts=True)
    levels = [_level(strings, counts, vocabulary)]
    for length in range(order - 1, 0, -1):
        # a shorter string counts the different tokens before it
        strings, counts = np.unique(levels[0].strings % vocabulary**length, return_counts=True)
        levels.insert(0, _level(strings, counts, vocabulary))
    return NGram(tuple(levels), vocabulary)


def _level(strings: np.ndarray, counts: np.ndarray, vocabulary: int) -> _Level:
    contexts, places = np.unique(strings // vocabulary, return_inverse=True)
    return _Level(strings, counts, contexts, np.bincount(places, counts), np.bincount(places))


def _codes(tokens: np.ndarray, order: int, vocabulary: int) -> np.ndarray:
    """Every string of `order` tokens as a number."""
    count = len(tokens) - order + 1
    codes = np.zeros(count, np.int64)
    for place in range(order):
        codes = codes * vocabulary + tokens[place : place + count]
    return codes


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values of the wanted keys, 0 for missing ones; keys are sorted."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)
