"""Maps: nothing overlaps, arrows go down, and what is implied is not drawn."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from measureformer.atlas.report.layered import Box, Drawing, Room, layered, reduced


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    n = draw(st.integers(0, 9))
    names = [f"n{i}" for i in range(n)]
    pairs = [pair for pair in combinations(names, 2) if draw(st.booleans()) and draw(st.booleans())]
    return {name: (50.0 + 10 * (i % 3), 20.0 + 10 * (i % 2)) for i, name in enumerate(names)}, pairs


def overlap(a: Box, b: Box) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def inside(drawing: Drawing) -> bool:
    boxes = drawing.boxes.values()
    return all(box.x >= -1e-6 and box.x + box.width <= drawing.width + 1e-6 for box in boxes)


@settings(max_examples=60)
@given(graphs(), st.integers(1, 4))
def test_boxes_are_apart_and_arrows_go_down(
    graph: tuple[dict[str, tuple[float, float]], list[tuple[str, str]]], most: int
) -> None:
    sizes, edges = graph
    drawing = layered(sizes, edges, Room(most))
    assert set(drawing.boxes) == set(sizes)
    assert not any(overlap(a, b) for a, b in combinations(drawing.boxes.values(), 2))
    assert inside(drawing)
    for (a, b), route in drawing.routes.items():
        heights = [y for _, y in route]
        assert heights == sorted(heights)
        above, below = drawing.boxes[a], drawing.boxes[b]
        assert above.y + above.height == route[0][1]
        assert below.y == route[-1][1]
        assert above.x < route[0][0] < above.x + above.width
        # along the lanes of rows in between an arrow passes no box
        for (x, y), (_, v) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            lane = Box(x - 1, y, 2, v - y)
            assert not any(overlap(lane, box) for box in drawing.boxes.values())
    rows = [box.y for box in drawing.boxes.values()]
    assert all(rows.count(y) <= most for y in rows)


@settings(max_examples=60)
@given(graphs())
def test_reduction_keeps_what_is_reached(graph: tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]) -> None:
    sizes, edges = graph

    def closure(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
        found = set(pairs)
        for c in sizes:
            found |= {(a, d) for a, b in found for e, d in found if b == c == e}
        return found

    kept = reduced(edges)
    assert closure(kept) == closure(edges)
    # and none of them can go
    assert all(closure([other for other in kept if other != edge]) != closure(edges) for edge in kept)


def test_crossing_is_undone() -> None:
    sizes = dict.fromkeys(("a", "b", "c", "d"), (50.0, 20.0))
    boxes = layered(sizes, [("a", "d"), ("b", "c")], Room(2)).boxes
    assert (boxes["a"].x < boxes["b"].x) == (boxes["d"].x < boxes["c"].x)
