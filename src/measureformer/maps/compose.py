"""Putting maps together: identity, ⋄-composition, sums, multiples, residual connections."""

from __future__ import annotations

from typing import cast

from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError
from measureformer.maps.base import AbstractInContextMap, GaussianLike
from measureformer.maps.call import at_own_atoms, value
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike


class Identity(AbstractInContextMap):
    """(mu, x) ↦ x, the unit of composition.

    >>> import measureformer as mf
    >>> mf.Identity()(mf.Discrete.dirac([1.0]), [5.0]).tolist()
    [5.0]
    """

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return x

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return True


class Compose(AbstractInContextMap):
    """The composition G_L ⋄ … ⋄ G_1, written `G_L @ … @ G_1`: each layer reads the measure the layer before produced.

    Arguments:
        maps: the layers, outermost first, as written.

    Statement   (G2 ⋄ G1)(mu, x) = G2(G1(mu,·)♯mu, G1(mu, x)); associative, and push is functorial:
                (G2 ⋄ G1).push = G2.push ∘ G1.push
    Ref         furuya2025, equation (8).
    """

    maps: tuple[AbstractInContextMap, ...]

    @staticmethod
    def of(outer: AbstractInContextMap, inner: AbstractInContextMap) -> Compose:
        """outer ⋄ inner, with nested compositions flattened; dimensions that do not match are refused.

        Arguments:
            outer: the map that acts second.
            inner: the map that acts first.
        """
        maps: list[AbstractInContextMap] = []
        for part in (outer, inner):
            maps += part.maps if isinstance(part, Compose) else [part]
        composed = Compose(tuple(maps))
        if (dim := composed.in_dim) is not None:
            composed.out_dim(dim)
        return composed

    @property
    def in_dim(self) -> int | None:
        # a layer that accepts any dimension keeps it, so the first one that insists decides
        return next((G.in_dim for G in reversed(self.maps) if G.in_dim is not None), None)

    def out_dim(self, dim: int) -> int:
        for G in reversed(self.maps):
            if G.in_dim is not None and G.in_dim != dim:
                raise DimensionMismatchError(
                    got=f"a composition that hands R^{dim} to {type(G).__name__} on R^{G.in_dim}",
                    need="each layer on the dimension the one before (to its right) produces",
                    do="Put a mf.Linear between them.",
                )
            dim = G.out_dim(dim)
        return dim

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        *later, first = self.maps
        for G in reversed(later):
            y, own = value(first, mu, x, t), at_own_atoms(mu, x, t)
            # at the atoms each layer is computed once: its values are the atoms of the next measure
            mu = cast(AbstractAtomic, mu).with_points(y) if own else _pushed(first, mu)
            x, first = y, G
        return value(first, mu, x, t)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        for G in reversed(self.maps):
            if not G.affine_on(mu):
                return False
            mu = G.push_gaussian(mu)
        return True

    def push_gaussian(self, mu: GaussianLike) -> GaussianLike:
        for G in reversed(self.maps):
            mu = G.push_gaussian(mu)
        return mu

    def __str__(self) -> str:
        return " ⋄ ".join(str(G) for G in self.maps)

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        # what later layers meet is known only after the earlier ones have run
        self.maps[-1].examine(mu, x, t)


def _pushed(G: AbstractInContextMap, mu: AbstractMeasure) -> AbstractMeasure:
    if not isinstance(mu, AbstractAtomic):
        return G.push_gaussian(cast(AbstractGaussianLike, mu))
    return mu.with_points(value(G, mu, mu.points, getattr(mu, "times", None)))


class Sum(AbstractInContextMap):
    """(G + H)(mu, x) = G(mu, x) + H(mu, x), written `G + H`.

    Arguments:
        first: the map G.
        second: the map H, of the same dimensions.
    """

    first: AbstractInContextMap
    second: AbstractInContextMap

    def __check_init__(self) -> None:
        dims = {G.in_dim for G in (self.first, self.second) if G.in_dim is not None}
        outs = {G.out_dim(dim) for G in (self.first, self.second) for dim in dims}
        if len(dims) > 1 or len(outs) > 1:
            raise DimensionMismatchError(
                got=f"a sum of {self.first} and {self.second}, which act on or map to different dimensions",
                need="equal dimensions in and out",
                do="Compose one of them with mf.Linear.",
            )

    @property
    def in_dim(self) -> int | None:
        return self.first.in_dim if self.first.in_dim is not None else self.second.in_dim

    def out_dim(self, dim: int) -> int:
        return self.first.out_dim(dim)

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return value(self.first, mu, x, t) + value(self.second, mu, x, t)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return self.first.affine_on(mu) and self.second.affine_on(mu)

    def __str__(self) -> str:
        return f"({self.first} + {self.second})"

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        self.first.examine(mu, x, t)
        self.second.examine(mu, x, t)


class AbstractWrapper(AbstractInContextMap):
    """A map made from one other map, of the same dimensions and with the same refusals."""

    map: AbstractInContextMap

    @property
    def in_dim(self) -> int | None:
        return self.map.in_dim

    def out_dim(self, dim: int) -> int:
        return self.map.out_dim(dim)

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return self.map.affine_on(mu)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.map})"

    def examine(self, mu: AbstractMeasure, x: Array, t: Array | None) -> None:
        self.map.examine(mu, x, t)


class Scaled(AbstractWrapper):
    """(c G)(mu, x) = c · G(mu, x), written `c * G`.

    Arguments:
        map: the map G.
        factor: the number c.
    """

    map: AbstractInContextMap
    factor: Float[Array, ""]

    def __init__(self, map: AbstractInContextMap, factor: ArrayLike) -> None:
        self.map = map
        self.factor = scalar(factor, "factor")

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return self.factor * value(self.map, mu, x, t)


class Residual(AbstractWrapper):
    """x ↦ x + step · G(mu, x): a skip connection, and one explicit Euler step of the flow with velocity G.

    Arguments:
        map: the map G, of a space to itself.
        step: factor of the values of G.

    >>> import measureformer as mf
    >>> layer = mf.Residual(mf.Linear([[3.0]]), step=0.5)
    >>> layer(mf.Discrete.dirac([0.0]), [2.0]).tolist()
    [5.0]
    """

    map: AbstractInContextMap
    step: Float[Array, ""]

    @checked
    def __init__(self, map: AbstractInContextMap, step: ArrayLike = 1.0) -> None:
        if map.in_dim is not None and map.out_dim(map.in_dim) != map.in_dim:
            raise DimensionMismatchError(
                got=f"{type(map).__name__} from R^{map.in_dim} to R^{map.out_dim(map.in_dim)}",
                need="a map of a space to itself, since x is added",
                do="Compose it with mf.Linear first.",
            )
        self.map = map
        self.step = scalar(step, "step")

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return x + self.step * value(self.map, mu, x, t)
