"""What the apps compute, without a browser: against closed forms, against the library, and without compiling anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import OptionError, ShapeError
from measureformer.explore import compile as compiling
from measureformer.explore import counterexample, drawing, gaussian, incontext, lens, memory, particles, plot, svm
from measureformer.figures.figure import Figure, Series
from measureformer.figures.roles import CONTROL

RNG = np.random.default_rng(0)


def layer(space: Any, kernel: Any = "softmax", heads: int = 2) -> particles.Layer:
    """A layer without any symmetry, so that a transposed matrix is noticed."""
    d = 3 if space == "sphere" else 2
    Q, K, V = np.random.default_rng(1).normal(size=(3, heads, d, d)) / 2
    return particles.Layer(space, Q, K, V, beta=1.5, kernel=kernel)


# --- particles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", particles.KERNELS)
def test_attention_matrices_give_the_values_of_the_layer(kernel: str) -> None:
    chosen, points = layer("plane", kernel), particles.start("plane", 7)
    values = sum(
        particles.attention_matrix(chosen, points, h) @ points @ chosen.V[h].T / len(chosen.Q) for h in range(2)
    )
    np.testing.assert_allclose(values, chosen.attention(mf.Discrete.uniform(points), points), atol=1e-6)


def test_the_lipschitz_constant_is_that_of_the_library() -> None:
    chosen, points = layer("sphere"), particles.start("sphere", 6)
    found = mf.local_lipschitz(chosen.attention, mf.Discrete.uniform(points))
    assert particles.lipschitz(chosen, points) == pytest.approx(found.lower, rel=1e-5)
    assert np.isnan(particles.lipschitz(layer("plane", "none"), particles.start("plane", 3)))


def test_norms_of_large_derivatives_are_those_of_all_singular_values() -> None:
    matrix = RNG.normal(size=(150, 150))
    assert particles._norm(matrix) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-5)
    assert particles._norm(0 * matrix) == 0
    assert particles._norm(np.outer(matrix[0], matrix[1])) == pytest.approx(
        np.linalg.norm(matrix[0]) * np.linalg.norm(matrix[1])
    )


def test_on_the_sphere_tokens_follow_the_closed_form() -> None:
    found = particles.run(particles.Layer.preset("attract: V = I", "sphere", beta=0.0), np.eye(3), 3.0)
    cosines = np.einsum("td,td->t", found.points[:, 0], found.points[:, 1])
    expected = [mf.clustering.geshkovski23_equiangular(3, float(t)) for t in found.times]
    np.testing.assert_allclose(cosines, expected, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(found.points, axis=2), 1, atol=1e-12)
    assert found.ended == ""


def test_the_energy_is_that_of_the_library_and_does_not_fall() -> None:
    chosen, points = particles.Layer.preset("attract: V = I", "sphere", beta=2.0), particles.start("sphere", 8)
    found = particles.run(chosen, points, 3.0)
    assert np.exp(found.energy[0]) / 4 == pytest.approx(mf.clustering.sphere_energy(points, 2.0))
    assert (np.diff(found.energy) > -1e-9).all()


def test_a_flow_that_runs_away_says_so() -> None:
    found = particles.run(
        particles.Layer.preset("attract: V = I", "plane", kernel="none"), [[2.0, 0.0], [0.0, 1.0]], 20.0
    )
    assert "finite" in found.ended
    assert found.times[-1] < 20
    assert found.points.shape == (2, 2, 2)


def test_every_preset_flows_on_every_space() -> None:
    for name in particles.PRESETS:
        for space in ("plane", "circle", "sphere"):
            chosen = particles.Layer.preset(name, space, heads=2)
            assert np.isfinite(np.asarray(chosen.velocity(mf.Discrete.uniform(chosen.Q[0] + 1), chosen.Q[0] + 1))).all()
    with pytest.raises(OptionError, match="push"):
        particles.Layer.preset("push", "plane")


# --- while dragging --------------------------------------------------------------------------------------------------

DRAGGED: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "particles": (
        lambda: particles.warm_up(layer("circle"), 12),
        lambda n: particles.run(layer("circle"), particles.start("circle", n), 1.0 + n),
    ),
    "many particles": (
        lambda: particles.warm_up(layer("circle"), 200),
        lambda n: particles.run(layer("circle"), particles.start("circle", 180 + n), 1.0),
    ),
    "gaussian": (
        lambda: gaussian.warm_up("softmax"),
        lambda n: gaussian.run(RNG.normal(size=(3, 2)), *RNG.normal(size=(3, 2, 2)) / 3, time=0.1 * n),
    ),
    "counterexample": (counterexample.warm_up, lambda n: counterexample.answers(10**n, delta=0.1, softening=0.1)),
    "memory": (memory.warm_up, lambda n: memory.recall(RNG.uniform(size=(n, 2)), 5.0 * n)),
    "svm": (lambda: svm.warm_up("ngd", 2), lambda n: svm.train(RNG.normal(size=(6, 2)), steps=600 * n)),
    "incontext": (
        lambda: incontext.warm_up(4, 6),
        lambda n: incontext.learn(RNG.normal(size=(n, 2)), eta=0.1 * n, penalty=n, sharpness=n),
    ),
}


@pytest.mark.parametrize("app", DRAGGED)
def test_nothing_is_compiled_while_points_are_dragged(app: str) -> None:
    warm_up, use = DRAGGED[app]
    warm_up()
    assert count_compilations(lambda: [use(n) for n in (2, 3, 5)]) == 0


# --- the other apps --------------------------------------------------------------------------------------------------


def test_a_gaussian_has_its_closed_form_and_its_blow_up() -> None:
    eye, points = np.eye(2), np.array([[1.0, 0.0], [3.0, 1.0], [1.0, 1.0]])
    found = gaussian.run(points, eye, eye, -eye, time=2.0)
    first = gaussian.gaussian_of(points).covariance()
    covariances = found.roots @ found.roots.swapaxes(1, 2)
    expected = [np.linalg.inv(np.linalg.inv(first) + 2 * t * eye) for t in found.times]
    np.testing.assert_allclose(covariances, expected, rtol=1e-5)
    ends = gaussian.run(points, eye, eye, eye, time=2.0)
    assert ends.blow_up == pytest.approx(1 / (2 * np.linalg.eigvalsh(first)[-1]))
    assert ends.times[-1] < ends.blow_up
    assert len(gaussian.rings(ends)) > 2


def test_a_gaussian_on_a_line_is_drawn_too() -> None:
    found = gaussian.run([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], np.eye(2), np.eye(2), -np.eye(2))
    assert found.roots.shape[1:] == (2, 2)
    with pytest.raises(ShapeError):
        gaussian.gaussian_of([[0.0, 0.0]])


@pytest.mark.parametrize("n", [4, 10, 50])
def test_four_atoms_are_the_whole_prompt(n: int) -> None:
    two, G = mf.structure.prompts(n), mf.structure.counterexample().map
    found = counterexample.answers(n)
    assert found.distance == pytest.approx(two.distance)
    assert found.alice == pytest.approx(float(G.tokens(two.alice)[0, 0]), abs=1e-12)
    assert found.elise == pytest.approx(float(G.tokens(two.elise)[0, 0]), abs=1e-12)


def test_all_gaps_at_once_are_those_of_the_prompts() -> None:
    some = [0, 7, 39]
    for settings in ({}, {"delta": 0.2, "softening": 0.1}):
        expected = [counterexample.answers(int(counterexample.SIZES[i]), **settings).gap for i in some]
        np.testing.assert_allclose(counterexample.gaps(**settings)[some], expected, rtol=1e-12)


def test_the_gap_stays_unless_it_is_softened() -> None:
    assert counterexample.answers(10**6).gap > 0.5
    assert counterexample.answers(10**6, softening=0.5).gap < 0.2
    with pytest.raises(OptionError):
        counterexample.answers(10, delta=0.9)


@pytest.mark.parametrize("of", ["token", "mean"])
def test_weights_alone_compute_what_the_compiled_network_does(of: Any) -> None:
    x = mf.universality.Block([[0.7]], [0.2], 0.1, [1.0], [0.5])
    net = mf.universality.compile(x * x - 0.5 * x, mf.Box([0.0], [1.0]), cells=5)
    points, asked = np.array([[[0.1], [0.6], [0.9]]]), np.array([[0.3]])
    expected = net(mf.Discrete.uniform(points[0]), asked)
    np.testing.assert_allclose(compiling.weights_run(net, points, asked), expected, atol=1e-12)
    g = compiling.interpolated([[0.0, 0.2], [0.5, -0.5], [1.0, 0.7]])
    coarse, fine = (compiling.by_products(g, 6, cells, of) for cells in (2, 64))
    assert fine.error < 0.1 < coarse.error


@pytest.mark.parametrize("of", ["token", "mean"])
def test_smaller_cells_have_smaller_errors(of: Any) -> None:
    errors = [compiling.by_cells(np.sin, cells, of).error for cells in (4, 8, 16, 32)]
    # a cell is at most half a cell away from its centre
    assert all(error <= 0.51 / cells for error, cells in zip(errors, (4, 8, 16, 32), strict=True))
    with pytest.raises(OptionError):
        compiling.by_products(np.sin, 9, 4)
    with pytest.raises(ShapeError):
        compiling.interpolated([[0.5, 0.0], [0.1, 0.0]])


def test_a_raster_is_made_as_the_digits_were() -> None:
    tall = memory.raster(memory.line([[0.3, 0.2], [0.3, 0.4]]))
    same = memory.raster(memory.line([[0.6, 0.1], [0.6, 0.9]]))
    np.testing.assert_allclose(tall, same)  # place and size do not matter
    assert (tall[:, 3:5] > -0.2).all()
    assert (tall[:, :2] == -1).all()
    corner = memory.raster(memory.line([[0.2, 0.8], [0.8, 0.8]]) + memory.line([[0.2, 0.8], [0.2, 0.2]]))
    assert corner[0, 5] > -0.5  # up is up
    assert corner[7, 5] == -1


def test_stored_digits_are_their_own_answers_and_small_beta_melts_them() -> None:
    kept = memory.stored()
    pictures = [memory.recall(memory.line([[0.5, 0.9], [0.5, 0.1]]), beta) for beta in (1.0, 50.0)]
    assert pictures[1].label == 1
    assert pictures[0].share < 0.05 < 0.9 < pictures[1].share
    assert (np.diff(pictures[1].energies) < 1e-9).all()
    np.testing.assert_allclose(kept.pattern(kept.picture(kept.patterns[3])), kept.patterns[3], atol=0.2)


def test_prompts_turn_to_the_support_vector_machine() -> None:
    found = svm.train(svm.start(2), steps=2000)
    assert found.misalignments is not None
    assert found.misalignments[:, -1].max() < 1e-3
    inside = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert svm.train(inside, steps=5).direction is None
    with pytest.raises(ShapeError):
        svm.problem_of([[0.0, 0.0]])


def test_layers_are_steps_of_gradient_descent() -> None:
    points = RNG.normal(size=(9, 2))
    found = incontext.learn(points, eta=0.3, layers=4)
    W = mf.incontext.linear.gradient_descent(incontext.features(points[:, 0]), points[:, 1], 0.3, 4, np.zeros((1, 2)))
    np.testing.assert_allclose(found.weights["linear attention"], W[0], atol=1e-9)
    np.testing.assert_allclose(found.least_squares, np.polyval(np.polyfit(*points.T, 1), incontext.GRID), atol=1e-8)
    weights = np.exp(-10.0 * (incontext.GRID[:, None] - points[:, 0]) ** 2)
    np.testing.assert_allclose(found.kernel, weights @ points[:, 1] / weights.sum(axis=1), atol=1e-9)
    with pytest.raises(ShapeError):
        incontext.learn([1.0])


def test_clouds_are_seen_along_their_largest_directions() -> None:
    cloud = np.random.default_rng(0).normal(size=(30, 5)) * [9.0, 2.0, 0.1, 0.1, 0.1]
    plane = lens.flat(cloud[None])[0]
    assert abs(np.corrcoef(plane[:, 0], cloud[:, 0])[0, 1]) > 0.99
    assert np.abs(plane).max() == pytest.approx(1)
    rank, cosine = lens.numbers_of(np.tile(cloud[:1], (4, 1)) + 1e-3 * RNG.normal(size=(4, 5)))
    assert cosine > 0.99
    assert rank < 4


# --- drawing ---------------------------------------------------------------------------------------------------------


def test_figures_are_well_formed_and_hostile_words_harmless() -> None:
    from xml.etree import ElementTree

    bad = "<script>alert('x')</script>\x00"
    curves = (
        Series(bad, (1.0, 2.0), (0.0, float("nan")), role="measured"),
        Series("b", (1.0,), (5.0,), "points", role="measured"),
    )
    for scale in ("linear", "log"):
        figure = Figure(bad, bad, bad, curves, yscale=scale)
        for text in (plot.svg(figure), plot.legend(figure)):
            ElementTree.fromstring(text)
            assert "<script" not in text
    ElementTree.fromstring(plot.svg(Figure("nothing", "x", "y", ())))
    with pytest.raises(OptionError):
        plot.svg(Figure("bars", "x", "y", (Series("a", (1.0,), (1.0,), "bars", role="measured"),)))
    assert "<b>" not in drawing.shown(drawing.refusal(ValueError("<b>")))
    with pytest.raises(ShapeError):
        drawing.heat([], "nothing")


def test_all_figures_of_the_apps_are_drawn() -> None:
    flow = particles.run(layer("circle"), particles.start("circle", 3), 0.1)
    g = compiling.interpolated([[0.0, 0.0], [1.0, 1.0]])
    look = lens.Look("m", ("a",), np.zeros((2, 3, 2)), np.ones(2), np.ones(2))
    for figure in (
        particles.figure(flow),
        particles.cluster_figure(flow),
        gaussian.figure(gaussian.run([[0, 0], [1, 0], [0, 1]], np.eye(2), np.eye(2), -np.eye(2))),
        counterexample.map_figure(10),
        counterexample.gap_figure(10, softening=0.1),
        compiling.figure(compiling.by_cells(g, 4)),
        compiling.error_figure({4: compiling.by_cells(g, 4, "mean")}, 4),
        memory.figure(memory.recall([[0.5, 0.5]], 3.0)),
        svm.figure(svm.train(svm.start(2), steps=10)),
        incontext.figure([[0.0, 1.0], [1.0, 2.0]], 0.5, 4),
        lens.figure(look),
        lens.cosine_figure(look),
    ):
        assert "<svg" in drawing.picture(figure)
    assert len(lens.curves(look, 1)) == 4


def test_ways_of_many_tokens_are_drawn_through_fewer_points() -> None:
    flock = layer("circle", heads=1)
    few, many = (particles.run(flock, particles.start("circle", n), 1.0) for n in (12, 200))
    assert len(particles.paths(flock, few)[0]["points"]) == particles.FRAMES
    ways = particles.paths(flock, many)
    assert len(ways) == 201
    # kills: a way that stops before its end
    ends = np.array([way["points"][-1] for way in ways[:-1]])
    np.testing.assert_allclose(ends, np.array(ways[-1]["points"]), atol=6e-4)  # both are rounded to a thousandth
    assert len(ways[0]["points"]) == (particles.FRAMES + 1) // 2


def test_live_figures_know_roles_and_equal_axes() -> None:
    square = Series("path", (0.0, 1.0, 1.0), (0.0, 0.0, 1.0), role="control")
    assert CONTROL[0] in plot.svg(Figure("T", "x", "y", (square,)))
    text = plot.svg(Figure("T", "x", "y", (square,), equal=True))
    path = re.search(r'd="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)L([\d.]+),([\d.]+)" stroke="#D55E00"', text)
    assert path is not None
    x0, _, x1, y1, _, y2 = map(float, path.groups())
    assert abs((x1 - x0) - (y1 - y2)) < 0.3  # of 200 pixels, written with one decimal
