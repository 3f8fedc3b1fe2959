"""Shell completion: what a shell asks, and what it is told, without loading anything heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def complete(shell: str, **asked: str) -> str:
    environment = os.environ | {"_MEASUREFORMER_COMPLETE": f"complete_{shell}"} | asked
    command = [sys.executable, "-m", "measureformer"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment).stdout


def in_bash(*words: str) -> set[str]:
    line = "\n".join(("measureformer", *words))
    return set(complete("bash", COMP_WORDS=line, COMP_CWORD=str(len(words))).split())


def test_commands_options_and_apps_are_completed() -> None:
    assert in_bash("a") == {"archive", "atlas"}
    assert {"--quick", "--full"} <= in_bash("atlas", "--")
    assert in_bash("explore", "par") == {"particles"}
    assert "castin-2025-gaussian-tilt" in in_bash("check", "castin-2025-")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_served_too(shell: str) -> None:
    said = complete(shell, _TYPER_COMPLETE_ARGS="measureformer arch", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert "archive" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_names_the_command(shell: str) -> None:
    environment = os.environ | {"_MEASUREFORMER_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-m", "measureformer"], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert "_MEASUREFORMER_COMPLETE" in done.stdout
    assert "measureformer" in done.stdout
