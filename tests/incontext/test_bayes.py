"""GINC: the forward algorithm against brute force over all paths, and what the generator promises."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import numpy as np
import pytest

from measureformer import errors
from measureformer.incontext import bayes

KEY = jax.random.key(0)
SMALL = {"concepts": 2, "values": 2, "slots": 2, "symbols": 4, "permutations": 3}


def test_the_posterior_is_that_of_a_sum_over_all_paths() -> None:
    # kills: the transposed matrix; with two values and two slots those of the generator are symmetric
    chances = np.random.default_rng(0).uniform(0.1, 1, (2, 4, 4))
    chances /= chances.sum(axis=2, keepdims=True)
    world = eqx.tree_at(lambda world: world.transitions, bayes.ginc(KEY, **SMALL), chances)
    tokens = world.documents(jax.random.key(1), 5, 4)
    found = world.believe(tokens)
    T, start, emissions = (np.asarray(entry) for entry in (world.transitions, world.starts, world.emissions))
    for row, document in enumerate(np.asarray(tokens)):
        likelihood, ahead = np.zeros(2), np.zeros((2, 4))
        for concept in range(2):
            for path in itertools.product(range(4), repeat=5):
                p = start[concept, path[0]] * np.prod([T[concept, a, b] for a, b in itertools.pairwise(path)])
                if all(emissions[state] == token for state, token in zip(path[:4], document, strict=True)):
                    likelihood[concept] += p
                    ahead[concept, emissions[path[4]]] += p
        np.testing.assert_allclose(found.posterior[row], likelihood / likelihood.sum(), atol=1e-12)
        np.testing.assert_allclose(found.next[row], ahead.sum(axis=0) / likelihood.sum(), atol=1e-12)


def test_the_generator_is_as_described() -> None:
    world = bayes.ginc(KEY)
    np.testing.assert_allclose(world.transitions.sum(axis=2), 1, atol=1e-12)
    assert (world.transitions == 0).any()  # which makes prompts impossible: see `smoothed`
    assert (world.smoothed(0.05).transitions > 0).all()
    assert (np.asarray(world.emissions).reshape(10, 10)[:, 0] == bayes.DELIMITER).all()
    prompts = world.prompts(KEY, 20, examples=3, length=4)
    assert prompts.tokens.shape == (20, 3 * 5 + 3)
    assert (prompts.tokens[:, [4, 9, 14]] == bayes.DELIMITER).all()
    # examples of a prompt begin in one slot
    memory = np.asarray(world.emissions).reshape(10, 10)
    for row in prompts.tokens:
        assert any(all(token in memory[:, slot] for token in row[[0, 5, 10, 15]]) for slot in range(1, 10))


def test_nothing_is_learned_from_an_impossible_prompt() -> None:
    world = bayes.ginc(KEY, **SMALL)
    odd = np.setdiff1d(np.arange(4), world.emissions)
    assert len(odd), "a symbol that no state emits"
    found = world.believe(np.array([[odd[0], 1]]))
    np.testing.assert_allclose(found.posterior, 0.5)
    np.testing.assert_allclose(found.next.sum(axis=1), 1, atol=1e-12)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(errors.OptionError):
        bayes.ginc(KEY, **SMALL).smoothed(2.0)
    with pytest.raises(errors.DtypeError):
        bayes.ginc(0)
    for bad in ({"values": 0}, {"slots": 1}, {"symbols": 1}, {"concepts": 0}):
        with pytest.raises(errors.OptionError, match="at least"):
            bayes.ginc(KEY, **(SMALL | bad))
    world = bayes.ginc(KEY, **SMALL)
    for bad in ({"examples": -1}, {"length": 0}):
        with pytest.raises(errors.OptionError, match="at least"):
            world.prompts(KEY, 2, **({"examples": 1, "length": 2} | bad))
    for tokens in ([[99]], [[-1]], [1], [[0.5]]):
        with pytest.raises(errors.OptionError, match="whole numbers from 0 to 3"):
            world.believe(np.array(tokens))
