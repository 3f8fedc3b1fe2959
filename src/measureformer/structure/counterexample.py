"""The counterexample: a continuous support-preserving map between measures that no continuous in-context map gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.maps import AbstractInContextMap
from measureformer.maps.rows import all_rows
from measureformer.measures import Discrete
from measureformer.numerics.arrays import floats, positive_int, scalar
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Number

ALICE, OTHERS, REST = 0.05, (0.1, -0.08), 1.0
"""Words of the prompts on [−1, 1]: 'Alice' at 0.05 and 'Elise' at −0.05, two more near 0, and the rest at 1."""


class Counterexample(AbstractInContextMap):
    """(mu, x) ↦ x + χ(x)/4 · tanh(x/(m(mu) + softening)) on [−1, 1], m(mu) = ∫ χ dmu/|mu|, χ(x) = max(0, 1 − 4x²)²."""

    softening: Float[Array, ""]

    @property
    def in_dim(self) -> int:
        return 1

    @all_rows
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return self.moved(x, jnp.exp(mu.log_weights - mu.log_mass) @ bump(mu.points)[:, 0])

    def moved(self, x: Any, mass_near_zero: Any) -> Any:
        """φ_s(x), with φ_0 the limit."""
        s = mass_near_zero + self.softening
        turned = jnp.where(s > 0, jnp.tanh(x / jnp.where(s > 0, s, 1)), jnp.sign(x))
        return x + bump(x) / 4 * turned


def bump(x: Any) -> Any:
    """χ(x) = max(0, 1 − 4x²)²: continuously differentiable, 1 at 0, 0 outside of [−½, ½]."""
    return jnp.maximum(0, 1 - 4 * x**2) ** 2


class MapOfMeasures:
    """f(mu) = G(mu, ·)♯mu as a black box: `f(mu)`; `f.map` is G.

    Arguments:
        G: the in-context map.
    """

    def __init__(self, G: AbstractInContextMap) -> None:
        self.map = G

    def __call__(self, mu: Discrete) -> Discrete:
        return self.map.push(mu)


@checked
def counterexample(*, softening: Number = 0.0) -> MapOfMeasures:
    """A continuous, support-preserving map f of measures on [−1, 1] that is not a transformer.

    f(mu) = φ_m♯mu with φ_m(x) = x + χ(x)/4 · tanh(x/m), where m = ∫χ dmu/|mu| is the mass near 0 and χ is a bump. As
    m → 0, f moves less and less mass, hence is continuous; but what is left moves by ±1/4, depending on the side of 0.

    Arguments:
        softening: s ≥ 0 in tanh(x/(m + s)); any s > 0 gives the control, which a continuous in-context map represents.

    Statement   W_1(f(mu), mu) ≤ m(mu)/4;  G(mu_n^±, ±h_n) → ±1/4 although (mu_n^±, ±h_n) → (δ_1, 0) for
                mu_n^± = δ_{±h_n}/n + (1 − 1/n) δ_1, h_n = n^{−1/2};  f is not Lipschitz: its local constant at
                δ_0/n + (1 − 1/n) δ_1 is 1 + n/4
    Ref         furuya2025, Proposition 1.

    >>> import measureformer as mf
    >>> f, G = mf.structure.counterexample(), mf.recover(mf.structure.counterexample())
    >>> G(mf.Discrete.dirac([1.0]), [[-1e-3], [0.0], [1e-3]]).round(6).tolist()
    [[-0.250998], [0.0], [0.250998]]
    """
    number = scalar(softening, "softening")
    if float(number) < 0:
        raise OptionError(got=f"softening = {softening}", need="softening ≥ 0", do="0 is the counterexample itself.")
    return MapOfMeasures(Counterexample(number))


class Prompts(NamedTuple):
    """Two prompts of n tokens (n, 1) that differ in their first word, `distance` apart in W_1."""

    alice: np.ndarray
    elise: np.ndarray
    distance: float


@checked
def prompts(n: int, *, delta: Number = ALICE) -> Prompts:
    """Two prompts that differ in their first word only: 'Alice' at delta, or 'Elise' at −delta.

    Their distance W_1 = 2·delta/n vanishes as n grows, but the images of the first word under the counterexample stay
    apart, by χ(delta)/2 + 2·delta in the limit.

    Arguments:
        n: tokens of each prompt, at least 4.
        delta: place of 'Alice', in (0, 1/2).

    >>> import measureformer as mf
    >>> two = mf.structure.prompts(10_000)
    >>> G = mf.structure.counterexample().map
    >>> two.distance, round(float(G.tokens(two.alice)[0, 0] - G.tokens(two.elise)[0, 0]), 5)
    (1e-05, 0.59005)
    """
    n, size = positive_int(n, "n"), float(floats(delta, "delta"))
    if n < 4 or not 0 < size < 0.5:
        raise OptionError(
            got=f"n = {n}, delta = {size:g}", need="n ≥ 4 and 0 < delta < 1/2", do="Three words are near 0."
        )
    alice, elise = (np.array([sign * size, *OTHERS, *[REST] * (n - 3)])[:, None] for sign in (1, -1))
    return Prompts(alice, elise, 2 * size / n)
