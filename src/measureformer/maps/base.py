"""`AbstractInContextMap`: a layer is a function of a measure and a point, G(mu, x); applying it is a push-forward.

A new map implements `evaluate(mu, x, t)`, a pure JAX formula. Everything a user sees is built on it here, once: array
intake, refusals, padding to bucket sizes (so that a new number of tokens compiles nothing), one compiled program per
bucket, push-forward, composition, sums.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from typing import cast as cast_type

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    NoClosedFormError,
    NotFiniteError,
    TimeError,
)
from measureformer.maps.queries import queries_of, refuse_blind
from measureformer.measures import AbstractMeasure, Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import (
    at_once,
    cast,
    common_dtype,
    finite,
    first_index,
    is_spread,
    is_traced,
    namespace,
    needs_jax,
    on_device,
)
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.types import ArrayLike
from measureformer.parallel.mesh import TOKENS, gathered, mesh_of, over
from measureformer.parallel.workers import collective

if TYPE_CHECKING:
    from measureformer.maps.compose import Compose, Scaled, Sum

Pushed = TypeVar("Pushed", bound=AbstractMeasure)
GaussianLike = TypeVar("GaussianLike", bound=AbstractGaussianLike)


class AbstractInContextMap(eqx.Module):
    """A layer as a function of a measure and a point, G: (mu, x) ↦ G(mu, x).

    Every map of the library satisfies G(c·mu, x) = G(mu, x), and gives the same values when an atom is split in two or
    the atoms are reordered. Maps are PyTrees.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[2.0]])
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> G(mu, [0.0]).tolist(), (0.5 * G + mf.Identity())(mu, [0.0]).tolist()
    ([1.0], [0.5])
    """

    @abc.abstractmethod
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        """The formula, in pure JAX: it is called under `jit`.

        Arguments:
            mu: the context; padded if it has atoms, with atoms of zero mass at the end.
            x: queries, (m, d).
            t: times of the queries, (m,), or None off space–time.
        """

    @property
    def in_dim(self) -> int | None:
        """Dimension of the tokens it accepts; None if any, which it then keeps."""
        return None

    def out_dim(self, dim: int) -> int:
        """Dimension of the values.

        Arguments:
            dim: dimension of the tokens.
        """
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
        """Whether a part of it is Python that cannot be compiled; it is then computed by `eagerly`."""
        return False

    def eagerly(self, mu: AbstractMeasure, x: Array | None, t: Array | None) -> Array | np.ndarray:
        """G(mu, x) on concrete arrays, outside of `jit`; only for maps that are `eager`.

        Arguments:
            mu: the context.
            x: queries, (m, d); None for the atoms of mu.
            t: times of the queries, (m,), or None off space–time.
        """
        raise NotImplementedError(f"{type(self).__name__} is eager and must say how it is computed")

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        """Whether x ↦ G(mu, x) is affine, so that it pushes Gaussians to Gaussians.

        Arguments:
            mu: the Gaussian or mixture that is the context.
        """
        return False

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        """Refuse concrete values outside the map's domain.

        Arguments:
            mu: the context.
            x: queries, (m, d).
            t: times of the queries, (m,), or None off space–time.
        """

    def at_atoms(self, mu: AbstractAtomic) -> Array:
        """Values at the atoms of the context; a composition computes each layer once.

        Arguments:
            mu: the context, a measure with atoms.
        """
        return self.evaluate(mu, mu.points, getattr(mu, "times", None))

    @collective()
    def __call__(self, mu: AbstractMeasure, x: ArrayLike, t: ArrayLike | None = None) -> Float[Array, "*m e"]:
        """G(mu, x), the values at the queries.

        Arguments:
            mu: the context, any measure.
            x: one query (d,) or several (m, d), on the support or off it.
            t: time of the queries, or one for each (m,); required on a `SpaceTime`.
        """
        rows, times, single = queries_of(mu, x, t)
        self.check_meets(mu, times)
        if is_traced(self, mu, rows, times):
            # compiled here too: under a bare `grad` or `vmap` the formula would otherwise run operation by operation
            y = _compiled(*cast((self, mu, rows, times), self._dtype(mu, rows)))
            return y[0] if single else y
        finite(rows, "x")
        if self.masks:
            refuse_blind(mu, times)
        self.examine(mu, rows, times)
        y = self._at_edge(mu, rows, times)
        return on_device(y[0] if single else y)

    @collective()
    def push(self, mu: Pushed) -> Pushed:
        """The push-forward G(mu, ·)♯mu: atoms move, masses and times stay.

        Gaussians and mixtures are pushed exactly where the map is affine on them, and refused otherwise.

        Arguments:
            mu: the measure to push, which is also the context.
        """
        self.check_meets(mu, getattr(mu, "times", None))
        if isinstance(mu, AbstractGaussianLike):
            return self.push_gaussian(mu)
        assert isinstance(mu, AbstractAtomic)  # there are no other measures
        if is_traced(self, mu):
            layer, moved = cast((self, mu), self._dtype(mu))
            return moved.with_points(_compiled(layer, moved, None, None))
        if self.masks:
            refuse_blind(mu, getattr(mu, "times", None))
        self.examine(mu, mu.points, getattr(mu, "times", None))
        return cast(mu, self._dtype(mu)).with_points(on_device(self._at_edge(mu, None, None)))

    def push_gaussian(self, mu: GaussianLike) -> GaussianLike:
        """The image of a Gaussian or a mixture under the affine map x ↦ G(mu, x).

        Arguments:
            mu: the Gaussian or mixture, which is also the context.
        """
        if not self.affine_on(mu):
            raise no_closed_form(self, mu, "push-forward")
        parts = cast((self, mu), self._dtype(mu))
        matrix, shift = affine_parts(*parts)
        return parts[1].push_affine(matrix, shift)

    def tokens(self, X: ArrayLike) -> Float[Array, "n e"]:
        """The layer in its classical form, on the rows of an array: the atoms of the push of the uniform measure.

        Arguments:
            X: tokens, (n, d); a map on space–time sees row i at time (i+1)/n.
        """
        return self.push(SpaceTime.sequence(X)).points if self.needs_time else self.push(Discrete.uniform(X)).points

    def __matmul__(self, other: AbstractInContextMap) -> Compose:
        """(G2 @ G1)(mu, x) = G2(G1♯mu, G1(mu, x)): right to left, the ⋄ of the papers."""
        from measureformer.maps.compose import Compose

        return Compose.of(self, other) if _is_map(other) else NotImplemented

    def __add__(self, other: AbstractInContextMap) -> Sum:
        from measureformer.maps.compose import Sum

        return Sum(self, other) if _is_map(other) else NotImplemented

    def __sub__(self, other: AbstractInContextMap) -> Sum:
        return self + (-1.0) * other if _is_map(other) else NotImplemented

    def __mul__(self, factor: ArrayLike) -> Scaled:
        from measureformer.maps.compose import Scaled

        return NotImplemented if _is_map(factor) or isinstance(factor, AbstractMeasure) else Scaled(self, factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """The structure in words; `repr` lists the arrays."""
        return type(self).__name__

    def _dtype(self, *others: Any) -> np.dtype[Any]:
        return common_dtype(self, *others)

    def check_meets(self, mu: AbstractMeasure, t: ArrayLike | None) -> None:
        """Refuse what is not a measure, another dimension, and no time where time is needed.

        Arguments:
            mu: the context.
            t: times of the queries, or None.
        """
        if not isinstance(mu, AbstractMeasure):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
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
        """Refuse a map that cannot be a velocity because its values do not lie in the space of the tokens.

        Arguments:
            mu: the measure whose atoms would move.
        """
        if self.out_dim(mu.dim) != mu.dim:
            raise DimensionMismatchError(
                got=f"a velocity from R^{mu.dim} to R^{self.out_dim(mu.dim)}",
                need="a map of a space to itself",
                do="Compose it with mf.Linear first.",
            )

    def _at_edge(self, mu: Any, x: Any, t: Any) -> Any:
        """Pad in NumPy, run one compiled program, cut in NumPy; x = None stands for the atoms of mu.

        Rows that are sharded over a mesh are padded already, and their values stay there.
        """
        dtype = self._dtype(mu, x)
        if self.eager:
            return np.asarray(self.eagerly(mu, x, t), dtype)
        count = mu.n if x is None else len(x)
        padded = mu.padded() if isinstance(mu, AbstractAtomic) and not is_spread(mu) else mu
        if not is_spread(x):
            x_padded, t_padded = (None if rows is None else pad_rows(rows, bucket(count)) for rows in (x, t))
            program = cast((self, padded, x_padded, t_padded), dtype)
        else:
            program = cast((self, padded, x, t), dtype)
        if not is_spread(mu, x):
            y = np.asarray(at_once(_run, *program))[:count]
        elif x is None or is_spread(x):
            y = _on_mesh(program, TOKENS)
        else:
            y = gathered(_on_mesh(program))[:count]
        bad = ~namespace(y).isfinite(y)
        if bad.any():
            self.explain(mu, mu.points if x is None else x, getattr(mu, "times", None) if x is None else t)
            raise NotFiniteError(
                got=f"a non-finite value of {type(self).__name__} at query {first_index(bad)[0]}",
                need="a finite result",
                do=f"Rescale the points or the weights of the layer, or use float64 (this was {dtype}).",
            )
        return y

    def explain(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        """Raise the refusal of the part that caused a non-finite result, if there is one.

        Arguments:
            mu: the context.
            x: queries, (m, d).
            t: times of the queries, (m,), or None off space–time.
        """
        self.examine(mu, x, t)


def _is_map(other: Any) -> bool:
    return isinstance(other, AbstractInContextMap)


@eqx.filter_jit
def _compiled(G: AbstractInContextMap, mu: Any, x: Any, t: Any, place: Any = None) -> Array:
    y = G.at_atoms(mu) if x is None else G.evaluate(mu, x, t)
    return y if place is None else jax.lax.with_sharding_constraint(y, place)


def _run(*program: Any) -> Array:
    """`_compiled` on concrete arrays; a flat list of them where the map consists of arrays alone, because flattening a
    tree of modules at every call takes longer than a small layer."""
    leaves, structure = cast_type(tuple[list[Any], Any], jax.tree.flatten(program))
    if all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves):
        return cast_type(Array, _flat(structure, leaves))
    return _compiled(*program)


@functools.partial(jax.jit, static_argnums=0)
def _flat(structure: Any, leaves: list[Array]) -> Array:
    G, mu, x, t = jax.tree.unflatten(structure, leaves)
    return G.at_atoms(mu) if x is None else G.evaluate(mu, x, t)


def push_through(maps: Sequence[AbstractInContextMap], mu: Any) -> Any:
    """mu pushed through one map after the other, the first one first, with tokens padded and on the device throughout.

    Values are checked once, at the end, so that no program waits for a check of the one before.
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
    matrix = cast_type(Array, jax.jacfwd(at)(mean))
    return matrix, at(mean) - matrix @ mean


def no_closed_form(G: AbstractInContextMap, mu: AbstractMeasure, what: str = "value") -> NoClosedFormError:
    return NoClosedFormError(
        got=f"the {what} of {type(G).__name__} on a {type(mu).__name__}",
        need="a closed form, and there is none",
        do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
    )
