"""Figures of `measureformer incontext evaluate`: errors as in the literature, and what was seen during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from measureformer.figures.draw import draw, to_svg
from measureformer.figures.figure import Figure, Series
from measureformer.storage.files import write_atomically

if TYPE_CHECKING:
    from measureformer.incontext.error import Curve

# what is drawn of the records of a training: label, and whether it is relative to the first value; means over heads
WATCHED = {
    "sparsity": ("share of keys that attention rests on", False),
    "norm": ("norm of KᵀQ, over its first", True),
    "lipschitz": ("local Lipschitz constant, over its first", True),
}


def draw_errors(curves: Mapping[str, Curve], file: Path) -> Path:
    """Errors against the number of examples, with the confidence interval of the first curve."""
    first, *_ = curves.values()
    band = Series("90 % interval", first.examples, first.low, "band", first.high, role="measured")
    lines = [Series(name, curve.examples, curve.error, role="measured") for name, curve in curves.items()]
    series = (lines[0], band, *lines[1:])
    return _drawn("Learning in context", "examples", "error over that of predicting 0", series, file)


def draw_training(records: Mapping[str, np.ndarray], file: Path) -> Path | None:
    """What was watched against steps; nothing if nothing was."""
    if "step" not in records:
        return None
    rows = {name: values.reshape(len(values), -1) for name, values in records.items()}
    values: dict[str, np.ndarray] = {}
    if "error" in rows:
        values["error after most examples"] = rows["error"][:, -1]
    for name, (label, relative) in WATCHED.items():
        if name in rows:
            means = rows[name].mean(axis=1)
            values[label] = means / means[0] if relative else means
    if "class" in rows:
        values["share of heads that look at few keys"] = (rows["class"] >= 3).mean(axis=1)
    series = [Series(label, records["step"], one, role="measured") for label, one in values.items()]
    return _drawn("During training", "steps", "", series, file.with_stem(f"{file.stem}-training"))


def _drawn(title: str, xlabel: str, ylabel: str, series: Sequence[Series], file: Path) -> Path:
    figure = Figure(title, xlabel, ylabel, tuple(series))
    write_atomically(file, to_svg(draw(figure)), do="Choose another file.")
    return file
