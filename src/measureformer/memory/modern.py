"""`Modern`: the continuous memory, whose update is attention."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DtypeError, OptionError, PatternError
from measureformer.maps.call import quick
from measureformer.measures import AbstractMeasure, Discrete
from measureformer.memory import retrieval
from measureformer.memory.base import AbstractMemory, Retrieval, Walk, cut_walk, iterate, room, rows_of, trace_of
from measureformer.memory.search import best_key
from measureformer.numerics import edge
from measureformer.numerics.arrays import (
    cast,
    common_dtype,
    floats,
    host,
    is_traced,
    namespace,
    needs_jax,
    on_device,
    positive_int,
    scalar,
    shaped,
)
from measureformer.numerics.checked import checked
from measureformer.numerics.norms import norms
from measureformer.numerics.types import ArrayLike

STORED = 1 << 18
"""Logits up to which an update is done in NumPy, since calling a compiled program would take most of the time."""


class ModernCertificate(eqx.Module):
    """Theorems about a retrieval next to its measurements; x_i is the pattern nearest to the answer.

    Bounds hold for updates in exact arithmetic, and are rounded outwards, the quantities that they are computed from
    included; they are infinite, or false, where a theorem does not apply.

    >>> import measureformer as mf
    >>> found = mf.memory.Modern.store([[4.0, 0.0], [0.0, 4.0]], beta=1.0).retrieve([3.9, 0.1]).certificate
    >>> bool(found.stored), float(found.separation), bool(found.one_step_error < found.one_step_bound)
    (True, 16.0, True)
    """

    nearest: np.ndarray
    """i."""
    distance: np.ndarray
    """|query − x_i|."""
    error: np.ndarray
    """|answer − x_i|."""
    separation: np.ndarray
    """Δ_i = ⟨x_i, x_i⟩ − max_{j≠i} ⟨x_i, x_j⟩, rounded to the nearest number; bounds use a lower one."""
    needed: np.ndarray
    """Separation that suffices for x_i to be stored: `ramsauer20_separation`."""
    stored: np.ndarray
    """Whether x_i is stored: the ball of radius `radius` around it has one fixed point, which attracts the ball."""
    radius: np.ndarray
    """1/(βNM)."""
    basin: np.ndarray
    """Radius of a ball around x_i from which all updates end near x_i: `mf.memory.basin`; 0 if none is certain."""
    error_bound: np.ndarray
    """Bound of |answer − x_i| after many updates for a query in the basin; infinite otherwise."""
    one_step_error: np.ndarray
    """|f(query) − x_i|."""
    one_step_bound: np.ndarray
    """Bound of `one_step_error`: `ramsauer20_one_step`."""
    contraction: np.ndarray
    """|f(query) − x_i*| ≤ contraction · |query − x_i*|: `ramsauer20_contraction`; infinite before convergence."""
    single: np.ndarray
    """Whether β m² < 1, m the largest distance of a pattern from the mean: then there is only one fixed point."""


class FixedPoints(eqx.Module):
    """Fixed points that the stored patterns converge to; one shared by several patterns is a metastable state.

    >>> import measureformer as mf
    >>> memory = mf.memory.Modern.store([[3.0, 0.0], [3.0, 0.1], [0.0, 3.0]], beta=1.0)
    >>> found = memory.fixed_points()
    >>> found.labels.tolist(), found.metastable.tolist(), found.points[0].round(2).tolist()
    ([0, 0, 1], [True, False], [3.0, 0.05])
    """

    points: Float[np.ndarray, "c d"]
    labels: np.ndarray
    """For every pattern, the row of its fixed point."""
    converged: np.ndarray
    """For every pattern, whether its updates converged."""

    @property
    def members(self) -> np.ndarray:
        """Number of patterns that converge to each point."""
        return np.bincount(self.labels, minlength=len(self.points))

    @property
    def metastable(self) -> np.ndarray:
        return self.members > 1


class Modern(AbstractMemory):
    """A measure mu of patterns and an inverse temperature: f(ξ) = ∫ x e^{β⟨x,ξ⟩} dmu(x) / ∫ e^{β⟨x,ξ⟩} dmu(x).

    Statement   E(ξ) = −(1/β) log(∫ e^{β⟨x,ξ⟩} dmu/|mu|) + |ξ|²/2 + M²/2, M the largest norm of a pattern, never rises
                along f, and 0 ≤ E ≤ 2M² on the convex hull; f is attention with Q = K = V = I and logits β⟨x, ξ⟩
    Proof       −(1/β) log ∫ … is concave in ξ with gradient −f(ξ), so E(f(ξ)) ≤ E(ξ) − |f(ξ) − ξ|²/2
    Ref         ramsauer2020, Theorems 1 and 2.

    For N patterns of equal mass, normalising by |mu| gives the (ln N)/β of the theorem. Patterns may have any mass; a
    common factor changes nothing, and a pattern of mass 2 counts as two. Linear memory; energy and update are
    differentiable.

    >>> import measureformer as mf
    >>> memory = mf.memory.Modern.store([[1.0, 0.0], [0.0, 1.0]], beta=8.0)
    >>> found = memory.retrieve([0.8, 0.1])
    >>> found.state.round(3).tolist(), bool(found.trace.converged)
    ([1.0, 0.0], True)
    """

    mu: Discrete
    beta: Float[Array, ""]

    @staticmethod
    @checked
    def store(patterns: ArrayLike | AbstractMeasure, beta: ArrayLike, *, weights: ArrayLike | None = None) -> Modern:
        """Store patterns.

        Arguments:
            patterns: real vectors, (n, d), or a `Discrete` measure of them.
            beta: inverse temperature β > 0.
            weights: masses of the patterns, (n,); equal by default.
        """
        beta = scalar(beta, "beta")
        if not is_traced(beta) and not float(beta) > 0:
            raise OptionError(
                got=f"beta = {float(beta):g}",
                need="an inverse temperature > 0",
                do="As beta tends to 0 all answers tend to the mean of the patterns.",
            )
        if isinstance(patterns, AbstractMeasure):
            if not isinstance(patterns, Discrete) or weights is not None:
                got = "weights beside a measure" if weights is not None else f"a {type(patterns).__name__}"
                raise DtypeError(
                    got=got,
                    need="a Discrete measure, or patterns (n, d) with weights",
                    do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
                )
            return Modern(patterns, beta)
        if np.shape(patterns)[:1] == (0,):
            raise PatternError(got="no patterns", need="at least one pattern", do="Pass an (n, d) array with n ≥ 1.")
        points = shaped(floats(patterns, "patterns"), "patterns", "n d")
        return Modern(Discrete.uniform(points) if weights is None else Discrete.weighted(points, weights), beta)

    @property
    def n(self) -> int:
        return self.mu.n

    @property
    def dim(self) -> int:
        return self.mu.dim

    @property
    def patterns(self) -> Float[Array, "n d"]:
        return self.mu.points

    def energy(self, state: ArrayLike) -> Array:
        """E(ξ) of one state or several, traced or not."""
        rows, single = rows_of(state, self.dim, "state")
        rows, mu = cast((rows, self.mu), common_dtype(rows, self.mu))
        q = host(self.beta).astype(rows.dtype) * rows
        log_z = attend(q, mu.points, mu.points[:, :1], mu.log_weights).log_normalizer
        energies = _energy(host(log_z), host(rows), host(self.beta), host(mu.log_mass), host(mu.radius()))
        return on_device(energies[0] if single else energies)

    @quick
    def update(self, state: ArrayLike) -> Array:
        """f(ξ) of one state or several, traced or not."""
        mu, beta = self.mu, self.beta
        patterns = mu.points, mu.log_weights
        n, dim = patterns[0].shape
        rows, single = rows_of(state, dim, "state")
        if len(rows) * n <= STORED and not needs_jax((*patterns, beta, rows)):
            new = _updated(np.asarray(rows[0] if single else rows), *map(np.asarray, (*patterns, beta)))
            if new is not None:
                return new
        rows, mu = cast((rows, mu), common_dtype(rows, mu))
        q = host(beta).astype(rows.dtype) * rows
        new = attend(q, mu.points, mu.points, mu.log_weights).values
        return new[0] if single else new

    def retrieve(
        self, query: ArrayLike, *, steps: int = 100, tol: float | None = None
    ) -> Retrieval[Array, ModernCertificate]:
        """Update until the state settles; `steps=1` is attention.

        Arguments:
            query: states, (d,) or (m, d).
            steps: largest number of updates.
            tol: a state has settled if it moves by at most this; by default M·1e-12 in float64, M·1e-5 in float32.
        """
        rows, single = rows_of(query, self.dim, "query")
        steps, m = positive_int(steps, "steps"), len(rows)
        dtype = common_dtype(rows, self.mu)
        if tol is None:
            tol = (1e-12 if dtype == np.float64 else 1e-5) * float(self.mu.radius())
        fixed, asked = edge.Layer((self.beta, room(steps))), (rows, np.asarray(tol), np.asarray(steps))
        atoms, structure = jax.tree.flatten(self.mu)
        walk, t = edge.run(fixed, _walk, (structure, atoms), asked, edge.Layout((0, 0), (1,), (0,)))
        flat = cut_walk(walk, t, m, single=False)
        queries = np.asarray(host(rows), dtype)

        def certify() -> ModernCertificate:
            found = self._certificate(queries, flat)
            return ModernCertificate(*(np.asarray(part[0]) for part in vars(found).values())) if single else found

        walk = cut_walk(walk, t, m, single=single)
        return Retrieval(on_device(walk.state), trace_of(walk), certify)

    def separation(self, index: ArrayLike | None = None) -> np.ndarray:
        """Δ_i of all patterns, or of those at `index`; infinite for a single pattern."""
        index = np.arange(self.n) if index is None else np.atleast_1d(np.asarray(index))
        points = np.asarray(self.patterns)
        rows = points[index]
        highest, _ = best_key(rows, points, self._offsets(), own=index)
        return np.sum(rows * rows, axis=1) - highest

    def spread(self) -> float:
        """m, the largest distance of a pattern from the mean; if β m² < 1, there is only one fixed point."""
        points = np.asarray(self.patterns)[self._massive()]
        return float(np.sqrt(np.max(np.sum((points - np.asarray(self.mu.mean())) ** 2, axis=1))))

    def fixed_points(self, *, steps: int = 1000, atol: float = 1e-6) -> FixedPoints:
        """Fixed points that the patterns themselves converge to.

        Arguments:
            steps: largest number of updates.
            atol: limits closer than atol · M count as one point.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial import KDTree

        found = self.retrieve(self.patterns, steps=steps)
        ends = np.asarray(found.state)
        pairs = KDTree(ends).query_pairs(atol * float(self.mu.radius()), output_type="ndarray")
        graph = coo_array((np.ones(len(pairs)), pairs.T), shape=(self.n, self.n))
        count, labels = connected_components(graph, directed=False)
        first = np.array([int(np.argmax(labels == c)) for c in range(count)])
        return FixedPoints(ends[first], labels, found.trace.converged)

    def _massive(self) -> np.ndarray:
        return np.asarray(self.mu.log_weights) > -np.inf

    def _offsets(self) -> np.ndarray:
        return np.where(self._massive(), 0.0, -np.inf).astype(self.patterns.dtype)

    def _certificate(self, queries: np.ndarray, walk: Walk) -> ModernCertificate:
        points, beta = np.asarray(self.patterns), float(self.beta)
        squares = np.sum(points * points, axis=1)
        _, nearest = best_key(walk.state, points, self._offsets() - 0.5 * squares)
        x, separation = points[nearest], self.separation(nearest)
        n, eps, fine = int(self._massive().sum()), float(np.finfo(points.dtype).eps), float(np.finfo(np.float64).eps)
        up = 1 + (self.dim + 8) * fine
        M = float(norms(points[self._massive()].astype(np.float64)).max()) * up
        logs = np.asarray(self.mu.log_weights)[nearest].astype(np.float64), float(self.mu.log_mass)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            inverse = np.exp(logs[1] - logs[0])
            odds = np.maximum(inverse - 1, 0.0) + inverse * eps * (8 + n + np.abs(logs[0]) + abs(logs[1]))
            distance, error, one = (_apart(rows, x) for rows in (queries, walk.state, walk.first))
            # ends below the smallest normal number are taken for 0
            lost = 4 * (self.dim + 2) * float(np.finfo(points.dtype).tiny) * (1 + M)
            least = np.where(separation < np.inf, separation - (self.dim + 4) * eps * 2 * M * M - lost, np.inf)
            least = np.where(np.isnan(least), -np.inf, least.astype(np.float64))
            needed = retrieval.ramsauer20_separation(beta, n, M, odds)
            needed = needed + 16 * fine * (np.abs(needed) + 4 / beta)
            farther = np.maximum(distance, error) * up
            # exponents are as large as this, and rounding in them is a factor
            size = beta * (np.where(least < np.inf, np.abs(least), 0) + 2 * M * farther) + 10 + np.abs(np.log(odds + 1))
            size += abs(math.log(beta)) + 2 * abs(math.log(M or 1.0))
            odds = odds * np.exp(8 * fine * size)
            outer, inner = retrieval.basin_of(beta, least, M, odds)
            outer, inner = outer * (1 - 1e-9), inner * (1 + 1e-9) + float(np.finfo(np.float64).tiny)
            bound = retrieval.ramsauer20_one_step(beta, least, farther, M, odds) * up + float(np.finfo(np.float64).tiny)
            contraction = np.where(walk.converged, beta * n * M * bound * up, np.inf)
            spread = self.spread() + 4 * (n + self.dim) * eps * M
        return ModernCertificate(
            nearest,
            distance,
            error,
            separation,
            needed,
            least >= needed,
            np.full(len(x), (1 - 8 * fine) / (beta * n * M) if M else np.inf),
            outer,
            np.where(distance * up < outer, inner, np.inf),
            one,
            bound,
            contraction,
            np.full(len(x), beta * spread**2 * up < 1),
        )


def _updated(state: np.ndarray, points: np.ndarray, log_weights: np.ndarray, beta: np.ndarray) -> Array | None:
    """The update of few concrete states in NumPy; none where `attend` has a precision to choose or to refuse."""
    if state.dtype != points.dtype:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        logits = state @ points.T
        logits *= beta.astype(points.dtype)
        logits += log_weights
        logits -= logits.max(axis=-1, keepdims=True)
        weights = np.exp(logits, out=logits)
        new = weights @ points / weights.sum(axis=-1, keepdims=True)
    return on_device(new) if np.isfinite(new).all() else None


def _energy(log_z: Any, rows: Any, beta: Any, log_mass: Any, radius: Any) -> Any:
    xp = namespace(log_z, rows)
    beta = xp.asarray(beta).astype(log_z.dtype)
    return (log_mass - log_z) / beta + 0.5 * xp.sum(rows * rows, axis=1) + 0.5 * radius * radius


def _apart(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    return norms(rows.astype(np.float64) - x)


def _walk(fixed: tuple[Array, int], mu: Discrete, start: Array, tol: Array, limit: Array) -> Any:
    beta, size = fixed
    log_mass, radius = mu.log_mass, mu.radius()

    def step(state: Array, t: Array) -> tuple[Array, Array]:
        out = attend(beta * state, mu.points, mu.points, mu.log_weights)
        return _energy(out.log_normalizer, state, beta, log_mass, radius), out.values

    return iterate(step, lambda old, new: norms(new - old), jnp.asarray(start), limit, tol=tol, size=size)
