"""float32 stays float32 in every public function; float32 and float64 meet in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import measureformer as mf
from measure_examples import CONCRETE_ONLY, DIM, KINDS, TRACEABLE, arrays, entries, floating

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def dtypes(result: Any) -> set[Any]:
    leaves = [leaf for leaf in jax.tree.leaves(result) if hasattr(leaf, "dtype")]
    return {np.dtype(leaf.dtype) for leaf in leaves if np.issubdtype(leaf.dtype, np.floating)}


# on concrete arrays these run the same program, which takes a second to compile; one of the four tilts is run
TRACED_ONLY = {("Gaussian", "tilt"), ("GaussianMixture", "tilt"), ("GaussianMixture", "tilt with H")}


@pytest.mark.parametrize(("kind", "case"), entries(TRACEABLE, CONCRETE_ONLY))
def test_float32_stays_float32(kind: str, case: str) -> None:
    # kills: NumPy scalars, constants and draws in the default precision; the strict rules refuse a silent promotion
    mu = KINDS[kind](0, dtype=np.float32)
    assert dtypes(mu) == {SINGLE}
    run = (TRACEABLE[kind] | CONCRETE_ONLY[kind])[case]
    with jax.numpy_dtype_promotion("strict"):
        if case in TRACEABLE[kind]:
            assert dtypes(jax.eval_shape(run, mu)) == {SINGLE}
        if (kind, case) in TRACED_ONLY:
            return
        found = run(mu)
        assert dtypes(found) <= {SINGLE}
        assert floating(found) or isinstance(found, bool)


def half(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return arrays(seed, dtype=np.float32)


TIMES = np.linspace(0, 1, 8)
MEETINGS: dict[str, Callable[[], Any]] = {
    "wide weights": lambda: mf.Discrete.weighted(half()[0], arrays(0)[1]),
    "wide points": lambda: mf.Discrete.weighted(arrays(0)[0], half()[1]),
    "wide weights in time": lambda: mf.SpaceTime.weighted(half()[0], TIMES, arrays(0)[1]),
    "wide covariance": lambda: mf.Gaussian(np.zeros(DIM, np.float32), np.eye(DIM)),
    "wide mean": lambda: mf.Gaussian(np.zeros(DIM), np.eye(DIM, dtype=np.float32)),
    "wide mixture weights": lambda: mf.GaussianMixture(np.ones(1), np.zeros((1, 1), np.float32), np.ones((1, 1, 1))),
    "Gaussian and mixture": lambda: KINDS["Gaussian"](0, dtype=np.float32) + KINDS["GaussianMixture"](1),
    "integral": lambda: mf.Discrete.weighted(*half()).integrate(lambda x: np.ones(8)),
    "image": lambda: mf.Discrete.weighted(*half()).push(lambda x: np.ones((8, 1))),
    "image in time": lambda: KINDS["SpaceTime"](0, dtype=np.float32).push(lambda x, t: np.ones((8, 1))),
    "tilt": lambda: KINDS["GaussianMixture"](0, dtype=np.float32).tilt(np.ones((1, DIM))),
    "tilt by H": lambda: KINDS["Gaussian"](0, dtype=np.float32).tilt(np.ones((1, DIM), np.float32), np.eye(DIM)),
    "affine image": lambda: KINDS["Gaussian"](0, dtype=np.float32).push_affine(np.eye(DIM), np.zeros(DIM, np.float32)),
    "affine mixture": lambda: KINDS["GaussianMixture"](0, dtype=np.float32).push_affine(np.eye(DIM), np.zeros(DIM)),
}
for _kind in ("Discrete", "SpaceTime", "Gaussian", "GaussianMixture"):
    MEETINGS[f"sum of {_kind}"] = lambda kind=_kind: KINDS[kind](0, dtype=np.float32) + KINDS[kind](1)


@pytest.mark.parametrize("case", MEETINGS)
def test_mixed_becomes_float64(case: str) -> None:
    # kills: a measure of two precisions, which the strict rules refuse later on
    with jax.numpy_dtype_promotion("strict"):
        assert dtypes(MEETINGS[case]()) == {DOUBLE}


def test_mixed_becomes_float64_under_a_trace() -> None:
    single, double = (KINDS["Discrete"](0, dtype=dtype) for dtype in (SINGLE, DOUBLE))
    wide = np.ones(8)

    def meet(single: Any, double: Any, wide: Any) -> Any:
        made = mf.Discrete.weighted(single.points, wide)
        return single + double, single.integrate(lambda x: wide), single.push(lambda x: double.points), made

    with jax.numpy_dtype_promotion("strict"):
        assert dtypes(jax.eval_shape(meet, single, double, wide)) == {DOUBLE}


def test_what_has_no_precision_follows_the_measure() -> None:
    """Scalars, lists of weights, Booleans and times do not make a float32 measure wide."""
    mu = mf.Discrete.weighted(half()[0], half()[1].tolist())
    sigma = mf.SpaceTime.weighted(half()[0], TIMES, half()[1].tolist())
    with jax.numpy_dtype_promotion("strict"):
        for result in (
            mu,
            sigma,
            np.float64(2) * mu,
            mu / jax.numpy.asarray(2.0),
            mu.integrate(lambda x: np.asarray(x)[:, 0] > 0),
            jax.eval_shape(lambda mu: mu.integrate(lambda x: x > 0), mu),
            jax.eval_shape(lambda mu, c: c * mu, mu, np.float64(2)),
            sigma.until(0.5),
            mf.SpaceTime.sequence(half()[0]),
        ):
            assert dtypes(result) == {SINGLE}


@pytest.mark.parametrize(
    "make", [lambda x: x.tolist(), lambda x: x.astype(int), lambda x: x > 0], ids=["list", "int", "bool"]
)
def test_lists_and_integers_become_float64(make: Any) -> None:
    points = make(np.arange(6.0).reshape(3, 2))
    assert dtypes(mf.Discrete.uniform(points)) == {DOUBLE}
    assert dtypes(mf.SpaceTime.sequence(points)) == {DOUBLE}
    assert dtypes(mf.Gaussian(make(np.ones(2)), make(np.eye(2)))) == {DOUBLE}
