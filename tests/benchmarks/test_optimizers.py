"""The benchmark that compares optimisers: the same descent as a plain loop, its groups of weights, its refusals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import InContextModel, LanguageModel, tasks
from measureformer.incontext.language import Corpus
from measureformer.incontext.observe import head_matrices
from measureformer.incontext.train import InContextLoss
from measureformer.training.architecture import Architecture
from measureformer.training.optimization import Optimization

ROOT = Path(__file__).parent.parent.parent


def _study() -> Any:
    """The module benchmarks/optimizers_study.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("optimizers_study", ROOT / "benchmarks" / "optimizers_study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


study = _study()
GROUPS, OPTIMIZERS = study.GROUPS, study.OPTIMIZERS
KEY = jax.random.key(0)
SMALL = Architecture(width=8, layers=1, heads=2)
FEW = Optimization(steps=3, batch=4, warmup=0.0, final=1.0)


def test_a_sweep_is_plain_descent_at_every_rate_and_seed() -> None:
    # kills: rates and seeds mixed up, a gradient of other weights than the loss, a model that is not the best one
    task, rates = tasks.linear(1), np.array([0.3, 0.05])
    found = study.compare_optimizers(
        task, KEY, architecture=SMALL, optimization=FEW, rates=rates, seeds=2, names=["normalised", "SGD"]
    )
    assert list(found.losses) == ["normalised", "SGD"]
    keys = jax.random.split(KEY, 4).reshape(2, 2)
    loss = InContextLoss(task, None, FEW.batch, 3)

    @jax.jit
    def step(model: Any, key: Any, i: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(model, key, i)
        return value, study.group_norms(slope), jax.tree.map(lambda w, s: w - np.float32(0.05) * s, model, slope)

    for seed in range(2):
        model = InContextModel.random(keys[0, seed], 1, SMALL, points=3)
        for i in range(FEW.steps):
            value, norms, model = step(model, jax.random.fold_in(keys[1, seed], i), i)
            assert found.losses["SGD"][1, seed, i] == pytest.approx(float(value), rel=1e-4)
            np.testing.assert_allclose(found.gradients["SGD"][1, seed, i], norms, rtol=1e-3, atol=1e-6)
    assert found.structures["SGD"].symmetric.shape == (1, 2)


def test_groups_are_all_weights() -> None:
    models: tuple[Any, ...] = (
        InContextModel.random(KEY, 2, SMALL, points=3),
        LanguageModel.random(KEY, SMALL, vocabulary=5, context=4),
    )
    for model in models:
        square = lambda leaf: float((np.asarray(leaf) ** 2).sum())  # noqa: E731
        whole = np.sqrt(sum(map(square, jax.tree.leaves(model))))
        found = np.asarray(jax.jit(study.group_norms)(model))
        assert np.sqrt((found**2).sum()) == pytest.approx(whole, rel=1e-5)
        assert found[GROUPS.index("MLP")] == pytest.approx(
            np.sqrt(sum(map(square, (model.blocks.up, model.blocks.down)))), rel=1e-5
        )


def test_text_is_studied_too() -> None:
    corpus = Corpus(np.arange(60) % 5, 5, context=6)
    bare = Architecture(width=8, layers=1, heads=2, norm="none", branch=0.5)
    found = study.compare_optimizers(
        corpus, KEY, architecture=bare, optimization=FEW, rates=[0.1], seeds=1, names=["sign"]
    )
    assert found.losses["sign"].shape == (1, 1, 3)
    # before training all five tokens are about equally probable
    assert found.losses["sign"][0, 0, 0] == pytest.approx(np.log(5), rel=0.1)


def test_the_best_rate_is_that_of_the_median_and_what_blew_up_never_is() -> None:
    losses = np.ones((3, 3, 20))
    losses[0, 0], losses[0, 1:] = 0.0, 2.0
    losses[2, :, 5:] = np.nan
    found = study.Comparison({"SGD": np.arange(3.0)}, {"SGD": losses}, {}, {})
    assert found.best("SGD") == 1
    assert not found.at_edge("SGD")
    assert np.isinf(found.final("SGD")[2]).all()


def test_heads_before_training_are_those_the_best_seed_began_with() -> None:
    # kills: heads of another seed, or of the trained model
    found = study.compare_optimizers(
        tasks.linear(1), KEY, architecture=SMALL, optimization=FEW, rates=[0.1], seeds=2, names=["sign"]
    )
    seed = int(found.final("sign")[0].argmin())
    began = InContextModel.random(jax.random.split(KEY, 4).reshape(2, 2)[0, seed], 1, SMALL, points=3)
    # single precision, once in a batch and once alone
    np.testing.assert_allclose(found.before["sign"].symmetric, head_matrices(began).symmetric, rtol=1e-5)
    assert (found.before["sign"].symmetric != found.structures["sign"].symmetric).all()


def test_rates_tried_later_join_those_tried_before() -> None:
    # kills: rates that are not sorted with their losses, heads of a rate that is not the best of both
    names = ["SGD", "Adam"]

    def compared(rates: list[float]) -> Any:
        return study.compare_optimizers(
            tasks.linear(1), KEY, architecture=SMALL, optimization=FEW, rates=rates, seeds=2, names=names
        )

    one, other, all_at_once = compared([0.5, 0.125]), compared([0.25, 1e9]), compared([1e9, 0.5, 0.25, 0.125])
    for both in (one.joined(other), other.joined(one)):
        for name in names:
            assert both.rates[name].tolist() == all_at_once.rates[name].tolist()
            assert both.best(name) == all_at_once.best(name)
            # the same program in batches of another size: rounding of single precision, after three steps
            tried = slice(1, None)
            np.testing.assert_allclose(both.losses[name][tried], all_at_once.losses[name][tried], rtol=1e-3)
            np.testing.assert_allclose(both.gradients[name][tried], all_at_once.gradients[name][tried], rtol=1e-2)
            for kept in ("structures", "before"):
                mine, theirs = getattr(both, kept)[name], getattr(all_at_once, kept)[name]
                np.testing.assert_allclose(mine.symmetric, theirs.symmetric, rtol=1e-3)
    with pytest.raises(errors.DimensionMismatchError, match="only the rates"):
        one.joined(
            study.compare_optimizers(tasks.linear(1), KEY, architecture=SMALL, optimization=FEW, rates=[0.1], seeds=1)
        )


def test_bad_settings_are_refused() -> None:
    with pytest.raises(errors.OptionError, match="positive"):
        study.compare_optimizers(tasks.linear(1), KEY, rates=[0.0])
    with pytest.raises(errors.OptionError, match=", ".join(OPTIMIZERS)):
        study.compare_optimizers(tasks.linear(1), KEY, names=["newton"])
    with pytest.raises(errors.DtypeError, match="a Corpus"):
        study.compare_optimizers("text", KEY)
    with pytest.raises(errors.OptionError, match="GPT-2"):
        mf.text.train_text("a b " * 400, KEY, architecture=Architecture(8, 1, 2, norm="none"), save="unused")
