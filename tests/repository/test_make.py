"""The Makefile and its set-up, tried in a folder whose name has a space, with stand-ins for Python: no downloads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Answers what the set-up asks of an interpreter, and writes down every other call. `-m venv` installs itself.
STAND_IN = """#!/bin/sh
case "$1 $2" in
"-c "*) printf '%s\\n%s\\n' "{version}" "{path}" ;;
"-m venv") mkdir -p "$3/bin" && cp "{path}" "$3/bin/python" && echo venv >>"{log}" ;;
*) echo "$*" >>"{log}"; exit {code} ;;
esac
"""


class Copy:
    """A copy of the files that the set-up reads, and a log of what it did."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a folder"
        self.log = folder / "log"
        (self.root / "tools").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/venv.sh"):
            shutil.copy(ROOT / name, self.root / name)

    def python(self, version: str, code: int = 0) -> Path:
        path = self.log.parent / f"python{version}"
        path.write_text(STAND_IN.format(version=version, path=path, log=self.log, code=code))
        path.chmod(0o755)
        return path

    def make(self, *arguments: str, **variables: Path | str) -> subprocess.CompletedProcess[str]:
        # an outer make would hand down its own variables
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "MAKEFLAGS", "MFLAGS", "ARGS")}
        command = ["make", *arguments, *(f"{name}={value}" for name, value in variables.items())]
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def done(self) -> list[str]:
        """What was done since the last time, in words."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return ["pip" if line.startswith("-m pip install") else line for line in lines]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_help_lists_every_target(copy: Copy) -> None:
    said = copy.make("help").stdout
    for target in (
        "start",
        "atlas",
        "help",
        "test",
        "quick",
        "check",
        "bench",
        "docs",
        "explore",
        "package",
        "lowest",
        "newest",
        "clean",
    ):
        assert f"  make {target} " in said


@pytest.mark.parametrize("version", ["2.7.18", "3.9.7", "3.10.14"])
def test_an_old_python_is_refused(copy: Copy, version: str) -> None:
    ran = copy.make("test", PYTHON=copy.python(version))
    assert ran.returncode != 0
    assert f"is Python {version}; need 3.11 or newer" in ran.stderr
    assert not (copy.root / ".venv").exists()


def test_a_missing_python_is_refused(copy: Copy) -> None:
    ran = copy.make("setup", PYTHON="no-such-python")
    assert ran.returncode != 0
    assert "cannot run 'no-such-python'. Install Python 3.11 or newer" in ran.stderr


def test_first_set_up_says_what_it_costs_and_the_second_is_silent(copy: Copy) -> None:
    python = copy.python("3.12.1")
    first = copy.make("setup", PYTHON=python)
    assert "with Python 3.12.1" in first.stderr
    assert "GB" in first.stderr
    assert copy.done() == ["venv", "pip"]
    second = copy.make("setup", PYTHON=python)
    third = copy.make("setup")
    assert (second.stderr, third.stderr, copy.done()) == ("", "", [])


def test_pip_gets_the_constraints_and_the_extra(copy: Copy) -> None:
    copy.make("setup", PYTHON=copy.python("3.12.1"))
    assert "-c constraints.txt -e .[dev]" in copy.log.read_text()


def test_a_half_made_environment_is_made_again(copy: Copy) -> None:
    failed = copy.make("setup", PYTHON=copy.python("3.12.1", code=1))
    assert failed.returncode != 0
    assert "pip could not install" in failed.stderr
    assert copy.done() == ["venv", "pip"]
    again = copy.make("setup", PYTHON=copy.python("3.12.1"))
    assert "half-made" in again.stderr
    assert copy.done() == ["venv", "pip"]


def test_a_broken_interpreter_is_noticed(copy: Copy) -> None:
    python = copy.python("3.12.1")
    copy.make("setup", PYTHON=python)
    copy.done()
    (copy.root / ".venv/bin/python").unlink()
    copy.make("setup", PYTHON=python)
    assert copy.done() == ["venv", "pip"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed(copy: Copy, name: str) -> None:
    python = copy.python("3.12.1")
    copy.make("setup", PYTHON=python)
    copy.done()
    with (copy.root / name).open("a") as file:
        file.write("# changed\n")
    copy.make("setup")
    assert copy.done() == ["pip"]
    copy.make("setup")
    assert copy.done() == []


def test_another_python_replaces_the_environment(copy: Copy) -> None:
    copy.make("setup", PYTHON=copy.python("3.12.1"))
    copy.done()
    copy.make("setup", PYTHON=copy.python("3.13.0"))
    assert copy.done() == ["venv", "pip"]


def test_a_moved_folder_is_set_up_again(copy: Copy) -> None:
    python = copy.python("3.12.1")
    copy.make("setup", PYTHON=python)
    copy.done()
    copy.root = copy.root.rename(copy.root.parent / "moved")
    copy.make("setup", PYTHON=python)
    assert copy.done() == ["venv", "pip"]


def test_clean_removes_what_was_made(copy: Copy) -> None:
    before = sorted(path.name for path in copy.root.iterdir())
    copy.make("setup", PYTHON=copy.python("3.12.1"))
    (copy.root / "atlas").mkdir()
    copy.make("clean")
    assert sorted(path.name for path in copy.root.iterdir()) == before
