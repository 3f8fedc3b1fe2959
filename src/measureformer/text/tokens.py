"""Tokenizers: characters, which need nothing, and byte pairs, by the library `tokenizers`.

Both are saved as `tokenizer.json` in the format of that library.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import numpy as np

from measureformer.errors import TextError, need
from measureformer.numerics.arrays import positive_int


@runtime_checkable
class Tokenizer(Protocol):
    """Text ↦ numbers and back."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> np.ndarray: ...

    def decode(self, tokens: Any) -> str: ...

    def to_json(self) -> str: ...


class Characters(eqx.Module):
    """One token for each character.

    >>> import measureformer as mf
    >>> letters = mf.text.Characters.of("abracadabra")
    >>> letters.size, letters.encode("cab").tolist(), letters.decode([2, 0, 1])
    (5, [2, 0, 1], 'cab')
    """

    alphabet: str = eqx.field(static=True)

    @staticmethod
    def of(text: str) -> Characters:
        """All characters of a text, in the order of their numbers."""
        if not text:
            raise TextError(got="an empty text", need="at least one character", do="Pass the text to train on.")
        return Characters("".join(sorted(set(text))))

    @property
    def size(self) -> int:
        return len(self.alphabet)

    def encode(self, text: str) -> np.ndarray:
        """Numbers of the characters; one that is not in the alphabet is refused."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.alphabet.encode("utf-32-le"), np.uint32)
        places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        unknown = known[places] != codes
        if unknown.any():
            raise TextError(
                got=f"the character {text[int(unknown.argmax())]!r}, which the model has never seen",
                need="characters of the text that it was trained on",
                do="Leave it out, or train with byte pairs, which know every character.",
            )
        return places.astype(np.int32)

    def decode(self, tokens: Any) -> str:
        return "".join(self.alphabet[int(token)] for token in tokens)

    def to_json(self) -> str:
        """In the format of the library `tokenizers`: byte pairs without any merges."""
        vocabulary = {character: i for i, character in enumerate(self.alphabet)}
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        }
        nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        return json.dumps(
            {"version": "1.0", "added_tokens": [], **nothing, "decoder": {"type": "Fuse"}, "model": model},
            ensure_ascii=False,
        )


class BytePairs(eqx.Module):
    """Byte pairs learned from a text: every character has tokens, and frequent strings have one.

    >>> import measureformer as mf
    >>> pairs = mf.text.BytePairs.of("roses are red, violets are blue " * 50, size=280)
    >>> pairs.decode(pairs.encode("are not")), len(pairs.encode(" are")) < 4
    ('are not', True)
    """

    description: str = eqx.field(static=True)
    """The file `tokenizer.json`."""

    @staticmethod
    def of(text: str, *, size: int = 512) -> BytePairs:
        """Learns at most `size` tokens, 256 of which are the bytes."""
        library = _library()
        trainer = library.trainers.BpeTrainer(
            vocab_size=positive_int(size, "size"),
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        tokenizer.train_from_iterator([text], trainer)
        return BytePairs(tokenizer.to_str())

    @property
    def size(self) -> int:
        return self._made().get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        return np.asarray(self._made().encode(text).ids, np.int32)

    def decode(self, tokens: Any) -> str:
        return self._made().decode([int(token) for token in tokens], skip_special_tokens=False)

    def to_json(self) -> str:
        return self.description

    def _made(self) -> Any:
        return _library().Tokenizer.from_str(self.description)


def from_json(description: str) -> Tokenizer:
    """The tokenizer that a `tokenizer.json` of ours describes; ValueError if it is none."""
    body = json.loads(description)
    model = body["model"] if isinstance(body, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise ValueError("no vocabulary")
    if body.get("pre_tokenizer") is not None or model.get("merges"):
        return BytePairs(description)
    ordered = sorted(model["vocab"], key=model["vocab"].__getitem__)
    alphabet = "".join(ordered)
    if ordered != sorted(set(alphabet)) or sorted(model["vocab"].values()) != list(range(len(ordered))):
        raise ValueError("no alphabet")
    return Characters(alphabet)


def _library() -> Any:
    for part in ("decoders", "models", "pre_tokenizers", "trainers"):
        need(f"tokenizers.{part}", "lens", instead="use characters")
    return need("tokenizers", "lens")
