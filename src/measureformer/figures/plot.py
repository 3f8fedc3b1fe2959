"""`plot`: one verb that draws what the library makes, and returns a Matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from measureformer.errors import DtypeError, NotFiniteError, ShapeError
from measureformer.figures.clouds import draw_atoms, draw_gaussians, draw_paths
from measureformer.figures.draw import draw
from measureformer.figures.figure import Figure, Scale, Series
from measureformer.figures.heads import draw_heads

if TYPE_CHECKING:  # Matplotlib is optional
    from measureformer.figures.canvas import Drawing

# by name: imports point down, and these are above
_DRAWN: dict[str, Callable[[Any], Drawing]] = {
    "Discrete": draw_atoms,
    "SpaceTime": draw_atoms,
    "Gaussian": draw_gaussians,
    "GaussianMixture": draw_gaussians,
    "AbstractTrajectory": draw_paths,
    "Figure": draw,
    "Diagnosis": lambda found: draw_heads(_columns(found)),
}
_DRAWS = (
    "a measure (Discrete, SpaceTime, Gaussian, GaussianMixture), a trajectory, a spectrum (numbers with one axis), "
    "a map of heads (numbers with the axes layers and heads), a diagnosis of the lens, an mf.Figure, or a result that "
    "has one"
)


LARGEST = 1e300
"""Numbers that are drawn are not larger."""


def plot(what: object) -> Drawing:
    """Draw a measure, a trajectory, a spectrum, a map of heads, or a figure; return a Matplotlib figure.

    Notebooks show it; `.savefig("name.pdf")` writes it in any format of Matplotlib, `.axes[0]` is there for changes. In
    three dimensions and more, points are seen along the first two principal axes.

    Arguments:
        what: a measure: `Discrete` with weights as areas, `SpaceTime` with times as colours, `Gaussian` and
            `GaussianMixture` as ellipses, or as a density on the line. What `mf.flow` returns: paths of atoms and their
            ends, Gaussians or densities at several times. Numbers with one axis: a spectrum, in decreasing order or, if
            complex, in the plane. Numbers with two axes: a value for each layer and head. What `mf.lens.diagnose`
            returns: all values of its heads. What `mf.check` returns, or an `mf.Figure`.

    >>> import numpy as np, measureformer as mf
    >>> mu = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(60, 2)))
    >>> mf.plot(mu).axes[0].get_xlabel()
    '$x_1$'
    >>> mf.plot(np.linalg.svd(np.vander([1.0, 2.0, 3.0, 4.0]), compute_uv=False)).axes[0].get_yscale()
    'log'
    >>> mf.plot("60 points")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    ...
    measureformer.errors.DtypeError: got a str; need a measure (Discrete, SpaceTime, Gaussian, GaussianMixture), a
    trajectory, a spectrum (numbers with one axis), a map of heads (numbers with the axes layers and heads), a diagnosis
    of the lens, an mf.Figure, or a result that has one. Points are drawn as mf.Discrete.uniform(points).
    """
    for kind in type(what).__mro__:
        if kind.__module__.partition(".")[0] == "measureformer" and kind.__name__ in _DRAWN:
            return _DRAWN[kind.__name__](what)
    if isinstance(figure := getattr(what, "figure", None), Figure):
        return draw(figure)
    values = _numbers(what)
    if values.ndim == 2:
        return draw_heads({"": values})
    return _plane(values) if np.iscomplexobj(values) else _spectrum(values)


def _numbers(what: object) -> np.ndarray:
    """A spectrum (n,) or a map of heads (layers, heads)."""
    do = "Points are drawn as mf.Discrete.uniform(points)."
    try:
        values = np.asarray(what)
    except Exception:  # whatever a foreign object raises when it is read as an array
        values = np.array(None)
    if values.dtype.kind not in "biufc" or not values.ndim:
        raise DtypeError(got=f"a {type(what).__name__}", need=_DRAWS, do=do)
    if values.ndim > 2 or not values.size:
        raise ShapeError(got=f"numbers of shape {values.shape}", need=_DRAWS, do=do)
    if np.iscomplexobj(values) and (values.ndim == 2 or not np.any(np.imag(values))):
        if values.ndim == 2:
            raise DtypeError(got="complex numbers with two axes", need=_DRAWS, do="Take their absolute values.")
        values = np.real(values)
    # in a map, not-a-number is what was not measured
    fine = np.isfinite(values).any() and not np.isinf(values).any() if values.ndim == 2 else np.isfinite(values).all()
    if not fine:
        raise NotFiniteError(
            got="numbers that are not finite",
            need="finite ones, or NaN for a head that was not measured",
            do="Leave them out.",
        )
    if np.nanmax(np.abs(values)) > LARGEST:
        raise NotFiniteError(
            got=f"numbers up to {np.nanmax(np.abs(values)):.1g}",
            need=f"numbers up to {LARGEST:g}: beyond, the length of an axis overflows",
            do="Divide them by a common factor.",
        )
    return values if np.iscomplexobj(values) else values.astype(float)


def _spectrum(values: np.ndarray) -> Drawing:
    values = np.sort(values)[::-1]
    scale: Scale = "log" if values[-1] >= 0 else "linear"
    points = Series("spectrum", np.arange(1, len(values) + 1), values, "points", role="measured")
    return draw(Figure("Spectrum", "index", "value", (points,), yscale=scale))


def _plane(values: np.ndarray) -> Drawing:
    points = Series("spectrum", np.real(values), np.imag(values), "points", role="measured")
    drawing = draw(Figure("Spectrum", "real part", "imaginary part", (points,), equal=True))
    for line in (drawing.axes[0].axhline, drawing.axes[0].axvline):
        line(0.0, color="#9A9A9A", linewidth=0.7, zorder=1)
    return drawing


def _columns(found: Any) -> dict[str, np.ndarray]:
    """What a diagnosis measured of heads: name -> (layers, heads)."""
    names = dict.fromkeys(name for layer in found.heads for head in layer for name in head)
    values = {
        name: np.array([[np.nan if head.get(name) is None else head[name] for head in layer] for layer in found.heads])
        for name in names
    }
    return {name: column for name, column in values.items() if np.isfinite(column).any()}
