"""Measures and trajectories in drawings: stems on the line, points and ellipses in the plane, principal axes beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measureformer.figures.axes import LARGEST, shaped
from measureformer.figures.draw import WIDTH, blank, fit_height
from measureformer.figures.lettering import letter, write_legend
from measureformer.figures.roles import INK, MEASURE, PALETTE
from measureformer.figures.style import style

if TYPE_CHECKING:
    from measureformer.figures.canvas import Drawing

_HEIGHT = 3.1
_AREA = 22.0
"""Square points that a mean atom covers, where there are 100 atoms or fewer."""
_MANY = 3000
"""Marks from which on they are pixels also in vector graphics."""
_COLOURS = "viridis"


class _View(NamedTuple):
    """How points are seen: coordinates along the columns of `basis`, and their names."""

    center: np.ndarray
    basis: np.ndarray
    names: tuple[str, ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        seen = (points - self.center) @ self.basis
        return np.where(np.abs(seen) <= LARGEST, seen, np.nan)


def _view(points: np.ndarray, weights: np.ndarray, spread: np.ndarray | float = 0.0) -> _View:
    """The coordinates in dimension 1 and 2, and the first two principal axes beyond."""
    dim = points.shape[1]
    if dim <= 2:
        return _View(np.zeros(dim), np.eye(dim), ("$x$",) if dim == 1 else ("$x_1$", "$x_2$"))
    center = weights @ points
    covariance = (points - center).T @ (weights[:, None] * (points - center)) + spread
    values, vectors = np.linalg.eigh(covariance)
    values, basis = values[::-1], vectors[:, ::-1][:, :2]
    # the sign of an axis is free: the largest entry is positive, so that the same data give the same picture
    basis = basis * np.sign(basis[np.abs(basis).argmax(axis=0), [0, 1]])
    total = max(float(values.sum()), np.finfo(float).tiny)
    shares = [f"{100 * max(float(value), 0.0) / total:.0f} % of the variance" for value in values[:2]]
    return _View(center, basis, (f"first principal axis ({shares[0]})", f"second principal axis ({shares[1]})"))


class _Page:
    """A drawing under construction: one pair of axes, and what the legend says."""

    def __init__(self, title: str) -> None:
        self.drawing = blank(WIDTH, _HEIGHT)
        self.axes: Any = self.drawing.add_subplot()
        letter(self.axes.set_title(""), title)
        self.legend: dict[str, Any] = {}

    def done(self, xlabel: str, ylabel: str, *, equal: bool) -> Drawing:
        self.axes.set_xlabel(xlabel)
        self.axes.set_ylabel(ylabel)
        rows = 3 + (write_legend(self.drawing, [*self.legend.values()], [*self.legend]) if self.legend else 0)
        fit_height(self.drawing, rows, shaped(self.axes) if equal else 0.0)
        return self.drawing


def _counted(n: int) -> str:
    return f"{n:,} atom{'s' if n > 1 else ''}"


def _area(n: int) -> float:
    return _AREA * min(1.0, (100 / n) ** 0.5) if n <= _MANY else 2.0


def draw_atoms(mu: Any) -> Drawing:
    """Atoms of a `Discrete` or a `SpaceTime`."""
    points, weights = np.asarray(mu.points, float), np.asarray(mu.weights, float)
    times = getattr(mu, "times", None)
    view = _view(points, weights / weights.sum())
    with style():
        page = _Page(f"{_counted(len(points))} in dimension {points.shape[1]}, mass {weights.sum():.3g}")
        if points.shape[1] > 1:
            _scatter(page, view(points), weights, times)
            return page.done(*view.names, equal=True)
        if times is not None:
            _scatter(page, np.stack([np.asarray(times, float), points[:, 0]], axis=1), weights, None)
            return page.done("time", "$x$", equal=False)
        _stems(page.axes, points[:, 0], weights)
        return page.done("$x$", "mass", equal=False)


def _stems(axes: Any, x: np.ndarray, weights: np.ndarray) -> None:
    width = 1.3 if len(x) <= 60 else 0.7
    size = 4.0 if len(x) <= 60 else 2.5
    many = {"color": MEASURE[0], "rasterized": len(x) > _MANY}
    axes.vlines(x, 0.0, weights, linewidth=width, **many)
    axes.plot(x, weights, "o", markersize=size, markeredgewidth=0, clip_on=False, **many)
    axes.set_ylim(0.0, 1.06 * weights.max())


def _scatter(page: _Page, xy: np.ndarray, weights: np.ndarray, times: Any) -> None:
    """Points whose areas are weights; passive tokens, without mass, are rings."""
    seen = weights > 0
    many = {"rasterized": len(xy) > _MANY, "linewidths": 0, "zorder": 3}
    areas = _area(len(xy)) * weights[seen] / weights[seen].mean()
    if times is None:
        page.axes.scatter(*xy[seen].T, s=areas, color=MEASURE[0], alpha=0.75, **many)
    else:
        times = np.asarray(times, float)
        marks = page.axes.scatter(*xy[seen].T, s=areas, c=times[seen], cmap=_COLOURS, **many)
        marks.set_clim(times.min(), times.max())
        page.drawing.colorbar(marks, ax=page.axes, label="time", shrink=0.9, pad=0.02).outline.set_visible(False)
    if not seen.all():
        rings = {"facecolors": "none", "edgecolors": INK[1], "linewidths": 0.8, "zorder": 2.5}
        page.legend["mass 0"] = page.axes.scatter(*xy[~seen].T, s=_area(len(xy)), **rings)


def _parts(mu: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses (c,), means (c, d) and covariances (c, d, d) of a `Gaussian` or a mixture of them."""
    if hasattr(mu, "means"):
        logs, means, covs = (np.asarray(part, float) for part in (mu.log_weights, mu.means, mu.covs))
        return np.exp(logs), means, covs
    log_mass, mean, cov = (np.asarray(part, float)[None] for part in (mu.log_mass, mu.mean(), mu.cov))
    return np.exp(log_mass), mean, cov


def draw_gaussians(mu: Any) -> Drawing:
    """Densities on the line; ellipses of one and two standard deviations in the plane."""
    weights, means, covs = _parts(mu)
    shares = weights / weights.sum()
    view = _view(means, shares, np.einsum("c,cij->ij", shares, covs))
    kind = "Gaussian" if len(weights) == 1 else f"Mixture of {len(weights)} Gaussians"
    with style():
        page = _Page(f"{kind} in dimension {means.shape[1]}, mass {weights.sum():.3g}")
        if means.shape[1] == 1:
            _density(page, weights, means[:, 0], covs[:, 0, 0])
            return page.done("$x$", "density", equal=False)
        seen = view.basis.T @ covs @ view.basis
        for weight, mean, cov in zip(shares / shares.max(), view(means), seen, strict=True):
            _ellipse(page, mean, cov, MEASURE[0], strength=0.35 + 0.65 * float(weight))
        page.axes.scatter(*view(means).T, s=_AREA * shares / shares.max(), color=MEASURE[1], linewidths=0, zorder=4)
        return page.done(*view.names, equal=True)


def _ellipse(
    page: _Page, mean: np.ndarray, cov: np.ndarray, color: Any, strength: float = 1.0, *, filled: bool = True
) -> None:
    values, vectors = np.linalg.eigh(cov)
    angle = np.linspace(0.0, 2 * np.pi, 121)
    circle = vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * np.stack([np.cos(angle), np.sin(angle)]))
    for deviations, dash in ((1, "solid"), (2, (0, (4, 2.2)))):
        x, y = mean[:, None] + deviations * circle
        (line,) = page.axes.plot(x, y, color=color, linestyle=dash, linewidth=1.2, alpha=strength)
        page.legend.setdefault(f"{deviations} standard deviation{'s' if deviations > 1 else ''}", line)
    if filled:
        page.axes.fill(*(mean[:, None] + circle), color=color, alpha=0.15 * strength, linewidth=0)


def _density(page: _Page, weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> None:
    """The density, and dashed those of the components; a component without variance is a stem that ends in a ring."""
    deviations = np.sqrt(np.maximum(variances, 0.0))
    points = deviations <= 1e-9 * max(1e-300, float(np.ptp(means) + deviations.max()))
    wide = np.flatnonzero(~points)
    if len(wide):
        grid = means[wide][:, None] + deviations[wide][:, None] * np.linspace(-4.5, 4.5, 181)
        x = np.unique(grid)
        each = np.exp(-0.5 * ((x - means[wide][:, None]) / deviations[wide][:, None]) ** 2)
        each *= (weights[wide] / deviations[wide])[:, None] / np.sqrt(2 * np.pi)
        (line,) = page.axes.plot(x, each.sum(axis=0), color=MEASURE[0])
        page.axes.fill_between(x, each.sum(axis=0), color=MEASURE[0], alpha=0.15, linewidth=0)
        if len(wide) > 1:
            page.legend["density"] = line
            for i, component in enumerate(each):
                (part,) = page.axes.plot(x, component, color=INK[1], linestyle=(0, (4, 2.2)), linewidth=0.9)
                page.legend |= {"components": part} if not i else {}
    if points.any():
        for at, weight in zip(means[points], weights[points], strict=True):
            height = max(page.axes.get_ylim()[1], 1.0) if len(wide) else float(weight)
            page.axes.vlines([at], 0.0, height, color=MEASURE[1])
            ring = page.axes.plot([at], [height], "o", color=MEASURE[1], markerfacecolor="white", markersize=5)[0]
            page.legend["atom: no variance"] = ring
    page.axes.set_ylim(bottom=0.0)


def draw_paths(moving: Any) -> Drawing:
    """Paths of atoms and the measure at the end; Gaussians and densities at the ends and in between."""
    if hasattr(moving, "densities"):
        return _moving_density(moving)
    if not hasattr(moving.initial, "points"):
        return _moving_gaussians(moving)
    points, times = np.asarray(moving.points, float), np.asarray(moving.times, float)
    weights = np.asarray(moving.initial.weights, float)
    shares = np.tile(weights / weights.sum() / len(points), len(points))
    view = _view(points.reshape(-1, points.shape[2]), shares)
    seen = view(points.reshape(-1, points.shape[2])).reshape(*points.shape[:2], -1)
    if points.shape[2] == 1:
        seen = np.concatenate([np.broadcast_to(times[:, None, None], seen.shape), seen], axis=2)
    with style():
        from matplotlib.collections import LineCollection

        page = _Page(f"{_counted(len(weights))} from time {times[0]:.3g} to {times[-1]:.3g}")
        faint = float(np.clip(20 / len(weights), 0.08, 0.55))
        paths = LineCollection(list(seen.transpose(1, 0, 2)), colors=PALETTE[0], linewidths=0.8, alpha=faint, zorder=2)
        paths.set_rasterized(seen.shape[0] * seen.shape[1] > 20 * _MANY)
        page.axes.add_collection(paths)
        page.axes.autoscale_view()
        _scatter(page, seen[-1], weights, None)
        page.legend |= {"path": LineCollection([], colors=PALETTE[0], linewidths=1.2), "end": page.axes.collections[1]}
        if points.shape[2] == 1:
            return page.done("time", "$x$", equal=False)
        return page.done(*view.names, equal=True)


def _moving_gaussians(moving: Any) -> Drawing:
    parts, times = [_parts(mu) for mu in moving.measures], np.asarray(moving.times, float)
    shares = np.concatenate([weights / weights.sum() / len(parts) for weights, _, _ in parts])
    means, covs = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    view = _view(means, shares, np.einsum("c,cij->ij", shares, covs))
    with style():
        page = _Page(f"Gaussian from time {times[0]:.3g} to {times[-1]:.3g}")
        if means.shape[1] == 1:
            for k in range(len(parts[0][0])):
                mean = np.array([part[1][k, 0] for part in parts])
                deviation = np.sqrt(np.maximum([part[2][k, 0, 0] for part in parts], 0.0))
                (line,) = page.axes.plot(times, mean, color=MEASURE[0])
                band = {"color": MEASURE[0], "alpha": 0.2, "linewidth": 0}
                area = page.axes.fill_between(times, mean - 2 * deviation, mean + 2 * deviation, **band)
                page.legend |= {"mean": line, "2 standard deviations": area}
            return page.done("time", "$x$", equal=False)
        for i, colour in _through_time(page, times):
            for mean, cov in zip(parts[i][1], parts[i][2], strict=True):
                _ellipse(page, view(mean), view.basis.T @ cov @ view.basis, colour, filled=False)
        return page.done(*view.names, equal=True)


def _moving_density(moving: Any) -> Drawing:
    """On the line one curve for each time; in the plane the density at the end."""
    values, times = np.asarray(moving.densities, float), np.asarray(moving.times, float)
    centers = np.asarray(moving.centers, float)
    with style():
        page = _Page(f"Density on {values[0].size:,} cells from time {times[0]:.3g} to {times[-1]:.3g}")
        if values.ndim == 2:
            for i, colour in _through_time(page, times):
                page.axes.plot(centers[:, 0], values[i], color=colour, linewidth=1.2)
            page.axes.set_ylim(bottom=0.0)
            return page.done("$x$", "density", equal=False)
        x, y = (np.unique(centers[:, axis]) for axis in (0, 1))
        mesh = page.axes.pcolormesh(x, y, values[-1].T, cmap=_COLOURS, rasterized=True)
        label = f"density at time {times[-1]:.3g}"
        page.drawing.colorbar(mesh, ax=page.axes, label=label, shrink=0.9, pad=0.02).outline.set_visible(False)
        return page.done("$x_1$", "$x_2$", equal=True)


def _through_time(page: _Page, times: np.ndarray) -> list[tuple[int, Any]]:
    """At most seven of the times, by number, with their colours; a bar says which is which."""
    from matplotlib import cm, colormaps, colors

    scale, colours = colors.Normalize(times[0], times[-1]), colormaps[_COLOURS]
    hue = cm.ScalarMappable(scale, colours)
    page.drawing.colorbar(hue, ax=page.axes, label="time", shrink=0.9, pad=0.02).outline.set_visible(False)
    kept = np.unique(np.linspace(0, len(times) - 1, 7).round().astype(int))
    return [(int(i), colours(scale(times[i]))) for i in kept]
