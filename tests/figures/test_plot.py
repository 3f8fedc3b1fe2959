"""`mf.plot`: every kind shows its own numbers, in axes that can be read, and the rest is refused."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text
from scipy import stats

import measureformer as mf
from measureformer.errors import DtypeError, MeasureformerError, NotFiniteError, ShapeError
from measureformer.figures.draw import draw
from measureformer.lens.diagnose import Diagnosis
from planting import a_result

RNG = np.random.default_rng(0)
CLOUD = RNG.normal(size=(40, 2))
HIGH = RNG.normal(size=(40, 5)) * [3.0, 2.0, 1.0, 0.5, 0.1]
WEIGHTS = RNG.uniform(0.1, 1.0, 40)
COV = np.array([[2.0, 0.6], [0.6, 0.5]])
MIXTURE = mf.GaussianMixture([1.0, 0.5], [[-1.0, 0.0], [2.0, 1.0]], [COV, np.eye(2)])
LINE = mf.GaussianMixture([0.5, 0.3], [[-2.0], [3.0]], [[[0.3]], [[1.0]]])


def moved(points: np.ndarray) -> Any:
    dim = points.shape[1]
    G = mf.Attention.head(2 * np.eye(dim), np.eye(dim), np.eye(dim))
    return mf.flow(G - mf.Identity(), mf.Discrete.uniform(points), [0.0, 1.0, 3.0])


def gaussians(dim: int) -> Any:
    """Σ(t) = Σ_0/(1 + 2t Σ_0) and a mean that decays, in closed form."""
    G = mf.Attention.head(np.eye(dim), np.eye(dim), -np.eye(dim))
    return mf.flow(G, mf.Gaussian(np.ones(dim), np.diag(np.linspace(1, 2, dim))), [0.0, 0.5, 2.0])


def density(dim: int) -> Any:
    masses = RNG.uniform(size=(20, 10)[:dim])
    return mf.flow(mf.Linear(-np.eye(dim)), mf.flows.Density(masses, [(-2.0, 2.0)] * dim), [0.0, 0.5, 2.0])


@pytest.fixture(scope="module")
def flows() -> dict[int, Any]:
    return {1: moved(CLOUD[:, :1]), 2: moved(CLOUD), 3: moved(HIGH[:, :3])}


def marks(drawing: Any) -> Any:
    return drawing.axes[0].collections[0]


def places(drawing: Any) -> np.ndarray:
    return np.asarray(marks(drawing).get_offsets())


class TestAtoms:
    def test_in_the_plane_weights_are_areas(self) -> None:
        drawing = mf.plot(mf.Discrete.weighted(CLOUD, WEIGHTS))
        np.testing.assert_array_equal(places(drawing), CLOUD)
        sizes = marks(drawing).get_sizes()
        np.testing.assert_allclose(sizes / sizes[0], WEIGHTS / WEIGHTS[0], rtol=1e-12)
        assert drawing.axes[0].get_aspect() == 1.0

    def test_on_the_line_weights_are_heights(self) -> None:
        (stems,) = mf.plot(mf.Discrete.weighted(CLOUD[:, :1], WEIGHTS)).axes[0].collections
        expected = [[[x, 0.0], [x, w]] for x, w in zip(CLOUD[:, 0], WEIGHTS, strict=True)]
        np.testing.assert_allclose(stems.get_segments(), expected, rtol=1e-12)

    def test_beyond_they_are_seen_along_principal_axes(self) -> None:
        drawing = mf.plot(mf.Discrete.uniform(HIGH))
        centred = HIGH - HIGH.mean(axis=0)
        _, values, axes = np.linalg.svd(centred)
        np.testing.assert_allclose(np.abs(places(drawing)), np.abs(centred @ axes[:2].T), rtol=1e-9, atol=1e-12)
        share = 100 * values**2 / (values**2).sum()
        assert drawing.axes[0].get_xlabel() == f"first principal axis ({share[0]:.0f} % of the variance)"
        assert drawing.axes[0].get_ylabel() == f"second principal axis ({share[1]:.0f} % of the variance)"

    def test_weights_decide_the_principal_axes(self) -> None:
        # without its weights the cloud would be seen from another side
        points = np.concatenate([HIGH, HIGH[:, ::-1]])
        heavy = mf.Discrete.weighted(points, np.repeat([1.0, 0.0], 40))
        np.testing.assert_allclose(places(mf.plot(heavy)), places(mf.plot(mf.Discrete.uniform(HIGH))), rtol=1e-9)

    def test_times_are_colours_or_an_axis(self) -> None:
        times = np.linspace(0.0, 1.0, 40)
        plane = mf.plot(mf.SpaceTime.uniform(CLOUD, times))
        np.testing.assert_array_equal(np.asarray(marks(plane).get_array()), times)
        assert plane.axes[1].get_ylabel() == "time"
        line = mf.plot(mf.SpaceTime.uniform(CLOUD[:, :1], times))
        np.testing.assert_array_equal(places(line), np.stack([times, CLOUD[:, 0]], axis=1))

    def test_atoms_without_mass_are_rings(self) -> None:
        drawing = mf.plot(mf.Discrete.weighted(CLOUD[:3], [0.0, 1.0, 2.0]))
        seen, rings = drawing.axes[0].collections
        assert (len(seen.get_offsets()), len(rings.get_offsets())) == (2, 1)
        assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["mass 0"]


class TestGaussians:
    def test_on_the_line_it_is_the_density(self) -> None:
        total, left, right = mf.plot(LINE).axes[0].lines
        x = np.asarray(total.get_xdata())
        parts = [0.5 * stats.norm(-2, 0.3**0.5).pdf(x), 0.3 * stats.norm(3, 1).pdf(x)]
        for line, expected in ((total, sum(parts)), (left, parts[0]), (right, parts[1])):
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-9, atol=1e-12)

    def test_in_the_plane_ellipses_have_one_and_two_standard_deviations(self) -> None:
        lines = mf.plot(MIXTURE).axes[0].lines
        pairs = [(mean, cov, k) for mean, cov in zip(MIXTURE.means, MIXTURE.covs, strict=True) for k in (1, 2)]
        for line, (mean, cov, deviations) in zip(lines, pairs, strict=True):
            away = np.stack(line.get_data(), axis=1) - np.asarray(mean)
            distance = np.sqrt(np.einsum("ni,ij,nj->n", away, np.linalg.inv(np.asarray(cov)), away))
            np.testing.assert_allclose(distance, deviations, rtol=1e-9)

    def test_beyond_they_are_marginals_along_principal_axes(self) -> None:
        turn = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
        cov = turn @ np.diag([9.0, 4.0, 1.0, 0.5]) @ turn.T
        inner = mf.plot(mf.Gaussian(np.ones(4), cov)).axes[0].lines[0]
        np.testing.assert_allclose(np.max(inner.get_data(), axis=1), [3.0, 2.0], rtol=1e-3)  # 121 points

    def test_a_component_without_variance_is_an_atom(self) -> None:
        drawing = mf.plot(mf.GaussianMixture([0.5, 0.5], [[0.0], [1.0]], [[[1.0]], [[0.0]]]))
        assert "atom: no variance" in [text.get_text() for text in drawing.legends[0].get_texts()]
        assert np.isfinite(drawing.axes[0].get_ylim()).all()


class TestTrajectories:
    def test_paths_go_through_all_points_and_end_in_the_last(self, flows: dict[int, Any]) -> None:
        paths, ends = mf.plot(flows[2]).axes[0].collections
        np.testing.assert_array_equal(paths.get_segments(), np.asarray(flows[2].points).transpose(1, 0, 2))
        np.testing.assert_array_equal(ends.get_offsets(), flows[2].points[-1])

    def test_on_the_line_they_are_drawn_against_time(self, flows: dict[int, Any]) -> None:
        paths = mf.plot(flows[1]).axes[0].collections[0]
        for segment, own in zip(paths.get_segments(), np.asarray(flows[1].points)[:, :, 0].T, strict=True):
            np.testing.assert_array_equal(segment, np.stack([[0.0, 1.0, 3.0], own], axis=1))

    def test_of_gaussians_mean_and_two_standard_deviations(self) -> None:
        axes = mf.plot(moving := gaussians(1)).axes[0]
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), moving.means[:, 0])
        band = axes.collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == pytest.approx(1 + 2)  # mean 1 and variance 1 at first, and shrinking
        assert len(mf.plot(gaussians(2)).axes[0].lines) == 6

    def test_of_densities_a_curve_for_each_time_and_the_last_one_in_the_plane(self) -> None:
        moving = density(1)
        lines = mf.plot(moving).axes[0].lines
        for line, values in zip(lines, moving.densities, strict=True):
            np.testing.assert_array_equal(line.get_data(), [moving.centers[:, 0], values])
        moving = density(2)
        (mesh,) = mf.plot(moving).axes[0].collections
        np.testing.assert_array_equal(np.asarray(mesh.get_array()), moving.densities[-1].T)


class TestNumbers:
    def test_a_spectrum_decreases_and_is_logarithmic_from_one_decade_on(self) -> None:
        axes = mf.plot(jnp.array([0.1, 5.0, 0.5])).axes[0]
        assert list(axes.lines[0].get_ydata()) == [5.0, 0.5, 0.1]
        assert list(axes.lines[0].get_xdata()) == [1, 2, 3]
        assert axes.get_yscale() == "log"
        assert mf.plot([3.0, 1.0, 2.0]).axes[0].get_yscale() == "linear"
        assert mf.plot([-1.0, 100.0]).axes[0].get_yscale() == "linear"

    def test_complex_eigenvalues_are_in_the_plane(self) -> None:
        values = np.array([1 + 2j, 1 - 2j, -0.5])
        axes = mf.plot(values).axes[0]
        assert [*axes.lines[0].get_xdata()], [*axes.lines[0].get_ydata()] == ([1.0, 1.0, -0.5], [2.0, -2.0, 0.0])
        assert axes.get_aspect() == 1.0
        # complex by type only
        assert list(mf.plot(values.real + 0j).axes[0].lines[0].get_ydata()) == [1.0, 1.0, -0.5]

    def test_a_map_of_heads_shows_its_values(self) -> None:
        values = RNG.uniform(1, 2, size=(5, 4))
        values[2, 3] = np.nan
        axes = mf.plot(values).axes[0]
        (image,) = axes.images
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), values)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("head", "layer")
        assert image.get_clim() == (np.nanmin(values), np.nanmax(values))
        # the first layer is the upper row
        assert axes.get_ylim() == (4.5, -0.5)

    def test_zero_is_the_middle_of_colours_where_signs_differ(self) -> None:
        (image,) = mf.plot([[1.0, -3.0]]).axes[0].images
        assert image.get_clim() == (-3.0, 3.0)

    def test_a_diagnosis_shows_all_values_of_its_heads(self) -> None:
        heads = [[{"k90": 1.0 + head, "first": 0.5 * layer, "gone": None} for head in range(3)] for layer in range(2)]
        found = Diagnosis("model", "GPT-2", 2, 8, 3, 10, True, [], heads, [], None, 0.0)  # type: ignore[arg-type]
        first, second, *_ = mf.plot(found).axes
        assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("k90", "first")
        np.testing.assert_array_equal(np.asarray(first.images[0].get_array()), [[1.0, 2.0, 3.0]] * 2)


def test_a_result_and_a_figure_are_drawn_as_they_are() -> None:
    result = a_result()
    assert result.figure is not None
    expected = draw(result.figure).to_bytes("svg")
    assert mf.plot(result).to_bytes("svg") == mf.plot(result.figure).to_bytes("svg") == expected


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("60 points", DtypeError),
        (None, DtypeError),
        (3.0, DtypeError),
        ({"a": 1}, DtypeError),
        (mf.Identity, DtypeError),
        ([[1.0], [1.0, 2.0]], DtypeError),
        (np.eye(2) * 1j, DtypeError),
        (np.zeros((2, 2, 2)), ShapeError),
        ([], ShapeError),
        ([1.0, np.nan], NotFiniteError),
        ([[np.nan, np.nan]], NotFiniteError),
        ([[1.0, np.inf]], NotFiniteError),
    ],
)
def test_the_rest_is_refused_with_what_can_be_drawn(what: Any, error: type[MeasureformerError]) -> None:
    with pytest.raises(error) as told:
        mf.plot(what)
    if error is not NotFiniteError:
        assert "SpaceTime" in str(told.value) or "absolute values" in str(told.value)


def test_a_class_of_the_same_name_elsewhere_is_not_taken_for_ours() -> None:
    with pytest.raises(DtypeError, match="got a Discrete"):
        mf.plot(type("Discrete", (), {"__module__": "elsewhere"})())


KINDS: dict[str, Any] = {
    "stems": mf.Discrete.weighted(CLOUD[:, :1], WEIGHTS),
    "points": mf.Discrete.weighted(CLOUD, WEIGHTS),
    "flat": mf.Discrete.uniform(CLOUD * [20.0, 1.0]),
    "projected": mf.Discrete.uniform(HIGH),
    "one": mf.Discrete.dirac([1e6, -1e6, 0.0]),
    "huge": mf.Discrete.uniform([[1e300, 0.0], [1.0, 1.0]]),
    "space-time": mf.SpaceTime.sequence(CLOUD),
    "density": LINE,
    "ellipses": MIXTURE,
    "moving Gaussian": gaussians(2),
    "moving density": density(1),
    "density in the plane": density(2),
    "spectrum": np.exp(-np.arange(30.0)),
    "plane": np.exp(1j * np.arange(30.0)),
    "heads": RNG.normal(size=(24, 16)),
    "head": [[1.0]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_words_stay_inside_the_page_and_apart(kind: str) -> None:
    drawing = mf.plot(KINDS[kind])
    drawing.draw_without_rendering()
    page = drawing.bbox
    for text in drawing.findobj(Text):
        if text.get_text() and text.get_visible() and text.get_figure() is not None:
            box = text.get_window_extent()
            ticks = [tick for axes in drawing.axes for tick in (*axes.get_xticklabels(), *axes.get_yticklabels())]
            if text not in ticks:
                assert box.x0 >= -1
                assert box.y0 >= -1
                assert box.x1 <= page.x1 + 1
                assert box.y1 <= page.y1 + 1
    axes = drawing.axes[0]
    left, right = sorted(axes.get_xlim())
    shown = [tick for tick in axes.get_xticklabels() if tick.get_text() and left <= tick.get_position()[0] <= right]
    boxes = sorted((tick.get_window_extent().x0, tick.get_window_extent().x1) for tick in shown)
    assert all(one[1] < other[0] for one, other in pairwise(boxes))


def test_settings_elsewhere_change_nothing() -> None:
    expected = mf.plot(MIXTURE).to_bytes("svg")
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "none", "font.family": "monospace"}):
        drawing = mf.plot(MIXTURE)
        stream = BytesIO()
        drawing.savefig(stream, format="svg")
    assert stream.getvalue() == expected
    assert b"<dc:date>" not in expected


def test_notebooks_show_figures() -> None:
    figure = mf.Figure("A line", "x", "y", mf.Series("line", [0, 1], [0, 1], role="measured"))
    for shown in (figure, mf.plot(figure)):
        assert "<svg" in shown._repr_svg_()
        assert shown._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(mf.MeasureformerError, match=r'need the extra "atlas"\. Install it'):
        mf.plot(MIXTURE)
