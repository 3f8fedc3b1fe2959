"""The files of a result beside the pages: figure as SVG and PDF, numbers as JSON and CSV.

Drawing is what takes time. A figure that was drawn by the same code from the same numbers is not drawn again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from measureformer.atlas.names import claim_file
from measureformer.atlas.report.tables import checks_csv, figure_csv
from measureformer.atlas.result import Result
from measureformer.figures.draw import draw, settle, to_pdf, to_svg
from measureformer.figures.figure import Figure
from measureformer.parallel.pool import Pool
from measureformer.storage.files import write_atomically

_SOURCES = ("axes.py", "canvas.py", "draw.py", "figure.py", "lettering.py", "roles.py", "style.py")


def export(results: Sequence[Result], out: Path, *, jobs: int = 1) -> dict[str, bytes]:
    """Write all files of all results into `out`; returns the figures as SVG, by claim."""
    found: dict[str, bytes] = {}
    waiting: list[tuple[str, Figure]] = []
    for result in results:
        _write_tables(result, out)
        figure = result.run.figure
        if figure is None:
            continue
        kept = _kept(claim_file(out / "figures", result.claim, "svg"), figure)
        if kept is None:
            waiting.append((result.claim, figure))
        else:
            found[result.claim] = kept
    for i, (svg, pdf) in Pool(jobs).values(_drawn, [figure for _, figure in waiting]):
        place = claim_file(out / "figures", waiting[i][0], "svg")
        # the SVG last: where it is there, the other one is
        write_atomically(place.with_suffix(".pdf"), pdf)
        write_atomically(place, svg)
        found[waiting[i][0]] = svg
    return found


def _write_tables(result: Result, out: Path) -> None:
    _write_changed(claim_file(out / "results", result.claim, "json"), result.to_json().encode())
    tables = out / "tables"
    _write_changed(tables / f"{result.claim}-checks.csv", checks_csv(result).encode())
    if result.run.figure is not None:
        _write_changed(tables / f"{result.claim}-figure.csv", figure_csv(result.run.figure).encode())


def _write_changed(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        write_atomically(path, data)


def _drawn(figure: Figure) -> tuple[bytes, bytes]:
    drawing = settle(draw(figure))
    return to_svg(drawing) + _stamp(figure), to_pdf(drawing)


def _kept(path: Path, figure: Figure) -> bytes | None:
    if not path.is_file() or not path.with_suffix(".pdf").is_file():
        return None
    svg = path.read_bytes()
    return svg if svg.endswith(_stamp(figure)) else None


def _stamp(figure: Figure) -> bytes:
    """A comment at the end of an SVG that says what it was drawn from, and by which code."""
    body = json.dumps([asdict(figure), _code()], sort_keys=True)
    return f"<!-- {hashlib.sha256(body.encode()).hexdigest()} -->\n".encode()


@cache
def _code() -> list[str]:
    sources = (resources.files("measureformer.figures").joinpath(name).read_bytes() for name in _SOURCES)
    return [metadata.version("matplotlib"), *(hashlib.sha256(source).hexdigest() for source in sources)]
