"""Claims, packages of claims and results for tests of the machinery around them."""

from __future__ import annotations

import itertools
import re
import sys
import textwrap
from pathlib import Path

import pytest

from measureformer.atlas.result import Check, Control, Outcome, Result
from measureformer.figures.figure import Figure, Series

HOLDS = 'return Outcome((Check("difference", 0.25, high=1.0, rejected_by="false"),))'
FAILS = 'return Outcome((Check("difference", 2.0, high=1.0, rejected_by="false"),))'
UNSURE = 'return Outcome((Check("difference", 1.0, high=1.0, error=0.5, rejected_by="false"),))'
RAISES = 'raise ValueError("the matrix is singular")'
INTERRUPTS = "raise KeyboardInterrupt"
RANDOM = """
        import jax
        value = float(jax.random.normal(key)) * config.size
        return Outcome((Check("difference", value, low=-100.0, high=100.0, rejected_by="false"),))
"""

_numbers = itertools.count()


def claim_source(
    name: str,
    run: str = HOLDS,
    control: str = FAILS,
    *,
    size: int = 1,
    imports: str = "",
    needs: str = "None",
    kind: str = "theorem",
) -> str:
    """The module of a claim. Each of its measurements adds a letter to a file beside the module."""
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

    def _claim(key, config):
        with Path(__file__).with_suffix(".runs").open("a") as stream:
            stream.write("x")
        {run}

    def _false(key, config):
        {control}

    def measure(key, config, variant):
        return _claim(key, config) if variant == "claim" else _false(key, config)

    claim = Claim(
        name={name!r}, title="A planted claim", kind={kind!r}, statement="Every x is small.", hypotheses=("x is real",),
        reference="castin2025, Section 3", measure=measure, controls={{"false": "x is large"}},
        quick=Config({size}), full=Config(10 * {size}), needs={needs},
    )
    """
    ).format(name=name, run=run, control=control, size=size, imports=imports, needs=needs, kind=kind)


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
    """A new package of claims, which is the only one during the test; each claim lies in the file of its name."""
    name = f"planted_{next(_numbers)}"
    write_tree(folder / name, {_place(path, text): text for path, text in files.items()})
    patch.syspath_prepend(str(folder))
    patch.setattr("measureformer.atlas.index.packages", lambda: (name,))
    # bytecode is dated by whole seconds: a source that a test rewrites at once would not be read again
    patch.setattr(sys, "dont_write_bytecode", True)
    return name


def announce(folder: Path, package: str) -> None:
    """Make a planted package a distribution: programs that have the folder on their path find its claims."""
    place = folder / f"{package}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (place / "entry_points.txt").write_text(f"[measureformer.claims]\nplanted = {package}\n", encoding="utf-8")


def _place(path: str, text: str) -> str:
    found = re.search(r"^    name='([a-z]+-[0-9]{4}-[a-z]+)',", textwrap.indent(text, ""), re.MULTILINE)
    return f"{path.rpartition('/')[0]}/{found[1].replace('-', '_')}.py" if found else path


def runs(folder: Path, package: str, module: str) -> int:
    """How often a planted claim was measured."""
    path = folder / package / f"{module}.runs"
    return len(path.read_text()) if path.exists() else 0


def a_control(outcome: Outcome, name: str = "false") -> tuple[Control, ...]:
    """The only control of a result."""
    return (Control(name, "x is large", outcome),)


def a_result(claim: str = "castin-2025-planted", **changes: object) -> Result:
    """A result that passes, with a figure of every style."""
    x = (1.0, 10.0, 100.0)
    series = (
        Series("measured", x, (0.3, 0.1, 0.0), "points", role="measured"),
        Series("spread", x, (0.2, 0.05, 0.01), "band", (0.4, 0.2, 0.1), role="measured"),
        Series("predicted", x, (0.3, 0.1, 0.03), "dashed", role="theory"),
        Series("control", x, (0.5, 0.5, 0.5), "line", role="control"),
    )
    entries: dict[str, object] = {
        "claim": claim,
        "chapter": "planted_chapter",
        "chapter_title": "A planted chapter",
        "title": "A planted claim",
        "kind": "theorem",
        "statement": "Every x is small.",
        "hypotheses": ("x is real",),
        "reference": "castin2025, Section 3",
        "citation": "Castin and others",
        "run": Outcome(
            (
                Check("difference", 0.25, high=1.0, error=0.01, rejected_by="large"),
                Check("slope", -0.5, low=-0.55, high=-0.45, rejected_by=("large", "steep")),
            ),
            Figure("Errors", "n", "error", series, xscale="log", yscale="log", caption="All of them."),
        ),
        "controls": (
            Control(
                "large",
                "x is large",
                Outcome((Check("difference", 2.0, high=1.0), Check("slope", -0.9, low=-0.55, high=-0.45))),
            ),
            Control(
                "steep",
                "x falls too fast",
                Outcome((Check("difference", 0.5, high=1.0), Check("slope", -1.0, low=-0.55, high=-0.45))),
            ),
        ),
        "seed": 3,
        "preset": "quick",
        "config": {"size": 1, "tolerance": 1e-12, "kind": "small"},
        "versions": {"measureformer": "0.1.0", "jax": "0.0"},
        "seconds": 1.5,
        "fingerprint": "f" * 64,
        "command": f"measureformer check {claim} --seed 3 --quick",
    }
    return Result(**(entries | changes))  # type: ignore[arg-type]
