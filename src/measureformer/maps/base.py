"""`AbstractInContextMap`: a layer is a function of a measure and a point, G(mu, x); applying it is a push-forward.

A new map implements `evaluate(mu, x, t)`, a pure JAX formula. Everything a user sees is built on it here, once: array
intake, refusals, padding to bucket sizes (so that a new number of tokens compiles nothing), one compiled program per
bucket, push-forward, composition, sums.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    NoClosedFormError,
    NotFiniteError,
    NothingVisibleError,
    ShapeError,
    TimeError,
)
from measureformer.measures import AbstractMeasure, Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import (
    at_once,
    cast,
    common_dtype,
    finite,
    first_index,
    floats,
    host,
    is_spread,
    is_traced,
    namespace,
    needs_jax,
    on_device,
)
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.parallel.mesh import TOKENS, gathered, mesh_of, over
from measureformer.parallel.workers import collective

if TYPE_CHECKING:
    from measureformer.maps.compose import Compose, Scaled, Sum


class AbstractInContextMap(eqx.Module):
    """G: (mu, x) ↦ G(mu, x), the one concept of the library.

    Every map here is 0-homogeneous in the measure, G(c·mu, x) = G(mu, x), sees atoms only through their mass (an atom
    split in two changes nothing), and does not depend on the order of the atoms. Maps are PyTrees.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[2.0]])
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> G(mu, [0.0]).tolist(), (0.5 * G + mf.Identity())(mu, [0.0]).tolist()
    ([1.0], [0.5])
    """

    @abc.abstractmethod
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        """The formula: G(mu, x) for queries x (m, d) at times t (m,) or None. Pure JAX, called under `jit`."""

    @property
    def in_dim(self) -> int | None:
        """Dimension of the tokens it accepts; None if any, which it then keeps."""
        return None

    def out_dim(self, dim: int) -> int:
        """Dimension of its values for tokens of dimension `dim`."""
        return dim

    @property
    def needs_time(self) -> bool:
        """Whether it is a map on space–time: needs a `SpaceTime` and a time for every query."""
        return False

    @property
    def masks(self) -> bool:
        """Whether an attention inside is causal, so that a query before all mass would see nothing."""
        return False

    @property
    def eager(self) -> bool:
        """Whether a part of it is Python that cannot be compiled: then it is computed part by part, by `eagerly`."""
        return False

    def eagerly(self, mu: Any, x: Any, t: Any) -> Any:
        """G(mu, x) on concrete arrays, with nothing compiled around it; x = None stands for the atoms of mu."""
        raise NotImplementedError(f"{type(self).__name__} is eager and must say how it is computed")

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        """Whether x ↦ G(mu, x) is affine, so that it pushes Gaussians to Gaussians."""
        return False

    def examine(self, mu: Any, x: Any, t: Any) -> None:
        """Refuse concrete values outside the map's domain."""

    def at_atoms(self, mu: Any) -> Any:
        """Values at the atoms of mu themselves; a composition computes every layer only once."""
        return self.evaluate(mu, mu.points, getattr(mu, "times", None))

    @collective()
    def __call__(self, mu: AbstractMeasure, x: Any, t: Any = None) -> Float[Array, "*m e"]:
        """G(mu, x) for one query (d,) or several (m, d); on a `SpaceTime`, at the time or times t."""
        x, t, single = queries_of(mu, x, t)
        self.check_meets(mu, t)
        if is_traced(self, mu, x, t):
            # compiled here too: under a bare `grad` or `vmap` the formula would otherwise run operation by operation
            y = _compiled(*cast((self, mu, x, t), self._dtype(mu, x)))
            return y[0] if single else y
        finite(x, "x")
        if self.masks:
            refuse_blind(mu, t)
        self.examine(mu, x, t)
        y = self._at_edge(mu, x, t)
        return on_device(y[0] if single else y)

    @collective()
    def push(self, mu: AbstractMeasure) -> Any:
        """The push-forward G(mu, ·)♯mu: atoms move, masses (and times) stay.

        Gaussians and mixtures are pushed exactly where the map is affine on them, and refused otherwise.
        """
        self.check_meets(mu, getattr(mu, "times", None))
        if isinstance(mu, AbstractGaussianLike):
            return self.push_gaussian(mu)
        assert isinstance(mu, AbstractAtomic)  # _check has refused everything else
        if is_traced(self, mu):
            layer, moved = cast((self, mu), self._dtype(mu))
            return moved.with_points(_compiled(layer, moved, None, None))
        if self.masks:
            refuse_blind(mu, getattr(mu, "times", None))
        self.examine(mu, mu.points, getattr(mu, "times", None))
        return cast(mu, self._dtype(mu)).with_points(on_device(self._at_edge(mu, None, None)))

    def push_gaussian(self, mu: AbstractGaussianLike) -> AbstractGaussianLike:
        """The image of a Gaussian or a mixture under the affine map x ↦ G(mu, x)."""
        if not self.affine_on(mu):
            raise no_closed_form(self, mu, "push-forward")
        parts = cast((self, mu), self._dtype(mu))
        matrix, shift = affine_parts(*parts)
        return parts[1].push_affine(matrix, shift)

    def tokens(self, X: Any) -> Float[Array, "n e"]:
        """Classical form: the layer on the rows of an (n, d) array, in order. Equal to the push of the uniform measure.

        A map on space–time sees row i at time (i+1)/n.
        """
        return self.push(SpaceTime.sequence(X) if self.needs_time else Discrete.uniform(X)).points

    def __matmul__(self, other: AbstractInContextMap) -> Compose:
        """(G2 @ G1)(mu, x) = G2(G1♯mu, G1(mu, x)): right to left, the ⋄ of the papers."""
        from measureformer.maps.compose import Compose

        return Compose.of(self, other) if isinstance(other, AbstractInContextMap) else NotImplemented

    def __add__(self, other: AbstractInContextMap) -> Sum:
        from measureformer.maps.compose import Sum

        return Sum(self, other) if isinstance(other, AbstractInContextMap) else NotImplemented

    def __sub__(self, other: AbstractInContextMap) -> Sum:
        return self + (-1.0) * other if isinstance(other, AbstractInContextMap) else NotImplemented

    def __mul__(self, factor: Any) -> Scaled:
        from measureformer.maps.compose import Scaled

        return NotImplemented if isinstance(factor, (AbstractInContextMap, AbstractMeasure)) else Scaled(self, factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """The structure in words; `repr` lists the arrays."""
        return type(self).__name__

    def _dtype(self, *others: Any) -> np.dtype[Any]:
        return common_dtype(self, *others)

    def check_meets(self, mu: Any, t: Any) -> None:
        """Refuse what cannot meet: not a measure, another dimension, no time where time is needed."""
        if not isinstance(mu, AbstractMeasure):
            raise DtypeError(
                got=f"a context of type {type(mu).__name__}",
                need="a measure",
                do="Wrap the tokens: mu = mf.Discrete.uniform(tokens).",
            )
        if self.in_dim is not None and mu.dim != self.in_dim:
            raise DimensionMismatchError(
                got=f"{type(self).__name__} on R^{self.in_dim} and a measure on R^{mu.dim}",
                need="one dimension",
                do="Compose with mf.Linear to change the dimension of the tokens.",
            )
        if self.needs_time and (t is None or not hasattr(mu, "times")):
            raise TimeError(
                got=f"{type(self).__name__} on a {type(mu).__name__}" + (" without query times" if t is None else ""),
                need="a SpaceTime measure and a time for every query",
                do="Use mf.SpaceTime.sequence(tokens) or SpaceTime.uniform(points, times), and call G(sigma, x, t).",
            )

    def check_stays(self, mu: AbstractMeasure) -> None:
        """Refuse a map that is no velocity for tokens of mu: its values are not in their space."""
        if self.out_dim(mu.dim) != mu.dim:
            raise DimensionMismatchError(
                got=f"a velocity from R^{mu.dim} to R^{self.out_dim(mu.dim)}",
                need="a map of a space to itself",
                do="Compose it with mf.Linear first.",
            )

    def _at_edge(self, mu: AbstractMeasure, x: Any, t: Any) -> Any:
        """Pad in NumPy, run one compiled program, cut in NumPy. `x = None` stands for the atoms of mu.

        Rows in pieces on a mesh are padded already; their values stay there.
        """
        dtype = self._dtype(mu, x)
        if self.eager:
            return np.asarray(self.eagerly(mu, x, t), dtype)
        count = mu.n if x is None else len(x)  # pyright: ignore[reportAttributeAccessIssue] x is None only for atoms
        padded = mu.padded() if isinstance(mu, AbstractAtomic) and not is_spread(mu) else mu
        queries = x, t
        if not is_spread(x):
            queries = tuple(None if rows is None else pad_rows(rows, bucket(count)) for rows in queries)
        program = cast((self, padded, *queries), dtype)
        if not is_spread(mu, x):
            y = np.asarray(at_once(_run, *program))[:count]
        elif x is None or is_spread(x):
            y = _on_mesh(program, TOKENS)
        else:
            y = gathered(_on_mesh(program))[:count]
        bad = ~namespace(y).isfinite(y)
        if bad.any():
            points = mu.points if x is None else x  # pyright: ignore[reportAttributeAccessIssue]
            self.explain(mu, points, getattr(mu, "times", None) if x is None else t)
            raise NotFiniteError(
                got=f"a non-finite value of {type(self).__name__} at query {first_index(bad)[0]}",
                need="a finite result",
                do=f"Rescale the points or the weights of the layer, or use float64 (this was {dtype}).",
            )
        return y

    def explain(self, mu: Any, x: Any, t: Any) -> None:
        """Called after a non-finite result: raise the refusal of the part that caused it, if there is one."""
        self.examine(mu, x, t)


@eqx.filter_jit
def _compiled(G: AbstractInContextMap, mu: AbstractMeasure, x: Any, t: Any, place: Any = None) -> Array:
    y = G.at_atoms(mu) if x is None else G.evaluate(mu, x, t)
    return y if place is None else jax.lax.with_sharding_constraint(y, place)


def _run(*program: Any) -> Array:
    """`_compiled` on concrete arrays. Where a map is made of arrays alone, they are handed over as a flat list: to look
    through a tree of modules again and again takes longer than a small layer does."""
    leaves, structure = jax.tree.flatten(program)
    if all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves):
        return _flat(structure, leaves)
    return _compiled(*program)


@functools.partial(jax.jit, static_argnums=0)
def _flat(structure: Any, leaves: list[Array]) -> Array:
    G, mu, x, t = jax.tree.unflatten(structure, leaves)
    return G.at_atoms(mu) if x is None else G.evaluate(mu, x, t)


def push_through(maps: Sequence[AbstractInContextMap], mu: Any) -> Any:
    """mu pushed through one map after the other, the first one first; tokens stay padded and on the device meanwhile.

    What `push` looks at between two maps is looked at once, in the end: the next program need not wait for it.
    """

    def one_by_one() -> Any:
        return functools.reduce(lambda nu, G: G.push(nu), maps, mu)

    if needs_jax(mu):
        return one_by_one()
    moved = mu.padded()
    for i, G in enumerate(maps):
        if G.eager:
            return one_by_one()
        G.check_meets(moved, getattr(mu, "times", None))
        if i == 0 and G.masks:
            refuse_blind(mu, mu.times)
        layer, moved = cast((G, moved), common_dtype(G, moved))
        moved = moved.with_points(at_once(_run, layer, moved, None, None))
    points = np.asarray(moved.points)[: mu.n]
    if not np.isfinite(points).all():
        # one of the maps refuses it, and says why
        return one_by_one()
    return moved if moved.n == mu.n else cast(mu, points.dtype).with_points(on_device(points))


def _on_mesh(program: tuple[Any, ...], *spec: str) -> Array:
    """The compiled program on arrays in pieces: a mesh is set while it is traced, so attention goes round the ring."""
    mesh = mesh_of(program)
    with jax.set_mesh(mesh):
        return _compiled(*program, place=over(mesh, *spec))


@eqx.filter_jit
def affine_parts(G: AbstractInContextMap, mu: AbstractGaussianLike) -> tuple[Array, Array]:
    """Matrix and shift of the affine map x ↦ G(mu, x)."""

    def at(x: Array) -> Array:
        return G.evaluate(mu, x[None], None)[0]

    mean = mu.mean()
    matrix = jax.jacfwd(at)(mean)
    return matrix, at(mean) - matrix @ mean


def no_closed_form(G: AbstractInContextMap, mu: AbstractMeasure, what: str = "value") -> NoClosedFormError:
    return NoClosedFormError(
        got=f"the {what} of {type(G).__name__} on a {type(mu).__name__}",
        need="a closed form, and there is none",
        do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
    )


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


def queries_of(mu: Any, x: Any, t: Any) -> tuple[Any, Any, bool]:
    """Queries as (m, d), times as (m,) or None, and whether a single point was given."""
    x = floats(x, "x")
    if x.ndim not in (1, 2) or 0 in x.shape:
        raise ShapeError(
            got=f"queries x of shape {x.shape}",
            need="(d,) or (m, d), not empty",
            do="Tokens are rows: one query per row.",
        )
    single = x.ndim == 1
    x = x[None] if single else x
    if isinstance(mu, AbstractMeasure) and x.shape[1] != mu.dim:
        raise DimensionMismatchError(
            got=f"queries in R^{x.shape[1]} and a measure on R^{mu.dim}",
            need="one dimension",
            do="Queries and tokens live in the same space; check that tokens are rows.",
        )
    if t is None:
        return x, None, single
    t = floats(t, "t")
    if t.shape not in ((), x.shape[:1]):
        raise ShapeError(
            got=f"times of shape {t.shape} for {x.shape[0]} queries",
            need=f"one number or ({x.shape[0]},)",
            do="Give one time per query.",
        )
    finite(t, "t")
    stored = getattr(mu, "times", t)
    if stored.dtype != t.dtype:
        t = t.astype(stored.dtype)  # 0.1 asks for the atom at 0.1, in whichever precision it was stored
    if t.shape == ():
        t = t[None] if x.shape[0] == 1 else np.full(x.shape[0], float(t), t.dtype)
    return x, t, single
