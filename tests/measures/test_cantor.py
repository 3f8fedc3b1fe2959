"""The Cantor measure: its transforms and its distances in closed form, and attention on a context without a density."""

from __future__ import annotations

import numpy as np
import pytest

import measureformer as mf
from measureformer import errors


@pytest.mark.parametrize("level", [1, 4, 9])
def test_transforms_are_finite_products(level: int) -> None:
    mu, k = mf.Discrete.cantor(level), 3.0 ** -np.arange(1, level + 1)
    assert mu.n == 2**level
    for b in (-7.0, 2.5):
        value = mu.integrate(lambda y, b=b: np.exp(b * np.asarray(y)[:, 0]))
        assert float(value) == pytest.approx(np.exp(b / 2) * np.cosh(b * k).prod(), rel=1e-12)
        wave = mu.integrate(lambda y, b=b: np.cos(b * (np.asarray(y)[:, 0] - 0.5)))
        assert float(wave) == pytest.approx(np.cos(b * k).prod(), abs=1e-12)


def test_levels_approach_each_other_as_they_should() -> None:
    # a Cantor measure of size 3^{-k} around each atom of level k, and E|C − 1/2| = 1/3
    limit = mf.Discrete.cantor(14)
    for level in (2, 5):
        assert float(mf.wasserstein(mf.Discrete.cantor(level), limit, 1)) == pytest.approx(3.0**-level / 3, rel=1e-6)


def test_attention_on_a_singular_context() -> None:
    # softmax mean of the Cantor measure: 1/2 + Σ 3^{-k} tanh(b 3^{-k})
    G, b = mf.Attention.head([[1.0]], [[1.0]], [[1.0]]), 6.0
    k = 3.0 ** -np.arange(1, 40)
    exact = 0.5 + (k * np.tanh(b * k)).sum()
    found = [abs(float(G(mf.Discrete.cantor(level), [b])[0]) - exact) for level in (2, 3, 4, 5)]
    np.testing.assert_allclose(np.array(found[:-1]) / found[1:], 9, rtol=0.05)


def test_too_many_levels_are_refused() -> None:
    with pytest.raises(errors.TooManyAtomsError, match=r"2\^40"):
        mf.Discrete.cantor(40)
    with pytest.raises(errors.OptionError, match="at least 1"):
        mf.Discrete.cantor(0)
