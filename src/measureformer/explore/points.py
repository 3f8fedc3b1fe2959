"""`DraggablePoints`: points in the plane, on the circle or on the sphere, moved with the mouse or with keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anywidget
import numpy as np
import traitlets

from measureformer.errors import DtypeError, NotFiniteError, OffSphereError, OptionError, ShapeError
from measureformer.figures.roles import INK, PALETTE

View = Literal["plane", "circle", "sphere"]
VIEWS = ("plane", "circle", "sphere")
MOST = 200
"""Points that a widget holds at most."""
_HERE = Path(__file__).parent


class _Checked(traitlets.TraitType[Any, Any]):
    """A trait whose values are looked at when they arrive, from Python or from the browser: others never get in."""

    def __init__(self, check: Any, default: Any) -> None:
        super().__init__(default_value=default)
        self.check = check

    def validate(self, obj: Any, value: Any) -> Any:
        return self.check(obj, value)


class DraggablePoints(anywidget.AnyWidget):
    """Points that people drag: `points` is a list of [x, y], or of [x, y, z] on the sphere.

    `view` is "plane", with the window `box` = (left, right, bottom, top); "circle", whose points stay on the unit
    circle; or "sphere", seen from above as a disk: points behind are hollow, and dragging over the rim leads there.
    Points are added with a double click or the button, and removed with the key Delete, within `least` and `most`; with
    these equal their number is fixed. `only` = "y" lets points move up and down only, `pen` makes the mouse draw points
    on the way. Arrow keys move the point that has the focus.

    `height` is that of the picture in parts of 560, its width; left out, both axes have one scale.

    `groups` are the colours of the points, numbers of the palette of the atlas; the last one serves all others.
    `curves` are drawn below the points: see `curve`. Values that do not fit are refused, whoever sends them.

    >>> from measureformer.explore.points import DraggablePoints
    >>> widget = DraggablePoints([[0.0, 1.0], [2.0, 9.0]], box=(-1, 3, -1, 3))
    >>> widget.array.tolist()                                   # moved into the window
    [[0.0, 1.0], [2.0, 3.0]]
    """

    _esm = _HERE / "points.js"
    _css = _HERE / "points.css"

    view = _Checked(lambda _, value: _view(value), "plane").tag(sync=True)
    box = _Checked(lambda _, value: _box(value), [-1.0, 1.0, -1.0, 1.0]).tag(sync=True)
    least = _Checked(lambda _, value: _count(value, "least"), 1).tag(sync=True)
    most = _Checked(lambda _, value: _count(value, "most"), MOST).tag(sync=True)
    points = _Checked(lambda widget, value: _points(widget, value), []).tag(sync=True)
    groups = _Checked(lambda _, value: _groups(value), [0]).tag(sync=True)
    curves = _Checked(lambda _, value: _curves(value), []).tag(sync=True)
    only = _Checked(lambda _, value: _choice(value, "only", ("xy", "y")), "xy").tag(sync=True)
    pen = traitlets.Bool(False).tag(sync=True)
    height = _Checked(lambda _, value: _count(value, "height"), 0).tag(sync=True)
    title = traitlets.Unicode("points").tag(sync=True)
    xlabel = traitlets.Unicode("").tag(sync=True)
    ylabel = traitlets.Unicode("").tag(sync=True)
    palette = traitlets.Tuple(PALETTE, read_only=True).tag(sync=True)
    ink = traitlets.Tuple(INK, read_only=True).tag(sync=True)

    def __init__(
        self, points: Any, *, view: View = "plane", box: Sequence[float] | None = None, **settings: Any
    ) -> None:
        known = {"least", "most", "groups", "curves", "only", "pen", "height", "title", "xlabel", "ylabel"}
        if unknown := sorted(settings.keys() - known):
            raise OptionError(
                got=f"the setting {unknown[0]}", need=f"one of {', '.join(sorted(known))}", do="Correct it."
            )
        points = points.tolist() if isinstance(points, np.ndarray) else points
        limits = {name: settings.pop(name) for name in ("least", "most") if name in settings}
        # points are checked against the view, the window and the limits, which come first, in the order of this call
        window = {} if box is None or view != "plane" else {"box": list(box)}
        super().__init__(view=view, **window, **limits, points=points, **settings)

    @property
    def array(self) -> np.ndarray:
        """The points as an array (n, 2), or (n, 3) on the sphere."""
        return np.array(self.points, float).reshape(-1, 3 if self.view == "sphere" else 2)


def curve(
    points: Any,
    color: int | Literal["ink"] = 0,
    *,
    style: Literal["line", "dashed", "dots"] = "line",
    width: float = 1.5,
    words: Sequence[str] = (),
) -> dict[str, Any]:
    """A curve to be drawn below the points, through the rows of `points` (m, 2): colour of the palette, or ink.

    `words` are written beside its dots, one for each.

    >>> curve([[0, 0], [1, 1]], "ink", style="dashed")["color"]
    'ink'
    """
    rows = np.asarray(points, float)
    return {"points": rows.round(5).tolist(), "color": color, "style": style, "width": width, "words": list(words)}


def ring(center: Any, root: Any, color: int = 0, *, style: Literal["line", "dashed"] = "line") -> dict[str, Any]:
    """The image of the unit circle under y ↦ center + root·y: where a Gaussian has one standard deviation.

    >>> ring([1.0, 0.0], [[2.0, 0.0], [0.0, 1.0]])["points"][0]
    [3.0, 0.0]
    """
    angle = np.linspace(0, 2 * math.pi, 65)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return curve((np.asarray(center, float)[:, None] + np.asarray(root, float) @ circle).T, color, style=style)


def _view(value: Any) -> str:
    return _choice(value, "view", VIEWS)


def _choice(value: Any, name: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise OptionError(got=f"{name} = {str(value)[:40]!r}", need=f"one of {', '.join(known)}", do="Correct it.")
    return value


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OptionError(got=f"{name} = {str(value)[:40]}", need="a whole number ≥ 0", do=f"Pass {name} as an int.")
    return value


def _rows(value: Any, name: str) -> np.ndarray:
    """A list of rows of plain numbers as an array (n, ·); strings, nested lists and ragged rows are refused."""
    rows = value if isinstance(value, (list, tuple)) else None
    if rows is None or any(not isinstance(row, (list, tuple)) for row in rows) or len({len(row) for row in rows}) > 1:
        raise ShapeError(got=f"{name} {str(value)[:40]}", need="a list of rows of equal length", do="Pass [[x, y], …].")
    if any(isinstance(entry, bool) or not isinstance(entry, (int, float)) for row in rows for entry in row):
        raise DtypeError(got=f"{name} with an entry that is no number", need="numbers", do="Pass [[x, y], …].")
    array = np.array(rows, float)
    if not np.isfinite(array).all():
        raise NotFiniteError(
            got=f"{name} with an infinite or undefined entry", need="finite numbers", do="Take it out."
        )
    return array


def _box(value: Any) -> list[float]:
    (row,) = _rows([list(value)] if isinstance(value, (list, tuple)) else [value], "box").tolist()
    if len(row) != 4 or not (row[0] < row[1] and row[2] < row[3]):
        raise OptionError(got=f"box = {row}", need="(left, right, bottom, top)", do="Left is smaller than right.")
    return row


def _points(widget: DraggablePoints, value: Any) -> list[list[float]]:
    array = _rows(value, "points")
    dim = 3 if widget.view == "sphere" else 2
    if not widget.least <= len(array) <= min(widget.most, MOST):
        raise ShapeError(
            got=f"{len(array)} points",
            need=f"from {widget.least} to {min(widget.most, MOST)} of them",
            do="Change least and most, or the points.",
        )
    if array.size and array.shape[1] != dim:
        raise ShapeError(got=f"points in R^{array.shape[1]}", need=f"points in R^{dim}", do=f"View: {widget.view}.")
    if not array.size:
        return []
    if widget.view == "plane":
        left, right, bottom, top = widget.box
        return np.clip(array, [left, bottom], [right, top]).tolist()
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    # rounding in the browser is put right, a point that is elsewhere is not
    if np.abs(norms - 1).max() > 1e-3:
        worst = int(np.abs(norms - 1).argmax())
        raise OffSphereError(
            got=f"point {worst} with norm {float(norms[worst, 0]):.6g}",
            need="points of norm 1",
            do="Divide by the norm.",
        )
    # what is on the sphere up to the last digits stays as it was sent: another value would be sent back to the browser,
    # which may have gone on meanwhile
    return (array if np.abs(norms - 1).max() < 1e-12 else array / norms).tolist()


def _groups(value: Any) -> list[int]:
    if (
        not isinstance(value, (list, tuple))
        or not value
        or any(
            isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < len(PALETTE) for entry in value
        )
    ):
        raise OptionError(
            got=f"groups = {str(value)[:40]}",
            need=f"numbers from 0 to {len(PALETTE) - 1}, at least one",
            do="Correct it.",
        )
    return list(value)


def _curves(value: Any) -> list[dict[str, Any]]:
    for entry in value if isinstance(value, (list, tuple)) else [None]:
        if not isinstance(entry, dict) or entry.keys() != {"points", "color", "style", "width", "words"}:
            raise OptionError(got=f"the curve {str(entry)[:40]}", need="curves", do="Make them with curve(…).")
        if entry["points"] and _rows(entry["points"], "curve").shape[1] != 2:
            raise ShapeError(got="a curve that is not in the plane", need="rows [x, y]", do="Project it first.")
        _choice(entry["style"], "style", ("line", "dashed", "dots"))
        _rows([[entry["width"]]], "width")
        words = entry["words"]
        if not isinstance(words, list) or len(words) not in (0, len(entry["points"])):
            raise ShapeError(got=f"words {str(words)[:40]}", need="one for each point, or none", do="Pass a list.")
        if not all(isinstance(word, str) for word in words):
            raise DtypeError(got="a word that is no string", need="strings", do="Pass a list of them.")
        if entry["color"] != "ink":
            _groups([entry["color"]])
    return list(value)
