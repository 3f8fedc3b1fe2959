"""Maps of the theory as SVG: all chapters with the verdicts of their claims, and the claims of one chapter."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from measureformer.atlas.report.frame import SIGNS
from measureformer.atlas.report.view import SAID, Page, Shown, View
from measureformer.pages.markup import Markup, tag
from measureformer.pages.words import one_line

Edge = tuple[str, str]
Route = tuple[tuple[float, float], tuple[float, float]]

_PER_LINE = 4
_GAP, _BETWEEN = 18.0, 46.0
_MARK = 21.0
_PER_ROW = 9
_LINE = 16.0


@dataclass(frozen=True)
class Box:
    """A node: its left upper corner, and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Drawing:
    """Boxes by name, arrows from the lower edge of a box to the upper edge of another, and the size of all."""

    boxes: dict[str, Box]
    routes: dict[Edge, Route]
    width: float
    height: float


def stacked(sizes: Mapping[str, tuple[float, float]], edges: Sequence[Edge]) -> Drawing:
    """Boxes in rows of at most four: everything stands below what it builds on.

    `sizes` is (width, height) by name, in an order that all edges follow.
    """
    row: dict[str, int] = {}
    for name in sizes:
        row[name] = max((row[before] + 1 for before, after in edges if after == name), default=0)
        while sum(other == row[name] for other in row.values()) > _PER_LINE:
            row[name] += 1
    lines = [[name for name in sizes if row[name] == i] for i in range(max(row.values(), default=-1) + 1)]
    widths = [sum(sizes[name][0] + _GAP for name in line) - _GAP for line in lines]
    total = max(widths, default=0.0)
    boxes: dict[str, Box] = {}
    y = 0.0
    for line, width in zip(lines, widths, strict=True):
        x = (total - width) / 2
        for name in line:
            boxes[name] = Box(x, y, *sizes[name])
            x += sizes[name][0] + _GAP
        y += max(sizes[name][1] for name in line) + _BETWEEN
    routes = {(a, b): (_bottom(boxes[a]), _top(boxes[b])) for a, b in dict.fromkeys(edges)}
    return Drawing(boxes, routes, total, max(0.0, y - _BETWEEN))


def _bottom(box: Box) -> tuple[float, float]:
    return box.x + box.width / 2, box.y + box.height


def _top(box: Box) -> tuple[float, float]:
    return box.x + box.width / 2, box.y


def overview(view: View) -> Markup:
    """Chapters as boxes with a mark for each claim, and an arrow from a chapter to one that builds on it."""
    names = [page.file for page in view.pages]
    home = {claim.name: page.file for page in view.pages for claim in page.claims}
    found = {
        (home[before.name], page.file)
        for page in view.pages
        for claim in page.claims
        for before in view.builds_on(claim)
    }
    # the order of teaching decides where two chapters use each other
    edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if (a, b) in found]
    sizes = {page.file: (216.0, _height(page)) for page in view.pages}
    drawing = stacked(sizes, edges)
    pages = {page.file: page for page in view.pages}
    boxes = (_chapter_box(pages[name], box) for name, box in drawing.boxes.items())
    count = sum(len(page.claims) for page in view.pages)
    words = f"Map of the theory: {len(names)} chapters with {count} claims; arrows lead to what builds on a chapter."
    return _svg(drawing, words, *boxes)


def chapter_map(view: View, page: Page) -> Markup:
    """The claims of a chapter, those of other chapters that they build on, and the arrows between them."""
    inside = {claim.name for claim in page.claims}
    near: dict[str, Shown] = {}
    for claim in page.claims:
        near |= {before.name: before for before in view.builds_on(claim) if before.name not in inside}
    claims = near | {claim.name: claim for claim in page.claims}
    order = list(claims)
    edges = [(before.name, name) for name in inside for before in view.builds_on(claims[name]) if before.name in claims]
    edges = [
        edge for edge in sorted(edges, key=lambda e: (order.index(e[0]), order.index(e[1]))) if _forward(edge, order)
    ]
    lines = {name: _wrapped(claim.note.title, 24) for name, claim in claims.items()}
    sizes = {name: (204.0, 14 + _LINE * len(lines[name])) for name in order}
    drawing = stacked(sizes, edges)
    boxes = (_claim_box(claims[name], lines[name], box, name in inside) for name, box in drawing.boxes.items())
    words = f"Map of the chapter: {len(inside)} claims, and {len(near)} of other chapters that they build on."
    return _svg(drawing, words, *boxes)


def _forward(edge: Edge, order: Sequence[str]) -> bool:
    return order.index(edge[0]) < order.index(edge[1])


def _svg(drawing: Drawing, words: str, *boxes: Markup) -> Markup:
    margin = 8.0
    frame = f"{-margin:g} {-margin:g} {drawing.width + 2 * margin:.0f} {drawing.height + 2 * margin:.0f}"
    arrows = (tag("path", d=_path(route), class_="arrow") for route in drawing.routes.values())
    heads = (tag("path", d=_head(*route[-1]), class_="tip") for route in drawing.routes.values())
    width = f"{drawing.width + 2 * margin:.0f}"
    # a group, not an image: the links inside are to be reached
    return tag(
        "svg",
        tag("g", *arrows, *heads, aria_hidden="true"),
        *boxes,
        viewBox=frame,
        role="group",
        aria_label=words,
        width=width,
        # narrow windows scroll a large map instead of making it too small to be read
        class_="wide" if drawing.width > 600 else None,
    )


def _path(route: Route) -> str:
    (x, y), (u, v) = route
    middle = (y + v) / 2
    return f"M{x:.1f} {y:.1f}C{x:.1f} {middle:.1f} {u:.1f} {middle:.1f} {u:.1f} {v:.1f}"


def _head(x: float, y: float) -> str:
    return f"M{x - 4:.1f} {y - 7:.1f}L{x:.1f} {y:.1f}L{x + 4:.1f} {y - 7:.1f}Z"


def _height(page: Page) -> float:
    marks = -(-len(page.claims) // _PER_ROW)
    return 20 + _LINE * len(_wrapped(_short(page), 24)) + _LINE + _MARK * marks + 6


def _short(page: Page) -> str:
    """The title up to its colon: the rest is read on the page."""
    return page.chapter.title.partition(":")[0]


def _chapter_box(page: Page, box: Box) -> Markup:
    lines = _wrapped(_short(page), 24)
    failing = len(page.claims) - page.count("holds")
    said = f"{page.count('holds')} of {len(page.claims)} hold"
    top = box.y + 22
    title = [_text(line, box.x + 12, top + i * _LINE, "chapter") for i, line in enumerate(lines)]
    y = top + _LINE * len(lines)
    marks = [
        _mark(claim, box.x + 12 + _MARK * (i % _PER_ROW), y + 10 + _MARK * (i // _PER_ROW))
        for i, claim in enumerate(page.claims)
    ]
    return tag(
        "g",
        _rect(box, f"box{' troubled' if failing else ''}"),
        tag("a", *title, href=page.file),
        _text(said, box.x + 12, y, "count"),
        *marks,
    )


def _mark(claim: Shown, x: float, y: float) -> Markup:
    words = one_line(f"{claim.note.title}: {SAID[claim.kind]}")
    return tag(
        "a",
        tag("title", words),
        tag("rect", x=f"{x:.1f}", y=f"{y:.1f}", width="18", height="18", rx="4", class_=f"mark {claim.css}"),
        _sign(claim, x + 9, y + 13),
        href=claim.place,
        aria_label=words,
    )


def _sign(claim: Shown, x: float, y: float) -> Markup:
    css = f"sign {claim.css}"
    return tag("text", SIGNS[claim.css], x=f"{x:.1f}", y=f"{y:.1f}", class_=css, text_anchor="middle")


def _claim_box(claim: Shown, lines: Sequence[str], box: Box, inside: bool) -> Markup:
    text = [_text(line, box.x + 26, box.y + 19 + i * _LINE, "claim") for i, line in enumerate(lines)]
    sign = _sign(claim, box.x + 14, box.y + 19)
    return tag(
        "a",
        tag("title", one_line(f"{claim.note.title}: {SAID[claim.kind]}")),
        _rect(box, f"box {claim.css}" if inside else "box outside"),
        sign,
        *text,
        href=claim.place,
        aria_label=one_line(f"{claim.note.title}: {SAID[claim.kind]}{'' if inside else ', in another chapter'}"),
    )


def _rect(box: Box, css: str) -> Markup:
    size = {"width": f"{box.width:.1f}", "height": f"{box.height:.1f}"}
    return tag("rect", x=f"{box.x:.1f}", y=f"{box.y:.1f}", rx="6", class_=css, **size)


def _text(words: str, x: float, y: float, css: str) -> Markup:
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", class_=css)


def _wrapped(words: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(words), width, max_lines=3, placeholder=" …") or [" "]
