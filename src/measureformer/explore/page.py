"""The first page of the explorer: what each app shows, and a link to it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from measureformer.explore.catalogue import App
from measureformer.pages.markup import Markup, tag


def index(apps: Sequence[App]) -> str:
    """The page, in the style of the atlas; it holds no script and fetches nothing."""
    style = resources.files("measureformer.pages").joinpath("style.css").read_text(encoding="utf-8")
    cards = [
        tag(
            "article",
            tag("h3", tag("a", app.title, href=f"{app.name}/")),
            tag("p", app.about),
            tag("div", tag("code", f"measureformer explore {app.name}"), class_="command"),
        )
        for app in apps
    ]
    lead = "Drag, choose, and watch: each page computes while you touch it. Everything stays on this machine."
    body = tag(
        "body",
        tag("header", tag("h1", "Explorer"), tag("p", lead, class_="lead")),
        tag("main", *cards),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "Explorer · measureformer"),
        tag("style", Markup(style)),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
