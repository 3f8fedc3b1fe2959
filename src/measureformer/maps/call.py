"""A call of a map: what is known of the map, what is refused by value, and the way through the edge.

The class of maps is in `measureformer.maps.base`; its methods are calls of the functions here.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from typing import cast as cast_type

import jax
import numpy as np
from jaxtyping import Array

from measureformer.errors import NotFiniteError
from measureformer.maps.queries import refuse_blind
from measureformer.measures import Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics import edge
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    first_index,
    is_traced,
    needs_jax,
    on_device,
)
from measureformer.parallel.pieces import in_pieces

if TYPE_CHECKING:
    from measureformer.maps.base import AbstractInContextMap

edge.for_pieces(in_pieces)
Method = TypeVar("Method", bound=Callable[..., Any])


class _Method:
    """A method that is looked up in a third of a microsecond: Equinox makes a module of every bound method, which takes
    longer than a small layer. What is looked up is a PyTree here too."""

    def __init__(self, method: Callable[..., Any]) -> None:
        functools.update_wrapper(cast_type(Any, self), method)
        self.method = method

    def __get__(self, G: Any, kind: type) -> Any:
        return self.method if G is None else jax.tree_util.Partial(self.method, G)


def quick(method: Method) -> Method:
    """Mark a method that users call in loops."""
    return cast_type(Method, _Method(method))


def values(G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> Array:
    """G(mu, x) through the edge; x = None stands for the atoms of mu."""
    known = known_of(G)
    if not known.fits(mu, x, t):
        G.check_meets(mu, t if x is not None else getattr(mu, "times", None))
    if known.asks:
        known.ask(G, mu, *_asked(mu, x, t))
    if known.eager:
        return _in_python(G, mu, x, t)
    rows, structure = jax.tree.flatten(mu)

    def refuse(dtype: Any, bad: Any) -> None:
        refuse_part(G, mu, *_asked(mu, x, t))
        raise _not_finite(G, bad, dtype)

    layout = LAYOUTS.get(type(mu)) or rows_of(mu, rows)
    return edge.call(known.layer, formula, (structure, rows), (x, t), layout, refuse=refuse)


def _asked(mu: Any, x: Any, t: Any) -> tuple[Any, Any]:
    return (mu.points, getattr(mu, "times", None)) if x is None else (x, t)


def _in_python(G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> Array:
    """Part by part, on concrete arrays."""
    dtype = common_dtype(G, mu, x)
    y = np.asarray(G.evaluate(mu, *_asked(mu, x, t)), dtype)
    if not np.isfinite(y).all():
        raise _not_finite(G, ~np.isfinite(y), dtype)
    return on_device(y)


def formula(G: AbstractInContextMap, mu: Any, x: Array | None, t: Array | None) -> Array:
    """What is compiled: the values at the queries, or at the atoms if there are none."""
    return G.at_atoms(mu) if x is None else G.evaluate(mu, x, t)


def value(G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> Any:
    """The value of a part of another map: its formula where that map is compiled.

    On concrete arrays it goes through the edge of the part: that is how Python parts are computed, and how the part is
    found that refuses.
    """
    if is_traced(G, mu, x, t):
        return G.evaluate(mu, x, t)
    return G.push(mu).points if at_own_atoms(mu, x, t) else G(mu, x, t)


def at_own_atoms(mu: Any, x: Any, t: Any) -> bool:
    """Whether these queries are the atoms of mu: the same objects, so that their values are those of the push."""
    return isinstance(mu, AbstractAtomic) and x is mu.points and t is getattr(mu, "times", None)


def refuse_input(G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> None:
    """Refuse by value what G cannot be called with: queries that see nothing, points outside its domain, maps of the
    user inside that break a law. Under a trace nothing is refused."""
    known = known_of(G)
    if known.asks:
        known.ask(G, mu, x, t)


def refuse_part(G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> None:
    """Raise the refusal of the part of G that has no finite value there, if one of them has one."""
    G.examine(mu, x, t)
    if G.parts:
        G.evaluate(mu, x, t)


def _not_finite(G: AbstractInContextMap, bad: Any, dtype: Any) -> NotFiniteError:
    return NotFiniteError(
        got=f"a non-finite value of {type(G).__name__} at query {first_index(bad)[0]}",
        need="a finite result",
        do=f"Rescale the points or the weights of the layer, or use float64 (this was {dtype}).",
    )


class _Known:
    """What calls need to know of a map, found out once."""

    def __init__(self, G: AbstractInContextMap) -> None:
        from measureformer.maps.base import AbstractInContextMap

        kind = type(G)
        self.layer = edge.Layer(G)
        self.dim, self.needs_time, self.masks, self.eager = G.in_dim, G.needs_time, G.masks, G.eager
        self.usual = kind.check_meets is AbstractInContextMap.check_meets
        self.examines = _examines(G)
        # not the parts themselves: what is remembered of a map must not keep it alive
        self.foreign = not self.layer.traced and bool(_foreign(G))
        self.asks = self.masks or self.examines or self.foreign

    def fits(self, mu: Any, x: Any, t: Any) -> bool:
        """Whether it is plain that `check_meets` has nothing to say."""
        if not self.usual or type(mu) not in LAYOUTS:
            return False
        if self.needs_time and (type(mu) is not SpaceTime or (x is not None and t is None)):
            return False
        return self.dim is None or mu.points.shape[1] == self.dim

    def ask(self, G: AbstractInContextMap, mu: Any, x: Any, t: Any) -> None:
        """What is refused by value: nothing is under a trace."""
        if is_traced(G, mu, x, t):
            return
        if self.masks:
            refuse_blind(mu, t)
        if self.examines:
            G.examine(mu, x, t)
        if self.foreign:
            from measureformer.maps.laws import require_laws

            require_laws(_foreign(G), mu)
            self.foreign = False


_KNOWN: dict[int, tuple[weakref.ref[Any], _Known]] = {}


def known_of(G: AbstractInContextMap) -> _Known:
    number = id(G)
    entry = _KNOWN.get(number)
    if entry is not None and entry[0]() is G:
        return entry[1]
    known = _Known(G)
    forget: Callable[..., Any] = _KNOWN.pop
    _KNOWN[number] = weakref.ref(G, lambda _: forget(number, None)), known
    return known


def _examines(G: AbstractInContextMap) -> bool:
    from measureformer.maps.base import AbstractInContextMap

    return type(G).examine is not AbstractInContextMap.examine or any(map(_examines, G.parts))


def _foreign(G: AbstractInContextMap) -> list[AbstractInContextMap]:
    """Parts that are not the library's: maps of the user, innermost first."""
    inside = [found for part in G.parts for found in _foreign(part)]
    return inside if type(G).__module__.startswith("measureformer.") else [*inside, G]


def rows_of(mu: Any, rows: Sequence[Any]) -> edge.Layout:
    """Which of the arrays of a measure are rows, and which holds log-weights."""
    if not isinstance(mu, AbstractAtomic):
        return _GAUSSIAN
    mass = mu.log_weights
    return _ATOMS[len(rows), next(i for i, row in enumerate(rows) if row is mass)]


_GAUSSIAN = edge.Layout((), ())
_ATOMS = {(count, mass): edge.Layout((0,) * count, (mass,)) for count in (2, 3) for mass in range(count)}
LAYOUTS = {Discrete: _ATOMS[2, 1], SpaceTime: _ATOMS[3, 2]}
"""The order of the fields of the measures that most calls are about."""


def measured(G: AbstractInContextMap, program: Callable[..., Any], mu: AbstractAtomic, *numbers: Any) -> Any:
    """program(G, mu, *numbers) through the edge, for values that are not rows, such as a constant of G at mu."""
    rows, structure = jax.tree.flatten(mu)
    return edge.run(known_of(G).layer, program, (structure, rows), numbers, rows_of(mu, rows)._replace(queries=()))


def push_through(maps: Sequence[AbstractInContextMap], mu: Any) -> Any:
    """mu pushed through one map after the other, the first one first, with tokens padded and on the device throughout.

    Values are checked once, at the end, so that no program waits for a check of the one before.
    """

    def one_by_one() -> Any:
        return functools.reduce(lambda nu, G: G.push(nu), maps, mu)

    if needs_jax(mu) or any(known_of(G).eager for G in maps):
        return one_by_one()
    moved = mu.padded()
    for i, G in enumerate(maps):
        G.check_meets(moved, getattr(mu, "times", None))
        if i == 0 and G.masks:
            refuse_blind(mu, mu.times)
        rows, structure = jax.tree.flatten(moved)
        points = edge.run(known_of(G).layer, formula, (structure, rows), (None, None), rows_of(moved, rows))
        moved = moved.with_points(points)
    points = np.asarray(moved.points)[: mu.n]
    if not np.isfinite(points).all():
        # one of the maps refuses it, and says why
        return one_by_one()
    return moved if moved.n == mu.n else cast(mu, points.dtype).with_points(on_device(points))
