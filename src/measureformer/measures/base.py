"""`AbstractMeasure`: a positive measure of finite mass on R^d, and nothing that moves it."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, Self

import equinox as eqx
from jaxtyping import Array, Float

from measureformer.errors import NegativeWeightError
from measureformer.numerics.arrays import default_float, floats, is_traced, namespace, on_device
from measureformer.numerics.types import ArrayLike, Key

if TYPE_CHECKING:
    from measureformer.measures.atomic import AbstractAtomic


class AbstractMeasure(eqx.Module):
    """A finite positive measure: add two of them, multiply by a positive number, integrate, push, sample.

    Measures are PyTrees: they go through `jit`, `grad` and `vmap`. The named constructors check values of concrete
    arrays; under a trace only shapes can be checked.

    >>> import measureformer as mf
    >>> isinstance(mf.Gaussian([0.0], [[1.0]]), mf.measures.AbstractMeasure)
    True
    """

    # NumPy would otherwise try to multiply a measure element by element
    __array_ufunc__: ClassVar[None] = None

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Dimension d of the space the measure lives on."""

    @property
    @abc.abstractmethod
    def log_mass(self) -> Float[Array, ""]:
        """Logarithm of the total mass."""

    @property
    def mass(self) -> Float[Array, ""]:
        """Total mass |mu|."""
        return on_device(namespace(self).exp(self.log_mass))

    @abc.abstractmethod
    def mean(self) -> Float[Array, " d"]:
        """Mean of the normalised measure."""

    @abc.abstractmethod
    def covariance(self) -> Float[Array, "d d"]:
        """Covariance of the normalised measure."""

    @abc.abstractmethod
    def reweighted(self, log_factor: ArrayLike) -> Self:
        """The measure times e^{log_factor}."""

    @abc.abstractmethod
    def sample(self, key: Key, n: int) -> AbstractAtomic:
        """The empirical measure of n independent draws from the normalised measure; its mass is 1.

        Arguments:
            key: random key, e.g. `jax.random.key(0)`.
            n: number of draws.
        """

    def second_moment(self) -> Float[Array, "d d"]:
        """∫ y yᵀ dmu of the normalised measure."""
        mean = self.mean()
        return self.covariance() + mean[:, None] * mean[None, :]

    def normalized(self) -> Self:
        """The same measure with mass 1."""
        return self.reweighted(-self.log_mass)

    def __mul__(self, factor: ArrayLike) -> Self:
        if isinstance(factor, AbstractMeasure):
            return NotImplemented
        return self.reweighted(_log_positive(factor, "factor"))

    __rmul__ = __mul__

    def __truediv__(self, divisor: ArrayLike) -> Self:
        if isinstance(divisor, AbstractMeasure):
            return NotImplemented
        return self.reweighted(-_log_positive(divisor, "divisor"))


def _log_positive(value: Any, name: str) -> Any:
    """The logarithm of one positive finite number, in the default precision whatever the number came in."""
    number = floats(value, name)
    if number.ndim != 0 or (not is_traced(number) and not 0 < float(number) < float("inf")):
        raise NegativeWeightError(
            got=f"the {name} {value!r}",
            need="one positive finite number",
            do="Measures form a cone: scale by c > 0, and leave an atom out instead of giving it mass 0 this way.",
        )
    return namespace(number).log(number.astype(default_float()))
