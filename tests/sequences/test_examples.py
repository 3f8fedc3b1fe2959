"""Every example in a docstring of the chapter runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import measureformer.universality as package

MODULES = (
    "boltzmann",
    "sparsity",
    "_activation",
    "_budget",
    "_construction",
    "_grid",
    "_ordinary",
    "hybrids",
    "mixers",
    "yun",
)


def modules() -> list[str]:
    names = []
    for name in MODULES:
        module = importlib.import_module(f"{package.__name__}.{name}")
        inside = pkgutil.iter_modules(getattr(module, "__path__", []))
        names += [module.__name__, *(f"{module.__name__}.{part.name}" for part in inside)]
    return names


def with_examples(module: ModuleType) -> list[doctest.DocTest]:
    return [found for found in doctest.DocTestFinder().find(module) if found.examples]


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for example in with_examples(module):
        said: list[str] = []
        runner.run(example, out=said.append)
        assert not said, "".join(said)


def test_examples_are_found() -> None:
    found = sum(len(with_examples(importlib.import_module(name))) for name in modules())
    assert found > 25
