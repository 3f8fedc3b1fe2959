"""The page: everything is on it, and nothing in a result can act."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from measureformer.errors import ResultFormatError
from measureformer.report import write_report
from measureformer.report.html import page
from measureformer.report.markup import join, tag
from measureformer.result import Check, Figure, Outcome, Result, Series
from planting import a_result

Change = Callable[[Result, str], Result]


def _in_run(change: Callable[[Outcome, str], Outcome]) -> Change:
    return lambda result, text: replace(result, run=change(result.run, text))


def _in_figure(change: Callable[[Figure, str], Figure]) -> Change:
    return _in_run(lambda run, text: replace(run, figure=change(run.figure, text)))  # type: ignore[arg-type]


def _named(name: str) -> Change:
    return lambda result, text: replace(result, **{name: text})


FIELDS: dict[str, Change] = {
    name: _named(name)
    for name in (
        *("chapter", "chapter_title", "title", "statement", "reference", "citation", "control_statement", "preset"),
        *("fingerprint", "command"),
    )
}
FIELDS |= {
    "hypotheses": lambda result, text: replace(result, hypotheses=(text, text)),
    "config key": lambda result, text: replace(result, config={text: 1}),
    "config value": lambda result, text: replace(result, config={"size": text}),
    "versions key": lambda result, text: replace(result, versions={text: "1"}),
    "versions value": lambda result, text: replace(result, versions={"measureformer": text}),
    "check": _in_run(lambda run, text: replace(run, checks=(Check(text, 0.0, high=1.0),))),
    "control's check": lambda result, text: replace(result, control=Outcome((Check(text, 2.0, high=1.0),))),
    "figure title": _in_figure(lambda figure, text: replace(figure, title=text)),
    "figure xlabel": _in_figure(lambda figure, text: replace(figure, xlabel=text)),
    "figure ylabel": _in_figure(lambda figure, text: replace(figure, ylabel=text)),
    "figure caption": _in_figure(lambda figure, text: replace(figure, caption=text)),
    "figure xticks": _in_figure(lambda figure, text: replace(figure, xticks=(text,))),
    "series label": _in_figure(
        lambda figure, text: replace(figure, series=(Series(text, (1.0,), (1.0,)), *figure.series[1:]))
    ),
}
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "end of style": "</style></head><script src=x>",
    "attribute": '" onerror="alert(1)" src=\'x\' onload=alert(1) x=`',
    "image": "<img src=http://example.invalid/x onerror=alert(1)>",
    "style": "<style>@import url(http://example.invalid/x)</style>",
    "tex": r"$\frac{1}{",
    "controls": "a\x00b\x08c\x1b[31md\u202e",
    "entity": "&lt;script&gt; &#60;",
    "comment": "--><script>alert(1)</script><!--",
    "data": "<a href='javascript:alert(1)'>x</a>",
}


class Reader(HTMLParser):
    """What a browser would make of the page: elements with attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def source_of(*results: Result, missing: dict[str, str] | None = None) -> str:
    """The page with an empty drawing for each figure: drawing is slow, and tested by itself."""
    figures = {result.claim: b"<svg/>" for result in results if result.run.figure}
    return page(results, figures=figures, stored=set(figures), missing=missing or {})


def page_of(*results: Result, missing: dict[str, str] | None = None) -> Reader:
    return Reader(source_of(*results, missing=missing))


ELEMENTS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "ul", "li", "b", "nav"}
ELEMENTS |= {"table", "thead", "tbody", "tr", "th", "td", "a", "span", "main", "article", "div", "figure", "img"}
ELEMENTS |= {"figcaption", "code", "section"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt", "scope"}
ATTRIBUTES |= {"colspan", "aria-label"}
# drawn into the figure, or the order of cards only
SHOWN = [name for name in FIELDS if name not in ("reference", "chapter", "figure xticks")]


def assert_harmless(found: Reader) -> None:
    for name, attributes in found.elements:
        assert name in ELEMENTS
        assert set(attributes) <= ATTRIBUTES
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        if "href" in attributes:
            assert re.fullmatch(r"(#|figures/|results/)[a-z0-9.-]+", attributes["href"])
    assert len(found.all("style")) == 1
    assert len(found.all("h1")) == 1


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("field", FIELDS)
def test_hostile_strings_stay_text_in_every_field(field: str, text: str) -> None:
    source = source_of(FIELDS[field](a_result(), text))
    assert_harmless(Reader(source))
    assert "<script" not in source.lower()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", source)


@pytest.mark.parametrize("field", SHOWN)
def test_every_field_is_on_the_page_as_it_was_written(field: str) -> None:
    # kills: a field that is left out, and one that is escaped twice
    text = "a < b & \"c\" 'd' <i>"
    found = page_of(FIELDS[field](a_result(), text))
    assert text in found.text + " ".join(image["alt"] for image in found.all("img"))


def test_missing_claims_are_named_and_escaped() -> None:
    found = page_of(a_result(), missing={"castin-2025-lost": "<script>alert(1)</script>"})
    assert_harmless(found)
    assert "castin-2025-lost" in found.text
    assert "<script>alert(1)</script>" in found.text
    assert "1without a result" in found.text


def test_page_fetches_and_runs_nothing(tmp_path: Path) -> None:
    source = write_report([a_result()], tmp_path).read_text(encoding="utf-8")
    found = Reader(source)
    assert "http:" not in source
    assert "https:" not in source
    assert "@import" not in source
    assert "url(" not in source
    assert_harmless(found)
    (policy,) = [meta["content"] for meta in found.all("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in policy


def test_policy_seals_the_style_that_is_there() -> None:
    source = source_of(a_result())
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
    assert style
    seal = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"sha256-{seal}" in Reader(source).all("meta")[1]["content"]


def test_cards_are_grouped_by_chapter_and_listed() -> None:
    results = [
        a_result("furuya-2024-b", chapter="second", chapter_title="Second chapter", title="Bee"),
        a_result("castin-2025-a", chapter="first", chapter_title="First chapter", title="Ay"),
        a_result("castin-2025-c", chapter="second", chapter_title="Second chapter", title="Cee"),
    ]
    found = page_of(*results)
    assert [card["id"] for card in found.all("article")] == ["castin-2025-a", "castin-2025-c", "furuya-2024-b"]
    assert [h["id"] for h in found.all("h2")] == ["chapter-0", "chapter-1"]
    links = [a["href"] for a in found.all("a") if a["href"].startswith("#")]
    assert links == ["#chapter-0", "#castin-2025-a", "#chapter-1", "#castin-2025-c", "#furuya-2024-b"]


def test_summary_counts_every_status() -> None:
    good, bad = Outcome((Check("x", 0.0, high=1.0),)), Outcome((Check("x", 2.0, high=1.0),))
    results = [
        a_result("castin-2025-a", run=good, control=bad),
        a_result("castin-2025-b", run=good, control=bad),
        a_result("castin-2025-c", run=bad, control=bad),
        a_result("castin-2025-d", run=good, control=good),
        a_result("castin-2025-e", run=Outcome(()), control=bad),
    ]
    text = page_of(*results).text
    for words in ("2hold", "1violated", "1inconclusive", "1control not rejected"):
        assert words in text


def test_card_says_what_was_measured() -> None:
    text = page_of(a_result()).text
    for words in ("0.25 ± 0.01", "≤ 1", "[−0.55, −0.45]", "The claim holds, margin 0.74", "seed 3", "1.5 s"):
        assert words in text
    for words in ("The control is rejected, margin −1", "x is large", "measureformer check castin-2025-planted"):
        assert words in text


def test_figures_and_results_are_linked_if_they_are_there(tmp_path: Path) -> None:
    bare = a_result("castin-2025-bare", run=Outcome((Check("x", 0.0, high=1.0),)))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "castin-2025-bare.json").write_text(bare.to_json(), encoding="utf-8")
    found = Reader(write_report([a_result(), bare], tmp_path).read_text(encoding="utf-8"))
    links = [a["href"] for a in found.all("a") if not a["href"].startswith("#")]
    assert sorted(links) == [
        "figures/castin-2025-planted.pdf",
        "figures/castin-2025-planted.svg",
        "results/castin-2025-bare.json",
    ]
    assert all((tmp_path / link).is_file() for link in links)
    assert len(found.all("img")) == 1


def test_same_results_give_the_same_page(tmp_path: Path) -> None:
    results = [a_result("castin-2025-a"), a_result("castin-2025-b")]
    first = write_report(results, tmp_path / "one").read_bytes()
    assert write_report(results[::-1], tmp_path / "two").read_bytes() == first


def test_page_without_results_is_written(tmp_path: Path) -> None:
    assert "0hold" in Reader(write_report([], tmp_path).read_text(encoding="utf-8")).text


@pytest.mark.parametrize(
    "name",
    [
        "../escape-2025-x",
        "/etc/castin-2025-x",
        "castin-2025-x/../../y",
        "castin-2025-x\\y",
        "castin-2025-x\x00",
        "castin-2025-x\n",
        "",
        ".",
        "castin-2025-<b>",
        "con",
        "castin-2025-" + "x" * 200,
    ],
)
def test_hostile_names_of_claims_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultFormatError, match="author-year-what"):
        write_report([a_result(), a_result(name)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_results_of_one_claim_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError, match="two results"):
        write_report([a_result(), a_result(seed=4)], tmp_path)


def test_markup_escapes_what_is_not_markup() -> None:
    inner = tag("b", "1 < 2")
    assert tag("p", inner, " & ", title_='"') == '<p title="&quot;"><b>1 &lt; 2</b> &amp; </p>'
    assert join("<", inner, by=", ") == "&lt;, <b>1 &lt; 2</b>"
    assert tag("img", alt="x") == '<img alt="x">'
    # a string that was put together from markup is a plain string again
    assert tag("p", inner + "!") == "<p>&lt;b&gt;1 &amp;lt; 2&lt;/b&gt;!</p>"
