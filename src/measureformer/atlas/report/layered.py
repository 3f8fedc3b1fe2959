"""Layered drawings of graphs without cycles: what is built upon stands above, arrows go down.

Sugiyama's method, in its simplest form: nodes go to the first row below all that they build on and that has room; long
arrows get a lane in the rows they pass; rows are reordered while arrows cross less; nodes move towards neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

Edge = tuple[str, str]
_LANE = "\0"
"""Begins the names of lanes, which no node has."""
_SWEEPS = 6


@dataclass(frozen=True)
class Box:
    """A node: its left upper corner, and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Drawing:
    """Boxes by name, arrows as the points they pass from above to below, and the size of all."""

    boxes: dict[str, Box]
    routes: dict[Edge, tuple[tuple[float, float], ...]]
    width: float
    height: float


@dataclass(frozen=True)
class Room:
    """How many nodes fit into a row, and the spaces between nodes and between rows."""

    most: int
    gap: float = 18.0
    between: float = 46.0
    lane: float = 14.0


def reduced(edges: Sequence[Edge]) -> list[Edge]:
    """The edges that are not implied by others: a → c goes if there are a → b and b → c."""
    below: dict[str, set[str]] = {}
    for a, b in edges:
        below.setdefault(a, set()).add(b)

    def reaches(a: str, b: str) -> bool:
        seen, waiting = set[str](), [a]
        while waiting:
            for c in below.get(waiting.pop(), ()):
                if c == b:
                    return True
                if c not in seen:
                    seen.add(c)
                    waiting.append(c)
        return False

    return [(a, b) for a, b in dict.fromkeys(edges) if not any(c != b and reaches(c, b) for c in below[a])]


def layered(sizes: Mapping[str, tuple[float, float]], edges: Sequence[Edge], room: Room) -> Drawing:
    """Draw the nodes of `sizes`, (width, height) by name, which stand in an order that all edges follow."""
    layer = _layers(list(sizes), edges, room.most)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in sizes:
        rows[layer[name]].append(name)
    chains: dict[Edge, list[str]] = {}
    for a, b in edges:
        lanes = [f"{_LANE}{a}{_LANE}{b}{_LANE}{i}" for i in range(layer[a] + 1, layer[b])]
        for i, lane in enumerate(lanes, start=layer[a] + 1):
            rows[i].append(lane)
        chains[a, b] = [a, *lanes, b]
    links = [link for chain in chains.values() for link in pairwise(chain)]
    rows = _uncrossed(rows, links)
    widths = {name: sizes[name][0] if name in sizes else room.lane for row in rows for name in row}
    centres = _centres(rows, links, widths, room.gap)
    return _placed(rows, chains, sizes, centres, room)


def _layers(names: list[str], edges: Sequence[Edge], most: int) -> dict[str, int]:
    layer: dict[str, int] = {}
    filled: dict[int, int] = {}
    above: dict[str, list[str]] = {name: [] for name in names}
    for a, b in edges:
        above[b].append(a)
    for name in names:
        at = max((layer[before] + 1 for before in above[name]), default=0)
        while filled.get(at, 0) >= most:
            at += 1
        layer[name] = at
        filled[at] = filled.get(at, 0) + 1
    return layer


def _neighbours(links: Sequence[Edge]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for a, b in links:
        above.setdefault(b, []).append(a)
        below.setdefault(a, []).append(b)
    return above, below


def _crossings(rows: Sequence[Sequence[str]], links: Sequence[Edge]) -> int:
    place = {name: i for row in rows for i, name in enumerate(row)}
    level = {name: i for i, row in enumerate(rows) for name in row}
    pairs = ((l1, l2) for l1, l2 in combinations(links, 2) if level[l1[0]] == level[l2[0]])
    return sum((place[a] - place[c]) * (place[b] - place[d]) < 0 for (a, b), (c, d) in pairs)


def _uncrossed(rows: list[list[str]], links: Sequence[Edge]) -> list[list[str]]:
    """The order of rows with the fewest crossings that sweeps up and down have met."""
    above, below = _neighbours(links)
    best, least = [list(row) for row in rows], _crossings(rows, links)
    now = [list(row) for row in rows]
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else below
        order = range(len(now)) if sweep % 2 == 0 else reversed(range(len(now)))
        for i in order:
            # shares of the row, because rows differ in length
            place = {name: (k + 0.5) / len(row) for row in now for k, name in enumerate(row)}
            now[i].sort(
                key=lambda name, place=place, near=near: _mean([place[n] for n in near.get(name, ())], place[name])
            )
        if (count := _crossings(now, links)) < least:
            best, least = [list(row) for row in now], count
    return best


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _centres(
    rows: Sequence[Sequence[str]], links: Sequence[Edge], widths: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Centres of all nodes: near those of their neighbours, in the order of the row, without overlap."""
    above, below = _neighbours(links)
    total = max((sum(widths[n] for n in row) + gap * (len(row) - 1) for row in rows), default=0.0)
    centre: dict[str, float] = {}
    for row in rows:
        rest = total - sum(widths[n] for n in row)
        x = step = rest / (len(row) + 1)
        for name in row:
            centre[name] = x + widths[name] / 2
            x += widths[name] + step
    for _ in range(_SWEEPS):
        for row in rows:
            wanted = [_mean([centre[n] for n in (*above.get(m, ()), *below.get(m, ()))], centre[m]) for m in row]
            for name, x in zip(row, _apart(row, wanted, widths, (gap, total)), strict=True):
                centre[name] = x
    return centre


def _apart(
    row: Sequence[str], wanted: Sequence[float], widths: Mapping[str, float], frame: tuple[float, float]
) -> list[float]:
    """Positions near the wanted ones: pushed to the right until none overlap, then back to the left into the frame."""
    gap, total = frame
    at: list[float] = []
    edge = 0.0
    for name, x in zip(row, wanted, strict=True):
        at.append(max(x, edge + widths[name] / 2))
        edge = at[-1] + widths[name] / 2 + gap
    edge = total
    for i in reversed(range(len(row))):
        at[i] = min(at[i], edge - widths[row[i]] / 2)
        edge = at[i] - widths[row[i]] / 2 - gap
    return at


def _placed(
    rows: Sequence[Sequence[str]],
    chains: Mapping[Edge, Sequence[str]],
    sizes: Mapping[str, tuple[float, float]],
    centres: Mapping[str, float],
    room: Room,
) -> Drawing:
    tops: list[tuple[float, float]] = []
    y = 0.0
    for row in rows:
        height = max((sizes[name][1] for name in row if name in sizes), default=0.0)
        tops.append((y, y + height))
        y += height + room.between
    boxes: dict[str, Box] = {}
    for (top, _), row in zip(tops, rows, strict=True):
        for name in row:
            if name in sizes:
                width, height = sizes[name]
                boxes[name] = Box(centres[name] - width / 2, top, width, height)
    level = {name: i for i, row in enumerate(rows) for name in row}
    leave, arrive = _ports(chains, boxes, centres)
    routes: dict[Edge, tuple[tuple[float, float], ...]] = {}
    for (a, b), chain in chains.items():
        middle = [(centres[lane], y) for lane in chain[1:-1] for y in tops[level[lane]]]
        start = (leave[a, b], boxes[a].y + boxes[a].height)
        routes[a, b] = (start, *middle, (arrive[a, b], boxes[b].y))
    width = max((box.x + box.width for box in boxes.values()), default=0.0)
    width = max([width, *(x for route in routes.values() for x, _ in route)])
    return Drawing(boxes, routes, width, max(0.0, y - room.between))


def _ports(
    chains: Mapping[Edge, Sequence[str]], boxes: Mapping[str, Box], centres: Mapping[str, float]
) -> tuple[dict[Edge, float], dict[Edge, float]]:
    """Where arrows leave and reach their boxes: side by side, in the order in which they go on."""
    found: tuple[dict[Edge, float], dict[Edge, float]] = ({}, {})
    for end in (0, 1):
        for name, box in boxes.items():
            edges = [edge for edge in chains if edge[end] == name]
            edges.sort(key=lambda edge: centres[chains[edge][1 if end == 0 else -2]])
            for i, edge in enumerate(edges):
                step = min(22.0, 0.7 * box.width / max(1, len(edges)))
                found[end][edge] = box.x + box.width / 2 + (i - (len(edges) - 1) / 2) * step
    return found
