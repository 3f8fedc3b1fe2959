"""`attend`: the one entry to the engine. Checks, pads to bucket sizes, calls one compiled program, cuts."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention.blocks import LOGITS, Keys, Queries, spans
from measureformer.attention.grid import Grid, followed, grid_attention, grid_if_faster
from measureformer.attention.rounding import rounding_bounds
from measureformer.attention.sharded import Sharded, at_mesh_edge, chosen, ring_attention
from measureformer.attention.streaming import STREAMING, Streaming, stream
from measureformer.attention.windows import check_windows, pair_of_times, windowed
from measureformer.errors import (
    DimensionMismatchError,
    NotFiniteError,
    NothingVisibleError,
    OptionError,
    ShapeError,
    ToleranceError,
    ZeroMassError,
)
from measureformer.numerics import edge
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    floats,
    host,
    is_elsewhere,
    is_traced,
    namespace,
    on_device,
)
from measureformer.numerics.checked import real
from measureformer.numerics.modules import made
from measureformer.numerics.types import ArrayLike
from measureformer.parallel.workers import collective

Settings = Streaming | Sharded | Grid
Method = Literal["auto", "streaming", "grid"] | Settings

ALONE = 1 << 15
"""Logits of one head from which on heads are computed one after the other: nine heads of 1024 tokens take 39 ms
instead of 108, and those of 128 tokens as long as side by side."""


class Attended(eqx.Module):
    """Result of `attend`, with proven bounds for its errors, per query.

    The bounds hold in the floating-point model of `measureformer.attention.rounding`.

    Arguments:
        values: weighted averages of the values, (…, m, c).
        error_bound: bounds for the Euclidean norms of the errors of `values`, (…, m).
        log_normalizer: log Z, (…, m).
        log_normalizer_error: bounds for the errors of `log_normalizer`, (…, m).

    >>> import measureformer as mf
    >>> out = mf.attend([[1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]], [[0.0], [1.0]])
    >>> out.values.shape, out.log_normalizer.shape, bool(out.error_bound[0] < 1e-13)
    ((1, 1), (1,), True)
    """

    values: Float[Array, "*h m c"]
    error_bound: Float[Array, "*h m"]
    log_normalizer: Float[Array, "*h m"]
    log_normalizer_error: Float[Array, "*h m"]


def attend(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    log_weights: ArrayLike | None = None,
    *,
    times: tuple[ArrayLike, ArrayLike] | None = None,
    window: float | None = None,
    method: Method = "auto",
    tol: float | None = None,
) -> Attended:
    """Softmax attention: values[i] = Σ_j a_j e^{⟨q_i,k_j⟩} v_j / Z_i, Z_i = Σ_j a_j e^{⟨q_i,k_j⟩}, a = e^{log_weights}.

    Memory is linear in m and n, and so it is for derivatives, of any order, in q, k, v and log_weights. Half precision
    is computed and returned in float32. Under a trace only shapes are checked, and a query that sees no mass gets zeros
    and a log-normaliser of −inf.

    Arguments:
        q: queries, (…, m, k); leading axes are heads or batches.
        k: keys, (…, n, k).
        v: values, (…, n, c).
        log_weights: logarithms of the weights of the keys, (n,) or (…, n); all 0 by default, −inf hides a key.
        times: times of the queries (m,) and of the keys (n,); a query sees the keys whose times are not later.
        window: a query also does not see keys that are this much earlier or more; at times 0, 1, 2, …, 4 shows four.
        method: "auto" is the ring on arrays that are sharded over devices, else streaming, or with a `tol` the grid if
            by fixed cost constants it is faster; "grid" takes nearly linear time in dimension 1, 2 and 3.
        tol: largest error bound; for "grid" what it plans for (1e-9 by default), otherwise larger bounds are refused.

    >>> import numpy as np, measureformer as mf
    >>> out = mf.attend(np.zeros((1, 2)), np.eye(2), np.array([[1.0], [5.0]]), np.log([1.0, 3.0]))
    >>> out.values.round(12).tolist(), out.log_normalizer.round(4).tolist()
    ([[4.0]], [1.3863])
    """
    if tol is not None:
        real(tol, "tol")
    queries, keys, values = floats(q, "q"), floats(k, "k"), floats(v, "v")
    _check_shapes(queries, keys, values)
    n, lead = keys.shape[-2], keys.shape[:-2]
    mass = np.zeros(n, keys.dtype) if log_weights is None else floats(log_weights, "log_weights")
    if mass.shape not in ((n,), (*lead, n)):
        raise ShapeError(
            got=f"log_weights of shape {mass.shape} for keys of shape {keys.shape}",
            need=f"({n},) or {(*lead, n)}",
            do="Give one log-weight per key.",
        )
    seen = windowed(pair_of_times(times, queries.shape[-2], n), window)
    arrays = queries, keys, values, mass, seen
    pair = (None, None) if seen is None else seen
    if len({a.dtype for a in (*arrays[:4], *pair) if a is not None}) > 1:
        arrays = cast(arrays, common_dtype(queries, keys, values, mass))
    traced = is_traced(arrays)
    follow = followed() if traced and method == "auto" else None
    if follow is not None:
        return Attended(*follow.attend(arrays[:4], arrays[4]))
    settings = _settings(method, arrays)
    if isinstance(settings, Sharded):
        if window is not None:
            raise OptionError(
                got="a window with keys that are spread over devices",
                need="all keys in one place: near ones only need not travel",
                do='Use method="streaming" or "grid" on one device.',
            )
        with collective(certain=is_elsewhere(arrays)):
            return _attend(settings, arrays, traced, method, tol)
    return _attend(settings, arrays, traced, method, tol)


def _attend(
    settings: Streaming | Sharded | Grid, arrays: Any, traced: bool, method: Method, tol: float | None
) -> Attended:
    seen = arrays[4]
    if not traced:
        _check_values(*arrays)
        if method == "auto" and tol is not None and isinstance(settings, Streaming):
            settings = grid_if_faster(arrays[:4], seen, tol) or settings
    if isinstance(settings, Grid):
        tol = settings.tol if tol is None else tol
        return Attended(*map(on_device, grid_attention(settings, arrays[:4], seen, tol)))
    if traced:
        return _compiled(settings, *arrays)
    out = _on_mesh(settings, *arrays) if isinstance(settings, Sharded) else _at_edge(settings, *arrays)
    if tol is not None and not float(out.error_bound.max()) <= tol:
        raise ToleranceError(
            got=f"an error bound of {float(out.error_bound.max()):.2g} in {arrays[0].dtype} arithmetic",
            need=f"at most tol = {tol:g}",
            do="Pass float64 arrays, centre the points, or allow a larger tol.",
        )
    return out


def _settings(method: Method, arrays: Any) -> Streaming | Sharded | Grid:
    if isinstance(method, (Streaming, Sharded, Grid)):
        return method
    name: Any = method  # users pass anything
    if isinstance(name, str) and name == "grid":
        return Grid()
    if isinstance(name, str) and name in ("auto", "streaming"):
        return chosen(arrays) if name == "auto" else STREAMING
    raise OptionError(
        got=f"method = {method!r}",
        need='"auto", "streaming", "grid", Streaming(…), Grid(plan=…) or Sharded(mesh=…)',
        do="Leave it out to let the library choose.",
    )


def _attended(settings: Streaming | Sharded, q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> Attended:
    """The traced formula, for any number of leading axes."""
    if times is None or isinstance(settings, Sharded) or q.shape[-2] * k.shape[-2] <= LOGITS:
        return _over_heads(settings, q, k, v, log_weights, times)
    # in order of time, blocks that lie in the future are left out; the order of the user's rows does not matter
    by_query, by_key = jnp.argsort(spans(times[0])[1]), jnp.argsort(times[1])
    k, v, log_weights = k[..., by_key, :], v[..., by_key, :], log_weights[..., by_key]
    out = _over_heads(settings, q[..., by_query, :], k, v, log_weights, (times[0][by_query], times[1][by_key]))
    back = jnp.argsort(by_query)
    rows = (out.error_bound[..., back], out.log_normalizer[..., back], out.log_normalizer_error[..., back])
    return Attended(out.values[..., back, :], *rows)


def _over_heads(settings: Streaming | Sharded, q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> Attended:
    if q.ndim > 2:
        shared = log_weights.ndim == 1

        def one(arrays: Any) -> Attended:
            q, k, v, own_weights = arrays
            return _over_heads(settings, q, k, v, log_weights if shared else own_weights, times)

        stacked = q, k, v, None if shared else log_weights
        # side by side, large blocks of all heads do not fit into the cache, and both ways of a condition are computed
        large = q.shape[-2] * k.shape[-2] >= ALONE and isinstance(settings, Streaming)
        return jax.lax.map(one, stacked) if large else jax.vmap(one)(stacked)
    query_times, key_times = (None, None) if times is None else times
    queries, keys = Queries(q, query_times), Keys(k, v, log_weights, key_times)
    if isinstance(settings, Sharded):
        return Attended(*ring_attention(settings, queries, keys))
    values, log_z = stream(settings.block, queries, keys)
    error, log_error = rounding_bounds(queries, keys, log_z, settings.block)
    return Attended(values, error, log_z, log_error)


_compiled = eqx.filter_jit(_attended)


def _on_mesh(settings: Sharded, q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> Attended:
    cut = at_mesh_edge(_compiled, settings, q, k, v, log_weights, times)
    if not all(namespace(array).isfinite(array).all() for array in (cut[0], cut[2])):
        refuse_overflow(q, k)
    return Attended(*map(on_device, cut))


@cache
def _layer(block: tuple[int, int] | None) -> edge.Layer:
    return edge.Layer(Streaming(block))


def _program(settings: Streaming, keys: Any, q: Any, query_times: Any) -> tuple[Array, ...]:
    k, v, log_weights, key_times = keys
    out = _attended(settings, q, k, v, log_weights, None if key_times is None else (query_times, key_times))
    return out.values, out.error_bound, out.log_normalizer, out.log_normalizer_error


_PLAIN = jax.tree.structure((0, 0, 0, None))
_TIMED = jax.tree.structure((0, 0, 0, 0))
_ROWS = edge.Layout((-2, -2, -1, 0), (2,), (-2, 0), (-2, -1, -1, -1), finite=(0, 2))


def _at_edge(settings: Streaming, q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> Attended:
    def refuse(dtype: Any, bad: Any) -> None:
        refuse_overflow(q, k)

    rows = (_PLAIN, (k, v, log_weights)) if times is None else (_TIMED, (k, v, log_weights, times[1]))
    asked = q, None if times is None else times[0]
    values, error, log_z, log_error = edge.call(_layer(settings.block), _program, rows, asked, _ROWS, refuse=refuse)
    return made(Attended, values=values, error_bound=error, log_normalizer=log_z, log_normalizer_error=log_error)


def refuse_overflow(q: Any, k: Any) -> NoReturn:
    """Refuse queries and keys whose logits are not finite.

    Arguments:
        q: queries.
        k: keys.
    """
    largest = [float(abs(host(array)).max()) for array in (q, k)]
    raise NotFiniteError(
        got=f"logits that overflow {q.dtype} (q up to {largest[0]:.2g}, k up to {largest[1]:.2g})",
        need="finite inner products ⟨q, k⟩",
        do="Rescale q or k, or use float64.",
    )


def _check_shapes(q: Any, k: Any, v: Any) -> None:
    if min(q.ndim, k.ndim, v.ndim) < 2 or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ShapeError(
            got=f"q, k, v of shapes {q.shape}, {k.shape}, {v.shape}",
            need="(…, m, k), (…, n, k), (…, n, c) with the same leading axes",
            do="Tokens are rows; put heads first.",
        )
    check_one_dimension(q, k)
    if k.shape[-2] != v.shape[-2] or min(q.shape[-2], k.shape[-2]) == 0:
        raise ShapeError(
            got=f"{q.shape[-2]} queries, {k.shape[-2]} keys and {v.shape[-2]} values",
            need="at least one query, at least one key, and one value per key",
            do="Check the second-to-last axes.",
        )


def check_one_dimension(q: Any, k: Any) -> None:
    if q.shape[-1] != k.shape[-1]:
        raise DimensionMismatchError(
            got=f"queries in R^{q.shape[-1]} and keys in R^{k.shape[-1]}",
            need="one dimension",
            do="Project both to the head dimension first.",
        )


def _check_values(q: Any, k: Any, v: Any, log_weights: Any, times: Any) -> None:
    for name, array in (("q", q), ("k", k), ("v", v)):
        finite(array, name)
    xp, mass = namespace(log_weights, times), host(log_weights)
    # NaN and ∞ are the largest of what they stand with
    top = mass.max(axis=-1)
    if not (top < np.inf).all():
        raise NotFiniteError(
            got="log_weights with NaN or +inf",
            need="numbers or −inf (no mass)",
            do="Pass np.log of non-negative weights.",
        )
    if (top == -np.inf).any():
        raise ZeroMassError(
            got="log_weights that are all −inf", need="a key with mass", do="Give at least one key a finite log-weight."
        )
    if times is None:
        return
    for name, array in (("query times", times[0]), ("key times", times[1])):
        finite(array, name)
    if times[0].ndim == 2:
        check_windows(times, mass)
        return
    seen_from = xp.where(mass > -np.inf, host(times[1]), np.inf).min(axis=-1).max()
    blind = host(times[0]) < seen_from
    if blind.any():
        i = int(blind.argmax())
        raise NothingVisibleError(
            got=f"query {i} at time {float(times[0][i]):g}, before the first key with mass at {float(seen_from):g}",
            need="a key with time ≤ the query's",
            do="Ask at a later time, or add an earlier token.",
        )
