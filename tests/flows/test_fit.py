"""Training a flow: against linear regression, finite differences and the flow itself; its laws, saving, refusals."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from measureformer import errors
from measureformer.flows import Depth, fit
from measureformer.flows import training as _training
from measureformer.flows.training import Problem, Stack
from measureformer.training import loop
from measureformer.training.optimization import Optimization

DIM = 2
KEY = jax.random.key(0)


def plain(steps: int = 1000, method: Any = "adam", rate: float = 0.03, tol: float = 1e-8) -> Optimization:
    """Neither warm-up nor clipping; the rate of Adam falls to 0, that of descent stays."""
    final = 0.0 if method == "adam" else 1.0
    return Optimization(steps, rate, method, clip=None, warmup=0.0, final=final, tol=tol)


SHORT, ONE = plain(5), Depth(1, "euler")


def data(seed: int = 0, contexts: int = 3) -> tuple[list[mf.Discrete], list[np.ndarray], list[np.ndarray]]:
    """Contexts and queries of different sizes, weights that are not equal."""
    rng = np.random.default_rng(seed)
    clouds = [rng.normal(size=(3 + k, DIM)) for k in range(contexts)]
    points = [rng.normal(size=(1 + k % 2, DIM)) for k in range(contexts)]
    measures = [mf.Discrete.weighted(cloud, rng.uniform(0.2, 1, len(cloud))) for cloud in clouds]
    return measures, points, [x + 0.3 * rng.normal(size=x.shape) for x in points]


def stack(seed: int = 0, heads: int = 2, pieces: int = 2) -> Stack:
    """Parameters away from the start, where W = 0."""
    rng = np.random.default_rng(seed)
    return Stack(*0.5 * rng.normal(size=(4, pieces, heads, DIM, DIM)))


@eqx.filter_jit
def loss_of(parameters: Stack, problem: Problem, depth: Depth) -> Any:
    return _training.loss(parameters, problem, depth)


def loss(contexts: Any, points: Any, targets: Any, depth: Depth, seed: int = 0) -> float:
    return float(loss_of(stack(seed), fit._problem(contexts, points, targets), depth))


def floats(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same_bits(one: mf.flows.fit.FlowFit, other: mf.flows.fit.FlowFit) -> bool:
    pairs = zip(floats((one.velocity, one.losses)), floats((other.velocity, other.losses)), strict=True)
    return one.stopped == other.stopped and all(a.tobytes() == b.tobytes() for a, b in pairs)


# --- oracles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_one_layer_on_dirac_contexts_is_linear_regression(method: Any) -> None:
    # attention on δ_c is ΣWV c: one Euler step is x + Mc, and the best M is that of least squares, with a loss > 0
    rng = np.random.default_rng(0)
    c, x, y = rng.normal(size=(3, 7, DIM))
    M, residuals, *_ = np.linalg.lstsq(c, y - x, rcond=None)
    best = residuals.sum() / len(c)
    optimization = plain(1500, method, rate=0.05)
    found = mf.flows.fit_flow(
        [mf.Discrete.dirac(a) for a in c], x, y, heads=2, depth=ONE, key=KEY, optimization=optimization
    )
    layer = found.velocity[0]
    np.testing.assert_allclose(np.einsum("hoe,hed->od", layer.W, layer.V), M.T, atol=1e-4)
    # not undercut, and reached
    assert best * (1 - 1e-12) <= found.loss < best * (1 + 1e-6)
    assert found.stopped == "gradient"
    assert found.losses[0] == pytest.approx(((x - y) ** 2).sum(axis=1).mean(), rel=1e-14)


@pytest.mark.parametrize("solver", ["euler", "rk4"])
def test_the_loss_is_that_of_the_map_that_flow_gives(solver: Any) -> None:
    # kills: a training whose network is not the flow, layers in another order, padded queries that count
    contexts, points, targets = data()
    optimization, depth = plain(3, "sgd", rate=0.1), Depth(2, solver, 3)
    found = mf.flows.fit_flow(contexts, points, targets, heads=2, depth=depth, key=KEY, optimization=optimization)
    assert found.losses[-1] < found.losses[0]

    def mean(T: Any) -> float:
        ends = [np.asarray(T(mu, x)) for mu, x in zip(contexts, points, strict=True)]
        return float(((np.concatenate(ends) - np.concatenate(targets)) ** 2).sum(axis=1).mean())

    assert mean(found.map) == pytest.approx(found.loss, rel=1e-12)
    if solver == "rk4":
        again = mf.flow(found.velocity, contexts[0], [0.0, 1.0], solver=solver, steps=6).map(1.0)
        assert mean(again) == pytest.approx(found.loss, rel=1e-12)


@pytest.mark.parametrize("depth", [Depth(2, "euler"), Depth(2, steps=2)], ids=["euler", "rk4"])
def test_gradients_agree_with_finite_differences(depth: Depth) -> None:
    parameters, problem = stack(), fit._problem(*data())
    slope = eqx.filter_jit(jax.grad(_training.loss))(parameters, problem, depth)
    rng, h = np.random.default_rng(1), 1e-5
    for name in Stack._fields:
        direction = rng.normal(size=getattr(parameters, name).shape)
        ends = [
            float(loss_of(parameters._replace(**{name: getattr(parameters, name) + s * direction}), problem, depth))
            for s in (h, -h)
        ]
        assert np.vdot(direction, getattr(slope, name)) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-7)


def test_a_head_that_is_switched_off_stays_so() -> None:
    # claims train networks of fewer heads in the arrays of those with more
    start = _training.resting(KEY, DIM, 2, 1)
    start.V[:, 1] = 0
    problem, optimization = fit._problem(*data()), plain()
    state = loop.started(jax.tree.map(jax.numpy.asarray, start), optimization)
    for _ in range(3):
        state, _ = eqx.filter_jit(loop.updated)(
            state, _training.FlowLoss(problem, Depth(2, "euler")), optimization, KEY
        )
    assert not np.asarray(state.weights.V[:, 1]).any()
    assert not np.asarray(state.weights.W[:, 1]).any()
    assert np.asarray(state.weights.W[:, 0]).any()


# --- laws ------------------------------------------------------------------------------------------------------------


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_the_loss_is_a_function_of_the_measures(seed: int) -> None:
    contexts, points, targets = data(seed)
    plain = loss(contexts, points, targets, ONE)
    rng = np.random.default_rng(seed)

    def changed(mu: mf.Discrete, how: str) -> mf.Discrete:
        rows, weights = np.asarray(mu.points), np.asarray(mu.weights)
        if how == "permuted":
            order = rng.permutation(mu.n)
            return mf.Discrete.weighted(rows[order], weights[order])
        if how == "passive tokens":
            more = np.concatenate([rows, 3 * rng.normal(size=(2, DIM))])
            return mf.Discrete.weighted(more, np.r_[weights, 0.0, 0.0])
        if how == "an atom split":
            parts = np.r_[weights, 0.7 * weights[0]]
            parts[0] *= 0.3
            return mf.Discrete.weighted(np.concatenate([rows, rows[:1]]), parts)
        return 5.0 * mu

    for how in ("permuted", "passive tokens", "an atom split", "mass"):
        other = [changed(mu, how) for mu in contexts]
        assert loss(other, points, targets, ONE) == pytest.approx(plain, rel=1e-12), how
    # the laws can fail: repeating one atom in full is another measure
    heavier = [mu + mf.Discrete.weighted(mu.points[:1], mu.weights[:1]) for mu in contexts]
    assert abs(loss(heavier, points, targets, ONE) - plain) > 1e-9 * plain


def test_the_order_of_the_data_and_the_way_queries_are_grouped_do_not_matter() -> None:
    contexts, points, targets = data()
    plain = loss(contexts, points, targets, ONE)
    assert loss(contexts[::-1], points[::-1], targets[::-1], ONE) == pytest.approx(plain, rel=1e-12)
    # contexts[1] has two queries: the same context twice with one query each; kills a mean over contexts
    apart = (
        [*contexts, contexts[1]],
        [points[0], points[1][0], points[2], points[1][1]],
        [targets[0], targets[1][0], targets[2], targets[1][1]],
    )
    assert loss(*apart, ONE) == pytest.approx(plain, rel=1e-12)


def test_one_context_and_one_point_with_two_targets_have_a_floor() -> None:
    # the mean of |T − y₁|² and |T − y₂|² is least at T = (y₁ + y₂)/2, where it is |y₁ − y₂|²/4
    mu, x = data()[0][2], np.array([0.3, -0.2])
    y = np.array([[0.5, 0.1], [-0.3, 0.4]])
    floor = ((y[0] - y[1]) ** 2).sum() / 4
    found = mf.flows.fit_flow([mu, mu], [x, x], y, heads=2, depth=2, key=KEY, optimization=plain(300))
    assert floor * (1 - 1e-12) <= found.loss < floor * (1 + 1e-6)
    assert found.losses.min() >= floor * (1 - 1e-12)
    np.testing.assert_allclose(found.map(mu, x), y.mean(axis=0), atol=1e-3)


def test_single_precision_stays_single() -> None:
    contexts, points, targets = data()
    narrow = [mf.Discrete.weighted(*(np.asarray(a, np.float32) for a in (mu.points, mu.weights))) for mu in contexts]
    queries = [[np.asarray(a, np.float32) for a in group] for group in (points, targets)]
    found = mf.flows.fit_flow(narrow, *queries, heads=1, depth=ONE, key=KEY, optimization=SHORT)
    assert {leaf.dtype for leaf in floats((found.velocity, found.losses)) if leaf.ndim} == {np.dtype(np.float32)}


def test_other_data_of_other_sizes_compile_nothing() -> None:
    other = jax.random.key(1)
    mf.flows.fit_flow(*data(), heads=1, depth=ONE, key=KEY, optimization=SHORT)
    contexts, points, targets = data(1)
    larger = [mf.Discrete.uniform(np.concatenate([mu.points, mu.points[:1] + 1])) for mu in contexts]
    assert not count_compilations(
        lambda: mf.flows.fit_flow(larger, points, targets, heads=1, depth=ONE, key=other, optimization=SHORT)
    )


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["adam", "sgd"])
def test_an_interrupted_training_ends_with_the_same_bits(
    method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimization = plain(30, method, tol=1e-30)
    options: dict[str, Any] = {"heads": 2, "depth": Depth(2, "euler"), "key": KEY, "optimization": optimization}
    whole = mf.flows.fit_flow(*data(), **options)
    assert len(whole.losses) == 31

    # Ctrl-C after the first state is on the disk, in the middle of the work
    chunk, calls = loop._chunk, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return chunk(*arguments)

    monkeypatch.setattr(loop, "_chunk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mf.flows.fit_flow(*data(), **options, save=tmp_path / "run")
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["problem.json", "state.safetensors"]
    resumed = mf.flows.fit_flow(*data(), **options, save=tmp_path / "run")
    assert same_bits(whole, resumed)
    # once more: nothing is left to do, and the answer is the same
    assert same_bits(whole, mf.flows.fit_flow(*data(), **options, save=str(tmp_path / "run")))


def test_more_steps_go_on_from_a_finished_training(tmp_path: Path) -> None:
    def run(steps: int, save: Any) -> mf.flows.fit.FlowFit:
        optimization = plain(steps, "sgd", tol=1e-30)
        return mf.flows.fit_flow(*data(), heads=2, depth=ONE, key=KEY, optimization=optimization, save=save)

    run(9, tmp_path)
    assert same_bits(run(23, tmp_path), run(23, None))


def test_a_killed_process_leaves_a_state_to_go_on_from(tmp_path: Path) -> None:
    program = """
import os, sys, jax, numpy as np, measureformer as mf
from measureformer.training import loop
rng = np.random.default_rng(0)
mu = [mf.Discrete.uniform(rng.normal(size=(3, 2))) for _ in range(3)]
x, y = rng.normal(size=(2, 3, 2))
optimization, depth = mf.Optimization(steps=40), mf.flows.Depth(1, "euler")
def trained(save):
    key = jax.random.key(0)
    return mf.flows.fit_flow(mu, x, y, heads=1, depth=depth, key=key, optimization=optimization, save=save).losses
if sys.argv[1] == "die":
    chunk, calls = loop._chunk, []
    def dying(*arguments):
        calls.append(1)
        return os._exit(9) if len(calls) == 3 else chunk(*arguments)
    loop._chunk = dying
cut = trained(sys.argv[2])
print(len(cut), cut.tobytes() == trained(None).tobytes())
"""

    def run(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, how, str(tmp_path / "cut")]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert run("die").returncode == 9
    assert (tmp_path / "cut" / "state.safetensors").exists()
    again = run("live")
    assert again.stdout.split() == ["41", "True"], again.stderr


# --- refusals --------------------------------------------------------------------------------------------------------

MU = mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.0]])
X = [0.0, 0.0]
BAD: dict[str, tuple[tuple[Any, Any, Any], type[Exception], str]] = {
    "no data": (([], [], []), errors.ShapeError, "at least one"),
    "counts": (([MU, MU], [X], [X, X]), errors.ShapeError, "2 contexts, 1 points and 2 targets"),
    "queries": (([MU], [[X, X]], [[X]]), errors.ShapeError, "a target for each point"),
    "one measure": ((MU, [X], [X]), errors.DtypeError, "need a sequence"),
    "no measure": (([np.zeros((2, 2))], [X], [X]), errors.DtypeError, "mf.Discrete.uniform"),
    "continuous": (([mf.Gaussian(X, np.eye(2))], [X], [X]), errors.NoClosedFormError, r"\.sample\(key, n\)"),
    "targets": (([MU], [X], [[0.0, 0.0, 0.0]]), errors.DimensionMismatchError, "targets in R\\^3 at k = 0"),
    "points": (([MU], [[0.0]], [X]), errors.DimensionMismatchError, "points in R\\^1"),
    "contexts": (([MU, mf.Discrete.dirac([0.0])], [X, [0.0]], [X, [0.0]]), errors.DimensionMismatchError, "after"),
    "nan target": (([MU], [X], [[0.0, np.nan]]), errors.NotFiniteError, "targets\\[0\\]"),
    "nan point": (([MU], [[np.inf, 0.0]], [X]), errors.NotFiniteError, "points\\[0\\]"),
    "axes": (([MU], [[[X]]], [[[X]]]), errors.ShapeError, "points\\[0\\] of shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_are_refused(case: str) -> None:
    given_data, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        mf.flows.fit_flow(*given_data, heads=1, depth=1, key=KEY)


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 0},
        {"method": "newton"},
        {"rate": -1.0},
        {"tol": 0.0},
        {"tol": np.nan},
    ],
    ids=str,
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((errors.OptionError, errors.NotFiniteError)):
        Optimization(**options)


@pytest.mark.parametrize("options", [{"solver": "heun"}, {"solver": "tsit5"}, {"pieces": 0}, {"steps": 0}], ids=str)
def test_a_bad_depth_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.OptionError):
        Depth(**{"pieces": 1, **options})


def test_a_key_and_whole_numbers_are_needed() -> None:
    with pytest.raises(errors.DtypeError, match=r"jax\.random\.key"):
        mf.flows.fit_flow([MU], [X], [X], heads=1, depth=1, key=0)
    for sizes in ({"heads": 0, "depth": 1}, {"heads": 1, "depth": 0}):
        with pytest.raises(errors.OptionError):
            mf.flows.fit_flow([MU], [X], [X], key=KEY, **sizes)


def test_a_trace_is_refused() -> None:
    with pytest.raises(errors.TracedError):
        jax.jit(lambda y: mf.flows.fit_flow([MU], [X], [y], heads=1, depth=1, key=KEY).loss)(np.zeros(2))


def test_a_folder_of_another_problem_is_refused(tmp_path: Path) -> None:
    def run(
        contexts: Any = (MU,), heads: int = 1, key: Any = KEY, optimization: Optimization = SHORT, depth: Any = ONE
    ) -> Any:
        one = [[0.1, 0.3]]
        return mf.flows.fit_flow(
            contexts, [X], one, heads=heads, depth=depth, key=key, optimization=optimization, save=tmp_path
        )

    run()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = mf.Discrete.uniform([[0.0, 1.0], [1.0, 1e-9]])
    for change in (
        {"contexts": [other]},
        {"heads": 2},
        {"key": jax.random.key(1)},
        {"depth": Depth(1, "euler", 2)},
    ):
        with pytest.raises(errors.SavedRunError, match="another run"):
            run(**change)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    state = tmp_path / "state.safetensors"
    for damage in (state.read_bytes()[:-5], b"", b"nonsense" * 40):
        state.write_bytes(damage)
        with pytest.raises(errors.SavedRunError, match=r"state\.safetensors"):
            run()
    (tmp_path / "problem.json").write_text("[")
    with pytest.raises(errors.SavedRunError, match=r"problem\.json"):
        run()


def test_a_loss_that_overflows_is_named_with_the_last_good_layers() -> None:
    contexts, points, targets = data()
    optimization = plain(200, "sgd", rate=1e6)
    with pytest.raises(errors.TrainingError, match="not finite after") as caught:
        mf.flows.fit_flow(
            contexts, points, targets, heads=1, depth=Depth(2, "euler", 4), key=KEY, optimization=optimization
        )
    last = caught.value.last
    assert len(last) == 2
    assert all(np.isfinite(leaf).all() for leaf in floats(last))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert len(again.last) == 2


def test_nothing_is_trained_where_the_targets_are_met() -> None:
    found = mf.flows.fit_flow([MU], [X], [X], heads=1, depth=ONE, key=KEY, optimization=SHORT)
    assert (found.stopped, found.converged, found.losses.tolist()) == ("loss", True, [0.0])
