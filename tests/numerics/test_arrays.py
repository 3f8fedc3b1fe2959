"""Array intake: what becomes which array, what is refused, and that nothing is shared with the user's arrays."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compilations import count_compilations
from measure_examples import aligned
from measureformer.errors import DtypeError, MeasureformerError, NotFiniteError, OptionError, ShapeError
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    finite,
    floats,
    is_traced,
    namespace,
    on_device,
    owned,
    positive_int,
    prng_key,
    scalar,
    shaped,
)

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
ACCEPTED = {
    "list": ([[1, 2], [3, 4]], DOUBLE),
    "list of floats": ([[1.0, 2.0], [3.0, 4.0]], DOUBLE),
    "list of arrays": ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], DOUBLE),
    "integers": (np.array([[1, 2], [3, 4]]), DOUBLE),
    "unsigned bytes": (np.array([[1, 2], [3, 4]], np.uint8), DOUBLE),
    "float16": (np.array([[1, 2], [3, 4]], np.float16), SINGLE),
    "float32": (np.array([[1, 2], [3, 4]], np.float32), SINGLE),
    "float64": (np.array([[1, 2], [3, 4]], np.float64), DOUBLE),
    "longdouble": (np.array([[1, 2], [3, 4]], np.longdouble), DOUBLE),
    "big endian": (np.array([[1, 2], [3, 4]], ">f8"), DOUBLE),
    "columns first": (np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), DOUBLE),
    "JAX bfloat16": (jnp.array([[1, 2], [3, 4]], jnp.bfloat16), SINGLE),
    "JAX float32": (jnp.array([[1, 2], [3, 4]], jnp.float32), SINGLE),
    "JAX float64": (jnp.array([[1, 2], [3, 4]], jnp.float64), DOUBLE),
    "JAX integers": (jnp.array([[1, 2], [3, 4]], jnp.int32), DOUBLE),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_intake(case: str) -> None:
    value, dtype = ACCEPTED[case]
    found = floats(value, "points")
    assert found.dtype == dtype
    np.testing.assert_array_equal(owned(found), [[1, 2], [3, 4]])
    assert owned(found).dtype == dtype


def test_booleans_are_numbers() -> None:
    np.testing.assert_array_equal(floats([True, False], "weights"), [1.0, 0.0])
    assert floats(np.array([True]), "weights").dtype == DOUBLE
    assert float(scalar(True, "step")) == 1.0


def test_without_64_bits_everything_is_float32() -> None:
    # kills: a float64 NumPy array passed on, to be rounded silently later
    with jax.enable_x64(False):
        for value in ([1, 2], [1.0, 2.0], np.ones(2), np.arange(2), np.ones(2, np.float16)):
            assert floats(value, "weights").dtype == SINGLE


REFUSED: dict[str, tuple[Callable[[], Any], type[MeasureformerError], str]] = {
    "string": (lambda: floats("abc", "points"), DtypeError, "points = 'abc' of type str"),
    "strings": (lambda: floats([["1.0", "2.0"]], "points"), DtypeError, "points of dtype <U3"),
    "complex": (lambda: floats([1j], "points"), DtypeError, "complex128"),
    "JAX complex": (lambda: floats(jnp.array([1j]), "points"), DtypeError, "complex128"),
    "None": (lambda: floats(None, "points"), DtypeError, "points = None of type NoneType"),
    "fractions": (lambda: floats([Fraction(1, 2)], "points"), DtypeError, "object"),
    "dates": (lambda: floats(np.array(["2026-01-01"], "datetime64[D]"), "points"), DtypeError, "datetime64"),
    "ragged": (lambda: floats([[1.0, 2.0], [3.0]], "points"), ShapeError, "points that is a ragged"),
    "NaN": (lambda: finite(np.array([0.0, np.nan]), "mean"), NotFiniteError, r"mean with 1 .* index \(1,\)"),
    "infinity": (
        lambda: finite(np.array([[0.0], [-np.inf], [np.inf]]), "points"),
        NotFiniteError,
        r"points with 2 .* index \(1, 0\)",
    ),
    "one axis": (lambda: shaped(np.ones(3), "points", "n d"), ShapeError, r"points of shape \(3,\); need 2 axes"),
    "three axes": (lambda: shaped(np.ones((1, 1, 1)), "cov", "d d"), ShapeError, r"cov of shape \(1, 1, 1\)"),
    "not one number": (lambda: scalar([1.0, 2.0], "step"), ShapeError, r"step of shape \(2,\)"),
    "not a finite number": (lambda: scalar(np.nan, "step"), NotFiniteError, "step = nan"),
    "zero": (lambda: positive_int(0, "n"), OptionError, "n = 0"),
    "negative": (lambda: positive_int(np.int64(-3), "n"), OptionError, "n = -3"),
    "not whole": (lambda: positive_int(2.0, "n"), DtypeError, "n = 2.0 of type float"),
    "a seed": (lambda: prng_key(7), DtypeError, "key = 7 of type int"),
    "no key": (lambda: prng_key(None), DtypeError, "key = None"),
    "a NumPy key": (lambda: prng_key(np.array([0, 7], np.uint32)), DtypeError, "of type ndarray"),
    "several keys": (lambda: prng_key(jax.random.split(jax.random.key(0), 2)), DtypeError, "need one JAX random key"),
    "an array": (lambda: prng_key(jnp.zeros(2)), DtypeError, "need one JAX random key"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    run, error, sentence = REFUSED[case]
    with pytest.raises(error, match=sentence):
        run()


def test_what_is_not_refused() -> None:
    assert positive_int(np.int64(3), "n") == 3
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert prng_key(key) is key
    # values under a trace cannot be looked at, shapes can
    assert np.isnan(jax.jit(lambda x: finite(x, "x") or x)(np.nan))
    with pytest.raises(ShapeError, match=r"x of shape \(2,\)"):
        jax.jit(lambda x: scalar(x, "x"))(np.ones(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_owned_arrays_are_not_the_users(dtype: type) -> None:
    # kills: device_put without a copy, which shares memory when the array is aligned
    for size in (1, 64, 4096):
        given = aligned(size, 2, dtype=dtype)
        taken = owned(floats(given, "points"))
        given[:] = 7
        assert (np.asarray(taken) == 1).all()


def test_tracers_are_seen_wherever_they_are() -> None:
    def look(x: Any) -> Any:
        assert is_traced(x)
        assert is_traced({"a": [np.ones(2), x]})
        assert not is_traced(np.ones(2), [1.0])
        assert namespace(x, np.ones(2)) is jnp
        return floats([x, 1.0], "weights")

    assert namespace(np.ones(2), jnp.ones(2)) is np
    np.testing.assert_array_equal(jax.jit(look)(2.0), [2.0, 1.0])
    np.testing.assert_array_equal(jax.jacfwd(look)(2.0), [1.0, 0.0])


def test_what_is_concrete_stays_concrete_inside_a_trace() -> None:
    # kills: device_put staged into the caller's program, whose result NumPy cannot read
    def double(x: Any) -> Any:
        assert not is_traced(on_device(np.ones(2)), owned(np.ones(2)))
        return 2 * x

    assert float(jax.jit(jax.grad(double))(1.0)) == 2.0
    np.testing.assert_array_equal(jax.vmap(double)(jnp.ones(2)), [2.0, 2.0])


def test_common_dtype_and_cast() -> None:
    single, double = np.ones(2, np.float32), np.ones(2)
    assert common_dtype(single, [jnp.asarray(single)]) == SINGLE
    assert common_dtype(single, {"b": double}) == DOUBLE
    assert common_dtype([1, "a", None]) == DOUBLE
    # one number does not decide the precision of an array, nor do integers
    assert common_dtype(single, np.float64(1), jnp.asarray(1.0), np.arange(3)) == SINGLE
    tree = cast({"a": single, "b": jnp.asarray(double), "c": np.arange(2), "d": "word"}, np.float32)
    assert isinstance(tree["a"], np.ndarray)
    assert isinstance(tree["b"], jax.Array)
    assert [tree[k].dtype for k in "abc"] == [SINGLE, SINGLE, np.dtype(np.int64)]
    assert tree["d"] == "word"
    assert jax.jit(lambda x: cast(x, np.float32))(double).dtype == SINGLE


@pytest.mark.parametrize("size", [37, 38])
def test_intake_compiles_nothing(size: int) -> None:
    def take() -> None:
        for value in (np.ones(size), np.arange(size), jax.device_put(np.arange(size)), [1.0] * size):
            owned(floats(value, "weights"))
        cast(jax.device_put(np.ones(size)), np.float32)

    assert count_compilations(take) == 0
