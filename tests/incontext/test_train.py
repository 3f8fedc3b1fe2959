"""Optimization: exact after an interruption, refused where it is another one, stopped where the loss is not finite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import InContextModel, tasks
from measureformer.incontext.train import Trained
from measureformer.training import loop
from measureformer.training.optimization import Optimization

KEY = jax.random.key(0)
SMALL = mf.Architecture(width=8, layers=1, heads=2)
SHORT = Optimization(steps=20, batch=8, rate=1e-2)
TASK = tasks.linear(2)


def model(**settings: Any) -> InContextModel:
    return InContextModel.random(KEY, 2, SMALL, **({"points": 4} | settings))


def run(save: Any = None, optimization: Optimization = SHORT, **options: Any) -> Trained:
    return mf.incontext.train_learner(
        TASK, model(), KEY, points=4, optimization=optimization, watch=7, save=save, **options
    )


def bits(found: Trained) -> list[bytes]:
    leaves = [*jax.tree.leaves(found.model), found.losses, *found.records.values()]
    return [np.asarray(leaf).tobytes() for leaf in leaves]


@pytest.fixture(scope="module")
def whole() -> Trained:
    return run()


def test_a_training_that_was_killed_ends_with_the_same_bits(tmp_path: Path, whole: Trained) -> None:
    # kill -9 in the middle, in a process of its own; the rest here
    program = f"""
import os, signal, jax, measureformer as mf
from measureformer.incontext import InContextModel, tasks
from measureformer.training.optimization import Optimization
from measureformer.training import loop
chunk, calls = loop._chunk, []
def dying(*arguments):
    calls.append(1)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk(*arguments)
loop._chunk = dying
model = InContextModel.random(jax.random.key(0), 2, mf.Architecture(8, 1, 2), points=4)
optimization, folder = Optimization(steps=20, batch=8, rate=1e-2), {str(tmp_path / "run")!r}
mf.incontext.train_learner(
    tasks.linear(2), model, jax.random.key(0), points=4, optimization=optimization, watch=7, save=folder
)
"""
    # the same machine code as here
    variables = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == -9, done.stderr
    assert sorted(path.name for path in (tmp_path / "run").glob("[!.]*")) == ["problem.json", "state.safetensors"]
    resumed = run(tmp_path / "run")
    assert bits(resumed) == bits(whole)
    # once more, nothing is left to do; and the model lies there
    assert bits(run(tmp_path / "run")) == bits(whole)
    again = mf.incontext.load_learner(tmp_path / "run")
    assert jax.tree.structure(again) == jax.tree.structure(whole.model)
    np.testing.assert_array_equal(again.predictions(*_prompt()), whole.model.predictions(*_prompt()))


def _prompt() -> tuple[Any, Any]:
    drawn = TASK.sample(KEY, 2, 4, dtype=np.float32)
    return drawn.x, drawn.y


def test_what_was_watched(whole: Trained) -> None:
    assert whole.records["step"].tolist() == [0, 7, 14]
    assert whole.records["error"].shape == (3, 4)
    assert whole.records["sparsity"].shape == (3, 1, 2)
    # the first look is at the model before training
    prompts = TASK.sample(jax.random.fold_in(KEY, 2**31 - 1), 64, 4, dtype=np.float32)
    before = mf.incontext.observables(model(), prompts, TASK)
    np.testing.assert_allclose(whole.records["norm"][0], before["norm"], rtol=1e-6)


def test_another_training_in_the_folder_is_refused_with_the_difference(tmp_path: Path) -> None:
    few = Optimization(steps=1, batch=8)
    run(tmp_path, few)
    for change, words in (
        ({"optimization": Optimization(steps=2, batch=8)}, r"training\.steps 1 there, 2 here"),
        ({"optimization": Optimization(steps=1, batch=8, rate=0.5)}, r"training\.rate 0\.001 there, 0\.5 here"),
    ):
        with pytest.raises(errors.SavedRunError, match=words):
            run(tmp_path, **change)
    with pytest.raises(errors.SavedRunError, match=r"task\.scale"):
        mf.incontext.train_learner(
            tasks.sparse(2, nonzero=1), model(), KEY, points=4, optimization=few, watch=7, save=tmp_path
        )
    with pytest.raises(errors.SavedRunError, match="other data"):
        mf.incontext.train_learner(TASK, model(), jax.random.key(1), points=4, optimization=few, watch=7, save=tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for damage in (whole[:-9], b""):
        weights.write_bytes(damage)
        with pytest.raises(errors.SavedRunError, match="cannot be read"):
            mf.incontext.load_learner(tmp_path)
    weights.write_bytes(whole)
    about = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(about.replace('"width": 8', '"width": 16'))
    with pytest.raises(errors.SavedRunError, match="of shape"):
        mf.incontext.load_learner(tmp_path)
    (tmp_path / "model.json").write_text(about.replace('"heads": 2', '"heads": 3'))
    with pytest.raises(errors.SavedRunError, match="not what training writes"):
        mf.incontext.load_learner(tmp_path)
    with pytest.raises(errors.SavedRunError, match="no training in"):
        mf.incontext.load_learner(tmp_path / "nowhere")


def test_functions_of_one_name_are_told_apart_by_what_they_say(tmp_path: Path) -> None:
    def times(factor: float) -> Any:
        return tasks.Task(2, lambda key, x: factor * x[:, 0])

    few = Optimization(steps=1, batch=8)
    go = lambda task: mf.incontext.train_learner(task, model(), KEY, points=4, optimization=few, save=tmp_path)  # noqa: E731
    go(times(1.0))
    go(times(1.0))
    with pytest.raises(errors.SavedRunError, match="other data"):
        go(times(9.0))


def test_what_is_refused_leaves_no_folder_behind(tmp_path: Path) -> None:
    few, folder = Optimization(steps=1, batch=8), tmp_path / "run"
    with pytest.raises(errors.OptionError, match="watch = 0"):
        mf.incontext.train_learner(TASK, model(), KEY, points=4, optimization=few, watch=0, save=folder)
    with pytest.raises(errors.ShapeError):
        mf.incontext.train_learner(
            tasks.Task(2, lambda key, x: x), model(), KEY, points=4, optimization=few, save=folder
        )
    assert not folder.exists()


def test_a_curriculum_of_a_measure_bounds_its_examples() -> None:
    from measureformer.incontext.train import InContextLoss

    # one example at first: the loss does not depend on what the others are
    reader, plan = model(points=None, reading="measure"), tasks.Curriculum(dims=(2, 0, 1), points=(1, 3, 10))
    law = tasks.Task(2, lambda key, x: x[:, 0])
    changed = tasks.Task(2, lambda key, x: x[:, 0].at[1:4].multiply(100.0))
    early = [float(InContextLoss(one, plan, 8, 4)(reader, KEY, 0)) for one in (law, changed)]
    late = [float(InContextLoss(one, plan, 8, 4)(reader, KEY, 1000)) for one in (law, changed)]
    assert early[0] == pytest.approx(early[1], rel=1e-6)
    assert late[0] != pytest.approx(late[1], rel=1e-2)
    for bad in ((0, 1, 1), (1, -1, 1), (1, 1, 0)):
        with pytest.raises(errors.OptionError, match="first, step, every"):
            tasks.Curriculum(points=bad)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    wild = Optimization(steps=20, batch=8, rate=1e30, method="sgd", clip=None, warmup=0.0)
    with pytest.raises(errors.TrainingError, match=r"not finite at step \d+") as caught:
        run(tmp_path, wild)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(caught.value.last))
    kept = mf.incontext.load_learner(tmp_path)
    for one, other in zip(jax.tree.leaves(kept), jax.tree.leaves(caught.value.last), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_loss_is_the_average_over_prefixes() -> None:
    from measureformer.incontext.train import InContextLoss

    value = float(InContextLoss(TASK, None, 8, 4)(model(), KEY, 0))
    prompts = jax.vmap(lambda k: TASK.prompt(k, 4, np.float32))(jax.random.split(jax.random.split(KEY)[0], 8))
    found = np.asarray(model().predictions(prompts.x, prompts.y))
    assert value == pytest.approx(((found - np.asarray(prompts.y)) ** 2).mean() / 2, rel=1e-5)
    # a curriculum: what is beyond its size neither counts nor is there
    plan = tasks.Curriculum(dims=(1, 1, 10), points=(2, 1, 10))
    early = float(InContextLoss(TASK, plan, 8, 4)(model(), KEY, 0))
    cut = jax.vmap(lambda k: TASK.prompt(k, 4, np.float32, 1))(jax.random.split(jax.random.split(KEY)[0], 8))
    assert not np.asarray(cut.x)[..., 1].any()
    found = np.asarray(model().predictions(cut.x, cut.y))[:, :2]
    assert early == pytest.approx(((found - np.asarray(cut.y)[:, :2]) ** 2).mean() / 2, rel=1e-5)
    late = float(InContextLoss(TASK, plan, 8, 4)(model(), KEY, 1000))
    assert late == pytest.approx(value, rel=1e-6)


def test_methods_move_along_their_directions() -> None:
    weights, slope = (
        {"a": np.array([3.0, 0.0]), "b": np.array([[4.0]])},
        {"a": np.array([0.6, 0.0]), "b": np.array([[-0.8]])},
    )
    expected = {
        "sgd": {"a": [0.6, 0.0], "b": [[-0.8]]},
        "momentum": {"a": [0.6, 0.0], "b": [[-0.8]]},
        "normalized": {"a": [0.6, 0.0], "b": [[-0.8]]},
        "sign": {"a": [1.0, 0.0], "b": [[-1.0]]},
        "adam": {"a": [1.0, 0.0], "b": [[-1.0]]},
    }
    for method, by in expected.items():
        optimization = Optimization(rate=0.1, method=method, clip=None, warmup=0.0, final=1.0)
        # three times the gradient: only the first two notice
        changes, _ = optimization.optimizer.update(
            jax.tree.map(lambda s: 3 * s, slope), optimization.optimizer.init(weights)
        )
        factor = 3 if method in ("sgd", "momentum") else 1
        for name in weights:
            np.testing.assert_allclose(changes[name], -0.1 * factor * np.array(by[name]), atol=1e-6)
    clipped = Optimization(rate=1.0, method="sgd", clip=0.5, warmup=0.0, final=1.0).optimizer
    changes, _ = clipped.update(slope, clipped.init(weights))
    assert np.sqrt(sum((np.asarray(c) ** 2).sum() for c in changes.values())) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "options",
    [{"steps": 0}, {"batch": 0}, {"rate": 0.0}, {"method": "newton"}, {"clip": -1.0}, {"warmup": 1.0}],
    ids=str,
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.OptionError):
        Optimization(**options)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(errors.DimensionMismatchError, match=r"R\^3"):
        mf.incontext.train_learner(tasks.linear(3), model(), KEY)
    with pytest.raises(errors.DimensionMismatchError, match="positions for 4"):
        mf.incontext.train_learner(TASK, model(), KEY, points=5)
    with pytest.raises(errors.DtypeError):
        mf.incontext.train_learner("linear", model(), KEY)
    with pytest.raises(errors.OptionError, match="curriculum"):
        mf.incontext.train_learner(tasks.linear_dynamics(2), model(), KEY, points=4, curriculum=tasks.Curriculum())
    with pytest.raises(errors.DimensionMismatchError):
        mf.incontext.error_curve(model(), TASK, KEY, points=9)


def test_chunks_of_any_length_are_one_program(monkeypatch: pytest.MonkeyPatch, whole: Trained) -> None:
    # 20 steps at once, or one by one
    chunk = loop._chunk
    one = lambda state, program, _, more: chunk(state, program, np.asarray(1), more)  # noqa: E731
    monkeypatch.setattr(loop, "_chunk", one)
    assert bits(run()) == bits(whole)
