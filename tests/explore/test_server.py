"""The command and its server: clear refusals, and nothing of marimo but what a running app needs."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from measureformer.cli.app import app
from measureformer.explore.catalogue import catalogue
from measureformer.explore.page import index
from measureformer.explore.server import Guard


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["explore", *arguments], prog_name="measureformer", catch_exceptions=False)


def test_the_list_says_what_each_app_shows() -> None:
    said = command("--list").stdout
    for entry in catalogue():
        assert entry.title
        assert len(entry.about) > 40
        assert f"{entry.name:16}{entry.title}. {entry.about}" in said
    assert {entry.name for entry in catalogue()} >= {"particles", "gaussian", "counterexample", "compile"}
    assert {entry.name for entry in catalogue()} >= {"memory", "svm", "incontext", "lens"}


def test_an_unknown_app_is_refused_with_the_known_ones() -> None:
    done = command("partciles", "--no-browser")
    assert done.exit_code == 2
    assert "'partciles'" in done.stderr
    assert "particles, svm" in done.stderr


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("--no-browser", "--port", str(taken.getsockname()[1]))
    assert done.exit_code == 2
    assert "--port 0" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"), [(("--port", "70000"), "0 to 65535"), (("--host", "no.such.host.invalid"), "no address")]
)
def test_bad_addresses_are_refused(arguments: tuple[str, ...], words: str) -> None:
    done = command("--no-browser", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr


def test_without_marimo_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "marimo", None)
    done = command("--no-browser")
    assert done.exit_code == 2
    assert 'pip install "measureformer[explore]"' in done.stderr


def allows(guard: Guard, path: str, **headers: str) -> bool:
    return guard.allows(path, {name.encode(): value.encode() for name, value in headers.items()})


def test_the_guard_on_another_address_still_refuses_other_origins() -> None:
    guard = Guard(None, catalogue(), "0.0.0.0", 80, "token")
    assert allows(guard, "/svm/", host="machine:80")
    assert not allows(guard, "/svm/", host="machine:80", origin="http://example.org")
    assert allows(guard, "/svm/ws", host="machine:80", origin="http://machine:80")


def test_the_page_of_apps_holds_no_script_and_escapes() -> None:
    first: Any = catalogue()[0]
    hostile = type(first)("x", "<script>", "a & b", first.path)
    page = index([hostile])
    assert "<script" not in page
    assert "a &amp; b" in page
