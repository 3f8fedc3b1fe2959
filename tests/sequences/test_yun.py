"""The compiler of Yun et al.: counts, codes, exactness, ramps, refusals."""

from __future__ import annotations

import itertools
import math
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measureformer.errors import (
    ConstructionError,
    DomainError,
    DtypeError,
    NotEquivariantError,
    NotFiniteError,
    OptionError,
    ShapeError,
    ToleranceError,
)
from measureformer.sequences import yun
from measureformer.sequences.activation import Activation
from measureformer.sequences.codes import CellCodes

TABLE = {
    (1, 2, 4): (5, 5, 14, 19, 12),
    (1, 2, 8): (9, 9, 58, 67, 18),
    (1, 2, 16): (17, 17, 242, 259, 24),
    (1, 2, 32): (33, 33, 994, 1027, 30),
    (1, 3, 4): (5, 5, 14, 19, 16),
    (1, 3, 8): (9, 9, 170, 179, 24),
    (2, 2, 2): (6, 5, 15, 21, 12),
    (2, 2, 4): (10, 17, 243, 253, 24),
    (2, 2, 8): (18, 65, 4035, 4053, 36),
    (2, 3, 2): (6, 5, 15, 21, 16),
    (3, 2, 2): (9, 9, 60, 69, 18),
}
"""(d, n, 1/delta): perceptrons that quantise, layers of attention, perceptrons that write, perceptrons, bits."""
ENUMERATED = [(1, 2, D) for D in (2, 3, 4, 5, 8, 16)] + [
    (1, 3, 4),
    (1, 3, 8),
    (1, 4, 4),
    (2, 2, 2),
    (2, 2, 4),
    (2, 3, 2),
]
PLACED = [(1, 2, 2), (1, 2, 4), (1, 2, 8), (1, 3, 2), (1, 3, 4), (2, 2, 2)]


def wave(X: np.ndarray) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * X) + X.mean(axis=(-2, -1), keepdims=True)


def order_matters(X: np.ndarray) -> np.ndarray:
    return np.cumsum(X, axis=-2) - 0.3 * X[..., ::-1, :] ** 2


@cache
def made(d: int, n: int, D: int, positions: bool = False, ramp: float = 1e-3) -> Any:
    return yun.compile_yun(order_matters if positions else wave, d=d, n=n, delta=1 / D, positions=positions, ramp=ramp)


def drawn(d: int, n: int, count: int = 4000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(count, n, d))


def cells_and_distinct(X: np.ndarray, D: int) -> tuple[np.ndarray, np.ndarray]:
    """The cells of tokens, and whether they are different within each sequence: by brute force."""
    cells = np.floor(X * D).astype(int)
    return cells, np.array([len({tuple(token) for token in row}) == len(row) for row in cells.tolist()])


def l2(Y: np.ndarray, F: np.ndarray) -> float:
    return math.sqrt(((Y - F) ** 2).sum(axis=(1, 2)).mean())


@pytest.mark.parametrize("case", TABLE)
def test_counts_are_those_of_the_proof(case: tuple[int, int, int]) -> None:
    net = made(*case)
    c = net.census
    assert (c.quantise, c.attention, c.value, c.feedforward, net.bits_required()) == TABLE[case]
    tags = [layer.tag for layer in net.layers]
    assert tags.count("sweep") == c.sweep
    assert tags.count("value") == c.value
    assert tags.count("clamp") == c.clamp == case[0]
    assert len(tags) == c.attention + c.feedforward + c.clamp
    assert c.parameters == (len(tags) - 1) * (17 * case[0] + 6)


def codes_by_recursion(ids: tuple[int, ...], K: int) -> list[int]:
    """The closed form: L_1 = l_1 + K(l_n − l_1), L_j = l_j + K(L_{j−1} − l_j), q_j = L_j + K^{n+1} L_n."""
    L = [ids[0] + K * (ids[-1] - ids[0])]
    for own in ids[1:]:
        L.append(own + K * (L[-1] - own))
    return [value + K ** (len(ids) + 1) * L[-1] for value in L]


@pytest.mark.parametrize("case", ENUMERATED)
def test_contextual_mapping_by_enumeration(case: tuple[int, int, int]) -> None:
    # kills: a wrong scale, a sweep in another order, thresholds that hit twice
    d, n, D = case
    net, N = made(*case), D**d
    contexts = list(itertools.combinations(range(N), n))
    X = (np.array([[np.unravel_index(i, (D,) * d, order="F") for i in ids] for ids in contexts]) + 0.5) / D
    codes = net.context_ids(X)
    assert codes.tolist() == [codes_by_recursion(ids, N) for ids in contexts]
    assert len(set(codes.reshape(-1).tolist())) == n * len(contexts)
    assert codes.min() >= N ** (2 * n) * (N - 1)
    assert codes.max() < N ** (2 * n + 1) * (N - 1) + N ** (n + 1)
    # order of tokens is carried along, exactly
    assert net.context_ids(X[:, ::-1]).tolist() == codes[:, ::-1].tolist()
    # sequences with a repeated token, and outside of the cube, never look like one of these
    repeated = np.array([c for c in itertools.combinations_with_replacement(range(N), n) if len(set(c)) < n])
    same = (np.stack(np.unravel_index(repeated, (D,) * d, order="F"), axis=-1) + 0.5) / D
    window = codes.min(), codes.max()
    outside = net.context_ids(same)
    assert ((outside < window[0]) | (outside > window[1])).all()
    if d * n <= 4 and D <= 8:
        states = np.array(list(itertools.product(np.append(np.arange(D) + 0.5, -1.0), repeat=n * d)))
        beyond = states.reshape(-1, n, d)[(states < 0).any(axis=1)] / D
        outside = net.context_ids(beyond)
        assert ((outside < window[0]) | (outside > window[1])).all()


@pytest.mark.parametrize("case", PLACED)
def test_positions_tell_every_order_apart(case: tuple[int, int, int]) -> None:
    d, n, D = case
    net = made(*case, positions=True)
    R = (n - 1) * D * sum(D**i for i in range(d)) + D**d
    assert net.grid.base == R
    assert net.census.quantise == d * (n * D + 1)
    assert net.census.attention == n * D**d + 1
    assert net.census.value == 1 + d + n * D ** (d * n)
    X = (net.grid.enumerate() + 0.5) / D
    codes = net.context_ids(X)
    assert len(np.unique(codes)) == codes.size == n * D ** (d * n)
    found = net.decode(codes)
    np.testing.assert_array_equal(found.token + 0.5 / D, X)
    # by increasing ids is by position
    np.testing.assert_array_equal(found.context + 0.5 / D, np.repeat(X[:, None], n, axis=1))
    np.testing.assert_allclose(net.run(X), order_matters(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("N", "n"), [(4, 2), (8, 3), (16, 2), (9, 4)])
def test_the_decoder_never_fails(N: int, n: int) -> None:
    grid = CellCodes(1, n, N)
    contexts = list(itertools.combinations(range(N), n))
    codes = np.array([codes_by_recursion(ids, N) for ids in contexts])
    own, seen = grid.unpack(codes)
    np.testing.assert_array_equal(own, contexts)
    np.testing.assert_array_equal(seen, np.repeat(np.array(contexts)[:, None], n, axis=1))


@pytest.mark.parametrize("case", [(1, 2, 16), (2, 2, 4), (1, 3, 8)])
def test_exact_on_different_cells_and_fast(case: tuple[int, int, int]) -> None:
    d, n, D = case
    X = drawn(d, n)
    start = time.process_time()
    net = yun.compile_yun(wave, d=d, n=n, delta=1 / D)
    Y = net.run(X, "hard")
    assert time.process_time() - start < 2
    cells, distinct = cells_and_distinct(X, D)
    np.testing.assert_allclose(Y[distinct], wave((cells + 0.5) / D)[distinct], rtol=0, atol=1e-10)
    assert (Y[~distinct] == 0).all()
    np.testing.assert_array_equal(net.run(X, "integer"), Y)
    share = 1 - math.prod(1 - i / D**d for i in range(n))
    assert abs((~distinct).mean() - share) < 0.02


def test_layer_by_layer_is_the_stage() -> None:
    # kills: a shortcut in the loop over bumps
    net, X = made(1, 2, 4), drawn(1, 2, 200)
    state = X
    for layer in net.layers:
        state = state if layer.tag == "clamp" else layer.hard(state)
    np.testing.assert_array_equal(state, net.run(X, "hard"))


@pytest.mark.parametrize("D", [4, 10, 7])
def test_the_quantiser_is_exact_on_boundaries_too(D: int) -> None:
    net = made(1, 2, D)
    edges = np.arange(D) / D
    X = np.concatenate([np.random.default_rng(1).uniform(-1, 2, 10_000), edges, np.nextafter(edges[1:], 0), [1.0]])
    state = np.stack([X, X], axis=1)[:, :, None]
    for layer in net.quantise:
        state = layer.hard(state)
    J = float(D**2)
    cell = np.searchsorted(edges, X, side="right") - 1
    np.testing.assert_array_equal(state[:, 0, 0], np.where((X < 0) | (X >= 1), -J, cell / D))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), case=st.sampled_from([(1, 3, 8), (2, 2, 4)]))
def test_equivariance_is_exact(seed: int, case: tuple[int, int, int]) -> None:
    d, n, _ = case
    net, rng = made(*case), np.random.default_rng(seed)
    X, order = rng.uniform(-0.1, 1.1, size=(50, n, d)), rng.permutation(n)
    for mode in ("integer", "hard"):
        np.testing.assert_array_equal(net.run(X[:, order], mode), net.run(X, mode)[:, order])
    assert (net.run(X)[((X < 0) | (X >= 1)).any(axis=(1, 2))] == 0).all()


@pytest.mark.parametrize("case", [(1, 2, 4), (1, 2, 8), (2, 2, 2)])
@pytest.mark.parametrize("ramp", [1e-3, 1e-4])
def test_softmax_and_relus_differ_on_ramps_only(case: tuple[int, int, int], ramp: float) -> None:
    d, n, D = case
    net, X = made(*case, ramp=ramp), drawn(d, n, 8000)
    hard, soft, clamped = (net.run(X, mode) for mode in ("hard", "soft", "clamped"))
    off = np.abs(soft - hard).max(axis=(1, 2)) > 1e-6
    assert off.mean() <= d * n * (D + 1) * ramp
    # kills: ramps in another place
    near = ((np.ceil(X * D) / D - X) <= net.ramp).any(axis=(1, 2))
    assert not (off & ~near).any()
    F = wave(X)
    if ramp == 1e-3:
        assert l2(clamped, F) <= 1.06 * l2(hard, F)
        # without the clamp the codes of the few are larger than all errors of the many
        assert l2(soft, F) > 20 * l2(hard, F)


@pytest.mark.parametrize("case", [(1, 2, 4), (1, 2, 8), (1, 2, 16), (2, 2, 2)])
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_measured_errors_are_below_the_budget(case: tuple[int, int, int], p: float) -> None:
    # |wave'| ≤ π and the mean moves by at most δ/2
    found = made(*case).error_budget(p, modulus=(math.pi + 1) / (2 * case[2]))
    assert set(found.measured) == {"hard", "soft", "clamped"}
    for mode, value in found.measured.items():
        assert value <= found.bound[mode]
    # in L1 a few large errors weigh less
    assert found.measured["soft"] > (10 if p == 2 else 3) * found.measured["clamped"]
    assert made(*case).error_budget(p).modulus <= found.modulus


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_tokens_on_a_ramp_exceed_the_largest_id_in_norm_only(p: float) -> None:
    # kills: a budget in which all dn entries together weigh as much as one
    net, e = yun.compile_yun(wave, d=1, n=3, delta=1 / 4, ramp=2.0**-12), 2.0**-12
    X, place = np.random.default_rng(0).uniform(size=(2, 500, 3, 1))
    X[:, 0] = np.ceil(4 * X[:, 0]) / 4 - e * place[:, 0]
    size, most = (np.abs(net.run(X, "soft")) ** p).sum(axis=(1, 2)) ** (1 / p), float(net.grid.most) / 4
    assert most < size.max() <= 3 ** (1 / p) * most
    found = net.error_budget(p, points=100)
    assert found.ramps_part["soft"] == pytest.approx(found.ramps ** (1 / p) * (3 ** (1 / p) * most + found.size))


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_without_a_clamp_the_error_vanishes_with_the_ramps(p: float) -> None:
    # kills: "the error has the size of the ids at any width of the ramps"
    excess = {}
    for k in (9, 19):
        measured = yun.compile_yun(wave, d=1, n=2, delta=1 / 4, ramp=2.0**-k).error_budget(p, points=20_000).measured
        excess[k] = measured["soft"] ** p - measured["hard"] ** p
    assert 0 <= excess[19] < excess[9] / 200


def test_squared_errors_add() -> None:
    # L2² = (cells)² + E[‖f‖²; two tokens in one cell]
    net, X = made(1, 2, 8), drawn(1, 2)
    _, distinct = cells_and_distinct(X, 8)
    squares = ((net.run(X) - wave(X)) ** 2).sum(axis=(1, 2))
    lost = (wave(X) ** 2).sum(axis=(1, 2))[~distinct].sum()
    assert math.isclose(squares.sum(), squares[distinct].sum() + lost, rel_tol=1e-12)


@pytest.mark.parametrize(
    "phi",
    [
        Activation(0, 0.5, -1, 2, 0.25, 1, -1, 3),
        Activation(1, -2, -0.5, 0, 0.75, 0.5, -2, 1),
        Activation(-1, 0, -1, 3, 1, 0.5, 0, -0.25),
    ],
    ids=["left", "middle", "right"],
)
def test_four_relus_are_the_activation_off_the_ramps(phi: Activation) -> None:
    t, e = np.linspace(-4, 4, 4001), 2.0**-6
    near = [(t >= c - e) & (t < c) for c in (phi.c1, phi.c2)]
    if phi.a1 != 0 and phi.a2 != 0:
        near = [(t >= c) & (t <= c + e) for c in (phi.c1, phi.c2)]
    off = ~(near[0] | near[1])
    np.testing.assert_allclose(phi.relus(e)(t)[off], phi(t)[off], rtol=0, atol=1e-11)
    assert np.abs(phi.relus(e)(t) - phi(t))[~off].max() > 0.1
    with pytest.raises(OptionError, match="a constant piece"):
        Activation(1, 0, 0, 1, 1, 1, 1, 2).relus(e)


def test_softmax_tends_to_hardmax_at_its_rate() -> None:
    # off the maximum there is at most (n−1) e^{−gain·gap}
    net = made(1, 3, 4)
    layer = net.shifts[1]
    X = np.array([[[0.25], [0.5], [1.0]]])
    ids, half = X[0, :, 0], 0.125
    for gain in (8.0, 64.0, 256.0):
        soft = type(layer)(**{**vars(layer), "gain": gain}).soft(X)
        error = np.abs(soft - layer.hard(X)).max()
        gap = 0.25 * half
        assert error <= 2 * 4 * np.ptp(ids) * 2 * math.exp(-gain * gap)
        assert error >= 1e-3 * math.exp(-gain * gap * 2)


def test_layers_are_ordinary_maps() -> None:
    net, X = made(1, 2, 4), drawn(1, 2, 6, seed=3)
    picked = {layer.tag: layer for layer in net.layers if layer.tag != "value"}
    picked["value"] = net.layers[-2]
    for soft in (False, True):
        for layer in picked.values():
            G = layer.as_map(net.ramp if soft else None)
            for x in X[:2] if layer.tag in ("quantise", "clamp") else np.floor(4 * X[:2]) / 4:
                if soft and isinstance(layer.weights().get("activation"), Activation):
                    truth = layer.soft(x, net.ramp)
                else:
                    truth = layer.soft(x) if soft else layer.hard(x)
                found = G.tokens(np.concatenate([x, np.ones((2, 1))], axis=1))
                np.testing.assert_allclose(
                    found, np.concatenate([truth, np.ones((2, 1))], axis=1), rtol=1e-9, atol=1e-9
                )


def test_whole_networks_are_ordinary_transformers() -> None:
    X = np.array([[0.2], [0.7]])
    placed = yun.compile_yun(lambda X: X[..., ::-1, :], d=1, n=2, delta=1 / 2, positions=True)
    assert np.allclose(placed.as_map("hard").tokens(X), placed.run(X), atol=1e-9)
    net = yun.compile_yun(lambda X: X + X.mean(axis=-2, keepdims=True), d=1, n=2, delta=1 / 2)
    assert np.allclose(net.as_map("clamped").tokens(X), net.run(X), atol=1e-6)
    with pytest.raises(OptionError, match="not a map of tokens"):
        net.as_map("integer")


def test_whole_numbers_take_over_past_53_bits() -> None:
    f = lambda X: X + X.mean(axis=-2, keepdims=True)  # noqa: E731
    net = yun.compile_yun(f, d=1, n=8, delta=1 / 10)
    assert net.bits_required() > 53
    assert net.context_ids(drawn(1, 8, 2)).dtype == object
    X = (np.stack([np.random.default_rng(i).permutation(10)[:8] for i in range(20)])[:, :, None] + 0.5) / 10
    # f itself rounds differently for tokens in another order
    np.testing.assert_allclose(net.run(X), f(X), rtol=0, atol=1e-15)
    found = net.decode(net.context_ids(X))
    np.testing.assert_allclose(found.token + 0.05, X, atol=1e-12)
    for mode in ("hard", "soft", "clamped"):
        with pytest.raises(ToleranceError, match=r"finest delta that is feasible is 1/\d"):
            net.run(X, mode)
    assert set(net.error_budget(2).measured) == {"hard"}


def test_bad_input_is_refused() -> None:
    with pytest.raises(NotEquivariantError, match=r"in the order \[") as caught:
        yun.compile_yun(order_matters, d=1, n=3, delta=1 / 4)
    order, X = caught.value.witness
    assert np.abs(order_matters(X[list(order)]) - order_matters(X)[list(order)]).max() > 1e-3
    with pytest.raises(NotFiniteError, match="finite on the cube"), np.errstate(divide="ignore", invalid="ignore"):
        yun.compile_yun(lambda X: 1 / (np.floor(4 * X) - 1), d=1, n=2, delta=1 / 4)
    with pytest.raises(NotFiniteError, match="finite delta"):
        yun.compile_yun(wave, d=1, n=2, delta=float("nan"))
    for delta, hint in (
        (0.3, "1/3"),
        (1.0, "1/2"),
        (0.0, "delta = 0"),
        (-0.25, "1e-06"),
    ):
        with pytest.raises(OptionError, match=hint):
            yun.compile_yun(wave, d=1, n=2, delta=delta)
    with pytest.raises(ConstructionError, match=r"2,684,354,560|value layers"):
        yun.compile_yun(wave, d=2, n=4, delta=1 / 16)
    with pytest.raises(ConstructionError, match="only 2 cells"):
        yun.compile_yun(wave, d=1, n=3, delta=1 / 2)
    with pytest.raises(ConstructionError, match="Divide f by a constant"):
        yun.compile_yun(lambda X: 1e9 * X, d=1, n=2, delta=1 / 4)
    with pytest.raises(ShapeError, match="the same shape"):
        yun.compile_yun(lambda X: X[:1], d=1, n=2, delta=1 / 4)
    with pytest.raises(DtypeError, match="a function"):
        yun.compile_yun(3, d=1, n=2, delta=1 / 4)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="delta/4"):
        yun.compile_yun(wave, d=1, n=2, delta=1 / 4, ramp=0.2)
    with pytest.raises(ToleranceError, match="a ramp of at least"):
        made(1, 2, 16, ramp=1e-12).run(np.zeros((2, 1)), "soft")
    net = made(1, 2, 4)
    with pytest.raises(ShapeError, match=r"\(batch, 2, 1\)"):
        net.run(np.zeros((3, 3, 1)))
    with pytest.raises(OptionError, match="one of auto"):
        net.run(np.zeros((2, 1)), "fast")
    with pytest.raises(NotFiniteError):
        net.run([[np.nan], [0.0]])
    with pytest.raises(DomainError, match="no context id"):
        net.decode(5)
    with pytest.raises(DtypeError, match="whole numbers"):
        net.decode(0.5)
    with pytest.raises(OptionError, match="1 ≤ p"):
        net.error_budget(0.5)
    with pytest.raises(DomainError, match="another place"):
        made(1, 2, 4, positions=True).run([[0.5], [1.5]])


def test_functions_of_one_sequence_are_called_one_by_one() -> None:
    calls = []

    def f(X: np.ndarray) -> np.ndarray:
        calls.append(X.shape)
        # right for one sequence, wrong for a batch
        return X + X.mean()

    net = yun.compile_yun(f, d=1, n=2, delta=1 / 4)
    assert np.allclose(net.run([[0.125], [0.625]]), [[0.5], [1.0]])
    assert (2, 1) in calls
