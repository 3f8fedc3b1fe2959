"""A Gaussian under a very deep layer: its mean and its covariance in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import diffrax
import numpy as np

import measureformer as mf
from measureformer.errors import ShapeError
from measureformer.explore.points import curve, ring
from measureformer.figures.figure import Figure, Series

KERNELS = {"softmax": mf.Attention, "L2": mf.L2Attention, "linear": mf.LinearAttention}
FRAMES = 41


@dataclass(frozen=True)
class GaussianRun:
    """The Gaussians at `times`, which end before a blow-up."""

    times: np.ndarray
    means: np.ndarray
    roots: np.ndarray
    """(t, 2, 2) with Σ = R Rᵀ."""
    blow_up: float | None


def gaussian_of(points: Any) -> Any:
    """The Gaussian of three points: its mean, and two points that are one standard deviation away from it.

    >>> gaussian_of([[1.0, 0.0], [3.0, 0.0], [1.0, 1.0]]).covariance().tolist()
    [[4.0, 0.0], [0.0, 1.0]]
    """
    points = np.asarray(points, float)
    if points.shape != (3, 2):
        raise ShapeError(got=f"points of shape {points.shape}", need="three points in the plane", do="Pass (3, 2).")
    root = (points[1:] - points[0]).T
    return mf.Gaussian(points[0], root @ root.T)


def run(points: Any, Q: Any, K: Any, V: Any, *, kernel: str = "softmax", time: float = 1.0) -> GaussianRun:
    """`mf.flow` from the Gaussian of three points.

    >>> eye = np.eye(2)
    >>> round(run([[0, 0], [1, 0], [0, 1]], eye, eye, eye).blow_up, 6)
    0.5
    """
    control = diffrax.PIDController(rtol=1e-6, atol=1e-9, pcoeff=0.3, icoeff=0.4)
    layer, times = KERNELS[kernel].head(Q, K, V), np.linspace(0.0, time, FRAMES)
    found = mf.flow(layer, gaussian_of(points), times, steps=control)
    roots = np.asarray(found.roots)
    # a Gaussian on a line has a root with one column
    roots = np.concatenate([roots, np.zeros((len(roots), 2, 2 - roots.shape[2]))], axis=2)
    return GaussianRun(np.asarray(found.times), np.asarray(found.means), roots, found.blow_up)


def rings(found: GaussianRun, most: int = 9) -> list[dict[str, Any]]:
    """Where the Gaussians have one standard deviation, for some of the times, and the way of the mean."""
    chosen = np.unique(np.linspace(0, len(found.times) - 1, most).astype(int))
    middle = [ring(found.means[i], found.roots[i], 5) for i in chosen[1:-1]]
    ends = [ring(found.means[i], found.roots[i], color) for i, color in ((chosen[0], 0), (chosen[-1], 1))]
    return [*middle, *ends, curve(found.means, "ink", style="dashed", width=1)]


def figure(found: GaussianRun) -> Figure:
    """The eigenvalues of the covariance, and the norm of the mean, in time."""
    sizes = np.linalg.svd(found.roots, compute_uv=False) ** 2
    caption = "" if found.blow_up is None else f"The covariance becomes infinite at time {found.blow_up:.4g}."
    curves = (
        Series("larger eigenvalue of Σ", found.times, sizes[:, 0], role="measured"),
        Series("smaller eigenvalue of Σ", found.times, sizes[:, 1], role="measured"),
        Series("norm of the mean", found.times, np.linalg.norm(found.means, axis=1), role="measured"),
    )
    return Figure("Size of the Gaussian", "time", "eigenvalue, norm", curves, yscale="log", caption=caption)


def warm_up(kernel: str) -> None:
    """Compile the flow where it has no closed form."""
    eye = np.eye(2)
    run([[0.5, 0], [1, 0], [0.5, 1]], eye, eye, np.array([[0.0, -1.0], [1.0, 0.0]]), kernel=kernel, time=0.1)
