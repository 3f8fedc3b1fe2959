"""Claims, packages of claims and results for tests of the machinery around them."""

from __future__ import annotations

import itertools
import sys
import textwrap
from pathlib import Path

import pytest

from measureformer.atlas.result import Check, Outcome, Result
from measureformer.figures.figure import Figure, Series

HOLDS = 'return Outcome((Check("difference", 0.25, high=1.0),))'
FAILS = 'return Outcome((Check("difference", 2.0, high=1.0),))'
UNSURE = 'return Outcome((Check("difference", 1.0, high=1.0, error=0.5),))'
RAISES = 'raise ValueError("the matrix is singular")'
INTERRUPTS = "raise KeyboardInterrupt"
RANDOM = """
        import jax
        return Outcome((Check("number", float(jax.random.normal(key)) * config.size, low=-100.0, high=100.0),))
"""

_numbers = itertools.count()


def claim_source(
    name: str, run: str = HOLDS, control: str = FAILS, *, size: int = 1, imports: str = "", needs: str = "None"
) -> str:
    """The module of a claim. Each run of its experiment adds a letter to a file beside the module."""
    return textwrap.dedent(
        """
    from dataclasses import dataclass
    from pathlib import Path
    {imports}
    from measureformer.atlas.claim import Claim
    from measureformer.atlas.result import Check, Outcome
    from measureformer.figures.figure import Figure, Series

    @dataclass(frozen=True)
    class Config:
        size: int

    def run(key, config):
        with Path(__file__).with_suffix(".runs").open("a") as stream:
            stream.write("x")
        {run}

    def control(key, config):
        {control}

    claim = Claim(
        name={name!r}, title="A planted claim", statement="Every x is small.", hypotheses=("x is real",),
        reference="castin2025, Section 3", run=run, control=control, control_statement="x is large",
        quick=Config({size}), full=Config(10 * {size}), needs={needs},
    )
    """
    ).format(name=name, run=run, control=control, size=size, imports=imports, needs=needs)


def write_tree(folder: Path, files: dict[str, str]) -> None:
    """Write files, and an `__init__.py` with a title into each folder that has none."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir() and path.name != "__pycache__")]:
        if not (path / "__init__.py").exists():
            (path / "__init__.py").write_text(f'"""The chapter {path.name}.\n\nMore about it.\n"""\n')


def plant(folder: Path, patch: pytest.MonkeyPatch, files: dict[str, str]) -> str:
    """A new package of claims, as `measureformer.atlas.claims` is one, that can be imported during the test."""
    name = f"planted_{next(_numbers)}"
    write_tree(folder / name, files)
    patch.syspath_prepend(str(folder))
    # bytecode is dated by whole seconds: a source that a test rewrites at once would not be read again
    patch.setattr(sys, "dont_write_bytecode", True)
    return name


def runs(folder: Path, package: str, module: str) -> int:
    """How often the experiment of a planted claim was run."""
    path = folder / package / f"{module}.runs"
    return len(path.read_text()) if path.exists() else 0


def a_result(claim: str = "castin-2025-planted", **changes: object) -> Result:
    """A result that passes, with a figure of every style."""
    x = (1.0, 10.0, 100.0)
    series = (
        Series("measured", x, (0.3, 0.1, 0.0), "points"),
        Series("spread", x, (0.2, 0.05, 0.01), "band", (0.4, 0.2, 0.1)),
        Series("predicted", x, (0.3, 0.1, 0.03), "dashed"),
        Series("control", x, (0.5, 0.5, 0.5), "line"),
    )
    entries: dict[str, object] = {
        "claim": claim,
        "chapter": "planted_chapter",
        "chapter_title": "A planted chapter",
        "title": "A planted claim",
        "statement": "Every x is small.",
        "hypotheses": ("x is real",),
        "reference": "castin2025, Section 3",
        "citation": "Castin and others",
        "control_statement": "x is large",
        "run": Outcome(
            (Check("difference", 0.25, high=1.0, error=0.01), Check("slope", -0.5, low=-0.55, high=-0.45)),
            Figure("Errors", "n", "error", series, xscale="log", yscale="log", caption="All of them."),
        ),
        "control": Outcome((Check("difference", 2.0, high=1.0), Check("slope", -0.5, low=-0.55, high=-0.45))),
        "seed": 3,
        "preset": "quick",
        "config": {"size": 1, "tolerance": 1e-12, "kind": "small"},
        "versions": {"measureformer": "0.1.0", "jax": "0.0"},
        "seconds": 1.5,
        "fingerprint": "f" * 64,
        "command": f"measureformer check {claim} --seed 3 --quick",
    }
    return Result(**(entries | changes))  # type: ignore[arg-type]
