"""`recover`: the in-context map behind a map between measures, from evaluations alone."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError, SupportError
from measureformer.maps.python import AbstractPythonMap
from measureformer.maps.queries import queries_of
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import finite, floats, on_device
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Number
from measureformer.structure.black_box import Atoms, BlackBox, MeasureMap, atoms_of
from measureformer.structure.weights import below, binary_marks, carriers, linear_marks, tolerance

LIGHT = 1e-12
"""Mass of an added atom in double precision. It is read off by its weight, so rounding of values does not matter."""
LIGHT_SINGLE = 1e-4
HEAVIEST = 1e-2
BATCH = 1024
BINARY_BATCH = 24
BINARY_LIGHT = 2.0**-44


class Recovery(eqx.Module):
    """Values of a recovered map at queries, and for each an estimate of its error."""

    value: Float[Array, "m e"]
    error: Float[Array, " m"]


class Recovered(AbstractPythonMap):
    """The in-context map of a black box, made by `recover`; it calls f eagerly and refuses tracers."""

    box: BlackBox
    eps: float

    def out_dim(self, dim: int) -> int:
        return self.box.out_dim(dim)

    def compute(self, mu: Any, x: Any, t: Any) -> np.ndarray:
        return self.read(atoms_of(mu), np.asarray(x, np.float64))

    def estimate(self, mu: AbstractMeasure, x: ArrayLike) -> Recovery:
        """G(mu, x), with an estimate of the error for each query.

        The value is read twice, with light atoms of mass ε and 8ε. If the error is of first order in ε or better, the
        difference is at least seven times the error of the first; the estimate adds the rounding of f to it.

        Arguments:
            mu: the measure, a `Discrete`.
            x: queries (m, d).
        """
        x, _, _ = queries_of(mu, x, None)
        finite(x, "x")
        atoms, points = atoms_of(mu), np.asarray(x, np.float64)
        near, far = self.read(atoms, points), self.read(atoms, points, 8.0)
        rounding = 8 * self.box.unit * np.abs(near).max(axis=1, initial=1e-300)
        return Recovery(on_device(near), on_device(np.linalg.norm(near - far, axis=1) + rounding))

    def read(self, atoms: Atoms, x: np.ndarray, heavier: float = 1.0) -> np.ndarray:
        """The values at queries (m, d): on the support from the image itself, off it from light atoms."""
        unique, back = np.unique(x + 0.0, axis=0, return_inverse=True)
        values: list[np.ndarray] = []
        for start in range(0, len(unique), BATCH):
            values.append(self._batch(atoms, unique[start : start + BATCH], heavier))
        return np.concatenate(values)[back.reshape(-1)]

    def _batch(self, atoms: Atoms, x: np.ndarray, heavier: float) -> np.ndarray:
        on = on_support(atoms, x)
        out, missing = self._marked(atoms, x, on, linear_marks(len(x), heavier * self._light(atoms, len(x))), False)
        # those that met each other are asked again with weights whose sums tell sets apart, then one by one
        size = BINARY_BATCH if self.box.unit < 1e-10 else 4
        eps = heavier * (BINARY_LIGHT if self.box.unit < 1e-10 else LIGHT_SINGLE)
        for start in range(0, len(missing), size):
            rows = missing[start : start + size]
            part, lost = self._marked(atoms, x[rows], on[rows], binary_marks(len(rows), eps), True)
            for row in lost:
                part[row] = self._alone(atoms, x[rows[row]], int(on[rows[row]]))
            out[rows] = part
        return out

    def _light(self, atoms: Atoms, count: int) -> float:
        if self.eps:
            return self.eps
        least = LIGHT if self.box.unit < 1e-10 else LIGHT_SINGLE
        # marks of neighbours differ by eps/count: more than weights are rounded by
        rounding = 8 * count * float(tolerance(atoms.weights, self.box.unit).max())
        return max(least, rounding, self.box.least_mass)

    def _alone(self, atoms: Atoms, x: np.ndarray, on: int) -> np.ndarray:
        eps = max(100 * self._light(atoms, 1), 1e-9)
        while eps <= HEAVIEST:
            out, lost = self._marked(atoms, x[None], np.array([on]), np.array([eps]), False)
            if not len(lost):
                return out[0]
            eps *= 30
        raise SupportError(
            got=f"an image in which the atom added at {x} is not found again",
            need="a map that keeps the weight of every atom",
            do="mf.is_support_preserving(f, domain, key) looks for a measure that shows what f does to atoms.",
        )

    def _marked(
        self, atoms: Atoms, x: np.ndarray, on: np.ndarray, marks: np.ndarray, binary: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values at the queries from one evaluation with all of them marked, and the rows that could not be read."""
        weights = atoms.weights.copy()
        weights[on[on >= 0]] += marks[on >= 0]
        whole = 1 + float(marks.sum())
        more = Atoms(np.concatenate([atoms.points, x[on < 0]]), np.concatenate([weights, marks[on < 0]]) / whole)
        plain, image = self.box.image(atoms), self.box.image(more)
        masses = image.weights * whole
        found = carriers(plain.weights, masses, marks, self.box.unit, binary=binary)
        values = image.points[found]
        # a marked atom on the support: the unmarked image has its place, without the error of the mark
        heavy = below(plain.weights, masses, self.box.unit)
        rows = np.flatnonzero((found >= 0) & (heavy[found] > 0))
        if len(rows):
            values[rows] = _nearest(plain, values[rows], heavy[found[rows]], self.box.unit)
        return values, np.flatnonzero(found < 0)


@checked
def recover(f: MeasureMap, *, eps: Number | None = None) -> Recovered:
    """Recover the in-context map G with f(mu) = G(mu, ·)♯mu from evaluations of the black box f.

    G(mu, x) is read off f(mu + ε δ_x), where the mass of the new atom identifies it. Off the support the value is that
    of G(mu + ε δ_x, x). On the support it is the atom of f(mu) whose mass x has marked, exact up to the rounding of f.
    Merging atoms are read too. `G.estimate(mu, x)` adds an estimate of the error for each query.

    Many queries are marked at once, with different masses ε_j of sum ε. Let f(mu) = G(mu, ·)♯mu for finite mu, and G be
    continuous. The atom that carries ε_j lies at G(mu', x_j) with mu' = mu + Σ_j ε_j δ_{x_j}, and W_1(mu', (1+ε)·mu) ≤
    ε · diam, so its distance to G(mu, x_j) is at most the modulus of continuity of G at ε · diam: marking many is valid
    when marking one of their total mass is. If the masses of f(mu), and these with marks added, are all different, the
    weights alone determine which atom carries ε_j. Queries whose atoms merge are marked again with 1, 2, 4, …, whose
    subset sums are different, and finally one by one.

    The result is a map like any other: `G(mu, x)`, `G.push(mu)`, `@`, `+`. f is never traced, so it refuses tracers.

    Arguments:
        f: the black box: a function from `Discrete` to `Discrete`.
        eps: mass of the added atoms, relative to that of mu, at most 1e-2; chosen automatically by default.

    Statement   G_k(mu, x) = lim_{ε→0} (1/ε) ⟨ψ_k, f(mu + ε δ_x) − f(mu)⟩, with ψ_k(y) = y_k flattened around the atoms
                of f(mu)
    Hypotheses  assumed: f is given by a continuous in-context map; a mark that is not found again is refused.
    Cost        one evaluation of f for up to 1024 queries in the same context, besides f(mu).
    Ref         furuya2025, equation (44).

    >>> import measureformer as mf
    >>> f = lambda mu: mf.Residual(mf.Attention.head([[1.0]], [[1.0]], [[1.0]])).push(mu)     # a black box
    >>> mu = mf.Discrete.uniform([[0.0], [1.0]])
    >>> mf.recover(f)(mu, [[0.0], [3.0]]).round(6).tolist()                 # on the support, and off it
    [[0.5], [3.952574]]
    """
    size = 0.0
    if eps is not None:
        size = float(floats(eps, "eps"))
        if not 0 < size <= HEAVIEST:
            raise OptionError(
                got=f"eps = {eps}", need=f"0 < eps ≤ {HEAVIEST}", do="Leave it out for an automatic choice."
            )
    return Recovered(BlackBox.of(f), size)


def _nearest(nu: Atoms, places: np.ndarray, masses: np.ndarray, unit: float) -> np.ndarray:
    """For each place, the nearest atom of nu with the given mass."""
    from scipy.spatial import KDTree

    nearest = np.asarray(KDTree(nu.points).query(places)[1])
    # the nearest of all atoms nearly always has the mass; a heavier neighbour may have passed by
    for row in np.flatnonzero(np.abs(nu.weights[nearest] - masses) > tolerance(masses, unit)):
        same = np.flatnonzero(np.abs(nu.weights - masses[row]) <= tolerance(masses[row], unit))
        nearest[row] = same[np.linalg.norm(nu.points[same] - places[row], axis=1).argmin()]
    return nu.points[nearest]


def on_support(atoms: Atoms, x: np.ndarray) -> np.ndarray:
    """The index of the atom at each query, or −1."""
    both = np.concatenate([atoms.points + 0.0, x + 0.0])
    _, first, group = np.unique(both, axis=0, return_index=True, return_inverse=True)
    at = first[group.reshape(-1)][atoms.n :]
    return np.where(at < atoms.n, at, -1)
