"""The pages of an atlas: an overview with the map of the theory, and a page for each chapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from measureformer.atlas.kinds import KINDS, Kind
from measureformer.atlas.report.bibliography import FILE as BIBTEX
from measureformer.atlas.report.bibliography import cited
from measureformer.atlas.report.card import card
from measureformer.atlas.report.chart import chapter_map, overview
from measureformer.atlas.report.frame import HOME, chapters_nav, document, verdict
from measureformer.atlas.report.view import SAID, STATES, Page, Shown, State, View
from measureformer.atlas.words import often
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.prose import prose
from measureformer.pages.words import number, one_line

IDLE: tuple[State, ...] = ("not finished", "not run")
"""States that are no failures."""

_LANGUAGE = (
    ("measured", "what was measured: solid lines and filled markers, in colours"),
    ("theory", "what theory says, bounds, laws and closed forms: black or grey, dashed or dotted"),
    ("control", "a control, which is false on purpose: vermilion, dash-dotted, crosses or hatches"),
    ("measure", "tokens and densities themselves: green"),
)


def overview_page(view: View) -> str:
    """The first page: verdicts at a glance, the map, the chapters, the references."""
    return document(
        "Atlas of claims · measureformer",
        view,
        tag("h1", "Atlas of claims"),
        tag("p", _lead(view), class_="lead"),
        _tally(view),
        _kinds(view),
        _troubled(view),
        _waiting(view),
        tag("h2", "Map of the theory"),
        tag("p", "A column is a chapter, and a square is a claim.", class_="lead"),
        tag("div", overview(view), class_="map", role="group", aria_label="Map of the theory"),
        _reading(),
        tag("h2", "Chapters"),
        *(_contents(page) for page in view.pages),
        _references(view),
        here=HOME,
    )


def chapter_page(view: View, index: int, figures: Mapping[str, bytes]) -> str:
    """A chapter as a short survey: introduction, map, and its claims one after another."""
    page = view.pages[index]
    title = one_line(page.chapter.title)
    parts = [
        tag("h1", title),
        _line_of_verdicts(page.claims),
        *(tag("p", prose(paragraph), class_="introduction") for paragraph in page.chapter.introduction),
        tag("h2", "What builds on what"),
        tag("div", chapter_map(view, page), class_="map", role="group", aria_label="Map of the chapter"),
        *(part for kind in (*KINDS, None) for part in _cards(view, page, kind, figures)),
        chapters_nav(view, index),
    ]
    return document(f"{title} · Atlas of claims", view, *parts, here=page.file)


def _cards(view: View, page: Page, kind: Kind | None, figures: Mapping[str, bytes]) -> list[Markup]:
    """The claims of a chapter that are of one kind, under a heading that says what the kind means."""
    claims = [claim for claim in page.claims if claim.note.kind == kind]
    if not claims:
        return []
    heading, meaning = (f"{kind.title()}s", f"{KINDS[kind]}.") if kind else ("Claims without a stated kind", "")
    about = [tag("p", f"{meaning[0].upper()}{meaning[1:]}", class_="lead")] if meaning else []
    return [tag("h2", heading), *about, *(card(view, claim, figures.get(claim.name)) for claim in claims)]


def _lead(view: View) -> str:
    results = view.atlas.results
    presets = sorted({one_line(result.preset) for result in results})
    versions = sorted({result.versions.get("measureformer", "of unknown version") for result in results})
    about = f" Made by measureformer {', '.join(versions)} with the {' and '.join(presets)} preset." if results else ""
    return one_line(
        "Statements of the theory, each run on a computer together with its controls: deliberately false variants that "
        "its checks must reject. A margin of 1 is as far inside the claimed interval as can be, 0 is its edge, "
        f"and negative numbers lie outside.{about}"
    )


def _tally(view: View) -> Markup:
    claims = view.claims.values()
    counts = {state: sum(claim.state == state for claim in claims) for state in STATES}
    words = {state: _plural(state, counts[state]) for state in STATES}
    shown = [state for state in STATES if counts[state] or state == "holds"]
    items = (tag("li", tag("b", str(counts[one])), words[one], class_=one.replace(" ", "-")) for one in shown)
    return tag("ul", *items, class_="tally")


def _kinds(view: View) -> Markup:
    """How many claims there are of each kind, and what the kinds mean."""
    counts = {kind: sum(claim.note.kind == kind for claim in view.claims.values()) for kind in KINDS}
    items = (
        tag("li", tag("b", f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's'}: "), meaning)
        for kind, meaning in KINDS.items()
    )
    return tag("ul", *items, class_="kinds")


def _plural(state: State, count: int) -> str:
    return "hold" if state == "holds" and count != 1 else SAID[state]


def _troubled(view: View) -> Markup:
    """What does not pass, before everything else."""
    rows = [
        tag(
            "li",
            _link(claim),
            " ",
            verdict(claim.css, claim.said),
            *([" ", one_line(claim.why)] if claim.why else []),
        )
        for claim in view.claims.values()
        if claim.state not in ("holds", *IDLE)
    ]
    return tag("section", tag("h2", "Not passing"), tag("ul", *rows), class_="loud") if rows else Markup()


def _waiting(view: View) -> Markup:
    """What has no result and is no failure: claims that wait for their turn or for data, by reason."""
    by_reason: dict[str, list[Shown]] = {}
    for claim in view.claims.values():
        if claim.state in IDLE:
            by_reason.setdefault(one_line(claim.why) or claim.said, []).append(claim)
    parts = (
        tag(
            "details",
            tag("summary", f"{len(claims)} claim{'' if len(claims) == 1 else 's'}: {why}"),
            tag("p", join(*map(_link, claims), by=" · ")),
        )
        for why, claims in by_reason.items()
    )
    return tag("section", tag("h2", "Without a result"), *parts, class_="quiet") if by_reason else Markup()


def _link(claim: Shown) -> Markup:
    return tag("a", prose(claim.note.title), href=claim.place)


def _line_of_verdicts(claims: Iterable[Shown]) -> Markup:
    listed = list(claims)
    counts: dict[State, int] = {state: sum(claim.state == state for claim in listed) for state in STATES}
    parts = (
        verdict(state.replace(" ", "-"), f"{count} {_plural(state, count)}") for state, count in counts.items() if count
    )
    return tag("p", join(*parts, by=" "), class_="verdicts")


def _reading() -> Markup:
    items = (
        tag("li", tag("span", "", class_=f"swatch {role}"), tag("b", f"{role}: "), words) for role, words in _LANGUAGE
    )
    return join(
        tag("h2", "How to read the figures"),
        tag("ul", *items, class_="language"),
        tag("p", "Every figure can be had as SVG and PDF, and its numbers as CSV, from the card of its claim."),
    )


def _contents(page: Page) -> Markup:
    heads = (tag("th", word, scope="col") for word in ("claim", "kind", "verdict", "margin", "fresh seeds"))
    rows = (
        tag(
            "tr",
            tag("td", _link(claim)),
            tag("td", claim.note.kind or "–", class_="label"),
            tag("td", verdict(claim.css, claim.said)),
            tag("td", number(claim.result.run.margin) if claim.result else "–", class_="number"),
            tag("td", often(claim.result) or "–" if claim.result else "–", class_="number"),
        )
        for claim in page.claims
    )
    first = page.chapter.introduction[:1]
    return tag(
        "section",
        tag("h3", tag("a", one_line(page.chapter.title), href=page.file)),
        *(tag("p", prose(paragraph)) for paragraph in first),
        tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)),
        class_="contents",
    )


def _references(view: View) -> Markup:
    found = cited(view.atlas.survey.notes)
    if not found:
        return Markup()
    items = (
        tag("li", str(reference), " ", join(*(_link(view.claims[name]) for name in names), by=" · "))
        for reference, names in found.items()
    )
    files = join(
        tag("a", "BibTeX", href=BIBTEX, download=""),
        " · ",
        tag("a", "all results as JSON", href="atlas.json", download=""),
    )
    return join(tag("h2", "References"), tag("p", files), tag("ul", *items, class_="references"))
