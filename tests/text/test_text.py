"""Text: tokenizers, n-grams against counting, a model that is read back, generation, and what is refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import LanguageModel
from measureformer.text import Tokenizer
from measureformer.text.corpus import split
from measureformer.text.saved import TextModel, save_text
from measureformer.text.train import TextTrained
from measureformer.training.architecture import Architecture
from measureformer.training.optimization import Optimization

KEY = jax.random.key(0)
VERSE = "the cat sat on the mat, and the rat sat on the cat. " * 30
SMALL = Architecture(width=16, layers=1, heads=2)
SHORT = Optimization(steps=60, batch=8, rate=1e-2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[TextTrained, Path]:
    folder = tmp_path_factory.mktemp("text") / "run"
    return mf.text.train_text(
        VERSE, KEY, architecture=SMALL, context=16, optimization=SHORT, watch=30, save=folder
    ), folder


def test_characters_and_their_file(tmp_path: Path) -> None:
    letters = Tokenizer.characters("héllo €")
    assert letters.decode(letters.encode("ol€é")) == "ol€é"
    with pytest.raises(errors.TextError, match="'x'"):
        letters.encode("hox")
    again = Tokenizer.from_json(letters.description)
    assert again.alphabet == letters.alphabet
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_str(letters.description)
    assert theirs.encode("ol€é").ids == letters.encode("ol€é").tolist()
    assert theirs.decode(letters.encode("ol€é").tolist()) == "ol€é"


def test_byte_pairs_know_every_character() -> None:
    pytest.importorskip("tokenizers")
    pairs = Tokenizer.byte_pairs(VERSE, size=290)
    assert pairs.decode(pairs.encode("a cat ≠ 猫\n")) == "a cat ≠ 猫\n"
    assert len(pairs.encode("the cat")) < len("the cat")
    again = Tokenizer.from_json(pairs.description)
    assert again.alphabet == ""
    assert again.size == pairs.size


def test_ngrams_are_counts() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 3, 200)
    model = mf.text.ngram(tokens, 4, order=3)
    # by hand, for every string: interpolated Kneser–Ney
    strings = [tuple(tokens[i : i + 3].tolist()) for i in range(198)]
    three = Counter(strings)
    two = Counter(s[1:] for s in three)
    one = Counter(s[1:] for s in two)

    def p(counts: Counter[Any], h: tuple[int, ...], w: int, lower: float) -> float:
        total = sum(c for s, c in counts.items() if s[:-1] == h)
        kinds = sum(1 for s in counts if s[:-1] == h)
        return lower if not total else (max(counts[(*h, w)] - 0.75, 0) + 0.75 * kinds * lower) / total

    for a, b in ((0, 1), (2, 2), (3, 1)):
        whole = 0.0
        for w in range(4):
            expected = p(three, (a, b), w, p(two, (b,), w, p(one, (), w, 1 / 4)))
            assert model.probabilities(np.array([a, b, w]))[0] == pytest.approx(expected, rel=1e-12)
            whole += expected
        assert whole == pytest.approx(1)
    held_out = rng.integers(0, 3, 50)
    assert model.perplexity(held_out) == pytest.approx(np.exp(-np.log(model.probabilities(held_out)).mean()))
    with pytest.raises(errors.TextError):
        mf.text.ngram([0, 1], 4)
    with pytest.raises(errors.TooManyAtomsError):
        mf.text.ngram(np.arange(100), 10**6, order=4)


def test_what_is_held_out_is_not_trained_on() -> None:
    text = "".join(chr(33 + i % 90) for i in range(50_000))
    kept, held_out = split(text, 0.1)
    assert len(kept) + len(held_out) == len(text)
    assert len(held_out) == pytest.approx(5000, abs=2000)
    pieces = [text[i : i + 2000] for i in range(0, 50_000, 2000)]
    assert held_out == pieces[9] + pieces[19]
    assert kept.startswith("".join(pieces[:9]) + pieces[10])


def test_training_on_text_learns_and_is_saved_as_gpt2(trained: Any) -> None:
    found, folder = trained
    assert found.losses[-1] < 0.7 * found.losses[0]
    assert found.losses[0] == pytest.approx(math.log(found.text_model.tokenizer.size), rel=0.05)
    assert found.records["step"].tolist() == [0, 30, 60]
    assert found.perplexity < found.records["perplexity"][0]
    names = {"problem.json", "state.safetensors", "config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == names
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["n_embd"], config["activation_function"]) == ("gpt2", 16, "gelu_new")
    again = mf.text.load_text(folder)
    tokens = again.tokenizer.encode("the cat")[None]
    np.testing.assert_array_equal(again.model.logits(tokens), found.text_model.model.logits(tokens))
    # the same call goes on from the folder: nothing is left to do
    same = mf.text.train_text(VERSE, KEY, architecture=SMALL, context=16, optimization=SHORT, watch=30, save=folder)
    assert same.losses.tobytes() == found.losses.tobytes()
    assert same.perplexity == found.perplexity


def test_perplexity_is_that_of_windows(trained: Any) -> None:
    model, tokenizer = trained[0].text_model
    tokens = tokenizer.encode(VERSE)[:33]
    # two windows of 17 tokens, half a context apart, and a third: the first in full, of the others the second half
    surprise = [np.asarray(model.surprise(tokens[None, i : i + 17]))[0] for i in (0, 8, 16)]
    expected = np.exp(np.concatenate([surprise[0], surprise[1][8:], surprise[2][8:]]).mean())
    assert mf.text.perplexity(model, tokens) == pytest.approx(expected, rel=1e-6)


def test_generation_follows_the_logits(trained: Any) -> None:
    text_model = trained[0].text_model
    model, tokenizer = text_model
    cold = mf.text.generate(text_model, "the c", KEY, length=30, temperature=0.0)
    assert len(cold) == 30
    # greedy, by hand, past the length of the context
    tokens = tokenizer.encode("the c").tolist()
    for _ in range(30):
        window = tokens[-16:]
        # what comes later is not seen: one shape for all
        logits = np.asarray(model.logits(np.array([window + [0] * (16 - len(window))])))
        tokens.append(int(logits[0, len(window) - 1].argmax()))
    assert tokenizer.decode(tokens[5:]) == cold
    # one candidate is the most probable one, at any temperature
    assert mf.text.generate(text_model, "the c", KEY, length=30, temperature=2.0, top_k=1) == cold
    first = [mf.text.generate(text_model, "the c", jax.random.key(i), length=30) for i in range(2)]
    assert first[0] != first[1]
    assert first[0] == mf.text.generate(text_model, "the c", jax.random.key(0), length=30)


def test_drawn_tokens_have_the_probabilities_of_the_model(trained: Any) -> None:
    text_model = trained[0].text_model
    logits = np.asarray(text_model.model.logits(text_model.tokenizer.encode("the ")[None]))[0, -1].astype(float)
    drawn = Counter(mf.text.generate(text_model, "the ", jax.random.key(i), length=1, top_k=3) for i in range(300))
    top = np.argsort(-logits)[:3]
    p = np.exp(logits[top]) / np.exp(logits[top]).sum()
    assert set(drawn) <= {text_model.tokenizer.decode([t]) for t in top}
    for token, share in zip(top, p, strict=True):
        found = drawn[text_model.tokenizer.decode([token])] / 300
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / 300) + 1e-9


def test_bad_files_are_refused(tmp_path: Path) -> None:
    bad = tmp_path / "latin.txt"
    bad.write_bytes(b"caf" + b"\xe9 noir")
    with pytest.raises(errors.TextError, match="byte 0xe9 at place 3"):
        mf.text.read_text(bad)
    for content in ("", " \n "):
        bad.write_text(content)
        with pytest.raises(errors.TextError, match="empty"):
            mf.text.read_text(bad)
    with pytest.raises(errors.TextError, match="No such file"):
        mf.text.read_text(tmp_path / "nothing.txt")


def test_bad_arguments_are_refused(trained: Any) -> None:
    text_model = trained[0].text_model
    with pytest.raises(errors.TextError, match="held-out"):
        mf.text.train_text("too short", KEY)
    with pytest.raises(errors.DtypeError, match="need a string"):
        mf.text.train_text(Path("book.txt"), KEY)  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.OptionError):
        mf.text.train_text(VERSE, KEY, tokenizer="words")  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.TextError, match="empty prompt"):
        mf.text.generate(text_model, "", KEY)
    with pytest.raises(errors.TextError, match="never seen"):
        mf.text.generate(text_model, "XYZ", KEY)
    for options in ({"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"length": 0}):
        with pytest.raises((errors.OptionError, errors.NotFiniteError)):
            mf.text.generate(text_model, "the", KEY, **options)
    with pytest.raises(errors.TextError):
        mf.text.perplexity(text_model.model, [1, 2])


def test_sizes_of_perceptrons_are_saved(tmp_path: Path) -> None:
    for hidden, kept in ((24, 24), (64, None), (None, None)):
        shape = Architecture(width=16, layers=1, heads=2, hidden=hidden)
        net = LanguageModel.random(KEY, shape, vocabulary=3, context=4)
        save_text(TextModel(net, Tokenizer.characters("abc")), tmp_path)
        again = mf.text.load_text(tmp_path).model
        assert again.architecture == shape
        assert again.architecture.hidden == kept
        np.testing.assert_array_equal(again.logits([[0, 2, 1]]), net.logits([[0, 2, 1]]))


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    net = LanguageModel.random(KEY, SMALL, vocabulary=3, context=4)
    save_text(TextModel(net, Tokenizer.characters("abc")), tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, damage in (
        ("config.json", b"{"),
        ("config.json", files["config.json"].replace(b'"n_embd": 16', b'"n_embd": 32')),
        ("config.json", b"{}"),
        ("model.safetensors", files["model.safetensors"][:-3]),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", Tokenizer.characters("abcd").description.encode()),
    ):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(errors.SavedRunError, match=name if b'n_embd": 32' not in damage else "model"):
            mf.text.load_text(tmp_path)
        (tmp_path / name).write_bytes(files[name])
    assert mf.text.load_text(tmp_path).model.vocabulary == 3
    # kills: advice to delete a folder that is not there
    with pytest.raises(errors.SavedRunError, match=r"no training in .*Train first"):
        mf.text.load_text(tmp_path / "nothing")
