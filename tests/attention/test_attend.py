"""The engine against long double, dense formulas and brute force."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from measureformer.attention.hardmax import hardmax
from measureformer.attention.linear import kernel_sums
from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    NotFiniteError,
    NothingVisibleError,
    OptionError,
    ShapeError,
    ToleranceError,
    ZeroMassError,
)

SMALL = mf.Streaming(block=(4, 8))
# the last two are large enough to choose between a bound and a running maximum, one for each
CASES = [(1, 1, 1.0), (7, 20, 1.0), (5, 5000, 3.0), (700, 40, 30.0), (900, 5000, 1.0), (900, 5000, 300.0)]


def problem(seed: int, m: int, n: int, k: int = 3, c: int = 2, spread: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    q, keys, v = rng.normal(size=(m, k)) * spread, rng.normal(size=(n, k)), rng.normal(size=(n, c))
    return q, keys, v, rng.normal(size=n)


def exact(q: Any, k: Any, v: Any, log_weights: Any, visible: Any = True) -> tuple[np.ndarray, np.ndarray]:
    """Attention in long double, straight from the definition."""
    q, k, v, log_weights = (np.asarray(a).astype(np.longdouble) for a in (q, k, v, log_weights))
    logits = np.where(visible, q @ k.T + log_weights, -np.inf)
    top = logits.max(axis=1, keepdims=True)
    p = np.exp(logits - top)
    total = p.sum(axis=1, keepdims=True)
    return p @ v / total, (top + np.log(total))[:, 0]


def dense(q: Any, k: Any, v: Any, log_weights: Any, times: Any = None) -> tuple[Any, Any]:
    logits = q @ k.T + log_weights
    if times is not None:
        logits = jnp.where(times[1][None, :] <= times[0][:, None], logits, -jnp.inf)
    return jax.nn.softmax(logits, axis=1) @ v, jax.nn.logsumexp(logits, axis=1)


def streamed(q: Any, k: Any, v: Any, log_weights: Any, times: Any = None) -> tuple[Any, Any]:
    out = mf.attend(q, k, v, log_weights, times=times, method=SMALL)
    return out.values, out.log_normalizer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "spread"), CASES)
def test_error_bound_holds_against_long_double(m: int, n: int, spread: float, dtype: Any) -> None:
    arrays = [a.astype(dtype) for a in problem(1, m, n, spread=spread)]
    arrays[3][: n // 2] = -np.inf  # a whole first block without mass when n is large
    out = mf.attend(*arrays)
    values, log_z = exact(*arrays)
    assert out.values.dtype == dtype
    error = np.linalg.norm(np.asarray(out.values) - values, axis=1)
    assert (error <= np.asarray(out.error_bound)).all()
    assert (np.abs(np.asarray(out.log_normalizer) - log_z) <= np.asarray(out.log_normalizer_error)).all()
    assert (np.asarray(out.error_bound) > 0).all()
    # a bound that says nothing would hold too: it must stay within the rounding of a few thousand operations
    assert float(out.error_bound.max()) < 2e5 * np.finfo(dtype).eps * max(1.0, spread)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "spread"), [(7, 20, 300.0), (300, 200, 1.0), (1100, 1100, 30.0)])
def test_values_alone_are_within_the_bound(m: int, n: int, spread: float, dtype: Any) -> None:
    # another program: without the normaliser, a block that is seen in full is one fused kernel
    arrays = [a.astype(dtype) for a in problem(2, m, n, spread=spread)]
    arrays[3][: n // 2] = -np.inf
    found = jax.jit(lambda *a: mf.attend(*a).values)(*arrays)
    error = np.linalg.norm(np.asarray(found) - exact(*arrays)[0], axis=1)
    assert (error <= np.asarray(mf.attend(*arrays).error_bound)).all()


def test_derivatives_where_all_keys_are_one_block_for_few_queries() -> None:
    q, k, v, log_weights = problem(3, 1100, 1100)
    log_weights[:3] = -np.inf

    def loss(way: Any, *arrays: Any) -> Any:
        values, log_z = way(*arrays)
        return jnp.sum(jnp.sin(values)) + jnp.sum(jnp.cos(log_z))

    def ours(*arrays: Any) -> Any:
        out = mf.attend(*arrays)
        return out.values, out.log_normalizer

    found, wanted = (jax.jit(jax.grad(partial(loss, way), (0, 1, 2)))(q, k, v, log_weights) for way in (ours, dense))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * float(jnp.max(jnp.abs(b))))


@pytest.mark.parametrize("n", [20, 1100])
def test_traced_keys_without_any_mass_give_zeros(n: int) -> None:
    q, k, v, _ = problem(4, n, n)
    out = jax.jit(mf.attend)(q, k, v, np.full(n, -np.inf))
    np.testing.assert_array_equal(out.values, 0)
    np.testing.assert_array_equal(out.log_normalizer, -np.inf)
    slope = jax.grad(lambda q: jnp.sum(mf.attend(q, k, v, np.full(n, -np.inf)).values))(jnp.asarray(q))
    np.testing.assert_array_equal(slope, 0)


@given(
    seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 1.0, 100.0, 1e4]), scale=st.sampled_from([1e-3, 1.0, 1e3])
)
def test_error_bound_holds_on_adversarial_logits(seed: int, spread: float, scale: float) -> None:
    # kills a bound without the |q||k| term (large spread) and one not scaled by max|v|
    q, k, v, log_weights = (a.astype(np.float32) for a in problem(seed, 8, 40, spread=spread))
    v, log_weights = v * np.float32(scale), log_weights * np.float32(10)
    out = mf.attend(q, k, v, log_weights)
    values, log_z = exact(q, k, v, log_weights)
    assert (np.linalg.norm(np.asarray(out.values) - values, axis=1) <= np.asarray(out.error_bound)).all()
    assert (np.abs(np.asarray(out.log_normalizer) - log_z) <= np.asarray(out.log_normalizer_error)).all()


@given(seed=st.integers(0, 10**6), block=st.sampled_from([(1, 1), (4, 8), (16, 1000)]))
def test_blocks_do_not_matter(seed: int, block: tuple[int, int]) -> None:
    # kills a running maximum that is not rescaled, and fill rows that have mass
    arrays = problem(seed, 9, 21, spread=4.0)
    plain, blocked = mf.attend(*arrays), mf.attend(*arrays, method=mf.Streaming(block=block))
    np.testing.assert_allclose(blocked.values, plain.values, rtol=0, atol=1e-14 * 21)
    np.testing.assert_allclose(blocked.log_normalizer, plain.log_normalizer, rtol=0, atol=1e-13)


def test_a_whole_block_without_mass_comes_first_or_last() -> None:
    q, k, v, log_weights = problem(3, 5, 24)
    for hidden in (slice(0, 16), slice(8, 24), slice(8, 16)):
        masked = log_weights.copy()
        masked[hidden] = -np.inf
        seen = masked > -np.inf
        out = mf.attend(q, k, v, masked, method=SMALL)
        np.testing.assert_allclose(out.values, exact(q, k[seen], v[seen], masked[seen])[0].astype(float), atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "masked"),
    [(mode, False) for mode in ("grad", "jvp", "hessian", "jvp of grad", "vmap of grad")]
    + [("grad", True), ("jvp of grad", True)],
)
def test_derivatives_agree_with_dense_ones(mode: str, masked: bool) -> None:
    # with a mask, some blocks of keys are seen in full, some in part and some not at all
    times = (jnp.array([0.0, 1, 2, 9, 18, 30]), jnp.arange(20.0)) if masked else None
    arguments = tuple(map(jnp.asarray, problem(5, 6, 20)))
    directions = tuple(map(jnp.asarray, problem(6, 6, 20)))

    def scalar(function: Any) -> Any:
        return lambda *args: sum(jnp.sum(jnp.sin(part)) for part in function(*args))

    def derivative(function: Any) -> Any:
        f = scalar(function)
        gradient = jax.grad(f, (0, 1, 2, 3))
        if mode == "grad":
            return gradient(*arguments)
        if mode == "jvp":
            return jax.jvp(function, arguments, directions)
        if mode == "hessian":
            return jax.hessian(f, (0, 3))(*arguments)
        if mode == "jvp of grad":
            return jax.jvp(gradient, arguments, directions)
        return jax.vmap(gradient, in_axes=(0, None, None, None))(
            jnp.stack([arguments[0], directions[0]]), *arguments[1:]
        )

    ours, theirs = (
        jax.tree.leaves(jax.jit(lambda f=f: derivative(partial(f, times=times)))()) for f in (streamed, dense)
    )
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def test_gradients_are_finite_with_any_share_of_zero_mass() -> None:
    q, k, v, log_weights = problem(7, 6, 24)
    gradient = jax.jit(jax.grad(lambda *args: jnp.sum(streamed(*args)[0] ** 2), (0, 1, 2, 3)))
    for hidden in (1, 8, 16, 23):
        masked = np.where(np.arange(24) < hidden, -np.inf, log_weights)
        gradients = gradient(q, k, v, masked)
        assert all(np.isfinite(g).all() for g in gradients)
        # nobody feels an atom without mass
        assert not np.asarray(gradients[1][:hidden]).any()
        assert np.asarray(gradients[1][hidden:]).any() or hidden == 23


def test_causal_queries_see_their_prefix_and_nothing_else() -> None:
    q, k, v, log_weights = problem(8, 30, 30)
    times = np.random.default_rng(0).permutation(30) / 4.0
    out = mf.attend(q, k, v, log_weights, times=(times + 0.1, times), method=SMALL)
    values, log_z = exact(q, k, v, log_weights, times[None, :] <= times[:, None] + 0.1)
    np.testing.assert_allclose(out.values, values.astype(float), atol=1e-14)
    np.testing.assert_allclose(out.log_normalizer, log_z.astype(float), atol=1e-13)


@pytest.mark.parametrize("n", [50, 400, 2600])
def test_not_even_rounding_depends_on_the_future(n: int) -> None:
    # kills: a bound or a centre over all keys, which changes the last digits when later keys change
    arrays = problem(14, n, n)
    times = np.arange(n) / n
    changed = [a.copy() for a in arrays]
    for array in changed:
        array[n // 2 :] *= 7
    before, after = (mf.attend(*a, times=(times, times)) for a in (arrays, changed))
    np.testing.assert_array_equal(before.values[: n // 2], after.values[: n // 2])
    np.testing.assert_array_equal(before.log_normalizer[: n // 2], after.log_normalizer[: n // 2])
    assert np.abs(np.asarray(before.values) - np.asarray(after.values))[n // 2 :].max() > 1e-3


def test_heads_and_batches_are_leading_axes() -> None:
    rng = np.random.default_rng(9)
    q, k, v = rng.normal(size=(2, 3, 5, 4)), rng.normal(size=(2, 3, 7, 4)), rng.normal(size=(2, 3, 7, 2))
    per_head = rng.normal(size=(2, 3, 7))
    shared, own = mf.attend(q, k, v, per_head[0, 0]), mf.attend(q, k, v, per_head)
    assert shared.values.shape == (2, 3, 5, 2)
    assert shared.error_bound.shape == (2, 3, 5)
    for index in np.ndindex(2, 3):
        one = mf.attend(q[index], k[index], v[index], per_head[index])
        np.testing.assert_allclose(own.values[index], one.values, atol=1e-14)
        one = mf.attend(q[index], k[index], v[index], per_head[0, 0])
        np.testing.assert_allclose(shared.values[index], one.values, atol=1e-14)


@pytest.mark.parametrize("n", [200, 1500])
def test_large_heads_one_after_the_other_are_the_same_heads(n: int) -> None:
    # kills weights of one head used for all
    rng = np.random.default_rng(15)
    q, k, v = (rng.normal(size=(2, n, 2)).astype(np.float32) for _ in range(3))
    own, times = rng.normal(size=(2, n)).astype(np.float32), np.arange(float(n))
    for weights in (own, own[0]):
        out = mf.attend(q, k, v, weights, times=(times, times))
        for h in range(2):
            one = mf.attend(q[h], k[h], v[h], weights[h] if weights.ndim == 2 else weights, times=(times, times))
            np.testing.assert_array_equal(out.values[h], one.values)


def test_logits_of_all_heads_are_not_there_at_once() -> None:
    # nine heads of 1024 tokens side by side take three times as long: they do not fit into the cache
    def program(n: int) -> str:
        return str(jax.make_jaxpr(lambda q: mf.attend(q, q, q).values)(jnp.zeros((8, n, 2))))

    assert "[8,64,64]" in program(64)
    assert "[8,256,256]" not in program(256)


@pytest.mark.parametrize("order", ["none", "rising", "falling"])
@pytest.mark.parametrize(("m", "n"), [(1500, 1600), (300, 400)])
def test_the_order_of_rows_does_not_matter_where_blocks_are_left_out(m: int, n: int, order: str) -> None:
    # the first are sorted by time; kills answers that come back in the order of time, and keys that are left out
    # because they come last in the order of rows
    q, k, v, log_weights = problem(16, m, n)
    rng = np.random.default_rng(0)
    t, s = rng.uniform(0.1, 1, size=m), rng.uniform(size=n)
    s[0] = 0
    if order != "none":
        t, s = (np.sort(times)[:: 1 if order == "rising" else -1] for times in (t, s))
    log_weights[n // 3 : n // 2] = -np.inf
    out = mf.attend(q, k, v, log_weights, times=(t, s))
    values, log_z = exact(q, k, v, log_weights, s[None, :] <= t[:, None])
    assert (np.linalg.norm(np.asarray(out.values) - values, axis=1) <= np.asarray(out.error_bound)).all()
    assert (np.abs(np.asarray(out.log_normalizer) - log_z) <= np.asarray(out.log_normalizer_error)).all()


@pytest.mark.parametrize("factor", [1.0, 40.0])
def test_an_unforeseen_level_of_one_query_does_not_touch_the_others(factor: float) -> None:
    # one long query in the same block makes the program look for the largest logit; kills its use for short ones
    q, k, v, log_weights = problem(17, 1500, 1600)
    plain = mf.attend(q, k, v, log_weights)
    q[7] *= 1e4 * factor
    np.testing.assert_array_equal(
        np.delete(mf.attend(q, k, v, log_weights).values, 7, 0), np.delete(plain.values, 7, 0)
    )


def test_concrete_arguments_inside_a_jit_are_computed_at_once() -> None:
    arrays = problem(18, 5, 9)
    inside = jax.jit(lambda c: c * mf.attend(*arrays).values)(2.0)
    np.testing.assert_allclose(inside, 2 * np.asarray(mf.attend(*arrays).values), atol=1e-14)


@given(seed=st.integers(0, 10**6), masked=st.booleans())
@settings(max_examples=20)
def test_concentration_is_that_of_the_weights(seed: int, masked: bool) -> None:
    # kills: entropy without the log-weights, a relative entropy to all keys instead of the visible ones
    q, k, _, log_weights = problem(seed, 6, 20, spread=3.0)
    log_weights[3] = -np.inf
    t, s = np.array([4.0, 7, 20, 20, 20, 20]), np.arange(20.0)
    visible = (s[None, :] <= t[:, None]) if masked else np.ones((6, 20), bool)
    out = mf.concentration(q, k, log_weights, times=(t, s) if masked else None)
    a = np.where(visible, np.exp(log_weights), 0)
    p = a * np.exp(q @ k.T)
    p, a = (w / w.sum(axis=1, keepdims=True) for w in (p, a))
    log_p, log_a = (np.log(np.where(w > 0, w, 1)) for w in (p, a))
    np.testing.assert_allclose(out.effective_size, 1 / (p**2).sum(axis=1), rtol=1e-11)
    np.testing.assert_allclose(out.entropy, -(p * log_p).sum(axis=1), atol=1e-11)
    np.testing.assert_allclose(out.divergence, (p * (log_p - log_a)).sum(axis=1), atol=1e-11)


def test_concentration_has_heads_and_derivatives_and_belongs_to_the_measure() -> None:
    q, k, _, log_weights = problem(19, 4, 10)
    one = mf.concentration(q, k, log_weights)
    heads = mf.concentration(np.stack([q, 2 * q]), np.stack([k, k]), log_weights)
    np.testing.assert_allclose(heads.entropy[0], one.entropy, atol=1e-13)
    np.testing.assert_allclose(heads.divergence[1], mf.concentration(2 * q, k, log_weights).divergence, atol=1e-13)
    split = mf.concentration(q, np.concatenate([k, k]), np.concatenate([log_weights, log_weights]) - np.log(2))
    np.testing.assert_allclose(split.divergence, one.divergence, atol=1e-13)
    np.testing.assert_allclose(split.effective_size, 2 * np.asarray(one.effective_size), rtol=1e-12)

    def total(q: Any) -> Any:
        return jnp.sum(mf.concentration(q, k, log_weights).entropy)

    slope, step = jax.grad(total)(q), 1e-5 * np.ones_like(q)
    np.testing.assert_allclose(np.sum(slope) * 2e-5, total(q + step) - total(q - step), rtol=1e-6)


def test_traced_queries_that_see_nothing_get_zeros() -> None:
    q, k, v, log_weights = problem(10, 4, 6)
    early = np.array([-1.0, 0.5, -1.0, 2.0])

    def run(q: Any) -> Any:
        out = mf.attend(q, k, v, log_weights, times=(early, np.arange(6.0)))
        return out.values, out.log_normalizer

    values, log_z = jax.jit(run)(q)
    assert not np.asarray(values)[[0, 2]].any()
    assert np.isneginf(np.asarray(log_z)[[0, 2]]).all()
    assert np.isfinite(np.asarray(log_z)[[1, 3]]).all()
    gradient = jax.grad(lambda q: jnp.sum(run(q)[0]))(q)
    assert np.isfinite(gradient).all()


@pytest.mark.slow
@pytest.mark.parametrize("derivative", [False, True])
def test_memory_grows_linearly(derivative: bool) -> None:
    def run(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(mf.attend(q, k, v).values)

    function = jax.jit(jax.grad(run, (0, 1, 2)) if derivative else run)

    def temporary(n: int) -> int:
        shapes = [jax.ShapeDtypeStruct((n, 16), jnp.float32)] * 3
        return function.lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    small, large = temporary(8192), temporary(32768)
    assert large < 5 * small
    # the matrix of logits alone would take 4 GB
    assert large < 200e6


def test_a_new_number_of_atoms_compiles_nothing() -> None:
    def run(n: int) -> None:
        mf.attend(*problem(n, n, n), times=(np.arange(n), np.arange(n)))

    run(1000)
    assert count_compilations(lambda: [run(n) for n in (1001, 1023, 900)]) == 0


@given(seed=st.integers(0, 10**6))
def test_hardmax_is_the_mass_weighted_average_over_the_winners(seed: int) -> None:
    # integer keys make exact ties common; kills ties broken by index, and ties shared by count
    rng = np.random.default_rng(seed)
    q, k = rng.integers(-2, 3, size=(6, 2)).astype(float), rng.integers(-2, 3, size=(20, 2)).astype(float)
    v, weights = rng.normal(size=(20, 3)), rng.uniform(0.1, 1, 20) * (rng.uniform(size=20) > 0.3)
    weights[0] = 1.0
    with np.errstate(divide="ignore"):
        out = np.asarray(jax.jit(hardmax)(q, k, v, np.log(weights)))
    for i in range(6):
        logits = np.where(weights > 0, k @ q[i], -np.inf)
        best = weights * (logits == logits.max())
        np.testing.assert_allclose(out[i], best @ v / best.sum(), atol=1e-14)


def test_hardmax_is_the_limit_of_large_queries() -> None:
    q, k, v, log_weights = map(jnp.asarray, problem(12, 5, 11))
    limit = hardmax(q, k, v, log_weights, times=(jnp.full(5, 6.5), jnp.arange(11.0)))
    soft = mf.attend(1e4 * q, k, v, log_weights, times=(np.full(5, 6.5), np.arange(11.0))).values
    np.testing.assert_allclose(limit, soft, atol=1e-9)


def test_masked_linear_is_the_masked_sum() -> None:
    q, k, v, log_weights = problem(13, 9, 30)
    t, s = np.linspace(0, 30, 9), np.arange(30.0)
    out = kernel_sums(
        lambda s: s, *map(jnp.asarray, (q, k, v, np.exp(log_weights))), times=(jnp.asarray(t), jnp.asarray(s))
    )
    visible = s[None, :] <= t[:, None]
    np.testing.assert_allclose(out, (visible * (q @ k.T) * np.exp(log_weights)) @ v, atol=1e-12)


Q, K, V, LW = problem(0, 3, 4)
REFUSALS: dict[str, tuple[type[Exception], Any, str]] = {
    "one axis": (ShapeError, lambda: mf.attend(Q[0], K, V), r"\(3,\)"),
    "other leading axes": (ShapeError, lambda: mf.attend(Q[None], K, V), "leading"),
    "key dimension": (DimensionMismatchError, lambda: mf.attend(Q[:, :2], K, V), "R\\^2"),
    "values for other keys": (ShapeError, lambda: mf.attend(Q, K, V[:3]), "3 values"),
    "no queries": (ShapeError, lambda: mf.attend(Q[:0], K, V), "0 queries"),
    "log-weights": (ShapeError, lambda: mf.attend(Q, K, V, LW[:3]), r"\(3,\)"),
    "NaN query": (NotFiniteError, lambda: mf.attend(Q * np.nan, K, V), "q with 9"),
    "inf key": (NotFiniteError, lambda: mf.attend(Q, K / 0.0, V), "k with"),
    "NaN weights": (NotFiniteError, lambda: mf.attend(Q, K, V, LW * np.nan), "NaN"),
    "zero mass": (ZeroMassError, lambda: mf.attend(Q, K, V, np.full(4, -np.inf)), "all −inf"),
    "overflow": (NotFiniteError, lambda: mf.attend(Q * 1e200, K * 1e200, V), "overflow float64"),
    "method": (OptionError, lambda: mf.attend(Q, K, V, method="magic"), "magic"),  # type: ignore[arg-type]
    "block": (OptionError, lambda: mf.Streaming(block=(0, 4)), r"\(0, 4\)"),
    "tolerance": (ToleranceError, lambda: mf.attend(Q, K, V, tol=1e-30), "float64"),
    "times pair": (ShapeError, lambda: mf.attend(Q, K, V, times=np.zeros(3)), "pair"),
    "times length": (ShapeError, lambda: mf.attend(Q, K, V, times=(np.zeros(2), np.zeros(4))), r"\(2,\)"),
    "nothing visible": (NothingVisibleError, lambda: mf.attend(Q, K, V, times=([1, 0, 1], [1] * 4)), "query 1"),
    "strings": (DtypeError, lambda: mf.attend([["a"]], K, V), "dtype"),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, message = REFUSALS[case]
    with pytest.raises(error, match=message):
        call()


def test_lists_and_integers_are_accepted_and_float32_stays() -> None:
    assert mf.attend([[1, 0]], [[0, 1]], [[3]]).values.tolist() == [[3.0]]
    single = [a.astype(np.float32) for a in problem(0, 3, 4)]
    with jax.numpy_dtype_promotion("strict"):
        out = mf.attend(*single, times=(np.ones(3, np.float32), np.zeros(4, np.float32)))
    assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {np.dtype(np.float32)}
    assert mf.attend(single[0].astype(np.float16), *single[1:3]).values.dtype == np.float32
    assert mf.attend(single[0].astype(np.float64), *single[1:]).values.dtype == np.float64
