"""Random numbers in bucket sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilations import count_compilations
from measureformer.errors import DtypeError
from measureformer.numerics.random import normal, two_keys, uniform

DRAWS: dict[str, Callable[[Any, int], Any]] = {"normal": lambda key, n: normal(key, (n, 2)), "uniform": uniform}
LARGE = 40_000


@pytest.mark.parametrize("case", DRAWS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), n=st.sampled_from([1, 7]), more=st.sampled_from([8, 3000]))
def test_few_draws_are_the_first_of_many(case: str, seed: int, n: int, more: int) -> None:
    # kills: numbers that depend on the bucket, a key that is ignored or used up
    draw, key = DRAWS[case], jax.random.key(seed)
    few, many = draw(key, n), draw(key, n + more)
    assert isinstance(few, np.ndarray)
    assert len(few) == n
    np.testing.assert_array_equal(few, many[:n])
    assert not np.isin(draw(jax.random.key(seed + 1), n), many).any()


@pytest.mark.parametrize("case", DRAWS)
def test_traced_and_old_keys_draw_the_same(case: str) -> None:
    draw = DRAWS[case]
    for key in (jax.random.key(3), jax.random.PRNGKey(3)):
        # not bit for bit: the two are different programs, and the last digit depends on how they were compiled
        traced = jax.jit(lambda key: draw(key, 20))(key)
        np.testing.assert_allclose(traced, draw(jax.random.key(3), 20), rtol=8 * np.finfo(np.float64).eps)
        assert jax.jit(lambda x, key=key: x + draw(key, 20).sum())(0.0) == pytest.approx(draw(key, 20).sum())


def deviation(values: np.ndarray, mean: float, variance: float) -> float:
    """How far the sample mean is from `mean`, in standard errors."""
    return abs(values.mean() - mean) / (variance / len(values)) ** 0.5


def test_laws_of_the_draws() -> None:
    """Means of functions within 5 standard errors; for the other law they are more than 10 away."""
    gauss = normal(jax.random.key(0), (LARGE,))
    flat = uniform(jax.random.key(0), LARGE)
    assert flat.min() >= 0
    assert flat.max() < 1
    # E z = 0, E z² = 1 with variance 2, P(z < 1) = 0.8413…; E u = 1/2, E u² = 1/3 with variance 4/45
    below = 0.8413447460685429
    for values, close in ((gauss, True), (12**0.5 * (flat - 0.5), False)):
        assert deviation(values, 0, 1) < 5
        assert deviation(values**2, 1, 2) < 5
        share = deviation(values < 1, below, below * (1 - below))
        assert share < 5 if close else share > 10
    for values, close in ((flat, True), (gauss, False)):
        shares = deviation(values, 1 / 2, 1 / 12), deviation(values**2, 1 / 3, 4 / 45)
        assert max(shares) < 5 if close else min(shares) > 10
    # neighbours are uncorrelated
    assert deviation(gauss[::2] * gauss[1::2], 0, 1) < 5


def test_two_keys_are_new_and_stay_concrete() -> None:
    key = jax.random.key(5)
    numbers = [tuple(np.asarray(jax.random.key_data(k)).tolist()) for k in (key, *two_keys(key))]
    assert len(set(numbers)) == 3

    def draw(x: Any) -> Any:
        return x + uniform(two_keys(key)[1], 3)

    np.testing.assert_array_equal(jax.jit(draw)(0.0), uniform(two_keys(key)[1], 3))
    np.testing.assert_array_equal(jax.jit(lambda k: uniform(two_keys(k)[1], 3))(key), uniform(two_keys(key)[1], 3))


@pytest.mark.parametrize("draw", [*DRAWS.values(), lambda key, n: two_keys(key)], ids=[*DRAWS, "two_keys"])
@pytest.mark.parametrize("key", [7, None, np.array([0, 7], np.uint32), "seed"], ids=str)
def test_refuses_what_is_not_a_key(draw: Callable[[Any, int], Any], key: Any) -> None:
    with pytest.raises(DtypeError, match=f"of type {type(key).__name__}; need one JAX random key"):
        draw(key, 3)


@pytest.mark.parametrize("case", DRAWS)
def test_a_new_n_compiles_nothing(case: str) -> None:
    DRAWS[case](jax.random.key(0), 1000)
    for n in (1000, 1001, 1023):
        assert count_compilations(lambda n=n: DRAWS[case](jax.random.key(1), n)) == 0
