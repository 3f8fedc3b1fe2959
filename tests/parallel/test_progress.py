"""How far long work has come: what is said, where, and when nothing is."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from measureformer.atlas import run as atlas
from measureformer.parallel import pool, progress
from measureformer.parallel.progress import bar, hushed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None = None) -> io.StringIO:
    """Standard error that is no terminal, and lines soon. No fixture: pytest sets the stream again before the test."""
    stream = stream or io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "EVERY", 0.02)
    return stream


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for in vain")


def test_a_pipe_gets_a_line_of_the_stage_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = piped(monkeypatch)
    with bar("lens", 4) as show:
        show(0, "opening")
        # kills: a line only when a stage is over, after a minute of silence
        wait_for(lambda: bool(re.fullmatch(r"lens, \d s: opening\n", pipe.getvalue())))
        show(1, "layer 1 of 3")
        wait_for(lambda: bool(re.search(r"^lens, 25 %, \d s: layer 1 of 3\n", pipe.getvalue(), re.MULTILINE)))
        # kills: the same line again and again
        time.sleep(0.1)
    assert len(pipe.getvalue().splitlines()) == 2
    assert "\x1b" not in pipe.getvalue()


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = piped(monkeypatch)
    monkeypatch.setattr(progress, "EVERY", 3600.0)
    with bar("flow", 1) as show:
        show(1, "done")
    assert pipe.getvalue() == ""


def test_the_whole_speaks_for_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = piped(monkeypatch)
    with bar("sweep", 2) as show, bar("flow", 2) as inner:
        show(1, "1 of 2")
        inner(1, "t = 1")
        wait_for(lambda: "sweep" in pipe.getvalue())
        time.sleep(0.05)
    assert "flow" not in pipe.getvalue()
    with hushed(), bar("flow", 2) as inner:
        inner(1, "t = 1")
        time.sleep(0.05)
    assert "flow" not in pipe.getvalue()
    # kills: silence that lasts
    with bar("flow", 2):
        wait_for(lambda: "flow" in pipe.getvalue())


def test_an_error_passes_and_ends_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = piped(monkeypatch)
    with pytest.raises(ZeroDivisionError), bar("flow", 2):
        raise ZeroDivisionError
    time.sleep(0.05)
    assert pipe.getvalue() == ""
    pipe.close()
    # kills: a closed stream that ends the work
    with bar("flow", 2) as show:
        show(1, "t = 1")
        time.sleep(0.05)


def test_a_dumb_terminal_gets_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = piped(monkeypatch, Terminal())
    monkeypatch.setenv("TERM", "dumb")
    with bar("flow", 2) as show:
        show(1, "t = 1")
        wait_for(lambda: bool(re.fullmatch(r"flow, 50 %, \d s: t = 1\n", terminal.getvalue())))


def test_workers_and_the_atlas_speak_for_what_they_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipe = piped(monkeypatch)

    def flows(*_: Any, **__: Any) -> str:
        with bar("flow", 2):
            time.sleep(0.05)
        return "done"

    # kills: bars of several processes that are written into each other
    monkeypatch.setattr(pool.signal, "signal", lambda *_: None)  # which would keep Ctrl-C from these tests
    assert pool._numbered(flows, 3, None) == (3, "done")
    monkeypatch.setattr(atlas, "load", lambda entry: entry)
    monkeypatch.setattr(atlas, "_measured", flows)
    entry: Any = None
    assert atlas._task(atlas.Settings(tmp_path), entry) == "done"
    assert pipe.getvalue() == ""
