"""`SVM`: the matrix of least norm that separates chosen tokens, with a duality gap, or a proof that none exists.

Weak duality needs no solver: for multipliers λ ≥ 0 of the constraints A(W) ≥ 1, and free ones of the equalities,
Σλ ≤ ⟨λ, A(W)⟩ = ⟨A*λ, W⟩ ≤ ‖A*λ‖_dual ‖W‖, so that ‖W‖ ≥ Σλ/‖A*λ‖_dual. Where A*λ = 0, nothing separates (Farkas).
The dual of the Frobenius norm is itself, that of the nuclear norm is the spectral norm.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from measureformer.errors import InfeasibleError, OptionError, ShapeError, ToleranceError, need
from measureformer.numerics.checked import checked
from measureformer.numerics.norms import norms
from measureformer.numerics.types import ArrayLike

if TYPE_CHECKING:
    from measureformer.implicit_bias.problem import Problem

Norm = Literal["frobenius", "nuclear"]
ORDERS: dict[str, tuple[Any, Any]] = {"frobenius": ("fro", "fro"), "nuclear": ("nuc", 2)}
"""NumPy's names of each norm and its dual."""
ROUNDING = 1e-12
"""A margin below this share of ‖W‖ times the norm of its constraint counts as zero."""


class KKT(NamedTuple):
    """Violations of the optimality conditions, each relative to its own scale."""

    primal: float
    """Largest violation of a margin 1, or of an equality."""
    dual: float
    """Largest negative multiplier, as a share of the largest."""
    stationarity: float
    """Frobenius: ‖W − A*λ‖/‖W‖ for the best multiple of λ. Nuclear: 1 − ⟨A*λ, W⟩/(‖A*λ‖₂‖W‖_*)."""
    complementarity: float
    """Σ λ (margin − 1) / Σ λ."""


@dataclass(frozen=True)
class SVM:
    """The matrix W of least norm that separates the chosen tokens from the others, found by `Problem.svm`.

    Tokens that cannot be separated give `feasible = False` and a certificate.

    Statement   min ‖W‖ s.t. (k_ia − k_it)·W z_i ≥ 1 for t outside the set of a, = 0 for t inside
    Ref         tarzanagh2023.

    >>> import numpy as np, measureformer as mf
    >>> X = np.array([[[1.0], [0.0], [-1.0]]])
    >>> problem = mf.implicit_bias.Problem(X, [[1.0]], [1], [1.0])
    >>> found = problem.svm()
    >>> found.W.tolist(), found.margins.tolist(), found.support.tolist(), found.gap < 1e-12
    ([[1.0]], [[0.0, 1.0, 2.0]], [[False, True, False]], True)
    >>> middle = problem.svm(tokens=[1])
    >>> middle.feasible, middle.certificate.round(9).tolist()
    (False, [[0.5, 0.0, 0.5]])
    """

    kind: Norm
    chosen: np.ndarray
    """The chosen tokens, (n, T)."""
    feasible: bool
    solution: np.ndarray | None
    leads: np.ndarray | None
    multipliers: np.ndarray
    """λ, (n, T): ≥ 0 for tokens outside the chosen set, free for equalities inside, where the first chosen has 0."""
    lower: float
    """A lower bound of the norm of every W that separates, from the multipliers."""
    kkt: KKT | None

    @property
    def W(self) -> np.ndarray:
        return self._known(self.solution)

    @property
    def margins(self) -> np.ndarray:
        """(k_ia − k_it)·W z_i, (n, T): at least 1, 0 for chosen tokens, ∞ for hidden ones."""
        return self._known(self.leads)

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.W, ORDERS[self.kind][0])) if self.W.size else 0.0

    @property
    def direction(self) -> np.ndarray:
        """W/‖W‖_F; zero if there was nothing to separate."""
        return self.W / (np.linalg.norm(self.W) or 1.0)

    @property
    def gap(self) -> float:
        """The norm minus its lower bound; ∞ if there is no W."""
        return max(self.norm - self.lower, 0.0) if self.feasible else np.inf

    @property
    def support(self) -> np.ndarray:
        """Tokens whose margin is tight, (n, T)."""
        accuracy = 1e-8 if self.kind == "frobenius" else 1e-5
        return ~self.chosen & (self.margins <= 1 + accuracy)

    @property
    def certificate(self) -> np.ndarray | None:
        """Multipliers with Σ over the tokens outside = 1 and A*λ = 0 up to 1/`lower`; None if tokens separate.

        In floating-point numbers this proves: no W of norm below `lower` separates the chosen tokens.
        """
        return None if self.feasible else self.multipliers

    def rank(self, tol: float = 1e-6) -> int:
        """Number of singular values of W above `tol` times the largest."""
        values = np.linalg.svd(self.W, compute_uv=False)
        return int((values > tol * values[0]).sum()) if values[0] > 0 else 0

    def _known(self, value: np.ndarray | None) -> np.ndarray:
        if value is None:
            raise InfeasibleError(
                got=f"tokens that no W of norm below {self.lower:.3g} separates",
                need="tokens that can be separated",
                do="Look at .feasible first; .certificate is the proof. In more dimensions, d ≥ T − 1 and d ≥ n, "
                "random tokens can be.",
            )
        return value


@checked
def misalignment(A: ArrayLike, B: ArrayLike) -> float:
    """1 − cos of the angle between two matrices, accurate even where it is tiny.

    Arguments:
        A: a nonzero matrix or vector.
        B: another of the same shape.

    >>> import measureformer as mf
    >>> mf.implicit_bias.misalignment([[1.0, 0.0]], [[1.0, 1e-9]])
    5e-19
    """
    a, b = np.asarray(A, np.float64), np.asarray(B, np.float64)
    if a.shape != b.shape or not (a.any() and b.any()):
        raise ShapeError(
            got=f"A of shape {a.shape} and B of shape {b.shape}, the largest entries {abs(a).max(initial=0)} and "
            f"{abs(b).max(initial=0)}",
            need="two nonzero arrays of the same shape",
            do="The zero matrix has no direction.",
        )
    # first by the largest entry: the squares of huge or tiny ones are not numbers
    a, b = a / abs(a).max(), b / abs(b).max()
    return float(np.sum((a / np.linalg.norm(a) - b / np.linalg.norm(b)) ** 2) / 2)


class Constraints(NamedTuple):
    """Rows of A and B in reduced coordinates W = left · w · rightᵀ, which span all rows."""

    A: np.ndarray
    """(m, r): margins, constrained to be ≥ 1."""
    B: np.ndarray
    """(e, r): equalities, constrained to be `levels`."""
    levels: np.ndarray
    left: np.ndarray
    right: np.ndarray
    places: tuple[np.ndarray, np.ndarray]
    """Where in (n, T) the rows of A, then those of B, belong."""

    def matrix(self, w: np.ndarray) -> np.ndarray:
        return self.left @ w.reshape(self.left.shape[1], self.right.shape[1]) @ self.right.T


def constraints(problem: Problem, chosen: np.ndarray, logs: np.ndarray | None = None) -> Constraints:
    """Constraints of the SVM; `logs` (n, T) prescribes logits of chosen tokens up to a constant, equal by default.

    Rows are vec((k_a − k_t) zᵀ) for the first chosen token a. With fewer rows than dimensions, keys and queries are
    written in orthonormal bases of their spans.
    """
    keys, z = (np.asarray(array, np.float64) for array in (problem.keys, problem.z))
    first = chosen.argmax(axis=1)
    others = np.asarray(problem.visible) & (np.arange(keys.shape[1]) != first[:, None])
    outside, inside = np.nonzero(others & ~chosen), np.nonzero(others & chosen)
    i, t = (np.concatenate(pair) for pair in zip(outside, inside, strict=True))
    differences = keys[i, first[i]] - keys[i, t]
    left, right = _basis(differences), _basis(z)
    rows = np.einsum("mk,mq->mkq", differences @ left, (z @ right)[i]).reshape(len(i), left.shape[1] * right.shape[1])
    levels = np.zeros(len(inside[0]))
    if logs is not None:
        levels = logs[inside[0], first[inside[0]]] - logs[inside]
    m = len(outside[0])
    return Constraints(rows[:m], rows[m:], levels, left, right, (i, t))


def _basis(rows: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows; the identity if there are enough rows to span everything."""
    return np.linalg.qr(rows.T)[0] if len(rows) < rows.shape[1] else np.eye(rows.shape[1])


def solve(problem: Problem, chosen: np.ndarray, norm: Norm) -> SVM:
    if norm not in ORDERS:
        raise OptionError(got=f"norm = {norm!r}", need='"frobenius" or "nuclear"', do='Leave it out for "frobenius".')
    parts = constraints(problem, chosen)
    largest = float(np.abs(parts.A).max(initial=0))
    if parts.A.any() and not 1e-100 < largest < 1e100:
        raise ToleranceError(
            got=f"constraints whose largest coefficient is {largest:.2g}",
            need="one between 1e-100 and 1e100, whose squares are numbers",
            do="Rescale tokens and queries so that their norms are of order 1.",
        )
    free = _off(parts.B, parts.A)
    w, u = _least(free)
    if not len(u) or _separates(parts.A, w):
        if norm == "nuclear" and len(u):
            w, u, nu = _nuclear(parts, w)
        else:
            nu = -_coordinates(parts.B, parts.A.T @ u)
        return _solved(problem, chosen, norm, parts, w, np.concatenate([u, nu]))
    share = u / u.sum()
    multipliers = np.concatenate([share, -_coordinates(parts.B, parts.A.T @ share)])
    lower = _weak_duality(problem, chosen, parts.places, multipliers, norm)
    return SVM(norm, chosen, False, None, None, _placed(parts, multipliers, chosen), lower, None)


def _least(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least w with Aw ≥ 1, and multipliers with w = Aᵀλ; if there is none, multipliers with Aᵀλ ≈ 0.

    Least-distance programming: the residual r of min ‖[Aᵀ; 1ᵀ]u − (0, …, 0, 1)‖ over u ≥ 0 has w = −r/r_last. It is
    zero if and only if no w exists, and then u is the certificate. The active set that is found is solved once more.
    """
    from scipy.optimize import nnls

    if not len(A):
        return np.zeros(A.shape[1]), np.zeros(0)
    tall = np.linalg.qr(A.T, mode="r") if A.shape[1] > len(A) else A.T
    u, _ = nnls(np.vstack([tall, np.ones(len(A))]), np.eye(len(tall) + 1)[-1], maxiter=max(100, 30 * len(A)))
    found = _scaled(A, u)
    active = u > 0
    if active.any():
        sharp = np.zeros_like(u)
        w = np.linalg.lstsq(A[active], np.ones(active.sum()), rcond=None)[0]
        sharp[active] = np.linalg.lstsq(A[active].T, w, rcond=None)[0]
        other = _scaled(A, sharp)
        if sharp.min() >= 0 and _separates(A, other[0]) and np.linalg.norm(other[0]) < np.linalg.norm(found[0]):
            found = other
    return found


def _scaled(A: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w = A.T @ u
    least = (A @ w).min()
    return (w / least, u / least) if least > 0 else (w, u)


def _separates(A: np.ndarray, w: np.ndarray) -> bool:
    # a margin must exceed the rounding errors of its own sum
    return bool((A @ w > ROUNDING * np.linalg.norm(A, axis=1) * np.linalg.norm(w)).all() and w.any())


def _nuclear(parts: Constraints, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with the least nuclear norm, by an interior-point method; equalities and margins are then made exact."""
    need("cvxpy", "atlas", instead="use the Frobenius norm")
    import cvxpy as cp

    shape = parts.left.shape[1], parts.right.shape[1]
    scale = np.linalg.norm(start)
    W = cp.Variable(shape)
    w = cp.vec(W, order="C")
    rules: list[cp.Constraint] = [(scale * parts.A) @ w >= 1]
    if len(parts.B):
        rules.append(parts.B @ w == 0)
    program = cp.Problem(cp.Minimize(cp.normNuc(W)), rules)
    accuracy = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    with warnings.catch_warnings():
        # a warning that the accuracy was not quite reached: the duality gap measures it
        warnings.simplefilter("ignore")
        program.solve(solver=cp.CLARABEL, **accuracy)
    if W.value is None:
        raise ToleranceError(
            got=f"the solver's answer {program.status!r} for the nuclear norm",
            need="a solution, which exists: the least Frobenius norm was found",
            do="Rescale tokens and queries so that their norms are of order 1.",
        )
    found = _off(parts.B, np.asarray(W.value).reshape(1, -1))[0]
    nu = -np.asarray(rules[1].dual_value) if len(parts.B) else np.zeros(0)
    return found / (parts.A @ found).min(), scale * np.maximum(np.asarray(rules[0].dual_value), 0), nu


def _solved(
    problem: Problem, chosen: np.ndarray, norm: Norm, parts: Constraints, w: np.ndarray, multipliers: np.ndarray
) -> SVM:
    W = parts.matrix(w)
    own = ORDERS[norm][0]
    M, weights = _adjoint(parts, multipliers), multipliers[: len(parts.A)]
    total = weights.sum()
    lower = _weak_duality(problem, chosen, parts.places, multipliers, norm)
    size = np.linalg.norm(W, own) or 1.0
    leads = parts.A @ w
    kkt = KKT(
        primal=float(max(np.max(1 - leads, initial=0), np.abs(parts.B @ w).max(initial=0))),
        dual=float(-min(weights.min(initial=0), 0) / (np.abs(weights).max(initial=0) or 1)),
        stationarity=_stationarity(W, M, norm),
        complementarity=float(abs(weights @ (leads - 1)) / (total or 1)),
    )
    margins = problem.margins(W, chosen)
    return SVM(norm, chosen, True, W, margins, _placed(parts, multipliers, chosen), min(lower, float(size)), kkt)


def _weak_duality(
    problem: Problem, chosen: np.ndarray, places: tuple[np.ndarray, np.ndarray], multipliers: np.ndarray, norm: Norm
) -> float:
    """Σλ/‖A*λ‖_dual, rounded down: A*λ is summed from the keys themselves, and its rounding counts as part of it."""
    keys, z = (np.asarray(array, np.float64) for array in (problem.keys, problem.z))
    (i, t), first = places, chosen.argmax(axis=1)
    outside = ~chosen[i, t]
    total = float(np.maximum(multipliers[outside], 0).sum())
    if not total > 0:
        return 0.0
    differences, eps = keys[i, first[i]] - keys[i, t], float(np.finfo(np.float64).eps)
    M = (differences * multipliers[:, None]).T @ z[i]
    lost = (len(i) + 4) * eps / 2 * float(np.abs(multipliers) @ (norms(differences) * norms(z[i])))
    size = float(norms(M.reshape(-1))) if norm == "frobenius" else float(np.linalg.norm(M, 2))
    slack = (sum(M.shape) + len(i) + 8) * eps
    with np.errstate(over="ignore"):
        return float(total / (size + lost + float(np.finfo(np.float64).tiny)) * (1 - slack))


def _stationarity(W: np.ndarray, M: np.ndarray, norm: Norm) -> float:
    if not W.any() or not M.any():
        return 0.0
    if norm == "frobenius":
        return float(np.linalg.norm(W / np.linalg.norm(W) - M / np.linalg.norm(M)))
    return float(1 - np.sum(M * W) / (np.linalg.norm(M, 2) * np.linalg.norm(W, "nuc")))


def _adjoint(parts: Constraints, multipliers: np.ndarray) -> np.ndarray:
    """A*λ, in the full space."""
    return parts.matrix(np.vstack([parts.A, parts.B]).T @ multipliers)


def _placed(parts: Constraints, multipliers: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    grid = np.zeros(chosen.shape)
    grid[parts.places] = multipliers
    return grid


def _off(B: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The rows without their part in the span of the rows of B."""
    if not len(B):
        return rows
    _, values, V = np.linalg.svd(B, full_matrices=False)
    V = V[values > 1e-12 * max(values[0], np.finfo(float).tiny)]
    return rows - (rows @ V.T) @ V


def _coordinates(B: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """ν with Bᵀν = the part of the vector in the span of the rows of B."""
    return np.linalg.lstsq(B.T, vector, rcond=None)[0] if len(B) else np.zeros(0)
