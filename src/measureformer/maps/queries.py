"""Intake of queries and of their times."""

from __future__ import annotations

from typing import Any

import numpy as np

from measureformer.errors import DimensionMismatchError, NothingVisibleError, ShapeError
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import finite, floats, host, namespace
from measureformer.numerics.types import ArrayLike


def refuse_blind(mu: Any, t: Any) -> None:
    """Refuse queries at times before all mass. Times are carried unchanged, so the first layer decides for all."""
    first = namespace(mu).where(host(mu.log_weights) > -np.inf, host(mu.times), np.inf).min()
    blind = host(t) < first
    if blind.any():
        i = int(blind.argmax())
        raise NothingVisibleError(
            got=f"query {i} at time {float(host(t)[i]):g}, before the first mass at {float(first):g}",
            need="an atom with time ≤ the query's",
            do="Ask at a later time, or add an earlier token.",
        )


def queries_of(mu: AbstractMeasure | None, x: ArrayLike, t: ArrayLike | None) -> tuple[Any, Any, bool]:
    """Queries as (m, d), times as (m,) or None, and whether a single point was given.

    Arguments:
        mu: the context, to which the dimension of the queries and the precision of the times must fit.
        x: one query (d,) or several (m, d).
        t: one time, one for each query, or None.
    """
    rows = floats(x, "x")
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ShapeError(
            got=f"queries x of shape {rows.shape}",
            need="(d,) or (m, d), not empty",
            do="Tokens are rows: one query per row.",
        )
    single = rows.ndim == 1
    rows = rows[None] if single else rows
    if isinstance(mu, AbstractMeasure) and rows.shape[1] != mu.dim:
        raise DimensionMismatchError(
            got=f"queries in R^{rows.shape[1]} and a measure on R^{mu.dim}",
            need="one dimension",
            do="Queries and tokens live in the same space; check that tokens are rows.",
        )
    if t is None:
        return rows, None, single
    times, count = floats(t, "t"), rows.shape[0]
    if times.shape not in ((), (count,)):
        raise ShapeError(
            got=f"times of shape {times.shape} for {count} queries",
            need=f"one number or ({count},)",
            do="Give one time per query.",
        )
    finite(times, "t")
    stored = getattr(mu, "times", times)
    if stored.dtype != times.dtype:
        times = times.astype(stored.dtype)  # 0.1 asks for the atom at 0.1, in whichever precision it was stored
    if times.shape == ():
        times = times[None] if count == 1 else np.full(count, float(times), times.dtype)
    return rows, times, single
