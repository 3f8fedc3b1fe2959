"""Bad input gets one named error whose sentence says what was received."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measure_examples import CONCRETE_ONLY, KEY, KINDS, discrete, entries, gaussian, mixture, spacetime
from measureformer import errors
from refusing import Case, assert_refused

P = np.ones((3, 2))
ONES = np.ones(3)
NAN, INF = np.nan, np.inf

SHAPES: dict[str, Case] = {
    "points in one axis": (lambda: mf.Discrete.uniform(ONES), errors.ShapeError, r"points of shape \(3,\)"),
    "points in three axes": (lambda: mf.Discrete.uniform(P[None]), errors.ShapeError, r"points of shape \(1, 3, 2\)"),
    "no coordinates": (lambda: mf.Discrete.uniform(np.ones((3, 0))), errors.ShapeError, r"points of shape \(3, 0\)"),
    "no atoms": (lambda: mf.Discrete.uniform(np.ones((0, 2))), errors.EmptyMeasureError, r"points of shape \(0, 2\)"),
    "no atoms in time": (lambda: mf.SpaceTime.sequence(np.ones((0, 2))), errors.EmptyMeasureError, r"\(0, 2\)"),
    "no weights": (lambda: mf.Discrete(P), errors.ShapeError, "points without weights"),
    "empty list": (lambda: mf.Discrete.uniform([]), errors.ShapeError, r"points of shape \(0,\)"),
    "ragged points": (lambda: mf.Discrete.uniform([[1.0, 2.0], [3.0]]), errors.ShapeError, "points that is a ragged"),
    "ragged weights": (lambda: mf.Discrete.weighted(P, [[1.0], [1.0, 2.0]]), errors.ShapeError, "weights that is a"),
    "words": (lambda: mf.Discrete.uniform([["a", "b"]]), errors.DtypeError, "points of dtype <U1"),
    "complex points": (lambda: mf.Discrete.uniform(1j * P), errors.DtypeError, "points of dtype complex128"),
    "no points": (lambda: mf.Discrete.uniform(None), errors.DtypeError, "points = None of type NoneType"),
    "too few weights": (lambda: mf.Discrete.weighted(P, [1, 2]), errors.ShapeError, "2 weights for 3 points"),
    "a column of weights": (
        lambda: mf.Discrete.weighted(P, ONES[:, None]),
        errors.ShapeError,
        r"weights of .*\(3, 1\)",
    ),
    "one weight": (lambda: mf.Discrete.weighted(P, 1.0), errors.ShapeError, r"weights of shape \(\)"),
    "too many times": (lambda: mf.SpaceTime.uniform(P, [1, 2, 3, 4]), errors.ShapeError, "4 times for 3 points"),
    "times in two axes": (lambda: mf.SpaceTime.uniform(P, P), errors.ShapeError, r"times of shape \(3, 2\)"),
    "words as times": (lambda: mf.SpaceTime.uniform(P, ["a"] * 3), errors.DtypeError, "times of dtype <U1"),
    "dirac of several": (lambda: mf.Discrete.dirac(P), errors.ShapeError, r"x of shape \(3, 2\)"),
    "dirac of a number": (lambda: mf.Discrete.dirac(1.0), errors.ShapeError, r"x of shape \(\)"),
    "sum of dimensions": (
        lambda: discrete(0) + mf.Discrete.dirac([0.0]),
        errors.DimensionMismatchError,
        r"R\^2 and R\^1",
    ),
    "sum of dimensions in time": (
        lambda: spacetime(0) + mf.SpaceTime.sequence([[0.0]]),
        errors.DimensionMismatchError,
        r"R\^2 and R\^1",
    ),
    "sum of Gaussians": (
        lambda: gaussian(0) + mf.Gaussian([0.0], [[1.0]]),
        errors.DimensionMismatchError,
        r"R\^2 and R\^1",
    ),
    "integral of one number": (
        lambda: discrete(0).integrate(lambda x: 1.0),
        errors.ShapeError,
        r"values f\(points\) of shape \(\) for 8 atoms",
    ),
    "integral of too few": (lambda: discrete(0).integrate(lambda x: x[1:]), errors.ShapeError, r"\(7, 2\) for 8 atoms"),
    "integral of words": (
        lambda: discrete(0).integrate(lambda x: ["a"] * 8),
        errors.DtypeError,
        r"f\(points\) of dtype",
    ),
    "image of too few": (lambda: discrete(0).push(lambda x: x[1:]), errors.ShapeError, "7 images of 8 atoms"),
    "image in one axis": (lambda: discrete(0).push(lambda x: x[:, 0]), errors.ShapeError, r"points of shape \(8,\)"),
    "image in time of too few": (lambda: spacetime(0).push(lambda x, t: x[1:]), errors.ShapeError, "7 images of 8"),
}
VALUES: dict[str, Case] = {
    "NaN in points": (lambda: mf.Discrete.uniform([[NAN, 1]]), errors.NotFiniteError, r"points .* at index \(0, 0\)"),
    "infinite point": (lambda: mf.Discrete.uniform([[0.0], [INF]]), errors.NotFiniteError, r"points .* index \(1, 0\)"),
    "infinite dirac": (lambda: mf.Discrete.dirac([-INF]), errors.NotFiniteError, "points with 1 non-finite"),
    "NaN in weights": (lambda: mf.Discrete.weighted(P, [1, NAN, 1]), errors.NotFiniteError, r"weights .* index \(1,\)"),
    "infinite weight": (
        lambda: mf.Discrete.weighted(P, [1, 1, INF]),
        errors.NotFiniteError,
        r"weights .* index \(2,\)",
    ),
    "infinite time": (lambda: mf.SpaceTime.uniform(P, [0, INF, 1]), errors.NotFiniteError, r"times .* index \(1,\)"),
    "NaN image": (lambda: discrete(0).push(lambda x: NAN * x), errors.NotFiniteError, "points with 16 non-finite"),
    "negative weight": (
        lambda: mf.Discrete.weighted(P, [1, -0.5, 1]),
        errors.NegativeWeightError,
        "weight -0.5 at index 1",
    ),
    "negative weight in time": (
        lambda: mf.SpaceTime.weighted(P, ONES, [-2, 1, 1]),
        errors.NegativeWeightError,
        "weight -2 at index 0",
    ),
    "negative weight in a mixture": (
        lambda: mf.GaussianMixture([1, -1], [[0.0], [1.0]], np.ones((2, 1, 1))),
        errors.NegativeWeightError,
        "weight -1 at index 1",
    ),
    "zero mass": (lambda: mf.Discrete.weighted(P, [0, 0, 0]), errors.ZeroMassError, "3 weights that are all zero"),
    "zero mass in time": (lambda: mf.SpaceTime.weighted(P, ONES, [0.0, 0, 0]), errors.ZeroMassError, "3 weights that"),
    "zero mass in a mixture": (
        lambda: mf.GaussianMixture([0], [[0.0]], np.ones((1, 1, 1))),
        errors.ZeroMassError,
        "1 weights that are all zero",
    ),
    "weightless component": (lambda: mixture(0).component(0), errors.ZeroMassError, "component 0, which has weight 0"),
    "nothing before": (
        lambda: spacetime(0).until(-1.0),
        errors.NothingVisibleError,
        "t = -1, before the first mass at",
    ),
    "only a passive token before": (
        lambda: mf.SpaceTime.weighted(P, [0, 1, 2], [0, 1, 1]).until(0.5),
        errors.NothingVisibleError,
        "t = 0.5, before the first mass at 1",
    ),
    "until NaN": (lambda: spacetime(0).until(NAN), errors.NotFiniteError, "t = nan"),
    "until several": (lambda: spacetime(0).until([0.0, 1.0]), errors.ShapeError, r"t of shape \(2,\)"),
}
GAUSSIANS: dict[str, Case] = {
    "mean in two axes": (lambda: mf.Gaussian(P, np.eye(2)), errors.ShapeError, r"mean of shape \(3, 2\)"),
    "no dimension": (lambda: mf.Gaussian([], np.ones((0, 0))), errors.ShapeError, r"mean of shape \(0,\)"),
    "covariance in one axis": (lambda: mf.Gaussian([0, 0], [1, 1]), errors.ShapeError, r"cov of shape \(2,\)"),
    "covariance too large": (
        lambda: mf.Gaussian([0, 0], np.eye(3)),
        errors.DimensionMismatchError,
        r"cov of shape \(3, 3\) on R\^2",
    ),
    "asymmetric covariance": (
        lambda: mf.Gaussian([0, 0], [[1, 0.5], [0.25, 1]]),
        errors.NotPositiveSemidefiniteError,
        "cov that is not symmetric: it differs from its transpose by 0.25",
    ),
    "negative eigenvalue": (
        lambda: mf.Gaussian([0, 0], [[1, 2], [2, 1]]),
        errors.NotPositiveSemidefiniteError,
        "cov with eigenvalue -1",
    ),
    "small negative eigenvalue beside a large matrix": (
        lambda: mf.GaussianMixture([1, 1], [[0.0], [1.0]], [[[1e8]], [[-1e-8]]]),
        errors.NotPositiveSemidefiniteError,
        "cov with eigenvalue -1e-08",
    ),
    "NaN in a covariance": (lambda: mf.Gaussian([0], [[NAN]]), errors.NotFiniteError, r"cov .* at index \(0, 0\)"),
    "NaN in a mean": (lambda: mf.Gaussian([NAN], [[1]]), errors.NotFiniteError, r"mean .* at index \(0,\)"),
    "infinite mass": (lambda: mf.Gaussian([0], [[1]], log_mass=INF), errors.NotFiniteError, "log_mass = inf"),
    "two masses": (lambda: mf.Gaussian([0], [[1]], log_mass=[0, 0]), errors.ShapeError, r"log_mass of shape \(2,\)"),
    "too few covariances": (
        lambda: mf.GaussianMixture([1, 1], [[0.0], [1.0]], np.ones((1, 1, 1))),
        errors.ShapeError,
        "1 covariances for 2 means",
    ),
    "no components": (
        lambda: mf.GaussianMixture([], np.ones((0, 1)), np.ones((0, 1, 1))),
        errors.EmptyMeasureError,
        r"points of shape \(0, 1\)",
    ),
    "component weights": (
        lambda: mf.GaussianMixture([1], [[0.0], [1.0]], np.ones((2, 1, 1))),
        errors.ShapeError,
        "1 weights for 2 points",
    ),
    "component covariances": (
        lambda: mf.GaussianMixture([1], [[0.0]], np.ones((1, 2, 2))),
        errors.DimensionMismatchError,
        r"cov of shape \(1, 2, 2\) on R\^1",
    ),
    "general integral": (lambda: mixture(0).integrate(np.sin), errors.NoClosedFormError, "integrate .*GaussianMixture"),
    "general image": (lambda: mixture(0).push(np.sin), errors.NoClosedFormError, "push .* on a GaussianMixture"),
}
for _name, _make in (("Gaussian", gaussian), ("mixture", mixture)):
    GAUSSIANS |= {
        f"{_name}: tilt of another dimension": (
            lambda make=_make: make(0).tilt(np.ones((1, 3))),
            errors.DimensionMismatchError,
            r"a of shape \(1, 3\) for a measure on R\^2",
        ),
        f"{_name}: tilt in one axis": (
            lambda make=_make: make(0).tilt([1, 2]),
            errors.ShapeError,
            r"a of shape \(2,\)",
        ),
        f"{_name}: infinite tilt": (lambda make=_make: make(0).tilt([[0, INF]]), errors.NotFiniteError, "a with 1 non"),
        f"{_name}: H of another dimension": (
            lambda make=_make: make(0).tilt([[0, 0]], np.eye(3)),
            errors.DimensionMismatchError,
            r"H of shape \(3, 3\) on R\^2",
        ),
        f"{_name}: negative H": (
            lambda make=_make: make(0).tilt([[0, 0]], -np.eye(2)),
            errors.NotPositiveSemidefiniteError,
            "H with eigenvalue -1",
        ),
        f"{_name}: B of another dimension": (
            lambda make=_make: make(0).push_affine(np.eye(3), ONES),
            errors.DimensionMismatchError,
            r"B of shape \(3, 3\) and b of shape \(3,\) for a measure on R\^2",
        ),
        f"{_name}: b of another dimension": (
            lambda make=_make: make(0).push_affine(np.eye(2), ONES),
            errors.DimensionMismatchError,
            r"b of shape \(3,\)",
        ),
        f"{_name}: no image": (
            lambda make=_make: make(0).push_affine(np.ones((0, 2)), np.ones(0)),
            errors.DimensionMismatchError,
            r"B of shape \(0, 2\)",
        ),
        f"{_name}: NaN in B": (
            lambda make=_make: make(0).push_affine(NAN * np.eye(2), [0, 0]),
            errors.NotFiniteError,
            "B with 4 non-finite",
        ),
        f"{_name}: n = 0": (lambda make=_make: make(0).discretize(0), errors.OptionError, "n = 0"),
    }
GAUSSIANS["fewer atoms than components"] = (
    lambda: mixture(0).discretize(1),
    errors.OptionError,
    "n = 1 atoms for 2 components",
)

FACTORS: dict[str, Case] = {}
for _kind, _make in KINDS.items():
    for _factor, _said in (
        (0, "0"),
        (-2.0, r"-2\.0"),
        (NAN, "nan"),
        (INF, "inf"),
        (np.float64(0), r".*0\.0"),
        ([1, 2], r"\[1, 2\]"),
    ):
        FACTORS[f"{_factor} * {_kind}"] = (
            lambda make=_make, factor=_factor: make(0) * factor,
            errors.NegativeWeightError,
            f"the factor {_said}",
        )
        FACTORS[f"{_kind} / {_factor}"] = (
            lambda make=_make, factor=_factor: make(0) / factor,
            errors.NegativeWeightError,
            f"the divisor {_said}",
        )
    FACTORS |= {
        f"'2' * {_kind}": (lambda make=_make: make(0) * "2", errors.DtypeError, "factor = '2' of type str"),
        f"{_kind}: n = 0": (lambda make=_make: make(0).sample(KEY, 0), errors.OptionError, "n = 0"),
        f"{_kind}: n = -1": (lambda make=_make: make(0).sample(KEY, -1), errors.OptionError, "n = -1"),
        f"{_kind}: a seed": (lambda make=_make: make(0).sample(7, 3), errors.DtypeError, "key = 7 of type int"),
        f"{_kind}: no key": (lambda make=_make: make(0).sample(None, 3), errors.DtypeError, "key = None"),
    }
for _kind in ("Discrete", "SpaceTime", "Prefixes"):
    FACTORS[f"{_kind}: cut"] = (lambda kind=_kind: KINDS[kind](0).padded(7), errors.OptionError, "size = 7 for 8 rows")

TABLE = SHAPES | VALUES | GAUSSIANS | FACTORS


@pytest.mark.parametrize("case", TABLE)
def test_refusals(case: str) -> None:
    assert_refused(TABLE[case])


@pytest.mark.parametrize(("kind", "case"), entries(CONCRETE_ONLY))
def test_values_that_a_trace_hides(kind: str, case: str) -> None:
    run, mu = CONCRETE_ONLY[kind][case], KINDS[kind](0)
    if case == "until":
        run = lambda mu: mu.until(1.0)  # noqa: E731
    for transformed in (jax.jit(run), jax.grad(run)):
        with pytest.raises(errors.TracedError, match=f"got {case} on traced arrays"):
            transformed(mu)


def test_a_traced_partner_is_refused_too() -> None:
    mu = discrete(0)
    with pytest.raises(errors.TracedError, match="on traced arrays"):
        jax.jit(lambda nu: mu.same_as(nu))(mu)
    with pytest.raises(errors.TracedError, match="until on traced arrays"):
        jax.jit(lambda t: spacetime(0).until(t).points)(1.0)


def test_shapes_are_checked_under_a_trace() -> None:
    with pytest.raises(errors.ShapeError, match="2 weights for 3 points"):
        jax.jit(lambda w: mf.Discrete.weighted(P, w).mass)(jnp.ones(2))
    with pytest.raises(errors.DimensionMismatchError, match=r"R\^2 and R\^1"):
        jax.jit(lambda x: (discrete(0) + mf.Discrete.dirac(x)).mass)(jnp.ones(1))
    with pytest.raises(errors.NegativeWeightError, match="the factor"):
        jax.jit(lambda c: (c * discrete(0)).mass)(jnp.ones(2))


def test_near_misses_are_accepted() -> None:
    """Where the refusals end: singular, slightly asymmetric, tiny, passive."""
    assert mf.Gaussian([0, 0], np.zeros((2, 2))).dim == 2
    assert mf.Gaussian([0, 0], [[1, 1 + 1e-14], [1, 1]]).dim == 2
    assert mf.Gaussian([0], [[1e-320]]).dim == 1
    assert mf.Discrete.weighted(P, [0, 5e-324, 0]).n == 3
    assert mf.Discrete.weighted(P, [True, False, True]).n == 3
    assert (mf.Discrete.dirac([0.0]) * 5e-324).n == 1
    assert mixture(0).discretize(2).n == 2


@pytest.mark.parametrize(("points", "do"), [(ONES, "array[:, None]"), (P[None], "array[0]")])
def test_what_to_do_about_axes(points: np.ndarray, do: str) -> None:
    # kills: advice that makes one token in R^3 of three on the line, or that adds an axis to one too many
    with pytest.raises(errors.ShapeError) as caught:
        mf.Discrete.uniform(points)
    assert do in caught.value.do
