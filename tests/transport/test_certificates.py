"""`wasserstein_bracket` at every scale; `benchmarks/certificates.py` has more cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import measureformer as mf
from attacks import sample
from attacks_transport import bracket_attack


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_brackets_hold_for_every_family(dtype: Any) -> None:
    assert sample(bracket_attack(dtype), 60)["held"] > 50


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1.7e308])
def test_dirac_masses_at_any_scale(scale: float) -> None:
    # kills: differences that overflow, and an upper bound that is rounded to nearest below the normal numbers
    x, y = np.array([[scale, 0.0]]), np.array([[-scale, 0.0]])
    found = mf.wasserstein_bracket(mf.Discrete.dirac(x[0]), mf.Discrete.dirac(y[0]), 2)
    truth = 2 * np.longdouble(scale)
    lower, upper = (np.asarray(value).astype(np.longdouble) for value in (found.lower, found.upper))
    assert lower <= truth <= upper
    assert lower >= min(truth, np.finfo(float).max) * (1 - 1e-6) - 1e-318
