"""Examples in docstrings of names that are not public run, too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import measureformer.sequences as package

MODULES = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.") if not found.ispkg]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


def test_examples_are_found() -> None:
    modules = map(importlib.import_module, MODULES)
    assert sum(bool(test.examples) for module in modules for test in doctest.DocTestFinder().find(module)) > 25
