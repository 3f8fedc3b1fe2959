"""Figures of `measureformer incontext evaluate`: errors as in the literature, and what was seen during training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from measureformer.figures.draw import draw, to_svg
from measureformer.figures.figure import Figure, Series
from measureformer.storage.files import write_atomically

WATCHED = {
    "error": "error after most examples",
    "sparsity": "share of keys that attention rests on",
    "norm": "norm of KᵀQ, over its first",
    "lipschitz": "local Lipschitz constant, over its first",
}
"""What is drawn of what was watched; means over heads."""


def draw_errors(curves: Mapping[str, Any], file: Path) -> Path:
    """Errors against the number of examples, with the confidence interval of the first curve."""
    first, *_ = curves.values()
    band = Series(
        "90 % interval", _floats(first.examples), _floats(first.low), "band", _floats(first.high), role="measured"
    )
    lines = [
        Series(name, _floats(curve.examples), _floats(curve.error), role="measured") for name, curve in curves.items()
    ]
    return _drawn(
        "Learning in context", "examples", "error over that of predicting 0", (lines[0], band, *lines[1:]), file
    )


def draw_training(records: Mapping[str, np.ndarray], file: Path) -> Path | None:
    """What was watched against steps; nothing if nothing was."""
    if "step" not in records:
        return None
    lines: list[Series] = []
    for name, label in WATCHED.items():
        if name in records:
            values = records[name].reshape(len(records[name]), -1)
            means = values[:, -1] if name == "error" else values.mean(axis=1)
            means = means / means[0] if label.endswith("first") else means
            lines.append(Series(label, _floats(records["step"]), _floats(means), role="measured"))
    if "class" in records:
        few = (records["class"].reshape(len(records["class"]), -1) >= 3).mean(axis=1)
        lines.append(
            Series(
                "share of heads that look at few keys",
                _floats(records["step"]),
                _floats(few),
                "points",
                role="measured",
            )
        )
    return _drawn("During training", "steps", "", tuple(lines), file.with_stem(f"{file.stem}-training"))


def _drawn(title: str, xlabel: str, ylabel: str, series: tuple[Series, ...], file: Path) -> Path:
    write_atomically(file, to_svg(draw(Figure(title, xlabel, ylabel, series))), do="Choose another file.")
    return file


def _floats(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
