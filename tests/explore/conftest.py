"""One server and one browser for all tests of the explorer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import PATIENCE, Tabs


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser: without it people skip these tests, but continuous integration does not."""
    found = shutil.which("chromium")
    if found is None:
        reason = "these tests need Debian's chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the explorer is served, started as its users start it, but with no settings of theirs."""
    home: Path = tmp_path_factory.mktemp("home")
    complaints = home / "complaints"
    command = [sys.executable, "-m", "measureformer", "explore", "--port", "0", "--no-browser"]
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
    # a file, because a pipe that nobody reads fills up and stops the server
    with complaints.open("w") as stderr:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=home)
    assert server.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert found is not None, complaints.read_text()
        yield found[0]
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.fixture(scope="session")
def tabs(chromium: str, address: str) -> Iterator[Tabs]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # the sandbox of the browser refuses to be started by the superuser
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = driver.chromium.launch(executable_path=chromium, args=arguments)
        context = browser.new_context(viewport={"width": 1300, "height": 900}, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        yield Tabs(address, context)
        browser.close()
