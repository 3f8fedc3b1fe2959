"""The regular derivative: ψ(G) within its error, of first order in the width where it must be, and both parts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import DerivativeError, NoClosedFormError, OptionError, ShapeError
from measureformer.structure.derivative import clustered

A = np.array([[1.0, 0.4], [-0.3, 0.8]])
LAYER = mf.Residual(mf.Attention.head(A, np.eye(2), 0.7 * np.eye(2)))
RNG = np.random.default_rng(0)
MU = mf.Discrete.weighted(RNG.uniform(-1, 1, (6, 2)), RNG.uniform(0.2, 1, 6))


def psi(y: object) -> jnp.ndarray:
    return jnp.tanh(jnp.asarray(y) @ jnp.array([0.7, -0.4]) + 0.2)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_it_is_psi_of_the_map_within_its_error(seed: int) -> None:
    # kills: dropping the flattening (the irregular part would be added), or the (1 + ε) of homogeneity
    rng = np.random.default_rng(seed)
    mu, x = mf.Discrete.weighted(rng.uniform(-1, 1, (5, 2)), rng.uniform(0.2, 1, 5)), rng.uniform(-1, 1, 2)
    found = mf.regular_derivative(LAYER.push, mu, x, psi)
    assert abs(found.value - float(psi(LAYER(mu, x[None]))[0])) <= found.error < 1e-4
    on = mf.regular_derivative(LAYER.push, mu, mu.points[0], psi)
    assert abs(on.value - float(psi(LAYER(mu, mu.points[:1]))[0])) < 1e-9


def test_both_parts_against_the_formula() -> None:
    for x in ([0.3, -0.8], np.asarray(MU.points)[2]):
        parts = mf.structure.directional_derivative(LAYER, MU, x, psi)
        found = mf.regular_derivative(LAYER.push, MU, x, psi)
        assert abs(parts.irregular) > 1e-3
        assert found.value == pytest.approx(parts.regular, abs=1e-7)
        assert found.irregular == pytest.approx(parts.irregular, abs=max(1e-6, 2 * found.irregular_error))


def test_inside_probability_measures_the_mean_of_psi_is_subtracted() -> None:
    x = [0.3, -0.8]
    inside = mf.regular_derivative(LAYER.push, MU, x, psi, variant="probability")
    whole = mf.regular_derivative(LAYER.push, MU, x, psi)
    mean = float(LAYER.push(MU.normalized()).integrate(psi))
    assert inside.value == pytest.approx(whole.value - mean, abs=1e-6)
    assert abs(mean) > 0.01
    assert inside.irregular == pytest.approx(whole.irregular, abs=1e-9)


def test_error_is_first_order_in_the_width_where_the_new_atom_lands_on_an_old_one() -> None:
    # aimed: x near an atom, so that G(mu, x) lies within the width of the atom's image
    mu, errors = mf.Discrete.uniform([[0.0, 0.0], [1.0, 0.5]]), []
    for width in (1e-1, 1e-2, 1e-3):
        x = np.array([0.3 * width, 0.0])
        found = mf.regular_derivative(LAYER.push, mu, x, lambda y: np.asarray(y)[:, 0], width=width)
        errors.append(abs(found.value - float(LAYER(mu, x)[0])) / width)
        assert errors[-1] * width <= found.error
    assert 0.05 < min(errors) <= max(errors) < 1.0
    assert max(errors) / min(errors) < 1.3


def test_mass_of_the_measure_does_not_matter() -> None:
    one, more = (mf.regular_derivative(LAYER.push, c * MU, [0.5, 0.5], psi) for c in (1.0, 7.0))
    assert one.value == pytest.approx(more.value, abs=1e-9)
    assert one.irregular == pytest.approx(more.irregular, abs=1e-7)


def test_the_counterexample_has_a_derivative_that_jumps() -> None:
    f, mu = mf.structure.counterexample(), mf.Discrete.dirac([1.0])
    for x, value in ((-1e-3, -0.250998), (0.0, 0.0), (1e-3, 0.250998)):
        found = mf.regular_derivative(f, mu, [x], lambda y: np.asarray(y)[:, 0], width=1e-3)
        assert found.value == pytest.approx(value, abs=1e-6)


def test_clusters_share_a_ball() -> None:
    points = np.array([[0.0], [1e-9], [1.0], [1.0 + 1e-9]])
    width, centres, group = clustered(points, 0.1)
    assert width == 0.1
    assert len(centres) == 2
    assert group.tolist() == [0, 0, 1, 1]
    # at distances between a quarter of the width and twice the width it has to shrink
    width, centres, _ = clustered(np.array([[0.0], [0.1]]), 0.1)
    assert len(centres) == 2
    assert 2 * width < 0.1


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (lambda y: np.abs(np.asarray(y) - np.asarray(LAYER.push(MU).points)[0]).sum(axis=1), DerivativeError, "kink"),
        (
            lambda y: np.sign(np.asarray(y)[:, 0] - float(LAYER.push(MU).points[1, 0])),
            DerivativeError,
            "kink or a jump",
        ),
        (lambda y: np.asarray(y), ShapeError, "psi"),
    ],
)
def test_functions_that_are_not_smooth_are_refused(bad: object, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        mf.regular_derivative(LAYER.push, MU, [0.1, 0.1], bad)  # type: ignore[arg-type]


def test_refusals() -> None:
    with pytest.raises(OptionError, match="variant"):
        mf.regular_derivative(LAYER.push, MU, [0.1, 0.1], psi, variant="signed")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="width"):
        mf.regular_derivative(LAYER.push, MU, [0.1, 0.1], psi, width=0.0)
    with pytest.raises(ShapeError, match="one point"):
        mf.regular_derivative(LAYER.push, MU, [[0.1, 0.1], [0.2, 0.1]], psi)
    with pytest.raises(NoClosedFormError, match="discretize"):
        mf.regular_derivative(LAYER.push, mf.Gaussian([0.0, 0.0], np.eye(2)), [0.1, 0.1], psi)  # type: ignore[arg-type]

    def rank(mu: mf.Discrete) -> mf.Discrete:
        # new mass anywhere moves all atoms at once
        return mu.push(lambda x: np.asarray(x) + (1.0 if mu.n > 1 else 0.0))

    with pytest.raises(DerivativeError, match="continuous at mu"):
        mf.regular_derivative(rank, mf.Discrete.dirac([0.0]), [0.5], lambda y: np.asarray(y)[:, 0])
