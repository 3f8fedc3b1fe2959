"""Weights of the perceptron of one layer: exact affine updates, and products of two numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measureformer.universality.program import Step


class Places:
    """Where things stand in a token (x ∈ R^d; y, p, z ∈ R^e), with a constant 1 as last entry of affine functionals."""

    def __init__(self, dim: int, components: int) -> None:
        self.dim, self.components, self.size = dim, components, dim + 3 * components

    def y(self, component: int) -> int:
        return self.dim + component

    def p(self, component: int) -> int:
        return self.dim + self.components + component

    def z(self, component: int) -> int:
        return self.dim + 2 * self.components + component

    def coordinate(self, place: int) -> np.ndarray:
        functional = np.zeros(self.size + 1)
        functional[place] = 1.0
        return functional

    def factor(self, component: int, u: np.ndarray) -> np.ndarray:
        """z − 1 + ⟨x, u⟩: the value of the block that attention has just read."""
        functional = self.coordinate(self.z(component))
        functional[: self.dim] = u
        functional[-1] = -1.0
        return functional


class Perceptron:
    """Collects units: W2 σ(W1 s + b1) + b2, which is added to the token."""

    def __init__(self, places: Places, cells: int | None) -> None:
        self.places, self.cells = places, cells
        self.rows: list[np.ndarray] = []
        self.columns: list[np.ndarray] = []
        self.bias = np.zeros(places.size)

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        rows = np.concatenate([np.zeros((0, self.places.size + 1)), *self.rows])
        columns = np.concatenate([np.zeros((self.places.size, 0)), *self.columns], axis=1)
        return rows[:, :-1], rows[:, -1], columns, self.bias

    def add(self, component: int, step: Step, u: np.ndarray) -> None:
        """p ← p·γ (or γ, for the first factor); after the last factor y ← y + c·p and p ← 1; always z ← 1."""
        places = self.places
        product = places.coordinate(places.p(component))
        factor = places.factor(component, u)
        one = places.coordinate(places.size)
        self._affine(one - places.coordinate(places.z(component)), places.z(component))
        goal, weight = (places.y(component), step.weight) if step.last else (places.p(component), 1.0)
        update = weight * (factor if step.first else self._multiplied(step, product, factor, goal, weight))
        if not step.last:
            update = update - product
        self._affine(update, goal)
        if step.last and not step.first:
            self._affine(one - product, places.p(component))

    def _affine(self, functional: np.ndarray, goal: int) -> None:
        """Adds ⟨functional, s⟩ to a coordinate, exactly: t = relu(t) − relu(−t) = ¼((t+1)² − (t−1)²)."""
        if not functional[:-1].any():
            self.bias[goal] += functional[-1]
        elif self.cells is None:
            one = self.places.coordinate(self.places.size)
            self._units([functional + one, functional - one], [0.25, -0.25], goal)
        else:
            self._units([functional, -functional], [1.0, -1.0], goal)

    def _multiplied(self, step: Step, p: np.ndarray, g: np.ndarray, goal: int, weight: float) -> np.ndarray:
        """Adds the curved part of weight·p·g to a coordinate, and returns the affine rest (not yet weighted)."""
        if self.cells is None:
            self._units([p + g, p - g], [weight / 4, -weight / 4], goal)
            return 0 * p
        one = self.places.coordinate(self.places.size)
        r, s = step.before.radius, step.factor.radius
        p_mean, g_mean = step.before.middle, step.factor.middle
        rest = p_mean * g + g_mean * p - p_mean * g_mean * one
        if r * s == 0:
            return rest
        a, b = (p - p_mean * one) / r, (g - g_mean * one) / s
        h = 4 / self.cells
        knots = -2 + h * np.arange(1, self.cells)
        # t² ≈ 4 + (h − 4)(t + 2) + 2h Σ relu(t − knot) on [−2, 2]; of the affine terms only those in b are left
        for argument, sign in ((a + b, 1.0), (a - b, -1.0)):
            rows = argument - knots[:, None] * one
            self._units(rows, np.full(len(knots), sign * weight * r * s * h / 2), goal)
        return rest + r * s * (h - 4) / 2 * b

    def _units(self, rows: Sequence[np.ndarray] | np.ndarray, effects: Sequence[float] | np.ndarray, goal: int) -> None:
        columns = np.zeros((self.places.size, len(rows)))
        columns[goal] = effects
        self.rows.append(np.reshape(rows, (len(rows), self.places.size + 1)))
        self.columns.append(columns)
