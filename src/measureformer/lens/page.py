"""A page about a model: figures, and a table with a row for each layer."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measureformer.figures.draw import draw, to_svg
from measureformer.figures.figure import Figure
from measureformer.figures.panels import draw_panels
from measureformer.pages.frame import head
from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import number, one_line
from measureformer.storage.files import write_atomically


@dataclass(frozen=True)
class Part:
    """A table of the page: its title, a heading for each column, and rows of numbers that are counted from 1."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[float]]


def write_lens_report(
    out: Path,
    *,
    title: str,
    facts: Sequence[str],
    figures: Mapping[str, Figure],
    panels: Collection[str],
    parts: Sequence[Part],
) -> Path:
    """Write `out/index.html`, which holds everything, and `out/figures/NAME.svg`; return the path of the page.

    Figures named in `panels` are drawn as small multiples.
    """
    drawn = {name: to_svg(draw_panels(figure) if name in panels else draw(figure)) for name, figure in figures.items()}
    for name, svg in drawn.items():
        write_atomically(out / "figures" / f"{name}.svg", svg)
    body = tag(
        "body",
        tag("header", tag("h1", one_line(title)), *(tag("p", one_line(fact), class_="lead") for fact in facts)),
        tag("main", *(_figure(name, figures[name], svg) for name, svg in drawn.items()), *map(_table, parts)),
    )
    page = f'<!DOCTYPE html>\n<html lang="en">\n{head(f"{title} · measureformer")}\n{body}\n</html>\n'
    write_atomically(out / "index.html", page.encode())
    return out / "index.html"


def _figure(name: str, figure: Figure, svg: bytes) -> Markup:
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return tag(
        "article",
        # the figure says it to those who see it
        tag("h3", one_line(figure.title), class_="unseen"),
        tag(
            "figure",
            tag("img", src=source, alt=figure.in_words()),
            tag("figcaption", f"{one_line(figure.caption)} ", tag("a", "SVG", href=f"figures/{name}.svg")),
        ),
        id=name,
    )


def _table(part: Part) -> Markup:
    heads = (tag("th", one_line(word), scope="col") for word in ("layer", *part.headings))
    rows = (
        tag("tr", tag("td", str(i)), *(tag("td", _cell(value), class_="number") for value in row))
        for i, row in enumerate(part.rows, start=1)
    )
    body = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return join(tag("h2", one_line(part.title)), tag("div", body, class_="scroll"))


def _cell(value: float) -> str:
    return "–" if value != value else number(value)
