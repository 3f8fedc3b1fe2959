"""Linear attention: the constructions are gradient descent; closed forms against brute force; training reaches them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer import errors
from measureformer.incontext import linear

KEY = jax.random.key(0)


def problem(seed: int, e: int = 2) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x, W, W0 = rng.normal(size=(7, 3)), rng.normal(size=(e, 3)), rng.normal(size=(e, 3))
    return x, x @ W.T + 0.3 * rng.normal(size=(7, e)), W0, rng.normal(size=3)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), depth=st.sampled_from([1, 4]))
def test_layers_are_steps_of_gradient_descent(seed: int, depth: int) -> None:
    # kills: values without W0, a transposed W0, the sum for the mean, a layer that moves x
    x, y, W0, q = problem(seed)
    net = mf.Transformer(*[linear.gd_layer(0.3, W0)] * depth)
    expected = linear.gradient_descent(x, y, 0.3, depth, W0) @ q
    np.testing.assert_allclose(linear.prediction(net, x, y, q, W0), expected, atol=1e-12 * np.abs(expected).max())
    # the context itself: labels become residuals of the new W, inputs stay
    pushed = np.asarray(net.push(mf.Discrete.uniform(np.concatenate([x, y], axis=1))).points)
    moved = linear.gradient_descent(x, y, 0.3, depth, W0) - W0
    np.testing.assert_allclose(pushed, np.concatenate([x, y - x @ moved.T], axis=1), atol=1e-12)


def test_gradient_descent_is_that_of_automatic_differentiation() -> None:
    x, y, W0, _ = problem(3)
    slope = jax.grad(lambda W: ((x @ W.T - y) ** 2).sum() / (2 * len(x)))(W0)
    np.testing.assert_allclose(linear.gradient_descent(x, y, 0.2, 1, W0), W0 - 0.2 * slope, atol=1e-14)


def test_gd_plus_plus_moves_inputs_and_eigenvalues() -> None:
    x, y, *_ = problem(1, e=1)
    gamma = 0.1
    layer = linear.gd_plus_plus_layer(0.3, gamma, np.zeros((1, 3)))
    pushed = np.asarray(layer.push(mf.Discrete.uniform(np.concatenate([x, y], axis=1))).points)
    second = x.T @ x / len(x)
    np.testing.assert_allclose(pushed[:, :3], x @ (np.eye(3) - gamma * second), atol=1e-13)
    before, after = np.linalg.eigvalsh(second), np.linalg.eigvalsh(pushed[:, :3].T @ pushed[:, :3] / len(x))
    np.testing.assert_allclose(np.sort(before * (1 - gamma * before) ** 2), after, atol=1e-12)


def test_the_model_with_free_matrices_holds_the_constructions() -> None:
    x, y, _, q = problem(2, e=1)
    net = linear.LinearModel.descent(np.tile(0.3 * np.eye(3), (2, 1, 1)), np.full(2, 0.5))
    layer = linear.gd_plus_plus_layer(0.3, 0.15, np.zeros((1, 3)))
    expected = linear.prediction(mf.Transformer(layer, layer), x, y, q)
    np.testing.assert_allclose(net.predict(x[None], y[None, :, 0], q[None]), expected, atol=1e-12)
    mu = mf.Discrete.uniform(np.concatenate([x, y], axis=1))
    np.testing.assert_allclose(-net.map(mu, np.r_[q, 0.0])[3:], expected, atol=1e-12)


def half_loss(key: Any, eta: float, tasks: int = 40_000) -> tuple[float, float]:
    """Half of the mean squared error of one step from 0 on ten examples in [−1/2, 1/2]^10, and its standard error."""
    rng = np.random.default_rng(key)
    x, w = rng.uniform(-0.5, 0.5, size=(tasks, 11, 10)), rng.normal(size=(tasks, 10))
    y = np.einsum("bnd,bd->bn", x, w)
    found = eta * np.einsum("bn,bnd,bd->b", y[:, :-1], x[:, :-1], x[:, -1]) / 10
    losses = (found - y[:, -1]) ** 2 / 2
    return float(losses.mean()), float(losses.std() / np.sqrt(tasks))


def test_the_best_single_step_has_a_closed_form() -> None:
    best = linear.one_step(10, 10, variance=1 / 12, fourth=1 / 80)
    assert best.eta == pytest.approx(6.0606, abs=1e-4)
    value, error = half_loss(0, best.eta)
    assert abs(value - best.error / 2) < 5 * error
    # on the same tasks other rates are worse, on both sides
    for factor in (0.9, 1.1):
        assert half_loss(0, factor * best.eta)[0] > value
    # a Gaussian by its name and by its moments
    assert linear.one_step(4, 7, variance=2.0) == linear.one_step(4, 7, variance=2.0, fourth=12.0)


def test_the_optimum_of_linear_attention_is_one_and_its_error_is_right() -> None:
    # regression of the answer on the statistics g xᵀ finds the same matrix as the closed form
    Lam, N = np.diag([2.0, 0.5]), 5
    best = linear.optimum(Lam, N)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60_000, N + 1, 2)) @ np.sqrt(Lam)
    y = np.einsum("bnd,bd->bn", x, rng.normal(size=(60_000, 2)))
    g = np.einsum("bn,bnd->bd", y[:, :-1], x[:, :-1]) / N
    features = np.einsum("bi,bj->bij", x[:, -1], g).reshape(-1, 4)
    solved, *_ = np.linalg.lstsq(features, y[:, -1], rcond=None)
    np.testing.assert_allclose(solved.reshape(2, 2), best.preconditioner, atol=0.06 * best.preconditioner.max())
    errors_found = (features @ best.preconditioner.reshape(-1) - y[:, -1]) ** 2
    assert abs(errors_found.mean() - best.error) < 5 * errors_found.std() / np.sqrt(60_000)
    for factor in (0.9, 1.1):
        worse = (factor * features @ best.preconditioner.reshape(-1) - y[:, -1]) ** 2
        assert worse.mean() > errors_found.mean()
    assert linear.optimum(np.eye(5), 10).error == pytest.approx(1.875)
    assert linear.optimum(np.diag([2, 1.5, 1, 0.5, 0.25]), 10).error == pytest.approx(1.8216, abs=1e-4)


def test_noise_makes_the_best_step_shorter() -> None:
    plain, noisy = linear.noisy_optimum(3, 8, 0.0), linear.noisy_optimum(3, 8, 1.0)
    assert plain == pytest.approx(linear.one_step(3, 8))
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(60_000, 9, 3)), rng.normal(size=(60_000, 3))
    y = np.einsum("bnd,bd->bn", x, w) + rng.normal(size=(60_000, 9))
    step = np.einsum("bn,bnd,bd->b", y[:, :-1], x[:, :-1], x[:, -1]) / 8
    losses = (noisy.eta * step - y[:, -1]) ** 2
    assert abs(losses.mean() - noisy.error) < 5 * losses.std() / np.sqrt(60_000)
    assert ((plain.eta * step - y[:, -1]) ** 2).mean() > losses.mean()


def test_comparison_sees_what_is_alike_and_what_is_not() -> None:
    gd = linear.LinearModel.descent(0.5 * np.eye(2)[None])
    prompts = linear.LinearLoss(np.eye(2), 4, 1).prompts(KEY, 500)
    # only the product of P and Q matters
    same = linear.compared(linear.LinearModel(3 * gd.P, gd.Q / 3), gd, prompts)
    assert same.prediction < 1e-12
    assert same.cosine == pytest.approx(1, abs=1e-12)
    assert same.interpolated == pytest.approx(same.first, rel=1e-12)
    turned = linear.LinearModel.descent(np.array([[[0.0, 0.5], [-0.5, 0.0]]]))
    other = linear.compared(turned, gd, prompts)
    assert other.cosine < 0.2
    assert other.prediction > 0.5


def test_one_trained_layer_is_within_half_a_percent_of_the_closed_form() -> None:
    d, N = 5, 10
    covariance = np.diag(np.linspace(2.0, 0.5, d))
    best = linear.optimum(covariance, N)
    optimization = mf.Optimization(steps=1500, batch=256, rate=0.02, clip=None, warmup=0.0)
    found = linear.train_linear(
        linear.LinearModel.random(KEY, d), covariance, KEY, examples=N, optimization=optimization
    )
    fresh = linear.LinearLoss(np.linalg.cholesky(covariance).T, N, 1).prompts(jax.random.key(1), 10_000)
    # on the same prompts, so that their noise is in both
    both = linear.compared(found.model, linear.LinearModel.descent(best.preconditioner[None]), fresh)
    assert both.first < 1.005 * both.second
    # before training it is far: the bar says something
    start = linear.compared(linear.LinearModel.random(KEY, d), found.model, fresh)
    assert start.first > 1.5 * both.second


def test_two_trained_layers_do_what_the_construction_does() -> None:
    # ahn2023: the best of two layers are no worse than GD++, which is better than gradient descent
    d, N = 5, 10
    start = linear.LinearModel.random(KEY, d, 2)
    optimization = mf.Optimization(steps=1500, batch=128, rate=0.02)
    found = linear.train_linear(start, np.eye(d), KEY, examples=N, optimization=optimization).model
    x, y, q, answer = linear.LinearLoss(np.eye(d), N, 1).prompts(jax.random.key(1), 5000)

    def weights(etas: Any, gamma: Any) -> linear.LinearModel:
        """Two steps with a rate each; the inputs move between them."""
        A = jnp.asarray(etas)[:, None, None] * jnp.eye(d)
        P = jnp.zeros((2, d + 1, d + 1)).at[:, d, d].set(1.0)
        return linear.LinearModel(P.at[0, :d, :d].set(gamma * jnp.eye(d)), jnp.zeros_like(P).at[:, :d, :d].set(-A))

    @jax.jit
    def losses(models: linear.LinearModel) -> Any:
        return jax.lax.map(lambda model: jnp.mean((model.predict(x, y, q) - answer) ** 2), models)

    etas = np.stack(np.meshgrid(np.linspace(0.3, 0.9, 5), np.linspace(0.6, 3.0, 9)), axis=-1).reshape(-1, 2)
    tried = {}
    for name, gammas in (("GD", [0.0]), ("GD++", [0.1, 0.2, 0.3, 0.4])):
        grid = [(eta, gamma) for eta in etas for gamma in gammas]
        models = jax.vmap(weights)(np.stack([eta for eta, _ in grid]), np.array([gamma for _, gamma in grid]))
        tried[name] = float(np.nanmin(np.asarray(losses(models))))
    trained = float(losses(jax.tree.map(lambda leaf: leaf[None], found))[0])
    # a short training: the optimum is not above GD++ at all
    assert trained < 1.05 * tried["GD++"], (trained, tried)
    assert max(trained, tried["GD++"]) < 0.6 * tried["GD"], (trained, tried)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: linear.gd_layer(0.1, [1.0, 2.0]), errors.ShapeError),
        (lambda: linear.gd_layer(np.nan, [[1.0]]), errors.NotFiniteError),
        (lambda: linear.one_step(0, 3), errors.OptionError),
        (lambda: linear.one_step(3, 3, variance=1.0, fourth=0.5), errors.OptionError),
        (lambda: linear.optimum([[1.0, 2.0], [0.0, 1.0]], 3), errors.OptionError),
        (lambda: linear.optimum(-np.eye(2), 3), errors.OptionError),
        (
            lambda: linear.train_linear(linear.LinearModel.random(KEY, 2), np.eye(3), KEY, examples=4),
            errors.DimensionMismatchError,
        ),
    ],
)
def test_bad_input_is_refused(call: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        call()
