"""The study of rates in benchmarks/: its parameters are counted right, and its slopes are those of its errors."""

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
from measureformer.universality import Search
from measureformer.universality.targets import Functional

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


def _study() -> Any:
    spec = importlib.util.spec_from_file_location("universality_study", BENCHMARKS / "universality_study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


study = _study()


def test_parameters_of_the_study_are_those_of_the_census() -> None:
    target = mf.universality.mean(2)
    search = Search(terms=8, blocks=20, candidates=60, contexts=30, rounds=1)
    noisy = Functional(lambda y, p, x: jax.numpy.sin(3 * (p @ y) * x), dim=2, out=2)
    for goal in (target, noisy):
        found = mf.universality.fit(goal, mf.Box([-1.0, -1.0], [1.0, 1.0]), jax.random.key(0), tol=1e-12, search=search)
        net = found.compile(activation="quadratic")
        dense = (np.abs(np.asarray(found.expression.coefficients)) > 0).all()
        if dense:
            assert study.parameters(found.lengths, 2, 2) == net.census.parameters
    assert dense


def test_errors_fall_with_parameters() -> None:
    box, keys = mf.Box([0.0], [1.0]), [jax.random.key(seed) for seed in range(2)]
    search = Search(terms=10, blocks=20, candidates=60, contexts=40, rounds=1)
    target = study.graded(1, place=0.5)
    assert target(mf.Discrete.uniform([[0.0], [1.0]]), [0.0]).tolist() == [0.5]
    curve = study.error_curve(target, box, keys, search=search)
    slopes = np.diff(np.log(curve.errors)) / np.diff(np.log(curve.parameters))
    np.testing.assert_allclose(curve.slopes, slopes[:, 0])  # two sizes: 3 and 10 terms
    assert curve.slope < 0
    assert curve.interval[0] < curve.slope < curve.interval[1]
    with pytest.raises(errors.OptionError, match="1 keys"):
        study.error_curve(target, box, keys[:1], search=search)
