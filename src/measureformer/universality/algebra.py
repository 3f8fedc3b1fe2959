"""The cylindrical algebra: sums and products of elementary blocks, as values that can be evaluated on any measure."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import AbstractMeasure
from measureformer.measures.atomic import concrete
from measureformer.measures.gaussian import AbstractGaussianLike
from measureformer.numerics.arrays import cast, common_dtype, finite, floats, owned, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike
from measureformer.universality.factors import Factors


class AbstractExpression(AbstractInContextMap):
    """An element of the algebra: a polynomial in elementary blocks, with one or several components.

    `+`, `-`, `*` (componentwise) and `**` build larger ones; numbers are constants. A scalar expression has values
    (m, 1), as a map with values in R¹.
    """

    # NumPy numbers on the left leave the operation to us
    __array_ufunc__ = None

    @abc.abstractmethod
    def polynomial(self) -> Expression:
        """The same element as a table of monomials."""

    # Any: an Expression, but the Sum of the base class with other maps
    def __add__(self, other: AbstractInContextMap | ArrayLike) -> Any:
        return _combined(self, other, _sum)

    def __mul__(self, other: AbstractInContextMap | ArrayLike) -> Any:
        return _combined(self, other, _product)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Expression:
        return self * (-1.0)

    def __sub__(self, other: AbstractInContextMap | ArrayLike) -> Any:
        if isinstance(other, AbstractInContextMap) and not isinstance(other, AbstractExpression):
            return super().__sub__(other)
        if isinstance(other, AbstractMeasure):
            return NotImplemented
        # anything else is an expression, or becomes an array in the sum
        return self + (-other if isinstance(other, AbstractExpression) else -np.asarray(floats(other, "constant")))

    def __rsub__(self, other: ArrayLike) -> Any:
        return -self + other

    def __pow__(self, power: int) -> Expression:
        if not isinstance(power, int) or power < 0:  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise OptionError(got=f"power = {power!r}", need="a whole number ≥ 0", do="The algebra has no inverses.")
        result = constant(np.ones(self.out_dim(0)), self.polynomial().dim)
        for _ in range(power):
            result = result * self
        return result

    def __getitem__(self, component: int) -> Expression:
        """One component, as a scalar expression."""
        whole = self.polynomial()
        return _normal(whole.factors, whole.index, np.asarray(whole.coefficients)[:, [component]])


class Block(AbstractExpression):
    """The elementary block γ[mu](x) = ⟨x, u⟩ + ∫ softmax(⟨Ax + b, y⟩)(⟨v, y⟩ + c) dmu(y).

    A block is one attention head with scalar values. Blocks generate an algebra that is dense in the continuous
    in-context maps on a compact domain. None stands for zeros; one of A, b, u, v must be given.

    Arguments:
        A: matrix of the logits, (d, d).
        b: shift of the queries, (d,).
        c: constant added to the values, a number.
        u: coefficients of the query itself, (d,).
        v: coefficients of the values, (d,).

    Statement   for every continuous Γ*: P(Ω)×Ω → R and ε > 0 there is a polynomial in blocks with sup |Γ* − e| ≤ ε
    Hypotheses  assumed: Ω compact, Γ* continuous for W_1 and |·|.
    Ref         furuya2024.

    >>> import measureformer as mf
    >>> mean = mf.universality.Block(None, None, 0.0, None, [1.0])
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> mu = mf.Discrete.uniform([[0.0], [4.0]])
    >>> ((x - mean) ** 2 + 1)(mu, [[5.0], [2.0]]).tolist()
    [[10.0], [1.0]]
    """

    A: Float[Array, "d d"]
    b: Float[Array, " d"]
    c: Float[Array, ""]
    u: Float[Array, " d"]
    v: Float[Array, " d"]

    @checked
    def __init__(
        self, A: ArrayLike | None, b: ArrayLike | None, c: ArrayLike | None, u: ArrayLike | None, v: ArrayLike | None
    ) -> None:
        given = {
            name: floats(part, name) for name, part in (("A", A), ("b", b), ("u", u), ("v", v)) if part is not None
        }
        if not given:
            raise ShapeError(
                got="a block with A, b, u and v left out",
                need="one of them, which tells the dimension",
                do="Pass u=[0.0].",
            )
        dim = next(iter(given.values())).shape[-1] if all(part.ndim for part in given.values()) else 0
        for name, part in given.items():
            wanted = (dim, dim) if name == "A" else (dim,)
            if part.shape != wanted or dim == 0:
                raise ShapeError(
                    got=", ".join(f"{key} of shape {value.shape}" for key, value in given.items()),
                    need="A of shape (d, d) and b, u, v of shape (d,)",
                    do="Pass None for what is zero.",
                )
            finite(part, name)
        dtype = common_dtype(*given.values())
        zeros = {"A": np.zeros((dim, dim), dtype), **{name: np.zeros(dim, dtype) for name in "buv"}}
        self.A, self.b, self.u, self.v = cast([owned(given.get(name, zeros[name])) for name in "Abuv"], dtype)
        self.c = cast(scalar(0.0 if c is None else c, "c"), dtype)

    @property
    def in_dim(self) -> int:
        return self.b.shape[0]

    def out_dim(self, dim: int) -> int:
        return 1

    def _factors(self) -> Factors:
        return Factors(self.A[None], self.b[None], self.c[None], self.u[None], self.v[None])

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        return self._factors().values(mu, x, t).T

    def affine_on(self, mu: AbstractGaussianLike) -> bool:
        return False

    def polynomial(self) -> Expression:
        concrete(self, "arithmetic with blocks")
        factors = Factors(*(np.asarray(leaf)[None] for leaf in (self.A, self.b, self.c, self.u, self.v)))
        return _normal(factors, np.zeros((1, 1), int), np.ones((1, 1), self.b.dtype))


class Expression(AbstractExpression):
    """A polynomial in blocks: Σ_n coefficients[n] Π_k γ_{index[n, k]}; made by arithmetic with blocks and `vector`.

    Arguments:
        factors: the blocks, stacked.
        index: blocks that each monomial multiplies, (n, k); the number of blocks stands for the constant 1.
        coefficients: of the monomials, one column for each component, (n, e).

    >>> import measureformer as mf
    >>> mean = mf.universality.Block(None, None, 0.0, None, [1.0])
    >>> e = mf.universality.vector(mean * mean, 2 * mean + 1)
    >>> e(mf.Discrete.dirac([3.0]), [0.0]).tolist(), e.degree, e.monomials
    ([9.0, 7.0], 2, 3)
    """

    factors: Factors
    index: Int[Array, "n k"]
    coefficients: Float[Array, "n e"]

    @property
    def dim(self) -> int:
        """Dimension d of the tokens."""
        return self.factors.dim

    @property
    def in_dim(self) -> int:
        return self.factors.dim

    def out_dim(self, dim: int) -> int:
        return self.coefficients.shape[1]

    @property
    def monomials(self) -> int:
        """Number of monomials, the constant one included."""
        return self.index.shape[0]

    @property
    def degree(self) -> int:
        """The largest number of blocks in a monomial."""
        return int((np.asarray(self.index) < self.factors.size).sum(axis=1).max(initial=0))

    def terms(self, component: int) -> list[tuple[float, list[int]]]:
        """Monomials of a component, those with coefficient 0 left out: coefficient and blocks.

        Arguments:
            component: number of the component.
        """
        weights = np.asarray(self.coefficients)[:, component]
        index, count = np.asarray(self.index), self.factors.size
        return [(float(weights[n]), [int(i) for i in index[n] if i < count]) for n in np.flatnonzero(weights)]

    @all_rows
    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        import jax.numpy as jnp

        blocks = self.factors.values(mu, x, t)
        blocks = jnp.concatenate([blocks, jnp.ones((1, x.shape[0]), x.dtype)])
        return jnp.prod(blocks[self.index], axis=1).T @ self.coefficients

    def polynomial(self) -> Expression:
        concrete(self, "arithmetic with expressions")
        return self

    def __str__(self) -> str:
        parts = f"{self.monomials} monomials in {self.factors.size} blocks"
        return f"Expression[{parts}, degree {self.degree}, R^{self.dim} to R^{self.coefficients.shape[1]}]"


def vector(*expressions: AbstractExpression) -> Expression:
    """Stack expressions: the components of the first, then those of the second, and so on.

    Arguments:
        expressions: blocks and expressions on the same R^d.

    >>> import measureformer as mf
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> mf.universality.vector(x, x * x)(mf.Discrete.dirac([0.0]), [3.0]).tolist()
    [3.0, 9.0]
    """
    if not expressions or not all(isinstance(e, AbstractExpression) for e in expressions):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
        raise DtypeError(
            got=f"components of types {', '.join(type(e).__name__ for e in expressions) or 'none'}",
            need="at least one expression",
            do="Build them from mf.universality.Block with +, * and numbers.",
        )
    parts = [e.polynomial() for e in expressions]
    widths = [part.out_dim(0) for part in parts]
    whole = None
    for i, part in enumerate(parts):
        _meet(parts[0], part)
        spread = np.zeros((part.monomials, sum(widths)), part.coefficients.dtype)
        start = sum(widths[:i])
        spread[:, start : start + widths[i]] = part.coefficients
        placed = Expression(part.factors, part.index, owned(spread))
        whole = placed if whole is None else _sum(whole, placed)
    assert whole is not None
    return _normal(whole.factors, whole.index, whole.coefficients)


def constant(values: ArrayLike, dim: int) -> Expression:
    """The constant expression (mu, x) ↦ values (e,) on R^dim."""
    values = np.atleast_1d(np.asarray(floats(values, "constant")))
    finite(values, "constant")
    none = Factors(*(np.zeros((1, *shape), values.dtype) for shape in ((dim, dim), (dim,), (), (dim,), (dim,))))
    return _normal(none, np.ones((1, 1), int), values[None])


def polynomial_in(factors: Factors, index: Any, coefficients: Any) -> Expression:
    """An expression from stacked blocks, a table of their products (`count` for 1) and coefficients (n, e)."""
    return _normal(factors, np.asarray(index), np.asarray(coefficients))


def _combined(one: AbstractExpression, other: Any, operation: Any) -> Any:
    if isinstance(other, AbstractMeasure):
        return NotImplemented
    if isinstance(other, AbstractInContextMap) and not isinstance(other, AbstractExpression):
        # with other maps there is only the sum of maps
        return AbstractInContextMap.__add__(one, other) if operation is _sum else NotImplemented
    left = one.polynomial()
    if isinstance(other, AbstractExpression):
        right = other.polynomial()
    else:
        number = np.asarray(floats(other, "constant"))
        if number.ndim > 1:
            raise ShapeError(
                got=f"a constant of shape {number.shape}", need="a number or (e,)", do="Give one number per component."
            )
        right = constant(number.astype(left.coefficients.dtype), left.dim)
    _meet(left, right)
    outs = {left.out_dim(0), right.out_dim(0)} - {1}
    if len(outs) > 1:
        raise DimensionMismatchError(
            got=f"expressions with {left.out_dim(0)} and {right.out_dim(0)} components",
            need="as many components, or one",
            do="Join scalar expressions with mf.universality.vector, or take a component e[i].",
        )
    return operation(left, right)


def _meet(left: Expression, right: Expression) -> None:
    if left.dim != right.dim:
        raise DimensionMismatchError(
            got=f"expressions on R^{left.dim} and R^{right.dim}",
            need="one dimension of tokens",
            do="Append zeros to A, b, u, v of the blocks of lower dimension.",
        )


def _joined(left: Expression, right: Expression) -> tuple[Factors, np.ndarray, np.ndarray]:
    """Blocks of both, and the two tables of indices into them, with the constant 1 last."""
    factors = Factors(*(np.concatenate([a, b]) for a, b in zip(left.factors, right.factors, strict=True)))
    first, second = np.asarray(left.index), np.asarray(right.index)
    first = np.where(first == left.factors.size, factors.size, first)
    return factors, first, np.where(second == right.factors.size, factors.size, second + left.factors.size)


def _sum(left: Expression, right: Expression) -> Expression:
    factors, first, second = _joined(left, right)
    width = max(first.shape[1], second.shape[1])
    tables = [
        np.pad(index, ((0, 0), (0, width - index.shape[1])), constant_values=factors.size) for index in (first, second)
    ]
    shape = (left.out_dim(0) if left.out_dim(0) > 1 else right.out_dim(0),)
    weights = [np.broadcast_to(e.coefficients, (e.monomials, *shape)) for e in (left, right)]
    return _normal(factors, np.concatenate(tables), np.concatenate(weights))


def _product(left: Expression, right: Expression) -> Expression:
    factors, first, second = _joined(left, right)
    pairs = np.concatenate([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))], axis=1)
    weights = np.asarray(left.coefficients)[:, None] * np.asarray(right.coefficients)[None]
    return _normal(factors, pairs, weights.reshape(len(pairs), -1))


def _normal(factors: Factors, index: Any, coefficients: Any) -> Expression:
    """Merge equal blocks and equal monomials, drop unused blocks and empty columns."""
    index, coefficients = np.asarray(index), np.asarray(coefficients)
    count = factors.size
    kept = np.abs(coefficients).max(axis=1) > 0
    index, coefficients = (index[kept], coefficients[kept]) if kept.any() else (index[:1], coefficients[:1])
    used = np.unique(index[index < count])
    used = used if len(used) else np.zeros(1, int)
    flat = np.concatenate([np.asarray(leaf)[used].reshape(len(used), -1) for leaf in factors], axis=1) + 0.0
    _, first, group = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), int)
    place[order] = np.arange(len(first))
    renamed = np.full(count + 1, len(first))
    renamed[used] = place[group.reshape(-1)]
    renamed[count] = len(first)
    index = np.sort(renamed[index], axis=1)
    index = index[:, : max(1, int((index < len(first)).sum(axis=1).max()))]
    table, start, group = np.unique(index, axis=0, return_index=True, return_inverse=True)
    sums = np.zeros((len(table), coefficients.shape[1]), coefficients.dtype)
    np.add.at(sums, group.reshape(-1), coefficients)
    appearance = np.argsort(start)
    parts = [owned(np.asarray(leaf)[used[first[order]]]) for leaf in factors]
    return Expression(Factors(*parts), owned(table[appearance]), owned(sums[appearance]))
