"""Rule: `docs/imports.md` and its picture show the imports that the code has, and these have no circle.

`python tools/import_map.py --write` makes both again. A row of the picture is a line of `ORDER` in
`import_direction.py`; an arrow that follows from others is left out of the picture, and is in the table.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from _rules import Violation, homes, main, parse, python_files
from import_direction import LEVEL, ORDER, PACKAGE, folder_of, imported

PAGE, PICTURE = Path("docs") / "imports.md", Path("docs") / "figures" / "imports.svg"
HEAD = """\
# Import map

Which part of the package uses which. Imports point down only: a part may use what stands below it and nothing beside or
above it, so that each can be read, tested and replaced without those above. The picture and the table are made from the
code by `python tools/import_map.py --write`, and `make check` compares them with it. Arrows that follow from others are
left out.

![The parts of the package in rows, errors below and the command line above; arrows point down.](figures/imports.svg)

| part | what it is | uses |
|---|---|---|
"""
ROW, BOX, HEIGHT = 76, 112, 30
SLOTS, SLOT = 21, 42
FONT = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13"'

Graph = Mapping[str, set[str]]


def rule(root: Path) -> Iterator[Violation]:
    uses = graph(root)
    if loop := circle(uses):
        where = root / "src" / PACKAGE / loop[0]
        yield Violation(where, 1, f"imports go in a circle, {' → '.join(loop)}", "move the shared part down")
        return
    for path, text in ((PAGE, page(root, uses)), (PICTURE, picture(uses))):
        file = root / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            yield Violation(file, 1, "the map is not that of the code", "run python tools/import_map.py --write")


def graph(root: Path) -> Graph:
    """Part of the package -> the parts that its files import, inside functions too."""
    package = root / "src" / PACKAGE
    public = {name: home.split(".")[0] for name, (home, _) in homes(package).items()}
    uses: dict[str, set[str]] = {}
    for path in python_files(package, "."):
        parts = path.relative_to(package).with_suffix("").parts
        if parts in (("__init__",), ("__main__",)):
            continue
        found = {folder_of(module, public) for module, _ in imported(parse(path), [PACKAGE, *parts[:-1]])}
        uses.setdefault(parts[0], set()).update(part for part in found if part is not None)
    return {part: {other for other in others if other in uses and other != part} for part, others in uses.items()}


def circle(uses: Graph) -> list[str]:
    """A chain of imports that ends where it began; empty if there is none."""
    done: set[str] = set()

    def walk(part: str, above: list[str]) -> list[str]:
        if part in above:
            return [*above[above.index(part) :], part]
        if part in done:
            return []
        found = next((loop for other in sorted(uses[part]) if (loop := walk(other, [*above, part]))), [])
        done.add(part)
        return found

    return next((loop for part in sorted(uses) if (loop := walk(part, []))), [])


def page(root: Path, uses: Graph) -> str:
    rows = []
    for part in sorted(uses, key=lambda part: (-LEVEL.get(part, -1), part)):
        file = root / "src" / PACKAGE / f"{part}.py"
        source = file if file.exists() else file.with_suffix("") / "__init__.py"
        about = (ast.get_docstring(parse(source)) or "") if source.exists() else ""
        others = sorted(uses[part], key=lambda other: (-LEVEL.get(other, -1), other))
        said = about.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `{part}` | {said} | {', '.join(others) or '–'} |\n")
    return HEAD + "".join(rows)


def picture(uses: Graph) -> str:
    """The map as SVG, with arrows that do not follow from others. Plain text, so that it can be compared."""
    rows = [row for line in reversed(ORDER) if (row := [part for part in line if part in uses])]
    arrows = [(part, other) for part in sorted(uses) for other in sorted(direct(uses, part))]
    level = {part: number for number, row in enumerate(rows) for part in row}
    arrows = [(part, other) for part, other in arrows if part in level and other in level]
    column = columns(rows, arrows)
    first = min(column.values(), default=0)
    place = {part: (SLOT * (column[part] - first + 2), 30 + ROW * level[part]) for part in column}
    width = max((x for x, _ in place.values()), default=0) + 2 * SLOT
    height = 60 + ROW * (len(rows) - 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Imports between the parts of the package</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555555"/></marker>',
    ]
    for part, other in arrows:
        (x, y), (u, v) = place[part], place[other]
        ends = f'x1="{x}" y1="{y + HEIGHT // 2}" x2="{u}" y2="{v - HEIGHT // 2}"'
        lines.append(f'<line {ends} stroke="#555555" stroke-width="1.2" marker-end="url(#tip)"/>')
    for part, (x, y) in place.items():
        lines.append(
            f'<rect x="{x - BOX // 2}" y="{y - HEIGHT // 2}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#e8f1f8" '
            f'stroke="#0072B2"/><text x="{x}" y="{y + 5}" text-anchor="middle" {FONT}>{part}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def columns(rows: list[list[str]], arrows: list[tuple[str, str]]) -> dict[str, int]:
    """A column for each part such that few arrows run through boxes, and they are short: moved while that helps."""
    level = {part: number for number, row in enumerate(rows) for part in row}
    column = {part: round(SLOTS * (i + 0.5) / len(row)) for row in rows for i, part in enumerate(row)}

    def cost() -> float:
        total = 0.0
        for part, other in arrows:
            start, end = level[part], level[other]
            slope = (column[other] - column[part]) / (end - start)
            total += abs(slope) * 0.3 + abs(column[other] - column[part]) * 0.1
            for between in range(start + 1, end):
                at = column[part] + slope * (between - start)
                total += sum(10 for box in rows[between] if abs(column[box] - at) < 1.9)
        return total

    best, before = cost(), float("inf")
    while best < before:
        before = best
        for row in rows:
            for part in row:
                kept = column[part]
                taken = [column[other] for other in row if other != part]
                for slot in range(SLOTS):
                    if all(abs(slot - other) >= 3 for other in taken):
                        column[part] = slot
                        if (now := cost()) < best - 1e-9:
                            best, kept = now, slot
                column[part] = kept
    return column


def direct(uses: Graph, part: str) -> set[str]:
    """The imports of a part that no other of its imports makes as well, on some way down."""
    return {other for other in uses[part] if not any(other in below(uses, third) for third in uses[part] - {other})}


def below(uses: Graph, part: str) -> set[str]:
    found: set[str] = set()
    waiting = [part]
    while waiting:
        new = uses[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


if __name__ == "__main__":
    if "--write" in sys.argv:
        root = Path(__file__).parent.parent
        uses = graph(root)
        (root / PICTURE).parent.mkdir(exist_ok=True)
        (root / PAGE).write_text(page(root, uses), encoding="utf-8")
        (root / PICTURE).write_text(picture(uses), encoding="utf-8")
    else:
        main(rule)
