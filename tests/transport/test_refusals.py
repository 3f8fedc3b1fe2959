"""Bad input to transport gets one named error whose sentence says what was received."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from refusing import Case, assert_refused
from transport_examples import cloud

KEY = jax.random.key(0)
MU, NU, LINE = cloud(0, 4, 2), cloud(1, 5, 2), cloud(2, 4, 1)
G, H = mf.Gaussian([0.0, 0.0], np.eye(2)), mf.Gaussian([1.0, 0.0], np.eye(2))
SIGMA = mf.SpaceTime.uniform(np.zeros((3, 2)), [0.0, 0.5, 1.0])
TAU = mf.SpaceTime.uniform(np.ones((3, 2)), [0.0, 0.5, 0.5])
BAD = mf.Discrete(jnp.full((4, 2), jnp.nan), MU.log_weights)
DISTANCES: dict[str, Callable[..., Any]] = {
    "wasserstein": mf.wasserstein,
    "coupling": mf.coupling,
    "wasserstein_bracket": mf.wasserstein_bracket,
    "positive_wasserstein": mf.positive_wasserstein,
    "sliced_wasserstein": lambda *arguments: mf.sliced_wasserstein(*arguments, key=KEY),
}
PAIRS = DISTANCES | {"sinkhorn": lambda mu, nu: mf.sinkhorn(mu, nu, eps=1.0)}

TABLE: dict[str, Case] = {}
for _name, _distance in PAIRS.items():
    TABLE |= {
        f"{_name}: dimensions": (
            lambda d=_distance: d(MU, LINE),
            errors.DimensionMismatchError,
            r"R\^2 and R\^1",
        ),
        f"{_name}: NaN": (lambda d=_distance: d(MU, BAD), errors.NotFiniteError, "points with 8 non-finite"),
        f"{_name}: Gaussian and atoms": (
            lambda d=_distance: d(MU, G),
            errors.NoClosedFormError,
            "a Discrete and a Gaussian",
        ),
        f"{_name}: mixture": (lambda d=_distance: d(G + H, H), errors.NoClosedFormError, "a GaussianMixture"),
    }
    if _name != "positive_wasserstein":
        TABLE[f"{_name}: masses"] = (lambda d=_distance: d(MU, 2 * NU), errors.MassError, "masses 1 and 2")
for _name, _distance in DISTANCES.items():
    TABLE |= {
        f"{_name}: p < 1": (lambda d=_distance: d(MU, NU, 0.5), errors.OptionError, r"p = 0\.5"),
        f"{_name}: p is NaN": (lambda d=_distance: d(MU, NU, np.nan), errors.NotFiniteError, "p = nan"),
        f"{_name}: p is a word": (lambda d=_distance: d(MU, NU, "2"), errors.DtypeError, "p = '2' of type str"),
        f"{_name}: p of many digits": (
            lambda d=_distance: d(MU, NU, 10**400),
            errors.NotFiniteError if _name == "sliced_wasserstein" else errors.OptionError,
            "p = ",
        ),
        f"{_name}: p is true": (lambda d=_distance: d(MU, NU, True), errors.DtypeError, "p = True of type bool"),
        f"{_name}: infinite p off the line": (
            lambda d=_distance: d(MU, NU, np.inf),
            errors.NotFiniteError if _name == "sliced_wasserstein" else errors.OptionError,
            "p = inf",
        ),
    }
for _name in ("coupling", "wasserstein_bracket", "sliced_wasserstein", "sinkhorn"):
    TABLE[f"{_name}: Gaussians"] = (lambda d=PAIRS[_name]: d(G, H), errors.NoClosedFormError, "two Gaussians")
TABLE |= {
    "Gaussians, p = 1": (lambda: mf.wasserstein(G, H, 1), errors.NoClosedFormError, "two Gaussians and p = 1"),
    "space–time and space": (
        lambda: mf.wasserstein(SIGMA, SIGMA.space()),
        errors.NoClosedFormError,
        "a SpaceTime and a Discrete",
    ),
    "an array": (
        lambda: inspect.unwrap(mf.wasserstein)(np.ones((3, 2)), MU),  # type: ignore[arg-type]
        errors.DtypeError,
        "of type ndarray",
    ),
    "too many atoms": (
        lambda: mf.wasserstein(*[mf.Discrete.uniform(np.zeros((8000, 2)))] * 2),
        errors.TooManyAtomsError,
        "8000 and 8000 atoms off the line",
    ),
    "time marginals": (
        lambda: mf.conditional_wasserstein(SIGMA, TAU),
        errors.MassError,
        r"shares 0\.333333 and 0\.666667 of the mass at time 0\.5",
    ),
    "conditional without times": (
        lambda: inspect.unwrap(mf.conditional_wasserstein)(MU, NU),  # type: ignore[arg-type]
        errors.DtypeError,
        "a Discrete",
    ),
    "conditional masses": (
        lambda: mf.conditional_wasserstein(SIGMA, 2 * SIGMA),
        errors.MassError,
        "masses 1 and 2",
    ),
    "conditional p": (lambda: mf.conditional_wasserstein(SIGMA, SIGMA, 0), errors.OptionError, "p = 0"),
    "conditional infinite p": (lambda: mf.conditional_wasserstein(SIGMA, SIGMA, np.inf), errors.OptionError, "p = inf"),
    "no projections": (
        lambda: mf.sliced_wasserstein(MU, NU, key=KEY, projections=0),
        errors.OptionError,
        "projections = 0",
    ),
    "a seed": (lambda: mf.sliced_wasserstein(MU, NU, key=0), errors.DtypeError, "key = 0"),
    "eps = 0": (lambda: mf.sinkhorn(MU, NU, eps=0), errors.OptionError, "eps = 0"),
    "two eps": (lambda: mf.sinkhorn(MU, NU, eps=[1.0, 2.0]), errors.ShapeError, r"eps of shape \(2,\)"),
    # kills: loops at a level that is infinite or NaN, which never end
    "eps below all numbers": (
        lambda: mf.sinkhorn(MU, NU, eps=5e-324),
        errors.NotFiniteError,
        "eps = 4.94066e-324, at which the potentials overflow",
    ),
    "squares that overflow": (
        lambda: mf.sinkhorn(MU.with_points(MU.points * 1e200), NU, eps=1.0),
        errors.NotFiniteError,
        "potentials overflow",
    ),
    "no tolerance": (lambda: mf.sinkhorn(MU, NU, eps=1.0, tol=0.0), errors.OptionError, r"tol = 0\.0"),
    "coupling under a trace": (
        lambda: jax.jit(lambda mu: mf.coupling(mu, NU).gap)(MU),
        errors.TracedError,
        "coupling on traced arrays",
    ),
    "bracket under a trace": (
        lambda: jax.jit(lambda mu: mf.wasserstein_bracket(mu, NU).lower)(MU),
        errors.TracedError,
        "wasserstein_bracket on traced arrays",
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_refusals(case: str) -> None:
    assert_refused(TABLE[case])


def test_the_way_out_is_named() -> None:
    with pytest.raises(errors.MassError, match="positive_wasserstein"):
        mf.wasserstein(MU, 2 * NU)
    with pytest.raises(errors.TooManyAtomsError, match="wasserstein_bracket"):
        mf.wasserstein(*[mf.Discrete.uniform(np.zeros((8000, 2)))] * 2)


def test_masses_that_differ_by_a_rounding_are_equal() -> None:
    weights = np.full(7, 1 / 7)
    mu = mf.Discrete.weighted(np.random.default_rng(0).normal(size=(7, 2)), weights)
    assert float(mf.wasserstein(mu, mf.Discrete.dirac([0.0, 0.0]), 1)) > 0
