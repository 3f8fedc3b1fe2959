"""The apps of the explorer in a browser, for its tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PATIENCE = 120_000
"""Milliseconds after which an app that shows nothing has failed."""


@dataclass
class Tabs:
    """The browser: a tab for each app, what was asked of any machine, and what went wrong."""

    address: str
    context: Any
    pages: dict[str, Any]
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def show(self, name: str) -> Any:
        """The tab of an app, once it has computed something."""
        page = self.pages[name]
        page.bring_to_front()
        page.wait_for_selector(".mf-plot, .mf-table, .mf-refusal", timeout=PATIENCE)
        return page
