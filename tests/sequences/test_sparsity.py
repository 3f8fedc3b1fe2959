"""Patterns, their conditions, the sparse construction, and attention along a pattern."""

from __future__ import annotations

import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.errors import ConstructionError, DtypeError, NothingVisibleError, OptionError, ShapeError, TimeError
from measureformer.sequences import sparse as sparsity
from measureformer.sequences.sparse.chain import _by_cuts, _through_subsets, hamiltonian_path, path_cover

TABLE: dict[str, tuple[dict[str, Any], dict[str, Any], int, Any, Any, tuple[int, ...]]] = {
    "strided": ({}, {"width": 8}, 2, 2, 2, (1016, 512)),
    "fixed": ({}, {"width": 8}, 2, 2, 2, (512, 568)),
    "star": ({}, {}, 1, 2, 2, (314,)),
    "window": ({"width": 1}, {"width": 1}, 1, 15, 63, (190,)),
    "window 4": ({"width": 4}, {"width": 4}, 1, 4, 16, (556,)),
    "longformer": ({"width": 2, "globals": 1}, {"width": 2, "globals": 1}, 1, 2, 2, (436,)),
    "dense": ({}, {}, 1, 1, 1, (4096,)),
    "causal": ({}, {}, 1, None, None, (2080,)),
    "block-diagonal": ({}, {"width": 8}, 1, None, None, (512,)),
}
"""Options at n = 16 and 64, patterns, least numbers of layers, connections at n = 64."""


@pytest.mark.parametrize("name", TABLE)
def test_the_table_is_reproduced(name: str) -> None:
    small, large, p, s16, s64, connections = TABLE[name]
    family = name.split()[0]
    found = sparsity.check_pattern(sparsity.sparse_pattern(family, 64, **large))
    assert (found.patterns, found.reach.steps, found.connections) == (p, s64, connections)
    assert sparsity.check_pattern(sparsity.sparse_pattern(family, 16, **small)).reach.steps == s16
    assert found.self_loops.holds
    if name == "block-diagonal":
        assert found.chain.holds == "no"
    else:
        assert found.chain.path == tuple(range(64))
    assert found.universal == ("no" if s64 is None else "yes")


@pytest.mark.parametrize(("n", "w"), [(16, 3), (50, 7), (9, 8)])
def test_windows_have_closed_forms(n: int, w: int) -> None:
    found = sparsity.check_pattern(sparsity.sparse_pattern("window", n, width=w))
    assert found.connections == (n * (2 * w + 1) - w * (w + 1),)
    assert found.reach.steps == -(-(n - 1) // w)
    assert sparsity.check_pattern(sparsity.sparse_pattern("star", n)).connections == (5 * n - 6,)


def test_many_tokens_are_checked_in_a_second() -> None:
    for name in ("dense", "causal", "window", "strided", "fixed", "star", "longformer", "bigbird", "block-diagonal"):
        mask = sparsity.sparse_pattern(name, 512)
        start = time.process_time()
        found = sparsity.check_pattern(mask)
        assert time.process_time() - start < 1, name
        assert found.universal == ("no" if name in ("causal", "block-diagonal") else "yes"), name


def reach_by_matrices(A: np.ndarray) -> int | None:
    """The definition, with matrix products."""
    M = A[0].copy()
    for t in range(1, 200):
        if M.all():
            return t
        M = (A[t % len(A)].astype(int) @ M.astype(int)) > 0
    return None


def path_by_brute_force(step: np.ndarray) -> bool:
    n = len(step)
    return any(all(step[a, b] for a, b in itertools.pairwise(order)) for order in itertools.permutations(range(n)))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.1, 0.25, 0.5]), p=st.sampled_from([1, 2]))
def test_conditions_agree_with_their_definitions(seed: int, share: float, p: int) -> None:
    n = 6
    rng = np.random.default_rng(seed)
    A = rng.random((p, n, n)) < share
    if seed % 2:
        A |= np.eye(n, dtype=bool)
    found = sparsity.check_pattern(A)
    assert found.self_loops.holds == bool(A[:, range(n), range(n)].all())
    step = A.any(axis=0).T
    assert found.chain.holds == ("yes" if path_by_brute_force(step) else "no")
    if found.chain.path is not None:
        assert sorted(found.chain.path) == list(range(n))
        assert all(step[a, b] for a, b in itertools.pairwise(found.chain.path))
    truth = reach_by_matrices(A)
    if found.reach.holds != "unknown":
        assert found.reach.steps == truth
    power = np.linalg.matrix_power(A.any(axis=0) + np.eye(n), n) > 0
    assert (found.universal == "no") == (not power.all())
    if found.reach.unreachable is not None:
        assert not power[found.reach.unreachable]
    # relabelled tokens get the same answers
    order = rng.permutation(n)
    again = sparsity.check_pattern(A[:, order][:, :, order])
    same = (found.self_loops.holds, found.chain.holds, found.reach.steps, found.universal)
    assert (again.self_loops.holds, again.chain.holds, again.reach.steps, again.universal) == same
    mended = sparsity.suggest_pattern(A)
    assert mended.conditions.universal == "yes"
    assert int(mended.pattern.sum() - A.sum()) == len(mended.added)
    assert (mended.pattern >= A).all()


def test_relabelled_patterns_still_have_a_chain() -> None:
    order = np.random.default_rng(0).permutation(64)
    for name in ("window", "star", "longformer", "bigbird"):
        mask = sparsity.sparse_pattern(name, 64)[:, order][:, :, order]
        assert sparsity.check_pattern(mask).universal == "yes", name


def test_small_changes_flip_answers() -> None:
    star = sparsity.sparse_pattern("star", 8)
    star[0, 3, 3] = False
    found = sparsity.check_pattern(star)
    assert (found.self_loops.holds, found.self_loops.missing, found.universal) == (False, ((0, 3),), "unknown")
    star = sparsity.sparse_pattern("star", 8)
    star[0, 7, :7] = False
    found = sparsity.check_pattern(star)
    assert found.reach.holds == "no"
    assert found.reach.unreachable is not None
    assert found.reach.unreachable[0] == 7
    assert sparsity.suggest_pattern(sparsity.sparse_pattern("causal", 64)).added == ((0, 0, 63),)


def test_obstructions_and_search() -> None:
    legs = np.zeros((10, 10), bool)
    for leg in (1, 4, 7):
        for a, b in itertools.pairwise([0, leg, leg + 1, leg + 2]):
            legs[a, b] = legs[b, a] = True
    assert "of the n − 1 = 9 steps" in hamiltonian_path(legs).obstruction
    assert sorted(i for path in path_cover(legs) for i in path) == list(range(10))
    # three triangles that share a corner: steps could be chosen, but the corner would be passed twice
    triangles = np.zeros((7, 7), bool)
    for a, b in ((1, 2), (3, 4), (5, 6)):
        for pair in ((0, a), (0, b), (a, b)):
            triangles[pair] = triangles[pair[::-1]] = True
    assert "without token 0 the others fall into 3 parts" in hamiltonian_path(triangles).obstruction
    # a random order of a path of 40 vertices, with distractions: only a search finds it
    rng = np.random.default_rng(1)
    order = rng.permutation(40)
    step = rng.random((40, 40)) < 0.05
    step[order[:-1], order[1:]] = True
    for graph in (step, step | step.T):
        path = hamiltonian_path(graph, seconds=20).path
        assert path is not None
        assert sorted(path) == list(range(40))
        assert all(graph[a, b] for a, b in itertools.pairwise(path))
    # the 0-1 program and the walk through all subsets agree, on graphs with and without a path
    answers = set()
    for seed in range(24):
        graph = np.random.default_rng(seed).random((9, 9)) < 0.22
        np.fill_diagonal(graph, False)
        exact, found = _through_subsets(graph), _by_cuts(graph, time.monotonic() + 20)
        answers.add(exact is None)
        assert (exact is None) == (found.path is None) == bool(found.obstruction)
        for path in (exact, found.path):
            assert path is None or all(graph[a, b] for a, b in itertools.pairwise(path))
    assert answers == {True, False}


def test_masks_come_as_functions_and_arrays() -> None:
    by_function = sparsity.check_pattern(lambda k, j: abs(k - j) <= 2, n=20)
    assert by_function == sparsity.check_pattern(sparsity.sparse_pattern("window", 20, width=2))
    assert sparsity.check_pattern(lambda k, j: k == j or j == 0 or k == 0, n=5).chain.holds == "no"
    with pytest.raises(OptionError, match="the number of tokens"):
        sparsity.check_pattern(lambda k, j: True)
    with pytest.raises(DtypeError, match="booleans"):
        sparsity.check_pattern(np.eye(4))
    for wrong in (np.ones((3, 4), bool), np.ones(4, bool), np.ones((0, 0), bool)):
        with pytest.raises(ShapeError, match=r"\(n, n\)"):
            sparsity.check_pattern(wrong)
    with pytest.raises(OptionError, match="one of 'dense'"):
        sparsity.sparse_pattern("diagonal", 4)
    with pytest.raises(OptionError, match="no such option"):
        sparsity.sparse_pattern("dense", 4, width=2)


@pytest.mark.parametrize(
    ("name", "n", "N", "bits"),
    [("star", 3, 4, 24), ("star", 4, 2, 42), ("window", 3, 4, 38), ("window", 4, 2, 60), ("longformer", 4, 3, 49)],
)
def test_sparse_contextual_mapping_by_enumeration(name: str, n: int, N: int, bits: int) -> None:
    options = {"width": 1} if name == "longformer" else {}
    f = lambda X: X[..., ::-1, :]  # noqa: E731
    mask = sparsity.sparse_pattern(name, n, **options)
    net = sparsity.compile_sparse(f, mask, d=1, delta=1 / N)
    X = (np.array(list(itertools.product(range(N), repeat=n)))[:, :, None] + 0.5) / N
    codes = net.context_ids(X)
    assert len(set(codes.reshape(-1).tolist())) == n * N**n
    assert abs(net.bits_required() - bits) <= 1
    found = net.decode(codes)
    np.testing.assert_allclose(found.token + 0.5 / N, X, atol=1e-12)
    np.testing.assert_array_equal(net.run(X), f(X))
    steps = sparsity.check_pattern(mask).reach.steps
    assert net.census.attention == (n - 1) * N + steps


def test_two_patterns_in_turn() -> None:
    # blocks of two, and the last of each block: neither is enough alone
    mask = sparsity.sparse_pattern("fixed", 4)
    net = sparsity.compile_sparse(lambda X: np.cumsum(X, axis=-2), mask, d=1, delta=1 / 2)
    X = (np.array(list(itertools.product(range(2), repeat=4)))[:, :, None] + 0.5) / 2
    np.testing.assert_array_equal(net.run(X), np.cumsum(X, axis=1))
    assert net.census.attention == 2 * 3 * 2 + sparsity.check_pattern(mask).reach.steps
    with pytest.raises(ConstructionError, match="never hears of"):
        sparsity.compile_sparse(lambda X: X, sparsity.sparse_pattern("causal", 3), d=1, delta=1 / 2)


def test_masked_layers_are_ordinary_maps() -> None:
    net = sparsity.compile_sparse(lambda X: X, sparsity.sparse_pattern("window", 3), d=1, delta=1 / 4)
    X = net.embedded(np.array([[0.25], [0.0], [0.75]]))
    for layer in (net.shifts[0], net.shifts[-1]):
        found = layer.as_map().tokens(np.concatenate([X, np.ones((3, 1))], axis=1))
        np.testing.assert_allclose(np.asarray(found)[:, :1], layer.hard(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "exponent"), [("window", 1), ("star", 1), ("strided", 1.5), ("fixed", 1.5), ("dense", 2), ("causal", 2)]
)
def test_connections_grow_as_they_should(name: str, exponent: float) -> None:
    head = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    sizes = np.array([64, 256, 576])
    counts = []
    for n in sizes:
        layers = [sparsity.SparseAttention(head, mask) for mask in sparsity.sparse_pattern(name, int(n))]
        counts.append(sum(layer.connections for layer in layers))
        # what is gone through: at most twice the connections, and a block of padding for each group
        room = sum(lists.size for layer in layers for _, lists in layer.groups)
        assert room <= 2 * counts[-1] + sum(len(layer.groups) for layer in layers) * (1 << 15)
    assert abs(np.polyfit(np.log(sizes), np.log(counts), 1)[0] - exponent) < 0.1


def dense_formula(heads: Any, mask: np.ndarray, X: np.ndarray, hard: bool) -> np.ndarray:
    out = np.zeros((len(X), heads.W.shape[1]))
    for Q, K, V, W in zip(*(np.asarray(a) for a in (heads.Q, heads.K, heads.V, heads.W)), strict=True):
        logits = np.where(mask, float(heads.scale) * (X @ Q.T) @ (X @ K.T).T, -np.inf)
        top = logits.max(axis=1, keepdims=True)
        shares = (logits >= top - 1e-12).astype(float) if hard else np.exp(logits - top)
        out += shares / shares.sum(axis=1, keepdims=True) @ X @ V.T @ W.T
    return out


@pytest.mark.parametrize("kind", [mf.Attention, mf.HardmaxAttention])
def test_sparse_attention_is_the_masked_formula(kind: Any) -> None:
    n, d = 12, 3
    heads = kind.random(jax.random.key(0), d, heads=2, scale=0.7)
    X = np.random.default_rng(0).normal(size=(n, d))
    mask = sparsity.sparse_pattern("bigbird", n)[0]
    G = sparsity.SparseAttention(heads, mask)
    truth = dense_formula(heads, mask, X, kind is mf.HardmaxAttention)
    np.testing.assert_allclose(G.tokens(X), truth, rtol=0, atol=1e-12)
    sigma = mf.SpaceTime.sequence(X)
    np.testing.assert_allclose(G(sigma, X, sigma.times), truth, rtol=0, atol=1e-12)
    # masses count, a split atom does not, nor does the order of the atoms
    weights = np.random.default_rng(1).uniform(0.5, 2, n)
    times = (np.arange(n) + 1) / n
    whole = mf.SpaceTime.weighted(X, times, weights)
    rows = np.r_[np.arange(n), 4]
    shares = np.r_[weights, 0.3 * weights[4]]
    shares[4] *= 0.7
    order = np.random.default_rng(2).permutation(n + 1)
    split = mf.SpaceTime.weighted(X[rows][order], times[rows][order], shares[order])
    at = X + 0.1, times
    np.testing.assert_allclose(G(5.0 * split, *at), G(whole, *at), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(G.push(split).points), np.asarray(G.push(whole).points)[rows][order], atol=1e-12
    )
    equal = mf.SpaceTime.weighted(X, times, np.ones(n))
    assert np.abs(G(whole, *at) - G(equal, *at)).max() > 1e-3 or kind is mf.HardmaxAttention


def test_sparse_attention_differentiates_and_refuses() -> None:
    n, d = 6, 2
    heads = mf.Attention.random(jax.random.key(1), d)
    mask = sparsity.sparse_pattern("window", n)[0]
    G = sparsity.SparseAttention(heads, mask)
    X = np.random.default_rng(0).normal(size=(n, d))

    def total(X: Any) -> Any:
        return jnp.sum(jnp.sin(G.push(mf.SpaceTime(X, jnp.arange(1.0, n + 1) / n, jnp.zeros(n))).points))

    step, direction = 1e-6, np.random.default_rng(3).normal(size=X.shape)
    slope = float(jnp.sum(jax.grad(total)(jnp.asarray(X)) * direction))
    assert (
        abs(
            slope
            - float(total(jnp.asarray(X + step * direction)) - total(jnp.asarray(X - step * direction))) / (2 * step)
        )
        < 1e-7
    )
    with pytest.raises(TimeError, match="of 6 tokens"):
        G.tokens(np.zeros((5, d)))
    with pytest.raises(TimeError, match="two different tokens at position 1"):
        G.push(mf.SpaceTime.uniform([[0.0, 0.0], [1.0, 0.0]], [2 / 6, 2 / 6]))
    with pytest.raises(DtypeError, match=r"mf\.Attention"):
        sparsity.SparseAttention(mf.Identity(), mask)
    with pytest.raises(ShapeError, match="2 patterns"):
        sparsity.SparseAttention(heads, sparsity.sparse_pattern("fixed", n))
    blind = mask.copy()
    blind[3] = False
    with pytest.raises(NothingVisibleError, match="query 3"):
        sparsity.SparseAttention(heads, blind).tokens(X)
