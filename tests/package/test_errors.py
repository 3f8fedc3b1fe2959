"""Refusals as a user meets them: with the sentence, across processes, and in programs without checked annotations."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

from measureformer import errors
from measureformer.atlas import errors as of_claims

CLASSES = [
    kind
    for module in (errors, of_claims)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, errors.MeasureformerError) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_its_three_parts_and_survives_a_process(kind: type[errors.MeasureformerError]) -> None:
    error = kind(got="a list", need="a measure", do="Wrap it.")
    assert str(error) == "got a list; need a measure. Wrap it."
    # parallel runs send errors from one process to another
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)


@pytest.mark.parametrize("kind", [k for k in CLASSES if k is not errors.MeasureformerError])
def test_every_error_is_also_a_built_in_one(kind: type[errors.MeasureformerError]) -> None:
    built_in = [base for base in kind.__mro__ if base.__module__ == "builtins"]
    assert set(built_in) - {BaseException, Exception, object}


def test_an_array_in_place_of_a_measure_is_refused_kindly() -> None:
    program = "import numpy as np, measureformer as mf; mf.Attention.head([[1]], [[1]], [[1]])(np.ones((3, 1)), [0])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert "need a measure. Wrap the tokens: mu = mf.Discrete.uniform(tokens)" in done.stderr
