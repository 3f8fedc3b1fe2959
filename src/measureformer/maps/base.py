"""`AbstractInContextMap`: a layer is a function of a measure and a point, G(mu, x); applying it is a push-forward.

A new map implements `evaluate(mu, x, t)`, a pure JAX formula. Everything a user sees is built on it here, once: array
intake, refusals, one compiled program per bucket size (`numerics.edge`), push-forward, composition, sums. Three more
methods have defaults that are right: `needs_time`, `examine`, `affine_on`.
"""

from __future__ import annotations

import abc
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
    OptionError,
    TimeError,
)
from measureformer.maps.call import LAYOUTS, known_of, quick, values
from measureformer.maps.queries import queries_of
from measureformer.maps.rows import guarded
from measureformer.measures import AbstractMeasure, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.discrete import of_rows
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    is_traced,
    needs_jax,
    on_device,
    scalar,
)
from measureformer.numerics.types import ArrayLike

if TYPE_CHECKING:
    from measureformer.maps.compose import Compose, Scaled, Sum

Pushed = TypeVar("Pushed", bound=AbstractMeasure)
GaussianLike = TypeVar("GaussianLike", bound=AbstractGaussianLike)


class AbstractInContextMap(eqx.Module):
    """A layer as a function of a measure and a point, G: (mu, x) ↦ G(mu, x).

    Every map of the library satisfies G(c·mu, x) = G(mu, x), and gives the same values when an atom is split in two or
    the atoms are reordered; a map of your own is checked at its first call, see `mf.maps.check_laws`. Maps are PyTrees.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[2.0]])
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> G(mu, [0.0]).tolist(), (0.5 * G + mf.Identity())(mu, [0.0]).tolist()
    ([1.0], [0.5])
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__dict__.get("evaluate")
        if own is not None and not getattr(own, "__isabstractmethod__", False):
            cls.evaluate = guarded(own)

    @abc.abstractmethod
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        """The formula, in pure JAX: it is called under `jit`.

        All atoms of mu that it sees have mass, and inside `Causal` they are those that the query sees; there may be
        more rows than the user has atoms, because atoms are split to fill up an array. A formula that treats rows of
        zero mass and `mu.visible(t)` itself declares that with `measureformer.maps.rows.all_rows`.

        Arguments:
            mu: the context.
            x: queries, (m, d); the object `mu.points` itself where the values at the atoms are asked for.
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
        return any(part.needs_time for part in self.parts)

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

    @property
    def parts(self) -> tuple[AbstractInContextMap, ...]:
        """The maps inside."""
        inside = jax.tree.leaves(self, is_leaf=lambda node: node is not self and _is_map(node))
        return tuple(filter(_is_map, inside))

    @property
    def masks(self) -> bool:
        """Whether an attention inside is causal, so that a query before all mass would see nothing."""
        return any(part.masks for part in self.parts)

    @property
    def eager(self) -> bool:
        """Whether a part of it is Python that cannot be compiled."""
        return any(part.eager for part in self.parts)

    def at_atoms(self, mu: AbstractAtomic) -> Array:
        """Values at the atoms of the context, under `jit`; a composition computes each layer once.

        Arguments:
            mu: the context, a measure with atoms.
        """
        return self.evaluate(mu, mu.points, getattr(mu, "times", None))

    def __call__(self, mu: AbstractMeasure, x: ArrayLike, t: ArrayLike | None = None) -> Float[Array, "*m e"]:
        """G(mu, x), the values at the queries.

        Arguments:
            mu: the context, any measure.
            x: one query (d,) or several (m, d), on the support or off it.
            t: time of the queries, or one for each (m,); required on a `SpaceTime`.
        """
        rows, times, single = queries_of(mu, x, t)
        finite(rows, "x")
        y = values(self, mu, rows, times)
        if not single:
            return y
        return y[0] if needs_jax(y) else on_device(np.asarray(y)[0])

    @quick
    def push(self, mu: Pushed) -> Pushed:
        """The push-forward G(mu, ·)♯mu: atoms move, masses and times stay.

        Gaussians and mixtures are pushed exactly where the map is affine on them, and refused otherwise.

        Arguments:
            mu: the measure to push, which is also the context.
        """
        if type(mu) not in LAYOUTS and isinstance(mu, AbstractGaussianLike):
            self.check_meets(mu, None)
            return self.push_gaussian(mu)
        y = values(self, mu, None, None)
        atoms = cast_type(AbstractAtomic, mu)  # there are no other measures
        same: Any = atoms if atoms.log_weights.dtype == y.dtype else cast(atoms, y.dtype)
        return type(same).with_points(same, y)  # a bound method of a module takes longer to make than to call

    def push_gaussian(self, mu: GaussianLike) -> GaussianLike:
        """The image of a Gaussian or a mixture under the affine map x ↦ G(mu, x).

        Arguments:
            mu: the Gaussian or mixture, which is also the context.
        """
        if not self.affine_on(mu):
            raise no_closed_form(self, mu, "push-forward")
        parts = cast((self, mu), common_dtype(self, mu))
        matrix, shift = affine_parts(*parts)
        return parts[1].push_affine(matrix, shift)

    @quick
    def tokens(self, X: ArrayLike) -> Float[Array, "n e"]:
        """The layer in its classical form, on the rows of an array: the atoms of the push of the uniform measure.

        Arguments:
            X: tokens, (n, d); a map on space–time sees row i at time (i+1)/n.
        """
        if known_of(self).needs_time:
            return self.push(SpaceTime.sequence(X)).points
        return values(self, of_rows(X), None, None)

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

    def __truediv__(self, divisor: ArrayLike) -> Scaled:
        if _is_map(divisor) or isinstance(divisor, AbstractMeasure):
            return NotImplemented
        number = scalar(divisor, "divisor")
        if not is_traced(number) and float(number) == 0:
            raise OptionError(
                got="a map divided by 0", need="a number other than 0", do="Multiply by 0 for the zero map."
            )
        return self * (1 / (number if is_traced(number) else np.asarray(number)))

    def __neg__(self) -> AbstractInContextMap:
        return self * -1.0

    def __str__(self) -> str:
        """The structure in words; `repr` lists the arrays."""
        return type(self).__name__

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


def _is_map(other: Any) -> bool:
    return isinstance(other, AbstractInContextMap)


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
