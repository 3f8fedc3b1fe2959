"""The atlas as pages: results in, self-contained HTML, vector figures and tables out.

The pages ask the network for nothing and run no script but one of ours, sealed by its hash. Results may come from
anywhere: every string of theirs is escaped, and file names are made from names of claims that fit a strict pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from measureformer.atlas.atlas import FILE, Atlas, Missing, Survey
from measureformer.atlas.report.bibliography import FILE as BIBTEX
from measureformer.atlas.report.bibliography import bibtex, cited
from measureformer.atlas.report.export import export
from measureformer.atlas.report.frame import HOME
from measureformer.atlas.report.pages import chapter_page, overview_page
from measureformer.atlas.report.view import View
from measureformer.atlas.result import Result
from measureformer.storage.files import write_atomically


def write_report(
    results: Sequence[Result],
    out: Path,
    *,
    missing: Sequence[Missing] = (),
    survey: Survey | None = None,
    jobs: int = 1,
) -> Path:
    """Write an atlas into the folder `out`; return the path of its first page.

    `index.html` and a page for each chapter · `atlas.json`, which holds everything · `references.bib` ·
    `figures/NAME.svg` and `.pdf` · `results/NAME.json` · `tables/NAME-checks.csv` and `-figure.csv`.

    Arguments:
        results: one for each claim that was measured.
        out: folder of the atlas.
        missing: claims without a result, and why; claims of the survey with neither are shown as not run.
        survey: chapters and notes, in the order of teaching.
        jobs: figures that are drawn at the same time.
    """
    # all names are checked before anything is written
    atlas = Atlas.of(results, missing, survey)
    view = View(atlas)
    figures = export(atlas.results, out, jobs=jobs)
    for i, page in enumerate(view.pages):
        write_atomically(out / page.file, chapter_page(view, i, figures).encode())
    keys = (reference.key for reference in cited(atlas.survey.notes))
    write_atomically(out / BIBTEX, bibtex(keys).encode())
    write_atomically(out / FILE, atlas.to_json().encode())
    write_atomically(out / HOME, overview_page(view).encode())
    return out / HOME
