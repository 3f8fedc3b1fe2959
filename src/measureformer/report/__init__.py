"""The atlas as a page: results in, one self-contained HTML file and vector figures out.

The page holds no script and asks the network for nothing. Results may come from anywhere: every string of theirs is
escaped, and file names are made from names of claims that fit a strict pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from measureformer.errors import ResultFormatError
from measureformer.files import claim_file, write_atomically
from measureformer.report.figure import draw, to_pdf, to_svg
from measureformer.report.html import page
from measureformer.report.lens import Part as Part
from measureformer.report.lens import write_lens_report as write_lens_report
from measureformer.result import Result

PAGE = "index.html"


def write_report(results: Sequence[Result], out: Path, *, missing: Mapping[str, str] | None = None) -> Path:
    """Write `out/index.html` and `out/figures/NAME.svg`, `.pdf`; return the path of the page.

    `missing` names claims that have no result and says why, so that the page does not pass over them.
    """
    names = [result.claim for result in results]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ResultFormatError(
            got=f"two results of {twice[0][:60]!r}", need="one result for each claim", do="Remove one of the two."
        )
    # all names are checked before anything is written
    vector = {name: claim_file(out / "figures", name, "svg") for name in names}
    figures: dict[str, bytes] = {}
    for result in results:
        if result.run.figure is None:
            continue
        drawing = draw(result.run.figure)
        figures[result.claim] = to_svg(drawing)
        write_atomically(vector[result.claim], figures[result.claim])
        write_atomically(vector[result.claim].with_suffix(".pdf"), to_pdf(drawing))
    stored = {name for name in names if claim_file(out / "results", name, "json").is_file()}
    text = page(results, figures=figures, stored=stored, missing=missing or {})
    write_atomically(out / PAGE, text.encode())
    return out / PAGE
