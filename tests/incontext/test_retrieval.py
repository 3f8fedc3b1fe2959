"""Readers of prompts of tokens: what a language model says is its most probable token, and training teaches it."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import LanguageModel, retrieval, train_reader
from measureformer.incontext.bayes import ginc
from measureformer.incontext.retrieval import _said
from measureformer.training.optimization import Optimization

KEY = jax.random.key(0)
WORLD = ginc(KEY, concepts=2, values=2, slots=3, symbols=6, permutations=2)
SMALL = mf.Architecture(width=8, layers=1, heads=2)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    made = LanguageModel.random(KEY, SMALL, vocabulary=6, context=20)
    # away from the start, where embeddings are small and all logits nearly the same
    return eqx.tree_at(lambda m: (m.embedding, m.positions), made, (50 * made.embedding, 50 * made.positions))


@pytest.mark.parametrize("length", [1, 7, 16, 20, 33])
def test_what_is_said_is_the_most_probable_token(model: LanguageModel, length: int) -> None:
    # kills: a padded token that is seen, the answer of another place, the first `context` tokens in place of the last
    tokens = np.random.default_rng(length).integers(6, size=(16, length))
    direct = [int(np.asarray(model.logits(row[None, -20:]))[0, -1].argmax()) for row in tokens]
    assert _said(model, tokens).tolist() == direct
    assert len(set(direct)) > 1


def test_the_table_of_a_model_is_how_often_it_is_right(model: LanguageModel) -> None:
    found = retrieval(model, WORLD, KEY, examples=[0, 2], lengths=[3, 4], prompts=30)
    assert found.accuracy.shape == (2, 2)
    assert found.posterior is None
    for i, length in enumerate((3, 4)):
        for j, count in enumerate((0, 2)):
            fresh = jax.random.fold_in(jax.random.fold_in(KEY, length), count)
            asked = WORLD.prompts(fresh, 30, examples=count, length=length)
            right = np.asarray(model.logits(asked.tokens))[:, -1].argmax(axis=1) == asked.labels
            assert found.accuracy[i, j] == right.mean()
            assert found.error[i, j] == pytest.approx(right.std() / np.sqrt(30))


def test_training_teaches_a_reader_its_world() -> None:
    start = LanguageModel.random(KEY, SMALL, vocabulary=6, context=12)
    reader = train_reader(WORLD, start, KEY, optimization=Optimization(steps=150, batch=16, rate=1e-2))
    documents = np.asarray(WORLD.documents(jax.random.key(1), 200, 13))
    # no better than the frequencies of symbols would be a reader that looks at nothing
    share = np.bincount(documents.ravel(), minlength=6) / documents.size
    blind = -(share[share > 0] * np.log(share[share > 0])).sum()
    surprise = np.asarray(reader.surprise(documents))
    assert np.asarray(start.surprise(documents)).mean() > blind
    assert surprise.mean() < 0.8 * blind
    # the same key, the same reader
    again = train_reader(WORLD, start, KEY, optimization=Optimization(steps=150, batch=16, rate=1e-2))
    np.testing.assert_array_equal(again.embedding, reader.embedding)


def test_a_model_of_other_symbols_is_refused() -> None:
    other = LanguageModel.random(KEY, SMALL, vocabulary=7, context=12)
    with pytest.raises(errors.DimensionMismatchError, match="6 symbols and a model of 7"):
        train_reader(WORLD, other, KEY)
