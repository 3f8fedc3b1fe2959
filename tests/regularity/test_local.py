"""The local constant against dense derivatives, for every public map; its certificate; laws, refusals, compilations."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from map_examples import ALL, DIM, EXAMPLES, context
from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    NoClosedFormError,
    NotFiniteError,
    OptionError,
    TimeError,
    TracedError,
    ZeroVectorError,
)
from measureformer.maps.base import AbstractInContextMap
from measureformer.regularity import certificate

KEY = jax.random.key(11)


seeds = st.integers(0, 10**6)
R = mf.regularity


@eqx.filter_jit
def jacobian(G: AbstractInContextMap, mu: Any) -> Any:
    return jax.jacfwd(lambda X: G.at_atoms(mu.with_points(X)))(mu.points)


def dense(G: AbstractInContextMap, mu: Any) -> float:
    """The norm in L²(mu) of the derivative, as a matrix: brute force on the atoms that have mass."""
    active = mu.rows(np.flatnonzero(np.asarray(mu.log_weights) > -np.inf))
    n, root = active.n, np.sqrt(np.asarray(active.probabilities()))
    # padded, so that a new n does not compile here either
    J = np.asarray(jacobian(G, active.padded()))[:n, :, :n] * root[:, None, None, None] / root[:, None]
    return float(np.linalg.norm(J.reshape(n * J.shape[1], -1), 2))


@pytest.mark.parametrize("name", [*EXAMPLES, "Causal(L2Attention)"])
def test_every_public_map_against_the_dense_derivative(name: str) -> None:
    # kills: weights left out of the norm, tokens that move as queries only, a passive token that counts
    G = ALL[name]()
    mu = context(G, 4)
    found = mf.local_lipschitz(G, mu)
    assert found.converged
    np.testing.assert_allclose(found.lower, dense(G, mu), rtol=1e-8)
    assert found.residual <= 1e-6 * found.lower
    assert found.lower <= found.upper
    assert isinstance(found.lower, float)
    assert isinstance(found.iterations, int)


HEAD = mf.Attention.random(KEY, DIM, heads=2, head_dim=2)
LAYERS: dict[str, AbstractInContextMap] = {
    "two heads": HEAD,
    "concatenated heads": mf.Attention(HEAD.Q, HEAD.K, HEAD.V, np.eye(4).reshape(4, 2, 2).transpose(1, 0, 2)),
    "causal": mf.Causal(HEAD),
    "block": mf.Residual(mf.MLP.random(KEY, DIM) @ mf.LayerNorm(np.ones(DIM))) @ mf.Residual(HEAD),
    "sum": 2.0 * mf.Residual(HEAD, step=-0.7) - mf.Identity(),
    "causal transformer": mf.Transformer.random(KEY, dim=DIM, depth=2, heads=3, causal=True),
}


def cloud(G: AbstractInContextMap, seed: int, n: int) -> Any:
    """A cloud of random size, spread and weights."""
    rng = np.random.default_rng(seed)
    points = rng.choice([0.1, 1.0, 4.0]) * rng.normal(size=(n, DIM)) + rng.normal(size=DIM)
    weights = rng.uniform(size=n) ** rng.choice([0, 1, 8]) + 1e-9
    if G.needs_time:
        return mf.SpaceTime.weighted(points, rng.permutation(n) / n, weights)
    return mf.Discrete.weighted(points, weights)


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=10)
@given(seed=seeds, n=st.sampled_from([1, 2, 9, 16]))
def test_the_certificate_is_never_below_the_constant(name: str, seed: int, n: int) -> None:
    # kills: the covariance term, the column sums, a head or a factor left out of the upper bound
    G = LAYERS[name]
    mu = cloud(G, seed, n)
    found = mf.local_lipschitz(G, mu)
    assert found.lower <= found.upper < math.inf
    np.testing.assert_allclose(found.lower, dense(G, mu), rtol=1e-6)


def certified(G: mf.Attention, mu: Any, *, causal: bool) -> float:
    """The formula of the certificate with dense matrices, softmax and all."""
    X, p = np.asarray(mu.points), np.asarray(mu.probabilities())
    frames, R = np.linalg.qr(np.asarray(G.W))
    seen = np.asarray(mu.times)[None] <= np.asarray(mu.times)[:, None] if causal else np.ones((len(X), len(X)), bool)
    columns, pointwise = np.zeros((len(frames), len(X))), np.zeros((len(X), G.out_dim(DIM), DIM))
    for h, (A, V) in enumerate(zip(np.asarray(G.A), R @ np.asarray(G.V), strict=True)):
        P = np.where(seen, np.exp(X @ A.T @ X.T), 0) * p
        P /= P.sum(axis=1, keepdims=True)
        for i, x in enumerate(X):
            C = np.cov(X.T, aweights=P[i], bias=True)
            s = np.linalg.eigvalsh(V @ (np.eye(DIM) + (A @ x) @ (A @ x) * C) @ V.T)[-1]
            columns[h] += p[i] * s * P[i] / p
            pointwise[i] += frames[h] @ V @ C @ A
    together = np.linalg.norm(np.concatenate(list(frames), axis=1), 2) * math.sqrt(columns.sum(axis=0).max())
    mixing = min(np.sqrt(columns.max(axis=1)).sum(), together)
    return float(mixing + np.linalg.norm(pointwise, 2, axis=(1, 2)).max())


@pytest.mark.parametrize("name", ["two heads", "concatenated heads", "causal"])
def test_the_certificate_is_its_formula(name: str) -> None:
    # kills: a term of the formula dropped, time that does not turn round for columns, heads added where squares add
    G = LAYERS[name]
    causal = isinstance(G, mf.Causal)
    for seed in range(5):
        mu = cloud(G, seed, 9)
        heads = HEAD if causal else G
        np.testing.assert_allclose(mf.local_lipschitz(G, mu).upper, certified(heads, mu, causal=causal), rtol=1e-6)


@pytest.mark.parametrize("factor", [0.1, 3.0])
def test_the_certificate_of_a_multiple_is_the_multiple_of_the_certificate(factor: float) -> None:
    # kills: a factor of the chain rule left out, the second map certified at the atoms of the first
    bound = eqx.filter_jit(certificate.upper_bound)
    scaled, mu = mf.Linear(factor * np.eye(DIM)), cloud(HEAD, 0, 9)
    np.testing.assert_allclose(bound(scaled @ HEAD, mu), factor * bound(HEAD, mu), rtol=1e-9)
    moved = mu.with_points(factor * mu.points)
    np.testing.assert_allclose(bound(HEAD @ scaled, mu), factor * bound(HEAD, moved), rtol=1e-9)


@settings(max_examples=10)
@given(seed=seeds, n=st.sampled_from([1, 2, 9, 16]))
def test_the_certificate_is_below_the_theorems(seed: int, n: int) -> None:
    # kills: a certificate that is true but loose (a constant factor too much)
    rng = np.random.default_rng(seed)
    Q, K, V = rng.normal(size=(3, DIM, DIM)) * rng.choice([0.1, 0.5])
    mu = mf.Discrete.uniform(rng.normal(size=(n, DIM)))
    sizes = [float(np.linalg.norm(V, 2)), float(np.linalg.norm(K.T @ Q, 2)), float(mu.radius())]
    found = mf.local_lipschitz(mf.Attention.head(Q, K, V), mu)
    assert found.upper <= R.lipschitz_tokens(*sizes, n)
    assert found.upper <= R.lipschitz_ball(*sizes)
    assert found.upper <= R.lipschitz_ball_castin24(*sizes)


def test_without_attention_the_certificate_is_exact() -> None:
    # A = 0: the constant is ‖V‖, and with a mask and V = I that of the Cesàro matrix
    V = np.random.default_rng(0).normal(size=(2, 3))
    G, mu = mf.Attention.head(np.zeros((3, 3)), np.zeros((3, 3)), V), mf.Discrete.uniform(np.eye(3))
    found = mf.local_lipschitz(G, mu)
    np.testing.assert_allclose([found.lower, found.upper], np.linalg.norm(V, 2), rtol=1e-11)
    assert abs(found.gap) < 1e-11
    mean = mf.Causal(mf.Attention.head([[0.0]], [[0.0]], [[1.0]]))
    n = 100
    cesaro = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    found = mf.local_lipschitz(mean, mf.SpaceTime.sequence(np.random.default_rng(1).normal(size=(n, 1))))
    np.testing.assert_allclose(found.lower, np.linalg.norm(cesaro, 2), rtol=1e-9)
    np.testing.assert_allclose(found.lower, 1.6300, atol=5e-5)
    # the largest column sum, of the first token: 1 + 1/2 + … + 1/n
    np.testing.assert_allclose(found.upper, math.sqrt(cesaro.sum(axis=0).max()), rtol=1e-10)


def test_two_clusters_by_hand() -> None:
    """λ = −1, R = 3/2, n = 91: the constant is just above ½(1 + |λ|R²) √90, the certificate less than 20 % above it."""
    G = mf.Attention.head([[1.0]], [[-1.0]], [[1.0]])
    found = mf.local_lipschitz(G, mf.Discrete.uniform(R.two_clusters([[-1.0]], 91, 1.5)))
    np.testing.assert_allclose(found.lower, 15.6824, atol=5e-5)
    assert found.lower >= 0.5 * 3.25 * math.sqrt(90)
    assert found.gap < 0.2


def test_equal_tokens_are_one_atom_and_mass_is_irrelevant() -> None:
    # kills: the Euclidean norm in place of that of L²(mu)
    rng = np.random.default_rng(5)
    X, counts = rng.normal(size=(4, DIM)), np.array([1, 2, 5, 1])
    G = mf.Attention.random(KEY, DIM)
    merged = mf.Discrete.weighted(X, counts)
    repeated = mf.local_lipschitz(G, mf.Discrete.uniform(np.repeat(X, counts, axis=0)))
    found = mf.local_lipschitz(G, merged)
    np.testing.assert_allclose(mf.local_lipschitz(G, 17.0 * merged).lower, found.lower, rtol=1e-9)
    # copies may also move apart, as clouds of tokens do and atoms do not
    assert repeated.lower >= found.lower * (1 - 1e-9)
    np.testing.assert_allclose(repeated.upper, found.upper, rtol=1e-9)
    passive = mf.Discrete.weighted(np.r_[X, [[100.0] * DIM]], np.r_[counts, 0])
    np.testing.assert_allclose(mf.local_lipschitz(G, passive).lower, found.lower, rtol=1e-9)
    np.testing.assert_allclose(mf.local_lipschitz(G, passive).upper, found.upper, rtol=1e-9)


def test_a_passive_token_at_a_singular_point_does_no_harm() -> None:
    F = mf.UnitNorm([1.0, 1.0])
    mu = mf.Discrete.weighted([[2.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    np.testing.assert_allclose(mf.local_lipschitz(F, mu).lower, 0.5, rtol=1e-12)


def test_finite_differences_of_tokens() -> None:
    """No automatic differentiation on this side: the found constant bounds all ratios, and nearly reaches one."""
    rng = np.random.default_rng(8)
    G, X = mf.Attention.random(KEY, DIM, heads=2), rng.normal(size=(8, DIM))
    found, small = mf.local_lipschitz(G, mf.Discrete.uniform(X)), 1e-6
    basis = np.eye(X.size).reshape(X.size, *X.shape)
    J = np.stack([(G.tokens(X + small * U) - G.tokens(X - small * U)).ravel() / (2 * small) for U in basis], axis=1)
    np.testing.assert_allclose(found.lower, np.linalg.norm(J, 2), rtol=1e-8)


def test_traces_are_a_certificate_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: a trace of the wrong covariance
    from measureformer.regularity import certificate

    layers = [LAYERS["two heads"], LAYERS["causal"]]
    exact = [[mf.local_lipschitz(G, cloud(G, seed, 9)).upper for seed in range(8)] for G in layers]
    monkeypatch.setattr(certificate, "AFFORDABLE", 0)
    jax.clear_caches()
    for G, uppers in zip(layers, exact, strict=True):
        for seed, upper in enumerate(uppers):
            found = mf.local_lipschitz(G, cloud(G, seed, 9))
            assert found.upper >= upper * (1 - 1e-9)
            assert found.upper < 3 * upper
            assert found.lower <= found.upper
    jax.clear_caches()


FACTORS, TRACES = (1, 2**33), (1, 0)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        *((name, FACTORS) for name in ("GatedMLP", "MLP", "LayerNorm", "RMSNorm")),
        # only attention has covariances, of which traces are taken
        *((name, limits) for name in ("AffineAttention", "Causal(RotaryAttention)") for limits in (FACTORS, TRACES)),
    ],
)
def test_what_is_bounded_in_large_dimensions_is_above_the_constant(
    name: str, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # kills: a cross term dropped for keys that turn, covariances that are not turned back, a slope left out
    G = ALL[name]()
    mu = context(G, 4)
    exact = float(eqx.filter_jit(certificate.upper_bound)(G, mu))
    monkeypatch.setattr(certificate, "LARGE", limits[0])
    monkeypatch.setattr(certificate, "AFFORDABLE", limits[1])
    bound = float(eqx.filter_jit(lambda G, mu: certificate.upper_bound(G, mu))(G, mu))
    constant = dense(G, mu)
    assert constant <= exact
    assert constant <= bound < 20 * constant


def test_single_precision() -> None:
    rng = np.random.default_rng(3)
    matrices, X = rng.normal(size=(3, DIM, DIM)).astype(np.float32), rng.normal(size=(20, DIM)).astype(np.float32)
    G, mu = mf.Attention.head(*matrices), mf.Discrete.uniform(X)
    found = mf.local_lipschitz(G, mu)
    assert found.converged
    np.testing.assert_allclose(found.lower, dense(G, mu), rtol=1e-4)
    assert found.lower <= found.upper


def test_the_start_is_fixed_or_follows_from_a_key() -> None:
    G, mu = LAYERS["two heads"], cloud(LAYERS["two heads"], 1, 16)
    first, again = mf.local_lipschitz(G, mu), mf.local_lipschitz(G, mu)
    other = mf.local_lipschitz(G, mu, key=jax.random.key(5))
    assert first == again
    assert other.residual != first.residual
    np.testing.assert_allclose(other.lower, first.lower, rtol=1e-9)


def test_concrete_arguments_inside_somebodys_jit() -> None:
    G, mu = LAYERS["two heads"], cloud(LAYERS["two heads"], 1, 16)
    inside = jax.jit(lambda x: x * mf.local_lipschitz(G, mu).lower)(1.0)
    assert float(inside) == mf.local_lipschitz(G, mu).lower


def test_no_values_no_constant() -> None:
    """V = 0: the layer is constant; the upper value is the root of a bound for rounding errors."""
    found = mf.local_lipschitz(mf.Attention(HEAD.Q, HEAD.K, 0 * HEAD.V, HEAD.W), cloud(HEAD, 0, 9))
    assert (found.lower, found.converged) == (0.0, True)
    assert found.upper < 1e-3


def test_few_iterations_are_honest() -> None:
    G, mu = LAYERS["two heads"], cloud(LAYERS["two heads"], 2, 16)
    full, short = mf.local_lipschitz(G, mu), mf.local_lipschitz(G, mu, max_iterations=2)
    assert (short.converged, short.iterations) == (False, 2)
    assert short.lower <= full.lower <= short.lower + short.residual
    loose = mf.local_lipschitz(G, mu, tol=0.5)
    assert loose.converged
    assert loose.iterations < full.iterations


def test_a_new_number_of_atoms_a_new_tolerance_and_new_weights_compile_nothing() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(32, DIM))
    G = LAYERS["block"]
    mf.local_lipschitz(G, mf.Discrete.uniform(X))

    def again() -> None:
        mf.local_lipschitz(G, mf.Discrete.uniform(X[:29]), tol=1e-3, max_iterations=7, key=KEY)
        mf.local_lipschitz(G, mf.Discrete.weighted(X[:20], np.r_[0.0, rng.uniform(size=19)]))

    assert count_compilations(again) == 0


class Root(AbstractInContextMap):
    """Coordinates under a root, whose slope at 0 is infinite."""

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jnp.sqrt(jnp.abs(x))


def test_a_map_of_ones_own_has_a_lower_value_and_no_certificate() -> None:
    found = mf.local_lipschitz(Root(), mf.Discrete.uniform([[1.0], [0.25]]))
    np.testing.assert_allclose(found.lower, 1, rtol=1e-12)
    assert found.upper == found.gap == math.inf


MU = mf.Discrete.uniform([[0.0, 0.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: mf.local_lipschitz(Root(), MU), NotFiniteError, "Root that is not finite at the 2 atoms"),
        (lambda: mf.local_lipschitz(mf.UnitNorm([1.0, 1.0]), MU), ZeroVectorError, "the zero vector"),
        (
            lambda: mf.local_lipschitz(mf.UnitNorm([1.0, 1.0]) @ mf.Linear(np.zeros((2, 2))), MU),
            ZeroVectorError,
            "the zero vector",
        ),
        (lambda: mf.local_lipschitz(np.sin, MU), DtypeError, "need an in-context map"),
        (lambda: mf.local_lipschitz(mf.Identity(), np.eye(2)), DtypeError, "need a measure"),
        (lambda: mf.local_lipschitz(LAYERS["two heads"], MU), DimensionMismatchError, "one dimension"),
        (lambda: mf.local_lipschitz(mf.Causal(mf.Identity()), MU), TimeError, "SpaceTime"),
        (
            lambda: mf.local_lipschitz(mf.Identity(), mf.Gaussian([0.0], [[1.0]])),
            NoClosedFormError,
            r"mu of type Gaussian.*mu\.discretize\(n\)",
        ),
        (lambda: mf.local_lipschitz(mf.Identity(), MU, tol=0.0), OptionError, "tol = 0.0"),
        (lambda: mf.local_lipschitz(mf.Identity(), MU, max_iterations=0), OptionError, "max_iterations = 0"),
        (lambda: mf.local_lipschitz(mf.Identity(), MU, key=3), DtypeError, "key"),
        (
            lambda: jax.jit(lambda X: mf.local_lipschitz(mf.Identity(), mf.Discrete.uniform(X)).lower)(np.eye(2)),
            TracedError,
            "local_lipschitz on traced arrays",
        ),
    ],
)
def test_refusals(call: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
