"""A claim on its page: statement, hypotheses, what was computed, figure, margins, controls, open questions."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from measureformer.atlas.report.frame import verdict
from measureformer.atlas.report.view import Shown, View
from measureformer.atlas.result import Check, Control, Result
from measureformer.atlas.words import failures, interval, measured, often
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.prose import prose
from measureformer.pages.words import number, one_line


def card(view: View, claim: Shown, figure: bytes | None) -> Markup:
    """The article about a claim, whatever its verdict."""
    note, result = claim.note, claim.result
    return tag(
        "article",
        tag("div", tag("h3", prose(note.title)), verdict(claim.css, claim.said), class_="head"),
        tag(
            "p",
            tag("a", claim.name, href=f"#{claim.name}", aria_label=f"Link to {claim.name}"),
            *([tag("span", f" · {note.kind}", class_="kind")] if note.kind else []),
            class_="name",
        ),
        *([tag("p", prose(note.summary), class_="summary")] if note.summary else []),
        *([tag("p", prose(note.statement, lines=True), class_="statement")] if note.statement else []),
        _hypotheses(note.hypotheses),
        *([] if result else [_absent(claim)]),
        *([_computed(result), _checks(result)] if result else []),
        _figure(result, figure) if result and figure is not None else Markup(),
        _open(claim),
        _links(view, claim),
        tag("p", one_line(note.citation), class_="citation") if note.citation else Markup(),
        _footer(result) if result else Markup(),
        id=claim.name,
        class_=claim.css,
    )


def _absent(claim: Shown) -> Markup:
    said = {"raised": "The measurement raised an error", "not finished": "Not finished", "not run": "Not run"}[
        claim.state
    ]
    words = one_line(claim.why)
    style = "loud" if claim.state == "raised" else "quiet"
    return tag("p", tag("b", f"{said}: "), words or "no reason is known.", class_=style, role="note")


def _hypotheses(hypotheses: Sequence[str]) -> Markup:
    if not hypotheses:
        return Markup()
    items = (tag("li", prose(hypothesis)) for hypothesis in hypotheses)
    return join(tag("p", "Hypotheses", class_="label"), tag("ul", *items, class_="hypotheses"))


def _computed(result: Result) -> Markup:
    sizes = ", ".join(f"{name.replace('_', ' ')} = {value}" for name, value in result.config.items())
    words = f"{one_line(result.preset)} preset, seed {result.seed}, {number(result.seconds)} s"
    computed = tag("p", tag("span", "Computed ", class_="label"), one_line(f"{words}{f': {sizes}' if sizes else ''}."))
    if not result.trials:
        return computed
    rate = tag("p", tag("span", "Fresh seeds that pass ", class_="label"), often(result))
    lines = [tag("li", one_line(line)) for line in failures(result)]
    return join(computed, rate, *([tag("ul", *lines)] if lines else []))


def _checks(result: Result) -> Markup:
    """The table check × control: what the claim measured, and what each control did to the same check."""
    words = ("check", "measured", "claimed", "margin", *(f"control: {control.name}" for control in result.controls))
    head = tag("thead", tag("tr", *(tag("th", one_line(word), scope="col") for word in words)))
    body = tag("tbody", *(_row(result, check) for check in result.run.checks))
    table = tag("div", tag("table", head, body), class_="scroll", tabindex="0", role="group", aria_label="Checks")
    items = (tag("li", tag("b", one_line(one.name)), ": ", prose(one.statement)) for one in result.controls)
    return join(table, tag("p", "Controls, false on purpose", class_="label"), tag("ul", *items, class_="controls"))


def _row(result: Result, check: Check) -> Markup:
    name = join(prose(check.name), *([tag("span", " (context, no evidence)", class_="label")] if check.context else []))
    numbers = (measured(check), interval(check), number(check.margin))
    return tag(
        "tr",
        tag("td", name),
        *(tag("td", shown, class_="number") for shown in numbers),
        *(_cell(check, control) for control in result.controls),
    )


def _cell(check: Check, control: Control) -> Markup:
    """What became of a check in a control; set in bold where the control must reject it."""
    found = next((one for one in control.outcome.checks if one.name == check.name), None)
    if found is None:
        return tag("td", "–", class_="number")
    words = {"holds": "holds", "violated": "rejected", "inconclusive": "inconclusive"}[found.verdict]
    required = control.name in check.rejected_by and not check.context
    if required and found.verdict != "violated":
        words = f"{words}, should be rejected"
    said = tag("b", words) if required else tag("span", words, class_="label")
    return tag("td", f"{number(found.value)} ", said, class_="number")


def _figure(result: Result, svg: bytes) -> Markup:
    data = result.run.figure
    if data is None:
        return Markup()
    links = (tag("a", kind.upper(), href=f"figures/{result.claim}.{kind}", download="") for kind in ("svg", "pdf"))
    return tag(
        "figure",
        # an image can neither run nor fetch anything, whatever its SVG holds
        tag("img", src=f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}", alt=data.in_words()),
        tag("figcaption", join(prose(data.caption), " "), tag("span", join(*links, by=" "), class_="export")),
    )


def _open(claim: Shown) -> Markup:
    if not claim.note.open:
        return Markup()
    return tag("p", tag("span", "What remains open ", class_="label"), prose(claim.note.open), class_="open")


def _links(view: View, claim: Shown) -> Markup:
    parts: list[Markup] = []
    for words, others in (("Builds on", view.builds_on(claim)), ("Used by", view.used_by[claim.name])):
        if others:
            links = (tag("a", prose(other.note.title), href=other.place) for other in others)
            parts.append(tag("p", tag("span", f"{words} ", class_="label"), join(*links, by=" · ")))
    return tag("div", *parts, class_="links") if parts else Markup()


def _footer(result: Result) -> Markup:
    files = [("JSON", f"results/{result.claim}.json"), ("CSV of checks", f"tables/{result.claim}-checks.csv")]
    if result.run.figure is not None:
        files.append(("CSV of the figure", f"tables/{result.claim}-figure.csv"))
    links = join(*(tag("a", words, href=place, download="") for words, place in files), by=" · ")
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    facts = one_line(" · ".join(fact for fact in (versions, f"fingerprint {result.fingerprint}") if fact))
    return tag(
        "details",
        tag("summary", "Run it again, and its data"),
        tag("div", tag("code", one_line(result.command)), class_="command"),
        tag("p", links),
        tag("p", facts, class_="facts"),
    )
