"""Connected components against brute force and by hand; events and plateaux along a path."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

import measureformer as mf
from measureformer.errors import OptionError, ShapeError, TracedError


def brute(points: np.ndarray, threshold: float) -> np.ndarray:
    return connected_components(cdist(points, points) <= threshold, directed=False)[1]


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    pairs = {*zip(a.tolist(), b.tolist(), strict=True)}
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 9, 10, 150]),
    d=st.sampled_from([1, 2, 5]),
    groups=st.sampled_from([1, 4, 40]),
    threshold=st.sampled_from([0.0, 0.02, 0.1, 0.4, 3.0]),
)
@settings(max_examples=150)
def test_against_all_pairs(seed: int, n: int, d: int, groups: int, threshold: float) -> None:
    # kills: neighbours beyond the first few forgotten, a bit of the labels left out, the bound taken as strict
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(groups, d))[rng.integers(groups, size=n)] + 0.03 * rng.normal(size=(n, d))
    found = mf.clustering.clusters(points, threshold)
    assert same_partition(found.labels, brute(points, threshold))
    assert found.count == found.labels.max() + 1


def test_distances_at_the_threshold_count_and_copies_are_one() -> None:
    points = np.array([[0.0], [1.0], [2.0], [2.0], [3.5], [0.0]])
    found = mf.clustering.clusters(points, 1.0)
    assert found.labels.tolist() == [0, 0, 0, 0, 1, 0]
    assert mf.clustering.clusters(points, 0).labels.tolist() == [0, 1, 2, 2, 3, 0]


def test_two_dense_balls_that_touch_in_one_pair() -> None:
    # every atom's nearest neighbours are in its own ball: only the further search can see the bridge
    ball = np.random.default_rng(0).uniform(-1e-3, 1e-3, size=(200, 2))
    left, right = np.append(ball, [[0.002, 0]], axis=0), np.append(ball + np.eye(2)[0], [[0.998, 0]], axis=0)
    both = np.append(left, right, axis=0)
    assert mf.clustering.clusters(both, 0.9959).count == 2
    assert mf.clustering.clusters(both, 0.9961).count == 1


def test_masses_centers_and_atoms_without_mass() -> None:
    mu = mf.Discrete.weighted([[9.0], [0.0], [5.0], [0.2], [2.0]], [1.0, 1.0, 0.0, 3.0, 0.0])
    few, many = mf.clustering.clusters(mu, [0.5, 4.5])
    assert few.labels.tolist() == [0, 1, -1, 1, -1]
    np.testing.assert_allclose(few.masses, [1, 4])
    np.testing.assert_allclose(few.centers, [[9.0], [0.15]])
    # passive tokens are no bridges
    assert many.count == 2


def test_memory_is_linear_in_a_collapsed_cloud() -> None:
    rng = np.random.default_rng(0)
    points = np.repeat(rng.normal(size=(3, 3)), 10_000, axis=0) + 1e-4 * rng.normal(size=(30_000, 3))
    tracemalloc.start()
    found = mf.clustering.clusters(points, 0.05)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.count == 3
    # all pairs within the threshold would be 1.5e8 links
    assert peak < 1e8


def test_counts_plateaux_and_events_by_hand() -> None:
    # three tokens on the line; 0 and 1 meet at t = 0.75 (distance 0.25), the third joins at t = 1.75
    times = np.linspace(0, 2, 9)
    path = np.stack([[[0.0], [max(0.0, 1 - t)], [-max(0.0, 2 - t)]] for t in times])
    counts = mf.clustering.cluster_counts(path, [0.25, 0.0])
    assert counts[:, 0].tolist() == [3, 3, 3, 2, 2, 2, 2, 1, 1]
    assert counts[:, 1].tolist() == [3, 3, 3, 3, 2, 2, 2, 2, 1]
    stretches = mf.clustering.plateaux(times, counts[:, 0])
    assert [tuple(s) for s in stretches] == [(3, 0.0, 0.5, 0.75), (2, 0.75, 1.5, 1.75), (1, 1.75, 2.0, np.inf)]
    np.testing.assert_allclose(mf.clustering.merge_times(times, path, 0.3), [0.7, 1.7], atol=1e-5)
    # both events between the same two saved times
    np.testing.assert_allclose(mf.clustering.merge_times(times[[0, -1]], path[[0, -1]], 0.3), [1.4, 1.7], atol=1e-5)


def test_refusals() -> None:
    for bad in (-1.0, [], [[1.0]]):
        with pytest.raises(OptionError, match="a distance"):
            mf.clustering.clusters([[0.0]], bad)
    with pytest.raises(ShapeError, match="one cloud per time"):
        mf.clustering.merge_times([0.0], np.zeros((2, 3, 1)), 0.1)
    with pytest.raises(ShapeError, match="one count per time"):
        mf.clustering.plateaux([0.0, 1.0], [1])
    import jax

    with pytest.raises(TracedError):
        jax.jit(lambda x: mf.clustering.clusters(mf.Discrete.uniform(x), 0.1).count)(np.eye(2))
