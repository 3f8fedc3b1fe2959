"""Models: equal to the library's own maps, laws of measures, what they refuse; what is watched in training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer import errors
from measureformer.incontext import InContextModel, LanguageModel, tasks
from measureformer.incontext import observe as _observe
from measureformer.incontext.measure_laws import answers_after
from measureformer.incontext.models import Reading, sequence_measure, sequence_tokens
from measureformer.incontext.observe import head_matrices
from measureformer.numerics.random import two_keys

KEY = jax.random.key(0)
SIZES = mf.Architecture(width=8, layers=2, heads=2, hidden=12, branch=0.7)
N = 5


def perturbed(model: Any) -> Any:
    """Away from the start, where biases are 0 and gains 1."""
    rng = np.random.default_rng(0)
    # in NumPy: sums of eager JAX would be compiled for every shape
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf) + 0.2 * rng.normal(size=leaf.shape)), model)


@pytest.fixture(scope="module")
def models() -> dict[str, InContextModel]:
    def make(reading: Reading, points: int | None) -> InContextModel:
        made = InContextModel.random(KEY, 3, SIZES, points=points, reading=reading, dtype=np.float64)
        return perturbed(made)

    return {"positions": make("sequence", N), "sequence": make("sequence", None), "measure": make("measure", None)}


@pytest.fixture(scope="module")
def prompts() -> Any:
    return tasks.linear(3).sample(KEY, 2, N)


@pytest.mark.parametrize("name", ["positions", "sequence"])
def test_a_sequence_model_is_a_causal_map_on_space_time(name: str, models: Any, prompts: Any) -> None:
    # kills: biases left out, heads in another order, a mask that sees the label, the wrong GELU
    model = models[name]
    fast = np.asarray(model.predictions(prompts.x, prompts.y))
    sigma = sequence_measure(prompts.x[1], prompts.y[1])
    slow = np.asarray(model.map.push(sigma).points)[::2, 0]
    np.testing.assert_allclose(fast[1], slow, atol=1e-12)
    # the prediction after i examples does not see what comes later
    changed = np.asarray(model.predictions(prompts.x, jnp.asarray(prompts.y).at[:, 2].add(1.0)))
    np.testing.assert_array_equal(changed[:, :3], fast[:, :3])
    assert np.abs(changed[:, 3:] - fast[:, 3:]).min() > 1e-6


def test_a_measure_model_is_an_in_context_map(models: Any, prompts: Any) -> None:
    model = models["measure"]
    x, y = np.asarray(prompts.x), np.asarray(prompts.y)
    fast = np.asarray(model.predictions(x, y))
    assert (fast[:, 0] == 0).all()
    for k in (1, 4):
        mu = mf.incontext.examples_measure(x[0, :k], y[0, :k])
        np.testing.assert_allclose(model.map(mu, np.r_[x[0, k], 0, 0])[0], fast[0, k], atol=1e-12)
    # weights too; splitting one example changes nothing, while ignoring weights would
    log_weights = np.log(np.array([[0.1, 0.2, 0.3, 0.4]] * 2))
    weighted = np.asarray(model.at(x[:, :4], y[:, :4], log_weights, x[:, 4:]))
    mu = mf.incontext.examples_measure(x[0, :4], y[0, :4], np.exp(log_weights[0]))
    np.testing.assert_allclose(model.map(mu, np.r_[x[0, 4], 0, 0])[0], weighted[0, 0], atol=1e-12)
    assert abs(weighted[0, 0] - fast[0, 4]) > 1e-6


def test_positions_break_the_laws_of_measures(models: Any) -> None:
    task = tasks.linear(3)
    laws = {
        name: mf.incontext.measure_laws(models[name], task, KEY, examples=2, doublings=1, prompts=16)
        for name in ("measure", "positions")
    }
    assert laws["measure"].permuted < 1e-12
    assert laws["measure"].repeated < 1e-12
    assert laws["positions"].permuted > 1e-4
    assert laws["positions"].repeated > 1e-4
    assert laws["measure"].examples.tolist() == [2.0, 4.0]
    # a smooth map: the slope has a limit
    slopes = laws["measure"].slopes
    assert slopes[2] == pytest.approx(slopes[1], rel=0.2)
    with pytest.raises(errors.DimensionMismatchError, match="positions for 5"):
        mf.incontext.measure_laws(models["positions"], task, KEY, examples=3)


@pytest.mark.parametrize("name", ["measure", "positions"])
def test_answers_of_padded_prompts_are_those_of_the_map(name: str, models: Any, prompts: Any) -> None:
    # kills: a padded example that is seen, a question that stands in another place
    model, x, y = models[name], np.asarray(prompts.x), np.asarray(prompts.y)
    for count in (1, 3):
        found = np.asarray(answers_after(model, x[:, :4], y[:, :4], x[:, 4], np.asarray(count)))
        asked = np.concatenate([x[:, :count], x[:, 4:]], axis=1)
        direct = np.asarray(model.predictions(asked, y[:, : count + 1]))[:, -1]
        np.testing.assert_allclose(found, direct, atol=1e-12)


def test_error_curves_of_models(models: Any) -> None:
    task = tasks.linear(3)
    drawn = task.sample(two_keys(KEY)[0], 40, N)
    for name in ("positions", "measure"):
        curve = mf.incontext.error_curve(models[name], task, KEY, points=N, prompts=40)
        found = np.asarray(models[name].predictions(drawn.x, drawn.y))
        expected = ((found - np.asarray(drawn.y)) ** 2).mean(axis=0) / 3
        np.testing.assert_allclose(curve.error[1:], expected[1:], rtol=1e-10)
        # no measure without an example
        assert np.isnan(curve.error[0]) == (name == "measure")


def test_a_prompt_of_one_example_asks_once(models: Any) -> None:
    x, y = np.ones((2, 1, 3)), np.ones((2, 1))
    for name in ("positions", "measure"):
        assert models[name].predictions(x, y).shape == (2, 1)


def test_questions_that_are_no_examples(models: Any, prompts: Any) -> None:
    x, y = np.asarray(prompts.x), np.asarray(prompts.y)
    for name in ("positions", "measure"):
        # asking the examples themselves is what `predictions` does
        np.testing.assert_allclose(models[name].answers(x, y, x), models[name].predictions(x, y), atol=1e-12)
        other = np.asarray(models[name].answers(x, y, x + 1))
        mu_x = x.copy()
        mu_x[:, 3] = x[:, 3] + 1
        np.testing.assert_allclose(other[:, 3], models[name].predictions(mu_x, y)[:, 3], atol=1e-12)


def test_a_language_model_is_a_causal_map() -> None:
    net = perturbed(LanguageModel.random(KEY, mf.Architecture(8, 1, 2), vocabulary=5, context=6, dtype=np.float64))
    tokens = np.array([[0, 3, 1, 4]])
    logits = np.asarray(net.logits(tokens))[0]
    sigma = mf.SpaceTime.uniform(np.eye(5)[tokens[0]], np.arange(4.0))
    np.testing.assert_allclose(net.map.push(sigma).points, logits, atol=1e-12)
    surprise = np.asarray(net.surprise(tokens))[0]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(-surprise), p[np.arange(3), tokens[0, 1:]], rtol=1e-12)
    assert net.parameters == sum(leaf.size for leaf in jax.tree.leaves(net))
    bare = mf.Architecture(8, 1, 2, norm="none", branch=0.5)
    plain = perturbed(LanguageModel.random(KEY, bare, vocabulary=5, context=6, dtype=np.float64))
    np.testing.assert_allclose(plain.map.push(sigma).points, plain.logits(tokens)[0], atol=1e-12)


def test_the_structure_of_heads_is_that_of_the_maps(models: Any) -> None:
    model = models["measure"]
    A, values = _observe.logit_matrices(model.blocks, model.architecture)
    attention = model.map.layers[1].map.maps[1]  # Linear ⋄ Attention ⋄ lift ⋄ LayerNorm
    assert isinstance(attention, mf.Attention)
    gain = np.asarray(model.blocks.norm_1)[0, 0]
    np.testing.assert_allclose(A[0], np.asarray(attention.A)[:, :8, :8] * gain[:, None] * gain, atol=1e-12)
    product = np.einsum("hoe,hed->hod", attention.W, attention.V)[:, :, :8] * gain
    np.testing.assert_allclose(values[0], product, atol=1e-12)
    found = head_matrices(model)
    whole = np.sqrt((A**2).sum(axis=(2, 3)))
    np.testing.assert_allclose(found.symmetric**2 + found.antisymmetric**2, whole**2, rtol=1e-12)
    assert (found.stable_rank >= 1).all()
    assert (found.stable_rank <= 4 + 1e-9).all()
    np.testing.assert_allclose(found.eigenvalues.sum(axis=2), np.trace(A, axis1=2, axis2=3), atol=1e-12)


def test_extremes_of_what_is_watched() -> None:
    task, sizes = tasks.linear(2), mf.Architecture(8, 1, 2)
    prompts = task.sample(KEY, 9, 4)
    model = InContextModel.random(KEY, 2, sizes, points=4, dtype=np.float64)
    blank = model.blocks._replace(qkv=model.blocks.qkv.at[:, :, :16].set(0.0))
    uniform = mf.incontext.observables(_with(model, blank), prompts, task)
    # equal weights on all keys that are seen
    np.testing.assert_allclose(uniform["sparsity"], 1, atol=1e-12)
    assert (uniform["norm"] == 0).all()
    assert (uniform["class"] == 1).all()
    sharp = model.blocks._replace(qkv=model.blocks.qkv.at[:, :, :16].multiply(1e3))
    found = mf.incontext.observables(_with(model, sharp), prompts, task)
    assert (found["sparsity"] < 0.5).all()
    np.testing.assert_allclose(found["largest"], 1, atol=1e-6)
    # the error is that of the curve, and the slope that of a finite difference, at least
    direct = ((np.asarray(model.predictions(prompts.x, prompts.y)) - prompts.y) ** 2).mean(axis=0) / 2
    np.testing.assert_allclose(mf.incontext.observables(model, prompts, task)["error"], direct, rtol=1e-10)


def test_what_is_watched_of_a_measure_are_its_questions() -> None:
    # kills: attention of examples, which one layer feeds to nothing that is read, and the slopes of their read-outs
    task, sizes = tasks.linear(2), mf.Architecture(8, 1, 2, norm="none")
    prompts = task.sample(KEY, 1, 3)
    model = perturbed(InContextModel.random(KEY, 2, sizes, reading="measure", dtype=np.float64))
    found = mf.incontext.observables(model, prompts, task)
    # two examples and one question, by hand
    x, y = np.asarray(prompts.x)[0], np.asarray(prompts.y)[0]
    tokens = np.array([[*x[0], y[0], 1.0], [*x[1], y[1], 1.0], [*x[2], 0.0, 0.0]])
    h = tokens @ np.asarray(model.read_in) + np.asarray(model.read_in_bias)
    q, k, _ = np.split(h @ np.asarray(model.blocks.qkv)[0] + np.asarray(model.blocks.qkv_bias)[0], 3, axis=1)
    logits = np.einsum("hk,jhk->hj", q[2].reshape(2, 4), k[:2].reshape(2, 2, 4)) / 2
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["largest"][0], p.max(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found["sparsity"][0], 1 / (p**2).sum(axis=1) / 2, rtol=1e-10)
    # the length of the gradient of one answer, by finite differences of the map
    step, slopes = 1e-6, np.zeros(tokens.shape)
    for place in np.ndindex(tokens.shape):
        moved = [tokens.copy(), tokens.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (float(model.map(mf.Discrete.uniform(rows[:2]), rows[2])[0]) for rows in moved)
        slopes[place] = (up - down) / (2 * step)
    assert float(found["lipschitz"]) == pytest.approx(np.linalg.norm(slopes), rel=1e-6)


def test_the_steepness_of_a_sequence_is_that_of_its_answers() -> None:
    # kills: read-outs at labels, which are no answers
    task = tasks.linear(2)
    prompts = task.sample(KEY, 1, 3)
    model = perturbed(InContextModel.random(KEY, 2, mf.Architecture(8, 1, 2), points=3, dtype=np.float64))
    tokens = sequence_tokens(jnp.asarray(prompts.x), jnp.asarray(prompts.y))[:, :5]
    slope = jax.jit(jax.jacrev(lambda rows: model.scores(rows)[0]))(tokens)
    answers = np.linalg.norm(np.asarray(slope)[::2].reshape(3, -1), ord=2)
    assert np.linalg.norm(np.asarray(slope).reshape(5, -1), ord=2) > 1.01 * answers
    assert float(mf.incontext.observables(model, prompts, task)["lipschitz"]) == pytest.approx(answers, rel=1e-10)


def _with(model: InContextModel, blocks: Any) -> InContextModel:
    import equinox as eqx

    return eqx.tree_at(lambda m: m.blocks, model, blocks)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: mf.Architecture(width=8, heads=3), errors.DimensionMismatchError),
        (lambda: mf.Architecture(width=0), errors.OptionError),
        (lambda: mf.Architecture(hidden=0), errors.OptionError),
        (lambda: mf.Architecture(width=None), errors.DtypeError),  # pyright: ignore[reportArgumentType]
        (lambda: mf.Architecture(norm="batch"), errors.OptionError),  # pyright: ignore[reportArgumentType]
        (lambda: mf.Architecture(branch=-1.0), errors.OptionError),
        (lambda: InContextModel.random(KEY, 3, SIZES, points=4, reading="measure"), errors.OptionError),
        (lambda: InContextModel.random(0, 3, SIZES), errors.DtypeError),
    ],
)
def test_bad_sizes_are_refused(call: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        call()
