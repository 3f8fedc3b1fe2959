"""One server and one browser for all tests of the explorer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from browser import Served, Tabs, browsing, served


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
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="session")
def tabs(chromium: str, explorer: Served) -> Iterator[Tabs]:
    with browsing(chromium, explorer) as found:
        yield found
