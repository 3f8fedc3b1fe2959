"""Results to one HTML page: a summary, a table of contents, a card for each claim."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence, Set
from importlib import resources
from itertools import groupby

from measureformer.report.markup import Markup, join, tag
from measureformer.report.words import STATUSES, Status, interval, measured, number, one_line, status
from measureformer.result import Check, Figure, Outcome, Result

_SAID: dict[Status, str] = {
    "holds": "holds",
    "violated": "violated",
    "inconclusive": "inconclusive",
    "control passed": "control not rejected",
}


def page(
    results: Sequence[Result], *, figures: Mapping[str, bytes], stored: Set[str], missing: Mapping[str, str]
) -> str:
    """The whole page. `figures` are SVG by claim; `stored` are the claims whose JSON lies beside the page."""
    chapters = [
        join(
            tag("h2", one_line(chapter[0].chapter_title), id=f"chapter-{i}"),
            *(_card(result, figures.get(result.claim), result.claim in stored) for result in chapter),
        )
        for i, chapter in enumerate(_chapters(results))
    ]
    body = tag(
        "body",
        tag("header", tag("h1", "Atlas of claims"), tag("p", _lead(results), class_="lead"), _tally(results, missing)),
        _contents(results),
        _missing(missing),
        tag("main", *chapters),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head("Atlas of claims · measureformer")}\n{body}\n</html>\n'


def head(title: str) -> Markup:
    """The head of a page: one style sheet, nothing that runs, nothing that is fetched."""
    style = resources.files("measureformer.report").joinpath("style.css").read_text(encoding="utf-8")
    seal = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # a second wall behind the escaping: nothing is fetched or run, and no style but this one applies
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{seal}'; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", one_line(title)),
        tag("style", Markup(style)),
    )


def _lead(results: Sequence[Result]) -> str:
    presets = sorted({one_line(result.preset) for result in results})
    versions = sorted({result.versions.get("measureformer", "of unknown version") for result in results})
    about = f" Made by measureformer {', '.join(versions)} with the {' and '.join(presets)} preset." if results else ""
    return (
        "Statements of the theory, each run on a computer together with a control: a deliberately false variant that "
        "the same checks must reject. A margin of 1 is as far inside the claimed interval as can be, 0 is its edge, "
        f"and negative numbers lie outside.{about}"
    )


def _tally(results: Sequence[Result], missing: Mapping[str, str]) -> Markup:
    counts = {kind: sum(status(result) == kind for result in results) for kind in STATUSES}
    entries = [_count(counts[kind], _SAID[kind], kind) for kind in STATUSES if counts[kind] or kind == "holds"]
    if missing:
        entries.append(_count(len(missing), "without a result", "missing"))
    return tag("ul", *entries, class_="tally")


def _count(count: int, said: str, kind: str) -> Markup:
    words = "hold" if said == "holds" and count != 1 else said
    return tag("li", tag("b", str(count)), words, class_=kind.replace(" ", "-"))


def _contents(results: Sequence[Result]) -> Markup:
    heads = (tag("th", word, scope="col") for word in ("claim", "verdict", "margin"))
    groups: list[Markup] = []
    for i, chapter in enumerate(_chapters(results)):
        title = tag("a", one_line(chapter[0].chapter_title), href=f"#chapter-{i}")
        head = tag("tr", tag("th", title, colspan="3", scope="rowgroup"))
        groups.append(tag("tbody", head, *map(_contents_row, chapter)))
    table = tag("table", tag("thead", tag("tr", *heads)), *groups)
    return tag("nav", table, aria_label="Contents", class_="scroll")


def _contents_row(result: Result) -> Markup:
    return tag(
        "tr",
        tag("td", tag("a", one_line(result.title), href=f"#{result.claim}")),
        tag("td", _verdict(result)),
        tag("td", number(result.run.margin), class_="number"),
    )


def _chapters(results: Sequence[Result]) -> list[list[Result]]:
    ordered = sorted(results, key=lambda result: (result.chapter, result.claim))
    return [list(chapter) for _, chapter in groupby(ordered, key=lambda result: result.chapter)]


def _missing(missing: Mapping[str, str]) -> Markup:
    if not missing:
        return Markup()
    items = (tag("li", tag("code", one_line(name)), " ", one_line(why)) for name, why in missing.items())
    return tag("section", tag("h2", "Without a result"), tag("ul", *items))


def _verdict(result: Result) -> Markup:
    kind = status(result)
    return tag("span", _SAID[kind], class_=f"verdict {kind.replace(' ', '-')}")


def _card(result: Result, figure: bytes | None, stored: bool) -> Markup:
    return tag(
        "article",
        tag("div", tag("h3", one_line(result.title)), _verdict(result), class_="head"),
        tag("p", result.claim, class_="name"),
        tag("p", result.statement, class_="statement"),
        _hypotheses(result.hypotheses),
        _checks(result),
        _figure(result, figure) if figure is not None and result.run.figure is not None else Markup(),
        tag("div", tag("code", one_line(result.command)), class_="command"),
        tag("p", one_line(result.citation), class_="citation"),
        tag("p", _facts(result), *_stored(result, stored), class_="facts"),
        id=result.claim,
    )


def _hypotheses(hypotheses: Sequence[str]) -> Markup:
    if not hypotheses:
        return Markup()
    items = (tag("li", one_line(hypothesis)) for hypothesis in hypotheses)
    return join(tag("p", "Hypotheses", class_="label"), tag("ul", *items, class_="hypotheses"))


def _checks(result: Result) -> Markup:
    said = {"holds": "holds", "violated": "is rejected", "inconclusive": "is inconclusive"}
    heads = (tag("th", word, scope="col") for word in ("check", "measured", "claimed", "margin"))
    table = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        _group(result.run, f"The claim {said[result.run.verdict].replace('is rejected', 'is violated')}", ""),
        _group(result.control, f"The control {said[result.control.verdict]}", one_line(result.control_statement)),
    )
    return tag("div", table, class_="scroll")


def _group(outcome: Outcome, said: str, about: str) -> Markup:
    words = f", margin {number(outcome.margin)}. " if outcome.checks else ": nothing was measured. "
    head = tag("th", tag("b", said), words, tag("span", about, class_="label"), colspan="4", scope="rowgroup")
    return tag("tbody", tag("tr", head), *map(_row, outcome.checks))


def _row(check: Check) -> Markup:
    numbers = (measured(check), interval(check), number(check.margin))
    return tag("tr", tag("td", one_line(check.name)), *(tag("td", shown, class_="number") for shown in numbers))


def _figure(result: Result, svg: bytes) -> Markup:
    data = result.run.figure
    text = described(data) if data else ""
    links = join(
        tag("a", "SVG", href=f"figures/{result.claim}.svg"),
        tag("a", "PDF", href=f"figures/{result.claim}.pdf"),
        by=" ",
    )
    return tag(
        "figure",
        # an image can neither run nor fetch anything, whatever its SVG holds
        tag("img", src=f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", alt=text),
        tag("figcaption", f"{one_line(data.caption)} " if data else "", links),
    )


def described(figure: Figure) -> str:
    """The figure in words, for those who do not see it."""
    curves = "; ".join(f"{series.label} ({series.style})" for series in figure.series)
    return one_line(f"{figure.title}. {figure.ylabel} against {figure.xlabel}: {curves}.")


def _facts(result: Result) -> str:
    facts = (
        f"seed {result.seed} · {result.preset} preset · {number(result.seconds)} s",
        ", ".join(f"{name} = {value}" for name, value in result.config.items()),
        ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        f"fingerprint {result.fingerprint}",
    )
    return one_line(" · ".join(fact for fact in facts if fact))


def _stored(result: Result, stored: bool) -> tuple[str, ...]:
    return (" · ", tag("a", "JSON", href=f"results/{result.claim}.json")) if stored else ()
