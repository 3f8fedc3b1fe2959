"""The classical Runge–Kutta method of order 4, which diffrax leaves to its users. Imports diffrax: import it late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax
import numpy as np


class RK4(diffrax.AbstractERK):
    """Four stages, no estimate of the error: for equal steps only."""

    tableau: ClassVar[Any] = diffrax.ButcherTableau(
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
        c=np.array([0.5, 0.5, 1.0]),
    )
    interpolation_cls: ClassVar[Callable[..., Any]] = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms: Any) -> int:
        return 4
