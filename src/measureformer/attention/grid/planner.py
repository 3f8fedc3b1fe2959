"""Planning: coordinates, boxes, and the arrays of a `GridPlan`, in NumPy on the host."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from measureformer.attention.grid.build import Box, certificate_of, make_boxes, make_direct, make_group
from measureformer.attention.grid.causal import BLOCK, FOLD, make_prefixes
from measureformer.attention.grid.certificate import UNIT, Scales, argument
from measureformer.attention.grid.chebyshev import axis_matrix
from measureformer.attention.grid.costs import Costs
from measureformer.attention.grid.layout import Cut, bounding
from measureformer.attention.grid.plan import DEFAULT_TOL, Cells, Frame, GridPlan
from measureformer.attention.grid.shapes import TRIALS, Demand, cheapest, shaped_by
from measureformer.attention.grid.sums import Group
from measureformer.attention.grid.tree import Found, Keys, merged, search, summary_of_keys
from measureformer.attention.rounding import EXP
from measureformer.attention.windows import ranks, windowed
from measureformer.errors import DimensionMismatchError, OptionError, ToleranceError, TracedError
from measureformer.numerics.arrays import finite, floats, is_traced, on_device, shaped
from measureformer.numerics.buckets import bucket
from measureformer.numerics.types import ArrayLike

MOST_TURNED = 300.0
"""Largest condition number of balanced coordinates: it multiplies the rounding of arguments."""

WORTH = 0.02
"""Seconds below which no time is spent on looking for boxes."""

STEADY = 4.0
"""How much more one box may cost than many, where points are to move: the shapes of many change with every plan."""


class Framed(NamedTuple):
    frame: Frame
    x: np.ndarray
    y: np.ndarray
    log_weights: np.ndarray
    scales: Scales
    fuzz: tuple[np.ndarray, np.ndarray]


def make_plan(
    q: ArrayLike,
    k: ArrayLike,
    log_weights: ArrayLike | None = None,
    *,
    tol: float = DEFAULT_TOL,
    margin: float = 0.0,
    columns: int = 3,
    costs: Costs | None = None,
    times: tuple[ArrayLike, ArrayLike] | None = None,
    window: float | None = None,
) -> GridPlan:
    """`GridPlan.make`: certificates stay below `tol`, or a refusal says how small a tolerance can be."""
    if is_traced(q, k, log_weights):
        raise TracedError(
            got="a plan for traced points (inside jit, grad or vmap)",
            need="concrete points, because cells are made on the host",
            do="Call GridPlan.make outside and pass the plan in.",
        )
    x, y = (np.asarray(shaped(floats(a, name), name, "n d"), np.float64) for a, name in ((q, "q"), (k, "k")))
    lw = np.zeros(len(y)) if log_weights is None else np.asarray(floats(log_weights, "log_weights"), np.float64)
    _check(x, y, tol, margin)
    kept = np.flatnonzero(lw > -np.inf)
    framed = in_frame(x, y if len(kept) == len(y) else y[kept], lw[kept])
    demand = _demand(framed, x, tol, columns, margin, Costs() if costs is None else costs)
    if times is not None or window is not None:
        pair = None if times is None else tuple(np.asarray(floats(t, "times"), np.float64) for t in times)
        return causal_plan(framed, demand, windowed(pair, window), kept, tol)[0]
    return _planned(framed, demand, kept, len(y), *_boxes(framed, demand, tol))


def cheaper_plan(arrays: Any, times: Any, tol: float, costs: Costs) -> GridPlan | None:
    """The plan with which the grid takes less time than streaming, by what things cost here; None if there is none."""
    q, k, v, log_weights = arrays
    pairs = float(len(q)) * len(k)
    streaming = costs.pair * pairs if times is None else costs.masked_pair * _seen_pairs(times, pairs)
    if streaming < WORTH or not 1 <= q.shape[1] <= 3 - (times is not None):
        return None
    kept = np.flatnonzero(log_weights > -np.inf)
    framed = in_frame(q, k if len(kept) == len(k) else k[kept], log_weights[kept])
    demand = _demand(framed, q, tol, 1 + v.shape[1], 0.0, costs)
    try:
        if times is not None:
            plan, seconds = causal_plan(framed, demand, times, kept, tol)
            return plan if seconds < streaming else None
        keys, found = _boxes(framed, demand, tol)
    except (ToleranceError, OptionError):
        return None
    return _planned(framed, demand, kept, len(k), keys, found) if found.seconds < 0.8 * streaming else None


def _seen_pairs(times: Any, pairs: float) -> float:
    """How many pairs streaming looks at behind a mask: half of all, or with a window what is in it, and block edges."""
    if times[0].ndim == 1:
        return pairs / 2
    low, high = ranks(times[0], np.sort(times[1]))
    return float((high - low).sum() + 1024.0 * len(low))


def _planned(framed: Framed, demand: Demand, kept: np.ndarray, n: int, keys: Keys | None, found: Found) -> GridPlan:
    if keys is None:
        return _assembled(framed, found, None, kept if len(kept) < n else None, n, demand)
    # boxes refer to rows in the order of the cells: what is side by side in space is so in memory
    kept, framed = kept[keys.cells.order], _reordered(framed, keys.cells.order, found.queries)
    return _assembled(framed, found, keys, kept, n, demand)


def plan_of_shape(q: Any, k: Any, log_weights: Any, cells: tuple[int, ...], nodes: tuple[int, ...]) -> GridPlan:
    """A plan with one grid of this shape, whatever it is worth; its certificate says what that is."""
    q, k, lw = (np.asarray(a, np.float64) for a in (q, k, log_weights))
    kept = np.flatnonzero(lw > -np.inf)
    framed = in_frame(q, k[kept], lw[kept])
    found = Found(0.0, [Box(None, None, cells, nodes)], np.ones((1, 0), bool), np.arange(len(q)))
    return _assembled(framed, found, None, kept, len(k), Demand(1e-12, 0.0, 3, 0.0, Costs(), framed.fuzz, steady=True))


def _reordered(framed: Framed, keys: np.ndarray, queries: np.ndarray) -> Framed:
    return framed._replace(x=framed.x[:, queries], y=framed.y[:, keys], log_weights=framed.log_weights[keys])


def _check(q: np.ndarray, k: np.ndarray, tol: float, margin: float) -> None:
    if q.shape[1] != k.shape[1]:
        raise DimensionMismatchError(
            got=f"queries in R^{q.shape[1]} and keys in R^{k.shape[1]}", need="one dimension", do="Project both first."
        )
    if not 1 <= q.shape[1] <= 3:
        raise OptionError(
            got=f'method "grid" in dimension {q.shape[1]}',
            need="dimension 1, 2 or 3: a grid grows like a power of the dimension",
            do='Use method="streaming"; in mf.flow leave tol out.',
        )
    finite(q, "q")
    finite(k, "k")
    if not 0 < tol < 1 or not 0 <= margin <= 1:
        raise OptionError(
            got=f"tol = {tol!r}, margin = {margin!r}", need="0 < tol < 1 and 0 ≤ margin ≤ 1", do="Try tol=1e-6."
        )


def in_frame(q: np.ndarray, k: np.ndarray, log_weights: np.ndarray) -> Framed:
    """Centred, and balanced if that makes the grid smaller; points in columns."""
    columns = [np.ascontiguousarray(points.T) for points in (q, k)]
    centres = [bounding(points)[0] for points in columns]
    x, y = (points - centre[:, None] for points, centre in zip(columns, centres, strict=True))
    sizes = [np.abs(points).max(1) for points in (x, y)]
    tilted = log_weights + (centres[0] @ y if centres[0].any() else 0.0)
    turn = inverse = np.eye(len(x))
    residual = 0.0
    balanced = _balanced(x, y) if len(x) > 1 else None
    if balanced is not None:
        turn, inverse = balanced
        exact = turn.T.astype(np.longdouble) @ inverse.astype(np.longdouble) - np.eye(len(x))
        # four times: points may move within a margin
        residual = 4 * float(sizes[0] @ (np.abs(exact) + 1e-18) @ sizes[1])
        x, y = turn @ x, inverse @ y
    scales = Scales(
        float(np.abs(log_weights).max()),
        float(np.abs(centres[0]) @ sizes[1]),
        float(np.abs(tilted).max()),
        float((np.abs(turn) @ sizes[0]) @ (np.abs(inverse) @ sizes[1])),
    )
    fuzz = tuple(2.0**-49 * (np.abs(by) @ size) for by, size in zip((turn, inverse), sizes, strict=True))
    return Framed(Frame(*map(on_device, (*centres, turn, inverse, np.array(residual)))), x, y, tilted, scales, fuzz)


def _balanced(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """S and S^{-T} such that S Cov(x) Sᵀ = S^{-T} Cov(y) S^{-1} is diagonal; None if they do not help."""
    sample = [points[:, :: max(1, points.shape[1] // 2000)] for points in (x, y)]
    if min(points.shape[1] for points in sample) < 8:
        return None
    dim = len(x)
    covariances = [np.cov(points) + 1e-13 * np.cov(points).trace() * np.eye(dim) for points in sample]
    try:
        left, right = (np.linalg.cholesky(c) for c in covariances)
        u, s, _ = np.linalg.svd(left.T @ right)
        turn = np.sqrt(np.maximum(s, 1e-300))[:, None] * (u.T @ np.linalg.inv(left))
        inverse = np.linalg.inv(turn).T
    except np.linalg.LinAlgError:
        return None
    if not (np.isfinite(turn).all() and np.isfinite(inverse).all()) or np.linalg.cond(turn) > MOST_TURNED:
        return None

    def extent(one: np.ndarray, other: np.ndarray) -> float:
        return float(np.prod(np.ptp(one, 1) * np.ptp(other, 1) / 4 + 0.2))

    better = extent(turn @ sample[0], inverse @ sample[1]) < 0.8 * extent(*sample)
    return (turn, inverse) if better else None


def _demand(framed: Framed, q: np.ndarray, tol: float, columns: int, margin: float, costs: Costs) -> Demand:
    """What is left of tol after the rounding of log Z itself."""
    scales = framed.scales
    centre = np.abs(np.asarray(framed.frame.key_centre))
    parts = scales.tilted + scales.turning + float((np.abs(q).max(0) * centre).sum()) + np.log(len(framed.log_weights))
    delta = -np.expm1(-0.97 * (tol - 1.02 * UNIT * (EXP + 10) * parts))
    reach = np.abs(framed.y).max(1)
    # of boxes at the rim, whose tilt is largest
    tilt, residual = np.abs(framed.x).max(1), np.asarray(framed.frame.residual)
    relative = float(argument(np, scales, tilt[None], reach[None], np.array([4.0]), residual)[0])
    if margin > 0 and delta > 2 * relative:
        # in powers of two: numbers of nodes are the same for points that have moved
        delta = relative + 2.0 ** np.floor(np.log2(delta - relative))
    # points that are to move will have other plans, which should not compile other programs
    return Demand(float(delta), relative, columns, margin, costs, framed.fuzz, steady=margin > 0)


def _boxes(framed: Framed, demand: Demand, tol: float) -> tuple[Keys | None, Found]:
    """One box if that is cheap, else the cheapest cut of the tree with its cells of keys."""
    (_, r), (_, s) = bounding(framed.x), bounding(framed.y)
    m, n = framed.x.shape[1], framed.y.shape[1]
    one = cheapest(_widened(r, s, demand)[None], s[None], np.array([m]), np.array([n]), demand)
    direct = demand.costs.pair * m * n
    if demand.delta <= demand.argument:
        raise _impossible(demand, tol)
    shape = (tuple(map(int, one.cells[0])), tuple(map(int, one.nodes[0])))
    whole = Box(None, None, *shape) if one.seconds[0] <= direct else Box(None, None)
    single = Found(min(one.seconds[0], direct), [whole], np.ones((1, 0), bool), np.arange(m))
    if single.seconds <= WORTH or (np.isfinite(one.seconds[0]) and (r * s).sum() <= 4 * len(r)):
        return None, single
    keys = summary_of_keys(framed.y, framed.log_weights, r * s)
    found = search(framed.x, keys, r * s, demand)
    if single.seconds <= found.seconds * (STEADY if demand.steady else 1.2):
        return None, single
    return keys, found._replace(boxes=merged(found.boxes, demand.costs))


def _widened(r: np.ndarray, s: np.ndarray, demand: Demand) -> np.ndarray:
    """Half-widths r for which products with s are powers of two, if points are to move.

    Then plans that follow each other have one shape, and compile nothing.
    """
    product = r * s
    if not demand.steady or not (product > 0).all():
        return r
    return r * 2.0 ** (np.ceil(np.log2(product)) - np.log2(product))


def _impossible(demand: Demand, tol: float) -> ToleranceError:
    least = tol + demand.argument - demand.delta
    return ToleranceError(
        got=f"tol = {tol:g}",
        need=f"at least {2 * max(least, demand.argument):.1g} for these points, in float64",
        do="Allow a larger tol, centre the points, or scale them down.",
    )


def causal_plan(framed: Framed, demand: Demand, times: Any, kept: np.ndarray, tol: float) -> tuple[GridPlan, float]:
    """One grid for every prefix in time, and how many seconds it will take."""
    dim, m, n = len(framed.x), framed.x.shape[1], framed.y.shape[1]
    if dim > 2:
        raise OptionError(
            got='method "grid" behind a mask in dimension 3',
            need="dimension 1 or 2: the moments of all prefixes would be too many",
            do='Use method="streaming"; in mf.flow leave tol out.',
        )
    halves = tuple(
        np.maximum(np.abs(points).max(1) * (1 + demand.margin) + fuzz, 1e-300)
        for points, fuzz in zip((framed.x, framed.y), framed.fuzz, strict=True)
    )
    best = (np.inf, None, None)
    for trial in TRIALS:
        sizes = _widened(halves[0], halves[1], demand)[None], halves[1][None], np.array([m]), np.array([n])
        shape = shaped_by(trial, None, sizes, demand)
        on_axis = (shape.cells * shape.nodes)[0].astype(float)
        work = 2 * (on_axis**2).sum() + 2 * demand.columns * on_axis.prod()
        if np.isfinite(shape.seconds[0]) and work < best[0]:
            best = work, shape, trial.kind
    if best[1] is None or best[2] is None:
        raise _impossible(demand, tol)
    cells, nodes = (tuple(map(int, counted[0])) for counted in (best[1].cells, best[1].nodes))
    cuts = [Cut(np.zeros(dim), half, cells) for half in halves]
    matrices = [
        axis_matrix(cuts[0].centres(i), cuts[0].cell_half[i], cuts[1].centres(i), cuts[1].cell_half[i], p, best[2])
        for i, p in enumerate(nodes)
    ]
    prefixes = make_prefixes(times, kept, halves, (cells, nodes), matrices)
    blocks = -(-n // BLOCK[dim])
    # two more: segments of a window may begin between folds, and its halves are added
    certified = certificate_of((cuts[0], cuts[1]), nodes, best[2], BLOCK[dim] + 1, FOLD + -(-blocks // FOLD) + 2)
    boxes = make_boxes([certified._replace(tilt=halves[0], r=halves[0])])
    of_query = np.zeros(bucket(m), np.int32)
    place = np.arange(bucket(m), dtype=np.int32)
    plan = GridPlan(framed.frame, boxes, (), None, None, on_device(place), on_device(of_query), prefixes)
    costs = demand.costs
    return plan, len(prefixes) * (m + n) * (
        costs.point + costs.product * best[0] / 2 + costs.masked_pair * BLOCK[dim] / 2
    )


def _assembled(
    framed: Framed, found: Found, keys: Keys | None, kept: np.ndarray | None, n: int, demand: Demand
) -> GridPlan:
    boxes, user = found.boxes, found.queries
    kinds: dict[Any, list[int]] = defaultdict(list)
    for i, box in enumerate(boxes):
        kinds[box.nodes].append(i)
    order, groups, certified, direct = [], [], [], None
    m = framed.x.shape[1]
    place, of_query, offset = np.zeros(bucket(m), np.int32), np.zeros(bucket(m), np.int32), 0
    # direct boxes last
    for kind in sorted(kinds, key=lambda kind: (kind == (), kind)):
        members = sorted(kinds[kind], key=lambda i: boxes[i].cells)
        own, first = [boxes[i] for i in members], len(order)
        order += members
        if kind == ():
            direct, made, rows, owner = make_direct(own, first, framed.x, framed.y, demand)
        else:
            group, made = make_group(own, first, framed.x, framed.y, demand)
            groups.append(_with_rows(group, user, kept))
            rows, owner = np.asarray(group.queries.index), np.asarray(group.queries.box)
        certified += made
        real = np.flatnonzero(rows.ravel() >= 0)
        place[user[rows.ravel()[real]]] = offset + real
        of_query[user[rows.ravel()[real]]] = np.repeat(owner, rows.shape[1])[real]
        offset += rows.size
    place[m:], of_query[m:] = place[0], of_query[0]
    numbers = make_boxes(certified)
    if direct is not None:
        direct = _with_rows(direct, user, kept)
    return GridPlan(
        framed.frame,
        numbers,
        tuple(groups),
        direct,
        None if keys is None else _cells(keys, found.kept[order], len(numbers.b), kept, n, demand),
        on_device(place),
        on_device(of_query),
    )


def _with_rows(part: Any, queries: np.ndarray, keys: np.ndarray | None) -> Any:
    """Planning orders queries and leaves out keys without mass: row numbers are those of the user again."""
    sides = (lambda p: (p.queries.index, p.keys.index)) if isinstance(part, Group) else (lambda p: (p.queries, p.keys))
    made = []
    for index, rows in zip(map(np.asarray, sides(part)), (queries, keys), strict=True):
        mapped = index if rows is None else np.where(index >= 0, rows[np.maximum(index, 0)], -1)
        made.append(on_device(mapped.astype(np.int32)))
    return eqx.tree_at(sides, part, tuple(made))


def _cells(keys: Keys, kept: np.ndarray, boxes: int, rows: Any, n: int, demand: Demand) -> Cells:
    """Cells of keys, padded: cells that hold nothing, boxes like the first, keys without mass."""
    count = len(keys.log_mass)
    size = bucket(count)
    wider = demand.margin * (keys.cells.high - keys.cells.low) / 2 + demand.fuzz[1]
    low, high = (
        np.concatenate([e, np.repeat(e[:1], size - count, 0)])
        for e in (keys.cells.low - wider, keys.cells.high + wider)
    )
    full = np.ones((boxes, size), bool)
    full[: len(kept), :count] = kept
    full[len(kept) :] = full[0]
    # a number beyond all cells: no mass, in no cell
    of_key = np.full(bucket(n), size, np.int32)
    of_key[rows] = np.repeat(np.arange(count), keys.cells.sizes)
    return Cells(on_device(of_key), on_device(low), on_device(high), on_device(full))
