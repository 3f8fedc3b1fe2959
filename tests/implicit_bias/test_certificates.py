"""The lower bound of the norm of an SVM, rounded down; `benchmarks/certificates.py` has more cases."""

from __future__ import annotations

import numpy as np
import pytest

from attacks import sample
from attacks_learning import nuclear_attack, svm_attack
from measureformer.errors import ToleranceError
from measureformer.implicit_bias import Problem


def test_the_lower_norm_is_below_the_least_one() -> None:
    assert sample(svm_attack, 300)["held"] > 250
    assert sample(nuclear_attack, 12)["held"] > 8


def test_coefficients_whose_squares_underflow_are_refused() -> None:
    X = 1e-170 * np.array([[[1.0, 0.0], [0.0, 1.0]]])
    with pytest.raises(ToleranceError, match="Rescale tokens"):
        Problem(X, [[1.0, 0.0]], [1], [1.0, 0.0]).svm(tokens=[0])
