"""Results as tables of numbers: CSV that a spreadsheet opens as numbers and that cannot act as formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from measureformer.atlas.claim import CLAIM
from measureformer.atlas.result import Result
from measureformer.figures.figure import Figure
from measureformer.pages.words import one_line


def checks_csv(result: Result) -> str:
    """A row for each check of the claim and of each control; `rejected_by` names controls, separated by spaces."""
    head = ("variant", "check", "value", "error", "low", "high", "verdict", "margin", "rejected_by", "context")
    outcomes = [(CLAIM, result.run), *((control.name, control.outcome) for control in result.controls)]
    return _written(
        head,
        (
            (
                *(variant, check.name, check.value, check.error, check.low, check.high, check.verdict, check.margin),
                *(" ".join(check.rejected_by), "yes" if check.context else "no"),
            )
            for variant, outcome in outcomes
            for check in outcome.checks
        ),
    )


def figure_csv(figure: Figure) -> str:
    """A row for each point of each series; y2 is the other edge of a band."""
    rows = (
        (series.label, series.role, series.style, x, y, series.y2[i] if series.y2 else "")
        for series in figure.series
        for i, (x, y) in enumerate(zip(series.x, series.y, strict=True))
    )
    return _written(("series", "role", "style", "x", "y", "y2"), rows)


def _written(head: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: str | float) -> str:
    """Numbers in full; texts on one line, with a quotation mark before what a spreadsheet would calculate."""
    if isinstance(value, str):
        text = one_line(value)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return repr(float(value))
