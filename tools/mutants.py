"""Rule: every mutation in `mutants.toml` still applies. With --run, apply each of them, and see who notices.

A mutation is a mathematical mistake: a sign, a transposed matrix, a missing normaliser, an exponent, an index. It is
made in a temporary copy of the sources. The tests named first run first, then the other tests of the chapter, then the
quick presets of its claims, until one fails that passes without the mutation. The table goes to `docs/mutants.md`.

--run [WORD …]   only the mutations whose file or description contains one of the words; the table keeps the other rows
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from _rules import Violation, main

ROOT = Path(__file__).parent.parent
LEAST = 60
PATIENCE = 900
"""Seconds after which a command is ended; a mutation that makes a loop endless is noticed, too."""
HEAD = """# Mutants

A test that cannot fail shows nothing. `tools/mutants.toml` lists mathematical mistakes: a sign, a transposed matrix, a
missing normaliser, an exponent, an index that is off by one. `python tools/mutants.py --run` makes them one at a time
in a copy of the sources and runs the tests and claims of the chapter until one fails that passes without the mistake.
`make check` verifies that every mistake can still be made, `make test` makes six of them, and `make bench` all.

"""


@dataclass(frozen=True)
class Mutant:
    """One mistake: `old` in `file`, below src/measureformer, becomes `new`; the tests `first` are asked first."""

    file: str
    old: str
    new: str
    what: str
    first: str

    @property
    def chapter(self) -> str:
        return self.file.partition("/")[0]


def mutants(root: Path) -> list[Mutant]:
    path = root / "tools" / "mutants.toml"
    if not path.exists():
        return []
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])]


def rule(root: Path) -> Iterator[Violation]:
    table, found = root / "tools" / "mutants.toml", mutants(root)
    if table.exists() and len(found) < LEAST:
        yield Violation(table, 1, f"{len(found)} mutations, at least {LEAST}", "write more")
    for mutant in found:
        path = root / "src" / "measureformer" / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.exists() else 0
        if count != 1:
            yield Violation(
                table, 1, f"{mutant.what}: {count} places in {mutant.file}", "copy the line from the code again"
            )
        if mutant.old == mutant.new or not (root / mutant.first).exists():
            yield Violation(table, 1, f"{mutant.what}: no change, or no {mutant.first}", "name a change and a test")


class Copy:
    """A copy of what tests and claims need, in which mistakes are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        away = shutil.ignore_patterns("__pycache__")
        for name in ("src", "tests", "tools"):
            shutil.copytree(ROOT / name, folder / name, ignore=away)
        for path in ROOT.iterdir():
            if path.is_file() and not path.name.startswith("."):
                shutil.copy(path, folder)
        for name in ("docs", "benchmarks"):
            (folder / name).symlink_to(ROOT / name)

    def output(self, command: tuple[str, ...]) -> tuple[int, str]:
        """Exit code and output of Python with these arguments."""
        # compiled bytes are told from the sources by size and whole seconds, and a mistake may change neither
        own = {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ran = subprocess.run(
                [sys.executable, *command],
                cwd=self.folder,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, "FAILED the limit of time"
        return ran.returncode, ran.stdout

    def failure(self, command: tuple[str, ...]) -> str | None:
        """What failed first: the name of a test or of a claim; None if nothing did."""
        code, text = self.output(command)
        named = FAILED.search(text)
        return None if code == 0 else named[1] if named else f"exit code {code}"

    def who(self, mutant: Mutant, *, only_first: bool = False) -> str:
        """Who notices the mutant; an empty text if nobody does."""
        path = self.folder / "src" / "measureformer" / mutant.file
        source = path.read_text(encoding="utf-8")
        for command in commands(mutant)[: 1 if only_first else None]:
            path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
            try:
                found = self.failure(command)
            finally:
                path.write_text(source, encoding="utf-8")
            if found is not None:
                return found
        return ""

    def fails_anyway(self, names: set[str]) -> set[str]:
        """Tests and claims that fail without a mistake, too, and so have noticed none."""
        tests = tuple(sorted(name for name in names if name.startswith("tests/")))
        claims = tuple(sorted(name for name in names if re.fullmatch(r"[a-z]+-\d{4}[a-z]?-[a-z0-9-]+", name)))
        found: set[str] = set()
        for command in [(*PYTEST[:2], *PYTEST[3:], *tests)] * bool(tests) + [(*CHECK, *claims)] * bool(claims):
            found |= set(FAILED.findall(self.output(command)[1]))
        return found


CHECK = ("-m", "measureformer", "check")
FAILED = re.compile(r"^(?:FAILED |ERROR |violated  |inconclusive  |control not rejected  )(.+?)(?: - .*|  .*)?$", re.M)
PYTEST = ("-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider")


def commands(mutant: Mutant) -> list[tuple[str, ...]]:
    """The commands to try, one after the other."""
    found = [(*PYTEST, mutant.first)]
    if (ROOT / "tests" / mutant.chapter).is_dir():
        found.append((*PYTEST, f"tests/{mutant.chapter}"))
    claims = ROOT / "src" / "measureformer" / "atlas" / "claims" / mutant.chapter
    names = [path.stem.replace("_", "-") for path in sorted(claims.glob("[a-z]*.py"))]
    return [*found, (*CHECK, *names)] if names else found


def run(words: Sequence[str], *, only_first: bool = False) -> dict[Mutant, str]:
    """Who notices each of the chosen mutants."""
    chosen = [one for one in mutants(ROOT) if not words or any(word in f"{one.file} {one.what}" for word in words)]
    found: dict[Mutant, str] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for i, mutant in enumerate(chosen, 1):
            found[mutant] = copy.who(mutant, only_first=only_first)
            print(f"[{i}/{len(chosen)}] {mutant.file}: {mutant.what}: {found[mutant] or 'SURVIVES'}", flush=True)
        anyway = copy.fails_anyway({name for name in found.values() if name})
    if anyway:
        print(f"fail without a mistake, too: {', '.join(sorted(anyway))}", flush=True)
    return {mutant: "" if name in anyway else name for mutant, name in found.items()}


def page(rows: dict[tuple[str, str], str]) -> str:
    """The table of those mutants of the list that were run."""
    listed = [one for one in mutants(ROOT) if (one.file, one.what) in rows]
    caught = sum(bool(rows[one.file, one.what]) for one in listed)
    total = len(mutants(ROOT))
    lines = [
        f"{len(listed)} of the {total} mistakes in the list were made, {caught} noticed.",
        "",
        "| file | mistake | noticed by |",
        "|---|---|---|",
    ]
    for one in listed:
        by = rows[one.file, one.what]
        shown = f"`{by.removeprefix('tests/').partition('[')[0]}`" if by else "**nobody**"
        lines.append(f"| `{one.file}` | {one.what} | {shown} |")
    return HEAD + "\n".join(lines) + "\n"


def recorded(path: Path) -> dict[tuple[str, str], str]:
    """The rows of a page that was written before."""
    if not path.exists():
        return {}
    cells = re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \|$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {(file, what): "" if by == "**nobody**" else by.strip("`") for file, what, by in cells}


if __name__ == "__main__":
    if "--run" not in sys.argv:
        main(rule)
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--run", nargs="*", required=True, metavar="WORD")
    asked: list[str] = reader.parse_args().run
    table = ROOT / "docs" / "mutants.md"
    told = {(one.file, one.what): by for one, by in run(asked).items()}
    table.write_text(page({**recorded(table), **told}), encoding="utf-8")
    sys.exit(0 if all(told.values()) else 1)
