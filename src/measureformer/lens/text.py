"""Texts and tokens: the tokenizer that lies beside the weights, or inside a GGUF file."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from measureformer.errors import CheckpointError, TextError, need
from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.families.base import Anatomy
from measureformer.text.tokens import Tokenizer, library_errors

LARGEST_TEXT = 64 << 20
"""In characters."""
OLDER = "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"
"""Tokenizers in formats that are not read."""


def find_tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer of a checkpoint; None if it has none, and then texts are given as token numbers."""
    if "tokenizer.ggml.tokens" in checkpoint.config:
        return _from_gguf(checkpoint.config)
    raw = tokenizer_file(checkpoint)
    if raw is None:
        return None
    try:
        return Tokenizer.from_json(raw.decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(
            got=f"a tokenizer.json that cannot be read ({error})",
            need="one that the package tokenizers wrote",
            do="Copy it again from the model's source, or pass token numbers instead of text.",
        ) from None


def tokenizer_file(checkpoint: Checkpoint) -> bytes | None:
    """The contents of the tokenizer.json beside the weights, if there is one."""
    path = None if checkpoint.folder is None else checkpoint.folder / "tokenizer.json"
    return path.read_bytes() if path is not None and path.is_file() else None


def _from_gguf(config: dict[str, Any]) -> Tokenizer:
    """Byte-pair encoding as the metadata of a GGUF file describe it."""
    kind = config.get("tokenizer.ggml.model")
    if kind != "gpt2" or config.get("tokenizer.ggml.merges") is None:
        raise CheckpointError(
            got=f"a GGUF tokenizer of kind {kind!r}",
            need='"gpt2", byte-pair encoding with merges',
            do="Put the model's tokenizer.json beside the file and name the folder, or pass token numbers.",
        )
    try:
        with library_errors():
            return Tokenizer(_built(config))
    except ValueError as error:
        raise CheckpointError(
            got=f"a GGUF tokenizer that cannot be made ({error})",
            need="tokens and merges that belong together",
            do="Put the model's tokenizer.json beside the file and name the folder, or pass token numbers.",
        ) from None


def _built(config: dict[str, Any]) -> str:
    """The same as the contents of a tokenizer.json."""
    tokens, merges = config["tokenizer.ggml.tokens"], config["tokenizer.ggml.merges"]
    pre = config.get("tokenizer.ggml.pre", "default")
    package = need("tokenizers", "lens", instead="pass token numbers instead of text")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    tokenizer = package.Tokenizer(package.models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    bytes_ = package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = package.pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = package.pre_tokenizers.Sequence([digits, bytes_]) if pre == "smollm" else bytes_
    tokenizer.decoder = package.decoders.ByteLevel()
    control = [tokens[i] for i, kind in enumerate(config.get("tokenizer.ggml.token_type", [])) if kind == 3]
    tokenizer.add_special_tokens(control)
    return tokenizer.to_str()


def checked_text(text: str) -> str:
    """Refuse an empty, a huge or a binary text."""
    if not text.strip():
        raise TextError(got="an empty text", need="at least one word", do="Give some text.")
    if len(text) > LARGEST_TEXT:
        raise TextError(got=f"{len(text)} characters of text", need=f"at most {LARGEST_TEXT}", do="Cut it.")
    if "\x00" in text:
        raise TextError(
            got=f"a text with a zero byte at character {text.index(chr(0))}",
            need="text, not binary data",
            do="Give a text file.",
        )
    return text


def no_tokenizer(checkpoint: Checkpoint) -> TextError:
    """The refusal of a text, with what to do about a tokenizer in an older format."""
    folder = checkpoint.folder
    old = [name for name in OLDER if folder is not None and (folder / name).is_file()]
    make = "from transformers import AutoTokenizer as T; T.from_pretrained('.').save_pretrained('.')"
    return TextError(
        got=f"a text for a model without a tokenizer{f', which has {old[0]} only' if old else ''}",
        need="tokenizer.json beside the weights",
        do=(f'Make it where transformers is installed, in the folder: python -c "{make}"' if old else "Copy it there")
        + "; or pass the token numbers as integers.",
    )


def token_numbers(text: Any, tokenizer: Tokenizer | None, anatomy: Anatomy, limit: int | None) -> np.ndarray:
    """A text, or token numbers, as token numbers of the model; refused if they do not fit its tables."""
    vocabulary = anatomy.vocabulary
    if isinstance(text, str):
        ids = cast(Tokenizer, tokenizer).encode(checked_text(text)).astype(np.int64)
    else:
        ids = np.asarray(text)
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
            raise TextError(
                got=f"tokens of type {ids.dtype} and shape {ids.shape}",
                need="a text, or a list of whole numbers",
                do="Pass one text at a time.",
            )
        ids = ids.astype(np.int64)
    if len(ids) == 0:
        raise TextError(got="a text of no tokens", need="at least one", do="Give some text.")
    if ids.min() < 0 or ids.max() >= vocabulary:
        raise TextError(
            got=f"token {int(ids.max() if ids.max() >= vocabulary else ids.min())} for a vocabulary of {vocabulary}",
            need="the tokenizer of this model",
            do="The tokenizer belongs to another model: take it and the weights from one place.",
        )
    if limit is not None and len(ids) > limit:
        raise TextError(
            got=f"{len(ids)} tokens for a model with {limit} {anatomy.limited_by}",
            need=f"at most {limit} tokens",
            do="Give a shorter text, or cut it: model.tokens(text)[:…].",
        )
    return ids
