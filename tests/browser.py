"""The apps of the explorer in a browser, for its tests and for what times them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE = 290_000
"""Milliseconds after which an app that shows nothing failed: machines may be busy, and nothing is measured here."""


@dataclass
class Tabs:
    """The browser: a tab for each app that was asked for, and what went wrong."""

    address: str
    context: Any
    pages: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # the browser keeps a list of all it fetches, of 250 entries unless told
        self.context.add_init_script("performance.setResourceTimingBufferSize(10000)")
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))

    def show(self, name: str) -> Any:
        """The tab of an app, once it has computed something."""
        if name not in self.pages:
            self.pages[name] = self.context.new_page()
            self.pages[name].goto(f"{self.address}{name}/", wait_until="commit")
        page = self.pages[name]
        page.bring_to_front()
        page.wait_for_selector(".mf-plot, .mf-table, .mf-refusal", timeout=PATIENCE)
        return page

    def requests(self) -> list[str]:
        """What all tabs have fetched, from any machine."""
        listed = "() => performance.getEntriesByType('resource').map((entry) => entry.name)"
        return [url for page in self.pages.values() for url in page.evaluate(listed)]


class Served(NamedTuple):
    """A running explorer."""

    address: str
    token: str

    @property
    def cookie(self) -> str:
        """What a browser sends once it has opened the address with the token."""
        return f"measureformer-{urlsplit(self.address).port}={self.token}"


@contextmanager
def served(home: Path) -> Iterator[Served]:
    """Where the explorer is served, started as its users start it, but with no settings of theirs."""
    complaints = home / "complaints"
    command = [sys.executable, "-m", "measureformer", "explore", "--port", "0", "--no-browser"]
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
    # a file, because a pipe that nobody reads fills up and stops the server
    with complaints.open("w") as stderr:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=home)
    assert server.stdout is not None
    try:
        found = re.search(r"(http://127\.0\.0\.1:\d+/)\?token=([\w-]{20,}) ", server.stdout.readline())
        assert found is not None, complaints.read_text()
        yield Served(found[1], found[2])
    finally:
        server.terminate()
        server.communicate(timeout=60)


@contextmanager
def browsing(chromium: str, explorer: Served) -> Iterator[Tabs]:
    """The browser at that path, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # the sandbox of the browser refuses to be started by the superuser
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = driver.chromium.launch(executable_path=chromium, args=arguments)
        context = browser.new_context(viewport={"width": 1300, "height": 900}, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        # the address with the token, as the command opens it: the context keeps its cookie
        page = context.new_page()
        page.goto(f"{explorer.address}?token={explorer.token}", wait_until="commit")
        page.close()
        yield Tabs(explorer.address, context)
        browser.close()
