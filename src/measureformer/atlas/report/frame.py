"""The frame of the pages of the atlas: the bar at the top, search, the switch between light and dark, verdicts."""

from __future__ import annotations

import json

from measureformer.atlas.report.view import Shown, View
from measureformer.pages.frame import asset, head
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import clean, one_line

HOME = "index.html"


def document(title: str, view: View, *children: str, here: str) -> str:
    """A whole page of the atlas, with the bar at its top and a script at its end."""
    script = asset("measureformer.atlas.report", "atlas.js")
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        _bar(view, here),
        tag("main", *children, id="content"),
        tag("script", Markup(_index(view)), type="application/json", id="index"),
        tag("script", Markup(script)),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head(title, script=script)}\n{body}\n</html>\n'


def _bar(view: View, here: str) -> Markup:
    links = [tag("a", "Atlas", href=HOME, class_="home", aria_current="page" if here == HOME else None)]
    chapters = [
        tag(
            "li",
            tag("a", one_line(page.chapter.title), href=page.file, aria_current="page" if here == page.file else None),
        )
        for page in view.pages
    ]
    menu = tag("details", tag("summary", "Chapters"), tag("ol", *chapters), class_="menu")
    search = tag(
        "div",
        tag("label", "Search", for_="query", class_="unseen"),
        # shown by the script: without one there is nothing to search with
        tag("input", type="search", id="query", placeholder="Search claims  ( / )", autocomplete="off", hidden=""),
        tag("div", id="found", aria_live="polite", hidden=""),
        class_="search",
    )
    switch = tag("button", "Theme", type="button", id="theme", hidden="")
    return tag("header", tag("nav", *links, menu, aria_label="Atlas"), search, switch, class_="bar")


def _index(view: View) -> str:
    """What can be searched, as JSON that cannot end the element it is in."""
    rows = [
        {
            "name": claim.name,
            "title": one_line(claim.note.title),
            "chapter": one_line(page.chapter.title),
            "place": claim.place,
            "verdict": one_line(claim.said),
            "css": claim.css,
            "text": one_line(" ".join(_words(claim))),
        }
        for page in view.pages
        for claim in page.claims
    ]
    text = clean(json.dumps(rows, ensure_ascii=False, separators=(",", ":")))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _words(claim: Shown) -> tuple[str, ...]:
    note = claim.note
    return note.kind or "", note.statement, note.summary, note.citation


def verdict(css: str, words: str) -> Markup:
    """A verdict as a word with a sign before it, so that colour is not all there is."""
    return tag("span", tag("span", SIGNS[css], class_="sign", aria_hidden="true"), f" {words}", class_=f"verdict {css}")


SIGNS = {
    "holds": "●",
    "violated": "✕",
    "inconclusive": "?",
    "control-not-rejected": "!",
    "raised": "✕",
    "not-finished": "…",
    "not-run": "○",
}


def chapters_nav(view: View, here: int) -> Markup:
    """Links to the chapters before and after."""
    links: list[Markup] = []
    if here > 0:
        page = view.pages[here - 1]
        links.append(tag("a", "← ", one_line(page.chapter.title), href=page.file, class_="before"))
    if here + 1 < len(view.pages):
        page = view.pages[here + 1]
        links.append(tag("a", one_line(page.chapter.title), " →", href=page.file, class_="after"))
    return tag("nav", *links, class_="turn", aria_label="Neighbouring chapters") if links else join()
