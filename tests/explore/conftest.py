"""One server and one browser for all tests of the explorer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from browser import Tabs


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where the explorer is served, started as its users start it."""
    command = [sys.executable, "-m", "measureformer", "explore", "--port", "0", "--no-browser"]
    # compiling without optimisation is quicker, and the numbers are the same
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
        assert found is not None, server.stderr and server.stderr.read()
        yield found[0]
    finally:
        server.terminate()
        server.communicate(timeout=30)


@pytest.fixture(scope="session")
def tabs(address: str) -> Iterator[Tabs]:
    chromium = shutil.which("chromium")
    if chromium is None:
        reason = "these tests need Debian's chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # the sandbox of the browser refuses to be started by the superuser
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = driver.chromium.launch(executable_path=chromium, args=arguments)
        yield Tabs(address, browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce"))
        browser.close()
