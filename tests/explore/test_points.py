"""The widget's values: what fits gets in, what does not is refused, whoever sends it, and the old value stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from measureformer.errors import DtypeError, MeasureformerError, NotFiniteError, OffSphereError, OptionError, ShapeError
from measureformer.explore.points import MOST, DraggablePoints, curve, ring

PLANE = [[0.0, 0.5], [-0.5, 0.25]]
BAD: dict[str, tuple[dict[str, Any], type[MeasureformerError]]] = {
    "a string": ({"points": "points"}, ShapeError),
    "an entry that is a string": ({"points": [[0.0, "1"]]}, DtypeError),
    "a boolean": ({"points": [[True, 0.0]]}, DtypeError),
    "ragged rows": ({"points": [[0.0, 1.0], [0.0]]}, ShapeError),
    "not a number": ({"points": [[0.0, float("nan")]]}, NotFiniteError),
    "infinity": ({"points": [[0.0, float("inf")]]}, NotFiniteError),
    "three coordinates in the plane": ({"points": [[0.0, 0.0, 1.0]]}, ShapeError),
    "too few": ({"points": []}, ShapeError),
    "too many": ({"points": [[0.0, 0.0]] * (MOST + 1)}, ShapeError),
    "an unknown view": ({"view": "torus"}, OptionError),
    "a window inside out": ({"box": [1.0, 0.0, 0.0, 1.0]}, OptionError),
    "a colour that is not there": ({"groups": [9]}, OptionError),
    "no colours": ({"groups": []}, OptionError),
    "a curve of one's own": ({"curves": [{"points": [[0, 0]]}]}, OptionError),
    "a curve in space": ({"curves": [curve([[0, 0]]) | {"points": [[0.0, 0.0, 0.0]]}]}, ShapeError),
    "a curve of no width": ({"curves": [curve([[0, 0]]) | {"width": "1"}]}, DtypeError),
    "too many words": ({"curves": [curve([[0, 0]], style="dots", words=["a", "b"])]}, ShapeError),
    "a word that is none": ({"curves": [curve([[0, 0]], style="dots") | {"words": [1]}]}, DtypeError),
    "a negative limit": ({"most": -1}, OptionError),
    "a limit that is no number": ({"least": "1"}, OptionError),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_from_the_browser_are_refused_and_change_nothing(case: str) -> None:
    state, error = BAD[case]
    widget = DraggablePoints(PLANE)
    before = widget.get_state()
    with pytest.raises(error):
        widget.set_state(state)  # what a message of the browser does
    after = widget.get_state()
    assert {name: after[name] for name in state} == {name: before[name] for name in state}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_from_python_are_refused(case: str) -> None:
    ((name, value),), error = BAD[case][0].items(), BAD[case][1]
    with pytest.raises(error):
        setattr(DraggablePoints(PLANE), name, value)


def test_good_values_get_in() -> None:
    widget = DraggablePoints(np.array(PLANE), groups=[0, 1], most=5)
    widget.set_state({"points": [[0.1, 0.2], [5.0, -5.0], [0, 1]]})
    assert widget.points == [[0.1, 0.2], [1.0, -1.0], [0.0, 1.0]]  # moved into the window
    assert widget.array.shape == (3, 2)


def test_on_the_sphere_points_have_norm_1() -> None:
    widget = DraggablePoints([[0.0, 0.0, 1.0]], view="sphere")
    widget.set_state({"points": [[0.6, 0.0, -0.80001]]})  # rounding is put right
    assert np.linalg.norm(widget.array[0]) == pytest.approx(1, abs=1e-12)
    with pytest.raises(OffSphereError):
        widget.set_state({"points": [[0.6, 0.0, 0.5]]})
    with pytest.raises(ShapeError):
        widget.points = [[1.0, 0.0]]


def test_the_palette_is_that_of_the_atlas_and_stays_so() -> None:
    widget = DraggablePoints(PLANE)
    with pytest.raises(Exception, match="read-only"):
        widget.palette = ("#000000",)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(OptionError, match="colour"):
        DraggablePoints(PLANE, colour="red")


def test_a_ring_is_one_standard_deviation_away() -> None:
    root = np.array([[2.0, 0.0], [1.0, 1.0]])
    points = np.array(ring([1.0, 2.0], root)["points"]) - [1.0, 2.0]
    distance = np.einsum("na,ab,nb->n", points, np.linalg.inv(root @ root.T), points)
    np.testing.assert_allclose(distance, 1, atol=1e-4)
