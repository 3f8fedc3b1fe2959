"""The skeletons of CONTRIBUTING.md run, keep the rules, and the claim among them passes."""

from __future__ import annotations

import doctest
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from measureformer.atlas.registry import check
from planting import plant

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SKELETONS = dict(
    zip(("map", "claim", "theorem"), re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL), strict=True)
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Execute a skeleton as the module it would be, and return its names."""

    def execute(skeleton: str) -> dict[str, Any]:
        module = ModuleType(f"skeleton_of_a_{skeleton}")
        # dataclasses look up the module of a class by its name
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(SKELETONS[skeleton], f"{skeleton} in CONTRIBUTING.md", "exec"), vars(module))
        return vars(module)

    return execute


@pytest.mark.parametrize(("skeleton", "name"), [("map", "TowardsMean"), ("theorem", "dot_product_error")])
def test_skeletons_run_with_their_examples(run: Callable[[str], dict[str, Any]], skeleton: str, name: str) -> None:
    scope = run(skeleton)
    examples = doctest.DocTestParser().get_doctest(scope[name].__doc__, scope, name, None, 0)
    runner = doctest.DocTestRunner()
    runner.run(examples)
    assert runner.summarize(verbose=False) == (0, len(examples.examples))
    assert examples.examples


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_the_claim_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: Literal["quick", "full"]) -> None:
    plant(tmp_path, monkeypatch, {"measures/peyre_2019_change_of_variables.py": SKELETONS["claim"]})
    assert check("peyre-2019-change-of-variables", preset=preset).passes


def test_every_rule_is_listed() -> None:
    for tool in (ROOT / "tools").glob("[a-z]*.py"):
        assert f"`tools/{tool.name}`" in TEXT
