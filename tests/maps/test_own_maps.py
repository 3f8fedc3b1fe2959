"""Maps as users write them: ten, of which five are wrong in a way that is easily overlooked. Right, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from map_examples import ALL, context
from measureformer.errors import DtypeError, LawError, NoClosedFormError, OptionError, ShapeError, TracedError
from measureformer.maps.python import AbstractPythonMap
from measureformer.maps.rows import all_rows

D = 2


class TowardsMean(mf.AbstractInContextMap):
    step: float

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return x + self.step * (mu.mean() - x)

    def affine_on(self, mu: Any) -> bool:
        return True


class Softmax(mf.AbstractInContextMap):
    A: jax.Array

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jax.nn.softmax(x @ self.A.T @ mu.points.T + mu.log_weights, axis=1) @ mu.points


class Whitened(mf.AbstractInContextMap):
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return (x - mu.mean()) @ mu.covariance()


class Farthest(mf.AbstractInContextMap):
    """The corner of the box around the support: no weights at all, and right."""

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jnp.maximum(x, mu.points.max(axis=0))


class Recent(mf.AbstractInContextMap):
    """Tokens count less the longer ago they are."""

    @property
    def needs_time(self) -> bool:
        return True

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jax.nn.softmax(mu.log_weights - (t[:, None] - mu.times) ** 2, axis=1) @ mu.points


class WithoutWeights(mf.AbstractInContextMap):
    A: jax.Array

    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jax.nn.softmax(x @ self.A.T @ mu.points.T, axis=1) @ mu.points


class MeanOfRows(mf.AbstractInContextMap):
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return x - mu.points.sum(axis=0) / mu.n


class NotDivided(mf.AbstractInContextMap):
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return x + mu.weights @ mu.points


class RowNumbers(mf.AbstractInContextMap):
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        late = jnp.arange(mu.n) / mu.n
        return jax.nn.softmax(late + mu.log_weights)[None] @ mu.points + 0 * x


class FarthestRow(mf.AbstractInContextMap):
    """Says that it treats rows of zero mass, and does not."""

    @all_rows
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return jnp.maximum(x, mu.points.max(axis=0))


class Unmasked(mf.AbstractInContextMap):
    """Says that it masks, and does not."""

    @all_rows
    def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
        return x + mu.mean()


A = np.array([[1.0, 0.5], [-0.3, 0.8]])
Oracle = Callable[..., np.ndarray]


def shares(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def spread(y: np.ndarray, a: np.ndarray) -> np.ndarray:
    centred = y - a @ y
    return (centred * a[:, None]).T @ centred


# (points y, probabilities a, times s) and (query x, its time t)
RIGHT: dict[str, tuple[Callable[[], Any], Oracle]] = {
    "towards the mean": (lambda: TowardsMean(0.3), lambda y, a, s, x, t: x + 0.3 * (a @ y - x)),
    "softmax": (lambda: Softmax(jnp.asarray(A)), lambda y, a, s, x, t: shares(x @ A.T @ y.T + np.log(a)) @ y),
    "whitened": (Whitened, lambda y, a, s, x, t: (x - a @ y) @ spread(y, a)),
    "farthest": (Farthest, lambda y, a, s, x, t: np.maximum(x, y.max(axis=0))),
    "recent": (Recent, lambda y, a, s, x, t: shares(np.log(a) - (t[:, None] - s) ** 2) @ y),
}
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no weights": (lambda: WithoutWeights(jnp.asarray(A)), "the law of splitting fails"),
    "mean of rows": (MeanOfRows, "the law of splitting fails"),
    "not divided": (NotDivided, "the law of mass fails"),
    "row numbers": (RowNumbers, "the law of (splitting|order) fails"),
    "rows of zero mass": (FarthestRow, "the law of padding fails"),
    "unmasked": (Unmasked, "the law of causality fails"),
}


def tokens(n: int) -> tuple[np.ndarray, ...]:
    """Points, weights and times; the third token is passive, and is the farthest of all."""
    rng = np.random.default_rng(n)
    points, weights, times = rng.normal(size=(n, D)), rng.uniform(0.2, 1, n), rng.permutation(n) / n
    points[2], weights[2], times[2] = 9.0, 0.0, 1.0
    return points, weights, times


def expected(oracle: Oracle, n: int, x: np.ndarray, t: np.ndarray, *, masked: bool) -> np.ndarray:
    points, weights, times = tokens(n)
    rows = []
    for i in range(len(x)):
        seen = (weights > 0) & ((times <= t[i]) | (not masked))
        a = weights[seen] / weights[seen].sum()
        rows.append(oracle(points[seen], a, times[seen], x[i : i + 1], t[i : i + 1])[0])
    return np.stack(rows)


@pytest.mark.parametrize("n", [16, 20])
@pytest.mark.parametrize("name", RIGHT)
def test_a_map_of_ones_own_is_right(name: str, n: int) -> None:
    # kills: pad rows and passive tokens in `mu.points`, a mask that is ignored
    make, oracle = RIGHT[name]
    G, (points, weights, times) = make(), tokens(n)
    sigma = mf.SpaceTime.weighted(points, times, weights)
    mu = sigma if G.needs_time else sigma.space()
    x, t = points[:4] + 0.5, np.full(4, 0.9)
    at = (x, t) if G.needs_time else (x,)
    plain = expected(oracle, n, x, t, masked=False)
    np.testing.assert_allclose(G(mu, *at), plain, atol=1e-12)
    np.testing.assert_allclose((-G / 2)(mu, *at), -plain / 2, atol=1e-12)
    masked = expected(oracle, n, x, t, masked=True)
    np.testing.assert_allclose(mf.Causal(G)(sigma, x, t), masked, atol=1e-12)
    np.testing.assert_allclose(mf.Causal(mf.Residual(G))(sigma, x, t), x + masked, atol=1e-12)
    moved = mf.Causal(G).push(sigma)
    np.testing.assert_allclose(moved.points, expected(oracle, n, points, times, masked=True), atol=1e-12)
    assert moved.n == n


@pytest.mark.parametrize("name", RIGHT)
def test_transformations_see_no_row_without_mass_either(name: str) -> None:
    make, oracle = RIGHT[name]
    G, (points, weights, times) = make(), tokens(9)
    sigma = mf.SpaceTime.weighted(points, times, weights)
    x, t = points[:4] + 0.5, np.full(4, 0.9)
    mu = sigma if G.needs_time else sigma.space()
    traced = jax.jit(lambda mu, x, t: G(mu, x, t if G.needs_time else None))(mu.padded(), x, t)
    np.testing.assert_allclose(traced, expected(oracle, 9, x, t, masked=False), atol=1e-12)
    masked = jax.jit(lambda sigma, x, t: mf.Causal(G)(sigma, x, t))
    np.testing.assert_allclose(masked(sigma.padded(), x, t), expected(oracle, 9, x, t, masked=True), atol=1e-12)
    # a query before everything has the value 0 under a trace, and no derivative that is NaN
    slope = jax.grad(lambda x: jnp.sum(masked(sigma, x, t - 2)))(x)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_map_is_refused_with_the_law_it_breaks(name: str) -> None:
    make, law = WRONG[name]
    mu = mf.Discrete.uniform(tokens(16)[0])
    for call in (lambda G: G(mu, [0.0, 1.0]), lambda G: mf.Residual(G).push(mu), lambda G: G.tokens(mu.points)):
        with pytest.raises(LawError, match=law) as caught:
            call(make())
        assert "query" in caught.value.got
        assert caught.value.do.startswith("In evaluate, ")
    for call in (lambda G: mf.flow(G, mu, [0.0, 1.0]), lambda G: mf.local_lipschitz(G, mu), mf.maps.check_laws):
        with pytest.raises(LawError, match=law):
            call(make())


@pytest.mark.parametrize("name", ["SigmoidAttention", "Causal(LinearAttention)", "MLP", "Positional"])
def test_the_library_obeys_its_own_laws(name: str) -> None:
    G = ALL[name]()
    found = mf.maps.check_laws(G, context(G, 0))
    assert {"splitting", "mass", "order", "padding", "derivative"} <= set(found)


def test_a_wrong_derivative_is_found_when_asked_for() -> None:
    class Stopped(mf.AbstractInContextMap):
        def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
            return x + jax.lax.stop_gradient(mu.mean())

    assert Stopped()(mf.Discrete.dirac([1.0]), [1.0]).tolist() == [2.0]
    with pytest.raises(LawError, match="the law of derivative fails"):
        mf.maps.check_laws(Stopped())


def test_values_of_the_wrong_shape_are_refused() -> None:
    class Scalar(mf.AbstractInContextMap):
        def evaluate(self, mu: Any, x: Any, t: Any) -> Any:
            return x[:, :1]

    with pytest.raises(ShapeError, match=r"values of shape \(3, 1\)"):
        Scalar()(mf.Discrete.uniform(np.eye(2)), [0.0, 1.0])


def test_the_check_runs_once_and_a_new_number_of_tokens_compiles_nothing() -> None:
    def run(n: int) -> None:
        G, mu = Softmax(jnp.asarray(A)), mf.Discrete.weighted(*tokens(n)[:2])
        G.push(mu)
        mf.Causal(G)(mf.SpaceTime.sequence(tokens(n)[0]), np.zeros((n, D)), 1.0)

    run(12)
    assert count_compilations(lambda: [run(n) for n in (13, 16, 9)]) == 0


def test_nothing_is_checked_under_a_trace() -> None:
    G = MeanOfRows()
    value = jax.jit(lambda x: G(mf.Discrete.uniform(np.eye(2)), x))(np.zeros((1, 2)))
    np.testing.assert_allclose(value, [[-0.5, -0.5]])


def test_gaussians_need_a_formula_in_moments() -> None:
    g = mf.Gaussian([1.0, 0.0], np.eye(2))
    np.testing.assert_allclose(TowardsMean(0.5)(g, [0.0, 0.0]), [0.5, 0.0], atol=1e-15)
    np.testing.assert_allclose(TowardsMean(0.5).push(g).cov, np.eye(2) / 4, atol=1e-15)
    for call in (lambda G: G(g, [0.0, 0.0]), lambda G: G.push(g)):
        with pytest.raises(NoClosedFormError, match=r"mu\.discretize\(n\)"):
            call(Softmax(jnp.asarray(A)))
    assert Softmax(jnp.asarray(A)).push(g.discretize(32)).n == 32
    assert not hasattr(g, "points")


def test_the_checker_refuses_what_is_no_map() -> None:
    with pytest.raises(DtypeError, match="need an in-context map"):
        mf.maps.check_laws(np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="divided by 0"):
        mf.Identity() / 0


class Simulated(AbstractPythonMap):
    def compute(self, mu: Any, x: Any, t: Any) -> np.ndarray:
        return np.asarray(x) - np.asarray(mu.points).max(axis=0)


def test_python_is_computed_part_by_part_and_sees_what_the_mask_shows() -> None:
    G, inner = Simulated(), TowardsMean(0.3)
    points, weights, times = tokens(6)
    sigma, x, t = mf.SpaceTime.weighted(points, times, weights), points[:2] + 0.1, np.array([0.5, 0.9])
    moved = inner.push(sigma.space())
    top = np.asarray(moved.points)[weights > 0].max(axis=0)
    composed = np.asarray((2 * G @ inner + mf.Identity())(sigma.space(), x))
    np.testing.assert_allclose(composed, 2 * (np.asarray(inner(sigma.space(), x)) - top) + x, atol=1e-13)
    seen = [points[(weights > 0) & (times <= time)].max(axis=0) for time in t]
    np.testing.assert_allclose(mf.Causal(G)(sigma, x, t), x - np.stack(seen), atol=1e-13)
    with pytest.raises(TracedError, match="Simulated inside jit"):
        jax.jit(lambda x: (2 * G)(sigma.space(), x))(x)
