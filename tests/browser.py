"""The apps of the explorer in a browser, for its tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
