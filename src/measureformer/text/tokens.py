"""`Tokenizer`: text to token numbers and back, saved as `tokenizer.json` in the format of the library `tokenizers`.

Single characters are handled here; every other tokenizer needs that library.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, SupportsInt

import equinox as eqx
import numpy as np

from measureformer.errors import DependencyError, TextError, need
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked


class Tokenizer(eqx.Module):
    """Text to token numbers and back. Made by `characters`, `byte_pairs` or `from_json`.

    Arguments:
        description: contents of the file `tokenizer.json`.
        alphabet: the characters in the order of their numbers, if tokens are single characters.

    >>> import measureformer as mf
    >>> letters = mf.text.Tokenizer.characters("abracadabra")
    >>> letters.size, letters.encode("cab").tolist(), letters.decode([2, 0, 1])
    (5, [2, 0, 1], 'cab')
    >>> pairs = mf.text.Tokenizer.byte_pairs("roses are red, violets are blue " * 50, size=280)
    >>> pairs.decode(pairs.encode("are not")), len(pairs.encode(" are")) < 4
    ('are not', True)
    """

    description: str = eqx.field(static=True)
    alphabet: str = eqx.field(static=True, default="")

    @staticmethod
    @checked
    def characters(text: str) -> Tokenizer:
        """One token for each character that occurs in a text.

        Arguments:
            text: the text, not empty.
        """
        if not text:
            raise TextError(got="an empty text", need="at least one character", do="Pass the text to train on.")
        alphabet = "".join(sorted(set(text)))
        return Tokenizer(json.dumps(_file(alphabet), ensure_ascii=False), alphabet)

    @staticmethod
    @checked
    def byte_pairs(text: str, *, size: int = 512) -> Tokenizer:
        """Learn byte pairs; 256 of the tokens are single bytes, so every text can be encoded.

        Arguments:
            text: the text to learn from.
            size: most tokens.
        """
        library = _library()
        trainer = library.trainers.BpeTrainer(
            vocab_size=positive_int(size, "size"),
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made = library.Tokenizer(library.models.BPE())
        made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = library.decoders.ByteLevel()
        made.train_from_iterator([text], trainer)
        return Tokenizer(made.to_str())

    @staticmethod
    @checked
    def from_json(description: str) -> Tokenizer:
        """The tokenizer of a `tokenizer.json`; ValueError if the library cannot read it.

        Arguments:
            description: contents of the file.
        """
        with library_errors():
            body = json.loads(description)
            vocabulary = body["model"]["vocab"]
            alphabet = "".join(sorted(vocabulary)) if isinstance(vocabulary, dict) else ""
            alphabet.encode()  # half a character has no number
            if alphabet and body == _file(alphabet):
                return Tokenizer(description, alphabet)
            _made(description)
        return Tokenizer(description)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.alphabet) or _made(self.description).get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        """Token numbers of a text; a character outside the alphabet is refused.

        Arguments:
            text: the text.
        """
        if not self.alphabet:
            try:
                with library_errors():
                    return np.asarray(_made(self.description).encode(text).ids, np.int32)
            except ValueError as error:
                raise TextError(
                    got=f"a text on which the tokenizer fails ({error})",
                    need="a tokenizer whose parts belong together",
                    do="Copy tokenizer.json again from its source, or pass token numbers instead of text.",
                ) from None
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
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

    def decode(self, tokens: Iterable[SupportsInt]) -> str:
        """The text of token numbers.

        Arguments:
            tokens: token numbers (t,).
        """
        if self.alphabet:
            return "".join(self.alphabet[int(token)] for token in tokens)
        return _made(self.description).decode([int(token) for token in tokens], skip_special_tokens=False)

    def words(self, tokens: Iterable[SupportsInt]) -> list[str]:
        """Each token as it is written in the vocabulary.

        Arguments:
            tokens: token numbers (t,).
        """
        if self.alphabet:
            return list(self.decode(tokens))
        return [_made(self.description).id_to_token(int(token)) or f"<{int(token)}>" for token in tokens]


@contextmanager
def library_errors() -> Generator[None]:
    """Turn whatever the library `tokenizers` raises into a ValueError: bare exceptions, and panics, which are none."""
    try:
        yield
    except DependencyError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{type(error).__name__}: {str(error)[:80]}") from None


def _file(alphabet: str) -> dict[str, Any]:
    """A `tokenizer.json` of single characters: byte pairs without merges."""
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    unused = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    flags = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    model = {"type": "BPE", **unused, **flags, "vocab": vocabulary, "merges": []}
    return {"version": "1.0", "added_tokens": [], **nothing, "decoder": {"type": "Fuse"}, "model": model}


@lru_cache(maxsize=8)
def _made(description: str) -> Any:
    made = _library().Tokenizer.from_str(description)
    # texts are never truncated or padded silently
    made.no_truncation()
    made.no_padding()
    return made


def _library() -> Any:
    for part in ("decoders", "models", "pre_tokenizers", "trainers"):
        need(f"tokenizers.{part}", "lens", instead="use characters")
    return need("tokenizers", "lens")
