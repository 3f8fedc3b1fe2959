"""`RunFolder`: what every kind of saved run has in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer.atlas.run import Settings, run_atlas
from measureformer.errors import FolderInUseError, SavedRunError
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.folder import RunFolder
from measureformer.storage.lock import only_writer

KEY = jax.random.key(0)
SMALL, FEW = mf.Architecture(width=8, layers=1, heads=1), mf.Optimization(steps=2, batch=2)


def trains_text(save: Path) -> Any:
    words = "to be or not to be, that is the question. " * 20
    return mf.text.train_text(words, KEY, architecture=SMALL, context=8, optimization=FEW, save=save)


def learns(save: Path) -> Any:
    model = mf.incontext.InContextModel.random(KEY, 1, SMALL, points=3)
    return mf.incontext.train_learner(mf.incontext.tasks.linear(1), model, KEY, points=3, optimization=FEW, save=save)


def reads(save: Path) -> Any:
    world = mf.incontext.bayes.ginc(KEY, concepts=2, values=2, slots=3, symbols=5)
    model = mf.incontext.LanguageModel.random(KEY, SMALL, vocabulary=5, context=8)
    return mf.incontext.train_reader(world, model, KEY, optimization=FEW, save=save)


def approximates(save: Path) -> Any:
    search = mf.universality.Search(contexts=60)
    small = mf.Architecture(width=8, layers=1, hidden=8, norm="none")
    domain = mf.Box([0.0], [1.0])
    return mf.universality.train_functional(
        mf.universality.mean(1), domain, KEY, architecture=small, optimization=FEW, search=search, save=save
    )


def fits(save: Path) -> Any:
    mu = mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.0]])
    return mf.flows.fit_flow([mu], [[0.0, 0.0]], [[0.3, 0.2]], heads=1, depth=1, key=KEY, optimization=FEW, save=save)


def flows(save: Path) -> Any:
    return mf.flow(mf.Linear([[1.0]]), mf.Discrete.dirac([1.0]), [0.0, 1.0], save=save)


def clusters(save: Path) -> Any:
    few = mf.clustering.Ensemble(n=4, batches=4)
    return mf.clustering.phase_diagram(KEY, [1.0], [0.0, 1.0], ensemble=few, save=save)


def diagnoses(save: Path) -> Any:
    model = mf.lens.untrained(KEY, dim=4, depth=1, heads=2, vocabulary=7)
    return mf.lens.diagnose(model, [1, 2, 3], lipschitz=False, sweeps=False, save=save)


def checks(save: Path) -> Any:
    return run_atlas([], Settings(save), print)


RUNS = [trains_text, learns, reads, approximates, fits, flows, clusters, diagnoses, checks]


@pytest.mark.parametrize("run", RUNS)
def test_every_saved_run_has_one_writer(tmp_path: Path, run: Callable[[Path], Any]) -> None:
    with only_writer(tmp_path), pytest.raises(FolderInUseError, match="need one writer"):
        run(tmp_path)
    run(tmp_path)
    # kills: a lock that stays after the run, which would be another's
    with only_writer(tmp_path):
        pass


def test_a_folder_says_what_differs_and_is_left_as_it_was(tmp_path: Path) -> None:
    about, data = {"model": {"width": 8, "layers": 1}, "weights": fingerprint(1)}, [np.arange(3), KEY, len]
    with RunFolder.of(tmp_path, about, data):
        before = (tmp_path / "problem.json").read_bytes()
    for changed, arrays, words in [
        (about | {"model": {"width": 9, "layers": 1}}, data, r"\(model\.width 8 there, 9 here\)"),
        (about | {"weights": fingerprint(2)}, data, r"\(other weights\)"),
        (about, [np.arange(4), KEY], r"\(other data\)"),
        (about, [np.arange(3), jax.random.key(1)], r"\(other data\)"),
        (about, [np.arange(3).astype(np.int32), KEY], r"\(other data\)"),
    ]:
        with pytest.raises(SavedRunError, match=words), RunFolder.of(tmp_path, changed, arrays):
            pass
    assert (tmp_path / "problem.json").read_bytes() == before
    with RunFolder.of(tmp_path, about, data) as again:
        assert again is not None
    with RunFolder.of(None, about) as none:
        assert none is None


def test_parts_are_made_once_and_again_if_they_are_cut_off(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"value": [1.5, None]}

    with RunFolder.of(tmp_path, {}) as folder:
        assert folder is not None
        assert folder.part("one", make) == folder.part("one", make) == {"value": [1.5, None]}
        assert len(made) == 1
        (tmp_path / "one.json").write_bytes((tmp_path / "one.json").read_bytes()[:-2])
        assert folder.part("one", make) == {"value": [1.5, None]}
        assert len(made) == 2
        folder.write_array("two", np.eye(2))
        np.testing.assert_array_equal(folder.array("two", (2, 2)), np.eye(2))
        assert folder.array("two", (4,)) is None
        (tmp_path / "two.safetensors").write_bytes(b"cut")
        assert folder.array("two", (2, 2)) is None
        assert folder.array("three", ()) is None


def test_parts_of_another_problem_are_not_used(tmp_path: Path) -> None:
    # kills: files that are believed by their names, when the description was deleted or the folder copied together
    with RunFolder.of(tmp_path, {"seed": 1}) as folder:
        assert folder is not None
        folder.part("one", lambda: 1)
        folder.write_array("two", np.ones(1))
    (tmp_path / "problem.json").unlink()
    with RunFolder.of(tmp_path, {"seed": 2}) as folder:
        assert folder is not None
        assert folder.array("two", (1,)) is None
        assert folder.part("one", lambda: 2) == 2


def test_a_damaged_description_is_refused(tmp_path: Path) -> None:
    for text in ("{", "[]"):
        (tmp_path / "problem.json").write_text(text)
        with pytest.raises(SavedRunError, match=r"problem\.json"), RunFolder.of(tmp_path, {}):
            pass
    assert json.loads((tmp_path / "problem.json").read_text()) == []


def test_fingerprints_see_every_bit_of_an_array() -> None:
    # kills: fingerprints by text, by a part, or by values that compare equal
    like = [
        np.zeros(3),
        np.zeros(3, np.float32),
        np.zeros((3, 1)),
        -np.zeros(3),
        np.array([0, 0, 5e-324]),
        np.zeros(24, np.uint8),
        np.zeros(3, jnp.bfloat16),
        np.array(0.0),
        np.zeros(0),
        KEY,
        jax.random.key(1),
    ]
    assert len({fingerprint(array) for array in like}) == len(like)
    grid = np.arange(12.0).reshape(3, 4)
    assert fingerprint(grid.T) == fingerprint(np.ascontiguousarray(grid.T)) != fingerprint(grid)
    assert fingerprint(jnp.asarray(grid)) == fingerprint(grid)
