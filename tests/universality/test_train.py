"""Trained transformers and maps between measures: what they reach, and that they can be interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.training import loop
from measureformer.training.architecture import Architecture
from measureformer.universality import Search
from measureformer.universality.corollary import map_errors
from measureformer.universality.targets import softmin_distance
from measureformer.universality.train import Trained

LINE = mf.Box([-1.0], [1.0])
SMALL = Search(contexts=240, queries=3, atoms=6)


def trained(save: Any = None) -> Trained:
    return mf.universality.train_functional(
        softmin_distance(1, 0.5),
        LINE,
        jax.random.key(0),
        architecture=Architecture(width=4, layers=1, heads=1, hidden=8, norm="none"),
        optimization=mf.Optimization(steps=150, rate=0.02),
        search=SMALL,
        save=save,
    )


@pytest.fixture(scope="module")
def whole() -> Trained:
    return trained()


def test_training_lowers_the_error_on_measures_not_seen(whole: Trained) -> None:
    target = softmin_distance(1, 0.5)
    assert len(whole.losses) == 151
    assert whole.losses[-1] < whole.losses[0] / 20
    assert whole.held_out < whole.scale / 2
    assert whole.held_out_rms < whole.held_out
    # the numbers are about the transformer that is handed out
    mu, x = mf.Discrete.weighted([[0.2], [-0.5]], [1.0, 2.0]), np.array([[0.1], [0.9]])
    assert float(np.abs(np.asarray(whole.transformer(mu, x)) - np.asarray(target(mu, x))).max()) <= 2 * whole.held_out
    arrays = [leaf for leaf in jax.tree.leaves(whole.transformer) if np.ndim(leaf)]
    assert sum(leaf.size for leaf in arrays) == whole.parameters


def test_an_interrupted_training_ends_with_the_same_bits(
    whole: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, calls = loop._chunk, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return chunk(*arguments)

    monkeypatch.setattr(loop, "_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path)
    monkeypatch.undo()
    np.testing.assert_array_equal(trained(tmp_path).losses, whole.losses)
    with pytest.raises(errors.SavedRunError, match="another run"):
        mf.universality.train_functional(mf.universality.mean(1), LINE, jax.random.key(1), search=SMALL, save=tmp_path)


def test_errors_of_maps_are_distances() -> None:
    # halves instead of thirds: every atom is off by a sixth of its distance to 0, and has moved by two thirds of it
    found = map_errors(
        mf.Linear([[0.5]]), lambda mu: mu.push(lambda x: x / 3), LINE, jax.random.key(0), atoms=5, trials=2
    )
    np.testing.assert_allclose(found.errors / found.displacements, 0.25, rtol=1e-9)
    with pytest.raises(errors.DomainError, match=r"R.1 to measures on R.2"):
        map_errors(mf.Linear([[1.0], [2.0]]), lambda mu: mu, LINE, jax.random.key(0))


def test_bad_architectures_are_refused() -> None:
    with pytest.raises(errors.OptionError, match="heads = 0"):
        Architecture(heads=0)
    with pytest.raises(errors.OptionError, match="no LayerNorm"):
        mf.universality.train_functional(mf.universality.mean(1), LINE, jax.random.key(0), architecture=Architecture())
    with pytest.raises(errors.DtypeError, match="compact domain"):
        mf.universality.train_functional(mf.universality.mean(1), None, jax.random.key(0))
