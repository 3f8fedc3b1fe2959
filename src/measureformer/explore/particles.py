"""Tokens as particles: a layer chosen by hand, its flow, and what is measured along it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import diffrax
import numpy as np

import measureformer as mf
from measureformer.errors import OptionError
from measureformer.explore.points import curve
from measureformer.figures.figure import Figure, Series
from measureformer.numerics.buckets import pad_rows

Space = Literal["plane", "circle", "sphere"]
Kernel = Literal["softmax", "none", "Sinkhorn"]
KERNELS: dict[str, Callable[..., mf.AbstractInContextMap]] = {
    "softmax": mf.Attention,
    "none": mf.UnnormalizedAttention,
    "Sinkhorn": mf.SinkhornAttention,
}
SIZES = (32, 256)
"""Numbers of tokens that programs are compiled for; between them, tokens without mass are added."""
FRAMES, SKIP = 33, 4
CROWD = 60
"""Tokens beyond which their ways are drawn through every second frame."""
INNER = 0.35
"""Radius at which ways of tokens on the circle end."""
SMALL = 100
"""Rows of a derivative up to which all of its singular values are computed."""
NEAR = 0.1
"""Distance within which tokens are one cluster."""

_TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
PRESETS: dict[str, tuple[Any, Any, Any]] = {
    "attract: V = I": (np.eye(2), np.eye(2), np.eye(2)),
    "repel: V = −I": (np.eye(2), np.eye(2), -np.eye(2)),
    "turn: V a rotation": (np.eye(2), np.eye(2), _TURN),
    "attract along one axis": (np.eye(2), np.eye(2), np.diag([1.0, -0.5])),
    "look away: Q = −K": (-np.eye(2), np.eye(2), np.eye(2)),
    "look aside: Q a rotation": (_TURN, np.eye(2), np.eye(2)),
}
"""Q, K and V in the plane; on the sphere the third axis is treated like the first."""


@dataclass(frozen=True)
class Layer:
    """A layer chosen by hand: matrices (h, d, d) of its heads, their inverse temperature, and how they are normalised.

    >>> Layer.preset("attract: V = I", "sphere", heads=2).Q.shape
    (2, 3, 3)
    """

    space: Space
    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    beta: float = 1.0
    kernel: Kernel = "softmax"

    @staticmethod
    def preset(name: str, space: Space, heads: int = 1, beta: float = 1.0, kernel: Kernel = "softmax") -> Layer:
        """One of `PRESETS`; the second head has its queries turned by 90°, the third by 180°, and so on."""
        if name not in PRESETS:
            raise OptionError(got=f"preset = {name!r}", need=f"one of {', '.join(PRESETS)}", do="Choose one.")
        Q, K, V = (_in_space(matrix, space) for matrix in PRESETS[name])
        turns = [_in_space(np.linalg.matrix_power(_TURN, h), space) for h in range(heads)]
        turned, keys, values = (np.stack(stack) for stack in ([turn @ Q for turn in turns], [K] * heads, [V] * heads))
        return Layer(space, turned, keys, values, beta, kernel)

    @property
    def attention(self) -> Any:
        """The heads as a map; their values are averaged."""
        heads, dim, _ = self.Q.shape
        return KERNELS[self.kernel](self.Q, self.K, self.V, np.stack([np.eye(dim) / heads] * heads), scale=self.beta)

    @property
    def velocity(self) -> Any:
        return self.attention if self.space == "plane" else mf.Tangent(self.attention)


def _in_space(matrix: np.ndarray, space: Space) -> np.ndarray:
    if space != "sphere":
        return matrix
    whole = np.zeros((3, 3))
    whole[:2, :2], whole[2, 2] = matrix, matrix[0, 0] if matrix[0, 0] else 1.0
    return whole


@dataclass(frozen=True)
class Flow:
    """A flow of tokens, with what is measured along it."""

    times: np.ndarray
    points: np.ndarray
    """(t, n, d)"""
    energy: np.ndarray
    """log of the mean of e^{β⟨Qx, Ky⟩} over all pairs of tokens and heads, at `times`."""
    clusters: np.ndarray
    """How many groups of tokens closer than `NEAR` there are, at every `SKIP`th of `times`."""
    ended: str = ""
    """Why the flow ended before the time that was asked for, if it did."""


def measure(points: Any) -> Any:
    """The uniform measure of the tokens, with tokens without mass up to one of `SIZES`: another n compiles nothing."""
    points = np.asarray(points, float)
    n = len(points)
    size = next((size for size in SIZES if n <= size), n)
    return mf.Discrete.weighted(pad_rows(points, size), np.r_[np.ones(n), np.zeros(size - n)])


def run(layer: Layer, points: Any, time: float) -> Flow:
    """The flow of the tokens until `time`, or until they run away.

    >>> found = run(Layer.preset("attract: V = I", "circle"), [[1.0, 0.0], [0.6, 0.8]], 20.0)
    >>> int(found.clusters[0]), int(found.clusters[-1]), bool(found.energy[-1] > found.energy[0])
    (2, 1, True)
    """
    points, times, ended = np.asarray(points, float), np.linspace(0.0, time, FRAMES), ""
    control = diffrax.PIDController(rtol=1e-4, atol=1e-5)
    try:
        states = np.asarray(mf.flow(layer.velocity, measure(points), times, solver="tsit5", steps=control).points)
    except mf.MeasureformerError as error:
        last = getattr(error, "last", None)
        ended, states = str(error), points[None]
        if last is not None:
            # what was reached, in two frames: tokens that run away do so in the last moment
            states, times = np.stack([points, np.asarray(last[1].points)[: len(points)]]), np.array([0.0, last[0]])
    states = states[:, : len(points)]
    counts = mf.clustering.cluster_counts(states[::SKIP], [NEAR])[:, 0]
    return Flow(times[: len(states)], states, energy(layer, states), counts, ended)


def energy(layer: Layer, states: Any) -> np.ndarray:
    """log of the mean of e^{β⟨Qx, Ky⟩} over pairs of tokens and heads, for states (t, n, d).

    Along tokens on the sphere that attract each other, Q = K = V = I, it never falls: it is then log of 2β times the
    energy of `mf.clustering.sphere_energy`.
    """
    logits = _logits(layer, np.asarray(states, float))
    top = logits.max(axis=(1, 2, 3))
    return top + np.log(np.mean(np.exp(logits - top[:, None, None, None]), axis=(1, 2, 3)))


def attention_matrix(layer: Layer, points: Any, head: int = 0) -> np.ndarray:
    """How much each token (row) attends to each (column): the value of the head at x_i is Σ_j P_ij V x_j.

    >>> attention_matrix(Layer.preset("attract: V = I", "plane"), [[1.0, 0.0], [0.0, 1.0]]).round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731]]
    """
    points = np.asarray(points, float)
    logits = _logits(layer, points[None])[0, head]
    if layer.kernel == "none":
        # beyond this, numbers would be infinite; a picture shows no difference
        return np.exp(np.minimum(logits, 700)) / len(points)
    weights = logits
    for _ in range(200 if layer.kernel == "Sinkhorn" else 0):
        weights = weights - _log_sum(weights, 0)
        weights = weights - _log_sum(weights, 1)
    return np.exp(weights - _log_sum(weights, 1))


def by_angle(points: Any) -> np.ndarray:
    """The tokens in the order of their angle in the plane of the first two coordinates.

    >>> by_angle([[0.0, 1.0], [1.0, 0.0]]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    points = np.asarray(points, float)
    return points[np.argsort(np.arctan2(points[:, 1], points[:, 0]), kind="stable")]


def lipschitz(layer: Layer, points: Any) -> float:
    """The local Lipschitz constant of softmax attention at these tokens, by its whole derivative, (nd, nd).

    The same number as `mf.local_lipschitz`, which needs no such matrix and takes any n, but compiles for each bucket:
    ∂G_i/∂x_j = P_ij V (I + (x_j − m_i)(Ax_i)ᵀ) + [i = j] V C_i A, with m_i and C_i the mean and the covariance of the
    tokens under P_i, and A = βKᵀQ.

    >>> lipschitz(Layer.preset("attract: V = I", "plane", beta=0.0), [[0.0, 0.0], [1.0, 0.0]])
    1.0
    """
    if layer.kernel != "softmax":
        return float("nan")
    x = np.asarray(points, float)
    (n, d), heads = x.shape, len(layer.Q)
    whole = np.zeros((n, d, n, d))
    for h, (Q, K, V) in enumerate(zip(layer.Q, layer.K, layer.V, strict=True)):
        P, A = attention_matrix(layer, x, h), layer.beta * K.T @ Q
        centred = x[None] - (P @ x)[:, None]
        whole += np.einsum(
            "ij,ea,ijab->iejb", P, V, np.eye(d) + centred[..., None] * (x @ A.T)[:, None, None], optimize=True
        )
        covariances = np.einsum("ij,ija,ijb->iab", P, centred, centred)
        whole[np.arange(n), :, np.arange(n)] += np.einsum("ea,iab,bc->iec", V, covariances, A)
    return _norm(whole.reshape(n * d, n * d) / heads)


def _norm(matrix: np.ndarray) -> float:
    """The largest singular value: of large matrices by Lanczos steps, since all of them would take too long."""
    if len(matrix) <= SMALL or not matrix.any():
        return float(np.linalg.norm(matrix, 2))
    from scipy.sparse.linalg import svds

    first = np.random.default_rng(0).normal(size=len(matrix))
    steps: Any = svds  # its types know whole tolerances only
    return float(steps(matrix, k=1, v0=first, tol=1e-6, return_singular_vectors=False)[0])


def _logits(layer: Layer, states: np.ndarray) -> np.ndarray:
    """β⟨Qx_i, Kx_j⟩ for states (t, n, d), as (t, h, n, n)."""
    q, k = (np.einsum("hkd,tnd->thnk", M, states) for M in (layer.beta * layer.Q, layer.K))
    return q @ k.swapaxes(2, 3)


def _log_sum(logits: np.ndarray, axis: int) -> np.ndarray:
    top = logits.max(axis=axis, keepdims=True)
    return top + np.log(np.sum(np.exp(logits - top), axis=axis, keepdims=True))


def start(space: Space, n: int, seed: int = 0) -> np.ndarray:
    """n tokens to begin with: normal in the plane, uniform on the circle or the sphere.

    >>> start("sphere", 5).shape
    (5, 3)
    """
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, 3 if space == "sphere" else 2))
    return points if space == "plane" else points / np.linalg.norm(points, axis=1, keepdims=True)


def paths(layer: Layer, flow: Flow) -> list[dict[str, Any]]:
    """The ways of the tokens as seen in the widget, and where they end. On the circle, time goes inwards."""
    seen = flow.points[:, :, :2]
    if layer.space == "circle":
        seen = seen * np.linspace(1.0, INNER, len(seen))[:, None, None]
    way = curve(np.zeros((0, 2)), 5, width=1.2)
    # a fifth of a pixel; and through fewer points where they are many: the browser reads them all at every move
    drawn = seen[::2] if seen.shape[1] > CROWD and len(seen) % 2 else seen
    ways = [way | {"points": rows} for rows in drawn.swapaxes(0, 1).round(3).tolist()]
    return [*ways, curve(seen[-1], 1, style="dots", width=2.8)]


def figure(flow: Flow) -> Figure:
    """The energy along the flow."""
    return Figure(
        "Energy along the flow",
        "time",
        "log mean e^logit",
        (Series("energy", flow.times, flow.energy, role="measured"),),
    )


def cluster_figure(flow: Flow) -> Figure:
    """The number of clusters along the flow."""
    words = f"clusters at distance {NEAR:g}"
    return Figure(
        "Clusters along the flow",
        "time",
        words,
        (Series("clusters", flow.times[::SKIP], flow.clusters, role="measured"),),
    )


def warm_up(layer: Layer, n: int) -> None:
    """Compile what the app needs while points are dragged, for as many tokens as there are now."""
    run(layer, start(layer.space, n), 0.01)
