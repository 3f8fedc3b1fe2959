"""The map of the theory in columns, one for each chapter: all claims, or those that one chapter builds on."""

from __future__ import annotations

from collections.abc import Iterable

from measureformer.atlas.report.frame import SIGNS
from measureformer.atlas.report.view import Page, Shown, View
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import one_line


def overview(view: View) -> Markup:
    """A column for each chapter: how many claims hold, a mark for each, and the chapters that it builds on."""
    home = {claim.name: page for page in view.pages for claim in page.claims}
    columns: list[Markup] = []
    for page in view.pages:
        used = {home[before.name].file for claim in page.claims for before in view.builds_on(claim)} - {page.file}
        others = [_chapter(other) for other in view.pages if other.file in used]
        count = tag("p", f"{page.count('holds')} of {len(page.claims)} hold", class_="count")
        marks = tag("p", *(_mark(claim) for claim in page.claims))
        before = [tag("p", "builds on ", join(*others, by=" · "), class_="count")] if others else []
        columns.append(_column(page, count, marks, *before))
    return join(*columns)


def chapter_map(view: View, page: Page) -> Markup:
    """The claims of a chapter, and in further columns those of other chapters that they build on."""
    near = {before.name for claim in page.claims for before in view.builds_on(claim)}
    columns = [_claims(page, page.claims)]
    for other in view.pages:
        claims = [claim for claim in other.claims if claim.name in near]
        if claims and other is not page:
            columns.append(_claims(other, claims))
    return join(*columns)


def _claims(page: Page, claims: Iterable[Shown]) -> Markup:
    return _column(page, *(tag("p", _mark(one), " ", tag("a", _title(one), href=one.place)) for one in claims))


def _column(page: Page, *parts: Markup) -> Markup:
    return tag("div", tag("p", tag("b", _chapter(page))), *parts, class_="column")


def _chapter(page: Page) -> Markup:
    # the title up to its colon: the rest is read on the page
    return tag("a", one_line(page.chapter.title.partition(":")[0]), href=page.file)


def _title(claim: Shown) -> str:
    return one_line(claim.note.title)


def _mark(claim: Shown) -> Markup:
    words = f"{_title(claim)}: {claim.said}"
    return tag("a", SIGNS[claim.css], href=claim.place, class_=f"mark {claim.css}", title=words, aria_label=words)
