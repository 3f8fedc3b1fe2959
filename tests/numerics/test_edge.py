"""The edge: what comes in, in which precision it meets, and what goes out."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import DtypeError, NotFiniteError
from measureformer.numerics import edge
from measureformer.numerics.arrays import floats, untraced
from measureformer.numerics.buckets import pad_all, pad_axis

X = np.random.default_rng(0).normal(size=(20, 2))
LAYOUT = edge.Layout((0, 0), (1,))


class OnlyDlpack:
    """An array of a library that knows neither NumPy nor JAX."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


class OnlyArray:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)


class WithGraph:
    """Like a torch tensor that waits for a backward pass."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


@pytest.mark.parametrize("wrap", [OnlyDlpack, OnlyArray, np.ndarray.tolist, jnp.asarray])
def test_arrays_of_other_libraries_are_read(wrap: Any) -> None:
    mu = mf.Discrete.uniform(wrap(X))
    np.testing.assert_array_equal(mu.points, X)
    G = mf.Attention.head(wrap(np.eye(2)), np.eye(2), np.eye(2))
    np.testing.assert_array_equal(G(mu, wrap(X)), G(mu, X))
    np.testing.assert_array_equal(mf.attend(wrap(X), wrap(X), wrap(X)).values, mf.attend(X, X, X).values)


def test_torch_tensors_are_read_without_importing_torch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        rows = torch.tensor(X, dtype=dtype)
        found = floats(rows, "x")
        assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)
        np.testing.assert_array_equal(np.asarray(found), rows.double().numpy())
    with pytest.raises(DtypeError, match=r"x\.detach\(\)\.cpu\(\)"):
        floats(torch.tensor(X, requires_grad=True), "x")


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(DtypeError, match="requires grad") as caught:
        mf.Discrete.uniform(WithGraph())  # type: ignore[arg-type]
    assert "points.detach().cpu()" in caught.value.do


def centred(layer: Any, mu: Any, x: Any, t: Any) -> Any:
    return layer * (mu.points - mu.mean()) if x is None else layer * (x - mu.mean())


def called(layer: Any, mu: Any, x: Any = None) -> Any:
    def refuse(dtype: Any, bad: Any) -> None:
        raise NotFiniteError(got=f"{dtype}", need="finite", do=f"{np.argwhere(bad)[0].tolist()}")

    rows, structure = jax.tree.flatten(mu)
    return edge.call(edge.Layer(layer), centred, (structure, rows), (x, None), LAYOUT, refuse=refuse)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_padding_is_cut_off_and_changes_nothing(n: int) -> None:
    # kills: rows that are not cut, pad rows with mass, queries counted as atoms
    weights = np.linspace(1, 2, n)
    mu = mf.Discrete.weighted(X[:1].repeat(n, 0) + np.arange(n)[:, None], weights)
    mean = weights @ np.asarray(mu.points) / weights.sum()
    np.testing.assert_allclose(called(np.array(2.0), mu), 2 * (np.asarray(mu.points) - mean), atol=1e-12)
    np.testing.assert_allclose(called(np.array(2.0), mu, X[:3]), 2 * (X[:3] - mean), atol=1e-12)


def test_precisions_meet_in_the_widest_and_scalars_do_not_vote() -> None:
    single = mf.Discrete.uniform(X.astype(np.float32))
    assert called(np.array(2.0), single).dtype == np.float32
    assert called(np.full((1, 2), 2.0), single).dtype == np.float64
    assert called(np.array(2.0, np.float32), single, X).dtype == np.float64


def test_values_that_are_not_finite_are_refused_where_they_are() -> None:
    with pytest.raises(NotFiniteError, match=r"got float64.*\[0, 1\]"):
        called(np.array([[1.0, np.inf]]), mf.Discrete.uniform(X), X + 1)


def test_tracers_pass_through_and_concrete_arrays_are_computed_at_once() -> None:
    mu = mf.Discrete.uniform(X)

    def inside(x: Any) -> Any:
        assert not untraced()
        assert isinstance(called(np.array(2.0), mu, X), jax.Array)
        assert not isinstance(called(np.array(2.0), mu, X), jax.core.Tracer)
        return called(np.array(2.0), mu, x)

    assert untraced()
    np.testing.assert_allclose(jax.jit(inside)(X), called(np.array(2.0), mu, X), atol=1e-14)
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(inside(x)))(X), np.full(X.shape, 2.0), atol=1e-14)


def test_layers_of_one_structure_share_programs_and_new_sizes_compile_nothing() -> None:
    called(np.array(2.0), mf.Discrete.uniform(X))

    def others() -> None:
        for n in (18, 25, 32):
            called(np.array(float(n)), mf.Discrete.uniform(np.ones((n, 2))))

    assert count_compilations(others) == 0


def test_padding_along_any_axis() -> None:
    block = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(pad_axis(block, 5, -2)[:, 3:], np.repeat(block[:, :1], 2, axis=1))
    assert (pad_axis(block, 4, 2, -np.inf)[..., 2:] == -np.inf).all()
    assert pad_axis(block, 3, 1) is block
    rows, queries = pad_all([X, np.zeros(20)], (0, 0), (1,), (X[:3], None), (0, 0))
    assert (rows[0].shape, queries[0].shape, queries[1]) == ((32, 2), (16, 2), None)
    assert (rows[1][20:] == -np.inf).all()
    # two measures share the size of the larger one, and numbers beside queries stay
    rows, queries = pad_all([X[:3], np.zeros(3), X, np.zeros(20)], (0,) * 4, (1, 3), (X[:3], X), (0,))
    assert [len(row) for row in rows] == [32] * 4
    assert queries[0].shape == (16, 2)
    assert queries[1] is X
    assert pad_all([X], (0,), (), (None,), (0,))[0][0] is X


def _mass_and_number(scale: Any, atoms: Any, number: Any) -> Any:
    points, log_weights = atoms
    return scale[0] * jnp.exp(log_weights) @ points + number


def test_a_program_whose_values_are_not_rows_meets_padded_atoms() -> None:
    layer, structure = edge.Layer((np.float64(2.0),)), jax.tree.structure((0, 0))
    layout, number = edge.Layout((0, 0), (1,), ()), np.asarray(3.0)

    def found(n: int) -> Any:
        return edge.run(layer, _mass_and_number, (structure, (X[:n], np.zeros(n))), (number,), layout)

    np.testing.assert_allclose(found(20), 2 * X.sum(axis=0) + 3, rtol=1e-14)
    # kills: rows that are not padded, and numbers that are compiled into the program
    assert count_compilations(lambda: [found(n) for n in (17, 19)]) == 0
    # a traced number passes through, and so does its derivative
    slope = jax.jacfwd(lambda a: edge.run(layer, _mass_and_number, (structure, (X, np.zeros(20))), (a,), layout))
    np.testing.assert_array_equal(slope(3.0), np.ones(2))


def test_integer_queries_do_not_decide_the_precision() -> None:
    single, structure = X.astype(np.float32), jax.tree.structure((0, 0))

    def program(_: Any, atoms: Any, x: Any, index: Any) -> Any:
        return x + atoms[0][index]

    def refuse(dtype: Any, bad: Any) -> None:
        raise AssertionError

    atoms = structure, (single, np.zeros(20, np.float32))
    found = edge.call(edge.Layer(()), program, atoms, (single[:3], np.arange(3)), LAYOUT, refuse=refuse)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, 2 * single[:3])


def test_programs_are_forgotten_unless_a_layer_has_them() -> None:
    # kills: a cache without a bound, and one that takes its program away from a layer
    structure = jax.tree.structure((0, 0))
    kept = edge.Layer((X, "kept"))
    mine = weakref.ref(kept.compiled(_mass_and_number, structure))
    others = [weakref.ref(edge.Layer((X, i)).compiled(_mass_and_number, structure)) for i in range(600)]
    gc.collect()
    assert sum(other() is not None for other in others) <= edge.PROGRAMS < 600
    assert mine() is not None
    assert kept.compiled(_mass_and_number, structure) is mine()
