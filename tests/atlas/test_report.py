"""The pages: everything is on them whatever its verdict, links resolve, and nothing in a result can act."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from measureformer.atlas.atlas import Atlas, Chapter, Missing, Note, Survey, read_atlas
from measureformer.atlas.references import parse
from measureformer.atlas.report import write_report
from measureformer.atlas.report.pages import chapter_page, overview_page
from measureformer.atlas.report.tables import checks_csv, figure_csv
from measureformer.atlas.report.view import View
from measureformer.atlas.result import Check, Outcome, Result
from measureformer.errors import ResultFormatError
from measureformer.figures.figure import Figure, Series
from measureformer.pages.markup import join, tag
from measureformer.pages.prose import prose
from planting import a_control, a_result

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
        *("chapter", "chapter_title", "title", "statement", "reference", "citation", "preset"),
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
    "control's name": lambda result, text: replace(result, controls=(replace(result.controls[0], name=text),)),
    "control's statement": lambda result, text: replace(
        result, controls=(replace(result.controls[0], statement=text),)
    ),
    "figure title": _in_figure(lambda figure, text: replace(figure, title=text)),
    "figure xlabel": _in_figure(lambda figure, text: replace(figure, xlabel=text)),
    "figure ylabel": _in_figure(lambda figure, text: replace(figure, ylabel=text)),
    "figure caption": _in_figure(lambda figure, text: replace(figure, caption=text)),
    "figure xticks": _in_figure(lambda figure, text: replace(figure, xticks=(text,))),
    "series label": _in_figure(
        lambda figure, text: replace(figure, series=(Series(text, (1.0,), (1.0,), role="measured"), *figure.series[1:]))
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
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def sources_of(atlas: Atlas) -> dict[str, str]:
    """All pages by file name, with an empty drawing for each figure: drawing is slow, and tested by itself."""
    view = View(atlas)
    figures = {result.claim: b"<svg/>" for result in atlas.results if result.run.figure}
    pages = {page.file: chapter_page(view, i, figures) for i, page in enumerate(view.pages)}
    return {"index.html": overview_page(view), **pages}


def pages_of(*results: Result, missing: tuple[Missing, ...] = (), about: Survey | None = None) -> dict[str, Reader]:
    return {name: Reader(text) for name, text in sources_of(Atlas.of(results, missing, about)).items()}


def text_of(pages: dict[str, Reader]) -> str:
    return " ".join(page.text for page in pages.values())


GOOD = Outcome((Check("x", 0.0, high=1.0, rejected_by="false"),))
BAD = Outcome((Check("x", 2.0, high=1.0, rejected_by="false"),))
EVERY_KIND = (
    a_result("castin-2025-a", run=GOOD, controls=a_control(BAD)),
    a_result("castin-2025-b", run=GOOD, controls=a_control(BAD)),
    a_result("castin-2025-c", run=BAD, controls=a_control(BAD)),
    a_result("castin-2025-d", run=GOOD, controls=a_control(GOOD)),
    a_result("castin-2025-e", run=Outcome(()), controls=a_control(BAD)),
)
GAPS = (
    Missing("castin-2025-f", "raised", "ValueError: the matrix is singular"),
    Missing("castin-2025-g", "not finished", "interrupted"),
    Missing("castin-2025-h", "not run", "needs make weights"),
)
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "h3", "p", "ul", "ol", "li", "b"}
ELEMENTS |= {"table", "thead", "tbody", "tr", "th", "td", "a", "span", "main", "article", "div", "figure", "img", "nav"}
ELEMENTS |= {
    "sub",
    "sup",
    "figcaption",
    "code",
    "section",
    "details",
    "summary",
    "label",
    "input",
    "button",
    "script",
}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt", "scope", "for"}
ATTRIBUTES |= {
    "colspan",
    "aria-label",
    "aria-live",
    "aria-hidden",
    "aria-current",
    "role",
    "tabindex",
    "type",
    "hidden",
}
ATTRIBUTES |= {"placeholder", "autocomplete", "download", "title"}
# drawn into the figure, or names of files only
SHOWN = [name for name in FIELDS if name not in ("reference", "chapter", "figure xticks")]
LINK = re.compile(r"(#|figures/|results/|tables/)?[a-z0-9.-]+(#[a-z0-9-]+)?")


def assert_harmless(found: Reader) -> None:
    for name, attributes in found.elements:
        assert name in ELEMENTS
        assert set(attributes) <= ATTRIBUTES
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        if "href" in attributes:
            assert LINK.fullmatch(attributes["href"])
    assert len(found.all("style")) == 1
    assert len(found.all("h1")) == 1
    # the index, which is data, and our script, which the policy names by its hash
    assert [script.get("type") for script in found.all("script")] == ["application/json", None]
    seal = base64.b64encode(hashlib.sha256(found.scripts[1].encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in found.all("meta") if "http-equiv" in meta]
    assert f"script-src 'sha256-{seal}'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("field", FIELDS)
def test_hostile_strings_stay_text_in_every_field(field: str, text: str) -> None:
    for source in sources_of(Atlas.of([FIELDS[field](a_result(), text)])).values():
        assert_harmless(Reader(source))
        assert source.lower().count("<script") == 2
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", source)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_surveys_and_reasons_stay_text(text: str) -> None:
    note = Note("castin-2025-a", text, text, "theorem", text, (text,), text, text, text, ("castin-2025-b", text), text)
    about = Survey((Chapter(text, text, (text,)),), (note,))
    for source in sources_of(Atlas.of([], [Missing("castin-2025-z", "raised", text)], about)).values():
        assert_harmless(Reader(source))


@pytest.mark.parametrize("field", SHOWN)
def test_every_field_is_on_the_pages_as_it_was_written(field: str) -> None:
    # kills: a field that is left out, and one that is escaped twice
    text = "a < b & \"c\" 'd' <i>"
    pages = pages_of(FIELDS[field](a_result(), text))
    images = [image["alt"] for page in pages.values() for image in page.all("img")]
    assert text in text_of(pages) + " ".join(images)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An atlas of every kind of verdict in two chapters, as files, with everything that is linked."""
    first = [replace(result, chapter="first", chapter_title="First") for result in EVERY_KIND]
    second = a_result("furuya-2024-x", chapter="second", chapter_title="Second", title="Ex")
    notes = [
        Note(
            result.claim,
            result.chapter,
            result.title,
            result.kind,
            "All is well.",
            (),
            "castin2025",
            "",
            "In short.",
            before,
            "All.",
        )
        for result, before in [
            (first[0], ()),
            (first[2], (first[0].claim,)),
            (second, (first[0].claim, first[2].claim)),
        ]
    ]
    about = Survey((Chapter("first", "First", ("Begin here.",)), Chapter("second", "Second")), tuple(notes))
    out = tmp_path_factory.mktemp("atlas")
    write_report([*first, second], out, missing=GAPS, survey=about)
    return out


def readers(out: Path) -> dict[str, Reader]:
    return {path.name: Reader(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.html"))}


def test_nothing_is_fetched_from_anywhere(whole: Path) -> None:
    for path in whole.glob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"https?:|@import|url\(", source.replace(Reader(source).scripts[1], ""))
        assert_harmless(Reader(source))


def test_ids_are_unique_and_every_link_leads_somewhere(whole: Path) -> None:
    pages = readers(whole)
    ids = {
        name: [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        for name, page in pages.items()
    }
    for name, page in pages.items():
        assert len(set(ids[name])) == len(ids[name])
        for link in page.all("a"):
            file, _, anchor = link["href"].partition("#")
            assert (whole / (file or name)).is_file(), link
            assert not anchor or anchor in ids[file or name], link


def test_no_claim_is_hidden_whatever_became_of_it(whole: Path) -> None:
    # kills: a page that lists results only, and a search that finds what holds only
    pages = readers(whole)
    cards = {card["id"]: card["class"] for page in pages.values() for card in page.all("article")}
    kinds = ["holds", "holds", "violated", "control-not-rejected", "inconclusive", "raised", "not-finished", "not-run"]
    names = [f"castin-2025-{letter}" for letter in "abcdefgh"]
    assert cards == dict(zip(names, kinds, strict=True)) | {"furuya-2024-x": "holds"}
    assert [row["name"] for row in json.loads(pages["index.html"].scripts[0])] == [
        *names[:1],
        *names[2:3],
        *names[1:2],
        *names[3:5],
        "furuya-2024-x",
        *names[5:],
    ]
    listed = {link["href"] for link in pages["index.html"].all("a")}
    for row in json.loads(pages["index.html"].scripts[0]):
        assert row["place"] in listed
    words = pages["index.html"].text
    assert "the matrix is singular" in words
    for said in (
        "3hold",
        "1violated",
        "1inconclusive",
        "1control not rejected",
        "1raised an error",
        "1not finished",
        "1not run",
    ):
        assert said in words


def test_what_merely_has_no_result_is_not_among_the_failures(whole: Path) -> None:
    # kills: a red box on a healthy run of which some data are not installed
    source = (whole / "index.html").read_text(encoding="utf-8")
    loud, quiet = re.findall(r'<section class="(?:loud|quiet)">.*?</section>', source, re.DOTALL)
    assert set(re.findall(r"#castin-2025-([a-z])", loud)) == set("cdef")
    assert set(re.findall(r"#castin-2025-([a-z])", quiet)) == set("gh")
    # what it needs is its verdict
    cards = "".join(path.read_text(encoding="utf-8") for path in whole.glob("chapter-*.html"))
    assert "○</span> needs make weights</span>" in cards


def test_claims_of_the_survey_that_nobody_ran_are_shown_as_not_run() -> None:
    note = Note("castin-2025-new", "first", "New", "observation", "It is new.", (), "", "")
    pages = pages_of(about=Survey((Chapter("first", "First"),), (note,)))
    assert [card["class"] for card in pages["chapter-first.html"].all("article")] == ["not-run"]
    assert "not asked for" in pages["chapter-first.html"].text


def test_chapters_come_in_the_order_of_the_survey_and_are_introduced(whole: Path) -> None:
    pages = readers(whole)
    files = [
        link["href"]
        for link in pages["index.html"].all("a")
        if link["href"].startswith("chapter-") and "#" not in link["href"]
    ]
    assert list(dict.fromkeys(files)) == ["chapter-first.html", "chapter-second.html", "chapter-other.html"]
    assert "Begin here." in pages["chapter-first.html"].text
    assert "What remains open All." in pages["chapter-first.html"].text


def test_claims_are_linked_both_ways(whole: Path) -> None:
    pages = readers(whole)
    forward = [link["href"] for link in pages["chapter-first.html"].all("a")]
    assert "chapter-second.html#furuya-2024-x" in forward
    assert "chapter-first.html#castin-2025-c" in [link["href"] for link in pages["chapter-second.html"].all("a")]
    assert "Used by" in pages["chapter-first.html"].text
    assert "Builds on" in pages["chapter-second.html"].text


def test_headings_are_in_order_and_images_have_words(whole: Path) -> None:
    for page in readers(whole).values():
        levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
        assert levels[0] == 1
        assert all(b <= a + 1 for a, b in pairwise(levels))
        for image in page.all("img"):
            assert len(image["alt"]) > 20
        assert all(mark["aria-label"] for mark in page.all("a") if "mark" in mark.get("class", ""))
        # what scrolls must be reached by keys; a control without a name is nothing to a reader
        assert all(area.get("tabindex") == "0" for area in page.all("div") if "scroll" in area.get("class", ""))
        assert {label["for"] for label in page.all("label")} == {field["id"] for field in page.all("input")}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_texts_have_enough_contrast_in_light_and_dark() -> None:
    style = (Path(__file__).parents[2] / "src" / "measureformer" / "pages" / "style.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r"\{([^{}]*--page: #[^{}]*)\}", style)
    ]
    themes = [theme for theme in themes if "ink" in theme]
    assert len(themes) == 3
    assert themes[1] == themes[2]
    for theme in themes:
        for front in ("ink", "soft", "holds", "violated", "doubt", "idle", "link"):
            for back in ("page", "card", "wash", "loud"):
                light, dark = sorted((_luminance(theme[front]), _luminance(theme[back])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back, theme[front], theme[back])


def test_policy_seals_the_style_that_is_there() -> None:
    source = sources_of(Atlas.of([a_result()]))["index.html"]
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
    assert style
    seal = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"sha256-{seal}" in Reader(source).all("meta")[1]["content"]


def test_card_says_what_was_measured() -> None:
    text = pages_of(a_result())["chapter-planted-chapter.html"].text
    for words in (
        "0.25 ± 0.01",
        "≤ 1",
        "[−0.55, −0.45]",
        "margin",
        "0.74",
        "seed 3",
        "1.5 s",
        "size = 1",
    ):
        assert words in text
    for words in ("control: large", "2 rejected", "0.5 holds", "x is large", "measureformer check castin-2025-planted"):
        assert words in text


def test_card_shows_the_table_of_checks_and_controls() -> None:
    # kills: a table that hides a control that does not reject, and context that passes for evidence
    result = a_result()
    blind = replace(result.controls[0], outcome=result.run)
    text = pages_of(replace(result, controls=(blind, result.controls[1])))["chapter-planted-chapter.html"].text
    assert "0.25 holds, should be rejected" in text
    checks = (replace(result.run.checks[0], rejected_by=(), context=True), result.run.checks[1])
    text = pages_of(replace(result, run=replace(result.run, checks=checks)))["chapter-planted-chapter.html"].text
    assert "difference (context, no evidence)" in text


def test_maps_have_a_column_for_each_chapter(whole: Path) -> None:
    # kills: a claim without a mark, and a chapter that does not show what it builds on
    pages = readers(whole)
    index = pages["index.html"]
    marks = [link["href"] for link in index.all("a") if "mark" in link.get("class", "")]
    rows = [link["href"] for link in index.all("a") if "#" in link["href"] and "class" not in link]
    assert len(set(marks)) == len(marks) > 1
    assert set(marks) <= set(rows)
    second = [link["href"] for link in pages["chapter-second.html"].all("a") if "mark" in link.get("class", "")]
    assert "chapter-first.html#castin-2025-c" in second


def test_everything_is_exported(whole: Path) -> None:
    name = "furuya-2024-x"
    assert (whole / "figures" / f"{name}.svg").read_bytes().startswith(b"<?xml")
    assert (whole / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    result = Result.from_json((whole / "results" / f"{name}.json").read_text(encoding="utf-8"))
    atlas = read_atlas(whole)
    assert atlas.by_claim[name] == result
    assert {gap.claim: gap.kind for gap in atlas.missing} == {gap.claim: gap.kind for gap in GAPS}
    assert Atlas.from_json(atlas.to_json()) == atlas
    assert list(parse((whole / "references.bib").read_text(encoding="utf-8"))) == ["castin2025"]


def test_tables_hold_all_numbers_and_no_formula() -> None:
    result = FIELDS["series label"](FIELDS["check"](a_result(), "=1+1"), "@SUM(A1)")
    rows = list(csv.DictReader(io.StringIO(checks_csv(result))))
    assert [(row["variant"], row["check"]) for row in rows] == [
        ("claim", "'=1+1"),
        ("large", "difference"),
        ("large", "slope"),
        ("steep", "difference"),
        ("steep", "slope"),
    ]
    assert [float(row["value"]) for row in rows] == [0.0, 2.0, -0.9, 0.5, -1.0]
    assert next(csv.DictReader(io.StringIO(checks_csv(a_result()))))["rejected_by"] == "large"
    assert [float(row["low"]) for row in rows] == [float("-inf"), float("-inf"), -0.55, float("-inf"), -0.55]
    assert result.run.figure
    points = list(csv.DictReader(io.StringIO(figure_csv(result.run.figure))))
    assert points[0]["series"] == "'@SUM(A1)"
    assert [float(point["y2"]) for point in points if point["series"] == "spread"] == [0.4, 0.2, 0.1]
    assert len(points) == sum(len(series.x) for series in result.run.figure.series)


def test_unchanged_figures_are_not_drawn_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = [result for result in read_atlas(whole).results if result.run.figure]
    drawn: list[str] = []
    # the package shows the function of the same name
    module = importlib.import_module("measureformer.atlas.report.export")
    monkeypatch.setattr(module, "_drawn", lambda figure: (drawn.append(figure.title), (b"s", b"p"))[1])
    module.export([result], whole)
    assert drawn == []
    module.export([FIELDS["figure title"](result, "Another")], whole)
    assert drawn == ["Another"]


def test_same_results_give_the_same_pages() -> None:
    results = [a_result("castin-2025-a"), a_result("castin-2025-b")]
    assert sources_of(Atlas.of(results)) == sources_of(Atlas.of(results[::-1]))


def test_pages_without_results_are_written(tmp_path: Path) -> None:
    assert "0hold" in Reader(write_report([], tmp_path).read_text(encoding="utf-8")).text


def test_chapters_with_like_names_get_files_of_their_own() -> None:
    results = [a_result(f"castin-2025-{i}", chapter=name) for i, name in enumerate(("a b", "a-b", "../a b", "", "É"))]
    pages = pages_of(*results)
    assert len(pages) == 6
    assert all(re.fullmatch(r"(index|chapter-[a-z0-9-]+)\.html", name) for name in pages)


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("W_1(μ, ν)", "W<sub>1</sub>(μ, ν)"),
        ("e^{−βΔ_i}", "e<sup>−βΔ<sub>i</sub></sup>"),
        ("N^(n+1)·max", "N<sup>n+1</sup>·max"),
        ("n^½ x_<b>", "n<sup>½</sup> x_&lt;b&gt;"),
        ("_hidden ^ {x} a^", "_hidden ^ {x} a^"),
        ("x^{<script>}", "x<sup>&lt;script&gt;</sup>"),
        ("x^" * 50 + "{" * 50, None),
    ],
)
def test_indices_and_exponents_are_raised_and_nothing_else(text: str, shown: str | None) -> None:
    made = prose(text)
    assert shown is None or made == shown
    assert {name for name, _ in Reader(made).elements} <= {"sub", "sup"}


def test_markup_escapes_what_is_not_markup() -> None:
    inner = tag("b", "1 < 2")
    assert tag("p", inner, " & ", title_='"') == '<p title="&quot;"><b>1 &lt; 2</b> &amp; </p>'
    assert join("<", inner, by=", ") == "&lt;, <b>1 &lt; 2</b>"
    assert tag("img", alt="x") == '<img alt="x">'
    # a string that was put together from markup is a plain string again
    assert tag("p", inner + "!") == "<p>&lt;b&gt;1 &amp;lt; 2&lt;/b&gt;!</p>"


def test_claims_are_grouped_by_kind_and_observations_come_last() -> None:
    # kills: a page on which what was only measured stands among what is proved
    kinds = {"castin-2025-a": "observation", "castin-2025-b": "theorem", "castin-2025-c": "construction"}
    results = [a_result(name, kind=kind) for name, kind in kinds.items()]
    view = View(Atlas.of([*results], [Missing("castin-2025-d", "raised", "no reason")]))
    unknown, page = (chapter_page(view, i, {}) for i in range(2))
    marks = ("<h2>Theorems", 'id="castin-2025-b"', "<h2>Constructions", 'id="castin-2025-c"', "<h2>Observations")
    order = [page.index(mark) for mark in (*marks, 'id="castin-2025-a"')]
    assert order == sorted(order)
    assert unknown.index("<h2>Claims without a stated kind") < unknown.index('id="castin-2025-d"')
    assert "1 observation: </b>measured, and not proved" in overview_page(view)
