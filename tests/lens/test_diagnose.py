"""What the lens measures: each number against a brute-force computation, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import measureformer as mf
from lens_reference import folder, stored
from measureformer.errors import OptionError, SavedRunError
from measureformer.lens.columns import COLUMNS, Look, one_head
from measureformer.lens.diagnose import identity
from measureformer.lens.figures import figures
from measureformer.lens.measure_laws import laws
from measureformer.lens.separation import separation
from measureformer.lens.sweep import fit_exponent, lengths_up_to, sampling_errors, starts
from measureformer.storage.fingerprint import fingerprint


@pytest.fixture(scope="module")
def model() -> Any:
    return mf.lens.load(stored("llama").weights, config=stored("llama").config)


@pytest.fixture(scope="module")
def look(model: Any) -> Look:
    return Look(model.trace(stored("llama").given["ids"])[1])


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_attention_statistics_are_those_of_the_whole_matrix(look: Look) -> None:
    heads = look.step.heads
    q, k, v = (np.asarray(part, np.float64) for part in (heads.q, heads.k, heads.v))
    n = q.shape[1]
    causal = np.tri(n, dtype=bool)
    P = softmax(np.where(causal, np.einsum("hmk,hnk->hmn", q, k), -np.inf))
    entropy = -(P * np.log(np.where(P > 0, P, 1))).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(COLUMNS["entropy"].of(look), entropy, atol=1e-5)
    held = [[1 + (np.cumsum(np.sort(row)[::-1]) < 0.9).sum() for row in head] for head in P]
    np.testing.assert_allclose(COLUMNS["k90"].of(look), np.mean(held, axis=1), atol=1e-5)
    np.testing.assert_allclose(COLUMNS["first"].of(look), P[:, :, 0].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(COLUMNS["own"].of(look), np.diagonal(P, axis1=1, axis2=2).mean(axis=1), atol=1e-5)
    # the closure, token by token: mean + covariance of values and keys times the query
    errors = []
    for h in range(len(q)):
        wrong, size = 0.0, 0.0
        for i in range(n):
            keys, values = k[h, : i + 1], v[h, : i + 1]
            cov = (values - values.mean(0)).T @ (keys - keys.mean(0)) / (i + 1)
            out = P[h, i, : i + 1] @ values
            wrong += ((out - values.mean(0) - cov @ q[h, i]) ** 2).sum()
            size += ((out - values.mean(0)) ** 2).sum()
        errors.append(np.sqrt(wrong / size))
    np.testing.assert_allclose(COLUMNS["closure"].of(look), errors, rtol=1e-4)


def test_spectra_are_those_of_the_large_matrices(look: Look) -> None:
    A, VO = (np.asarray(part, np.float64) for part in (look.step.A, look.step.VO))
    for h in range(len(A)):
        top = np.linalg.eigvals(VO[h]).real
        # VO has more eigenvalues, but the others are zero
        assert max(look.small.vo_top[h], 0) == pytest.approx(top.max(), abs=1e-5)
        assert min(look.small.vo_bottom[h], 0) == pytest.approx(top.min(), abs=1e-5)
        sign = np.trace(VO[h]) / np.linalg.svd(VO[h], compute_uv=False).sum()
        assert look.small.vo_sign[h] == pytest.approx(sign, abs=1e-5)
        sign = np.trace(A[h]) / np.linalg.svd(A[h], compute_uv=False).sum()
        assert look.small.a_sign[h] == pytest.approx(sign, abs=1e-5)
        symmetric = np.linalg.norm(A[h] + A[h].T) ** 2 / 4 / np.linalg.norm(A[h]) ** 2
        assert look.small.a_symmetric[h] == pytest.approx(symmetric, abs=1e-5)


def test_geometry_of_a_known_cloud(look: Look) -> None:
    cloud = mf.Discrete.uniform(np.repeat([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]], 5, axis=0))
    known = Look(mf.lens.trace.Step(0, look.step.block, cloud, cloud, cloud))
    # two clusters of five at right angles: 20 pairs of 45 have cosine 1
    expected = {"clusters": 2, "cosine": 20 / 45, "rank": 1.0, "top": 1.0, "size": np.sqrt(12.5), "transport": 0.0}
    for name, value in expected.items():
        assert COLUMNS[name].of(known) == pytest.approx(value, abs=1e-12), name
    # a token per time: the displacement is the distance conditioned on time, and W_2 is at most that
    assert 0 < COLUMNS["transport"].of(look) <= COLUMNS["moved"].of(look) + 1e-9


def test_heads_add_up_one_by_one(look: Look) -> None:
    parts = [np.asarray(mf.Causal(one_head(look.heads, h)).push(look.seen).points) for h in range(4)]
    np.testing.assert_allclose(np.stack(parts), look.step.heads.contributions, atol=2e-6)


def test_classes_of_heads_are_those_of_memories() -> None:
    # MiniLM has biases; without them the heads are those that `mf.memory.head_class` knows
    drawn = stored("bert")
    weights = {name: 0 * array if name.endswith("query.bias") else array for name, array in drawn.weights.items()}
    step = mf.lens.load(weights, config=drawn.config).trace(drawn.given["ids"])[0]
    heads = step.block.heads
    plain = mf.Attention(5 * heads.Q, heads.K, heads.V, heads.W, scale=heads.scale)
    sharper = eqx.tree_at(lambda block: block.attention.inner.Q, step.block, 5 * heads.Q)
    look = Look(mf.lens.trace.Step(0, sharper, step.before, step.middle, step.after))
    expected = mf.memory.head_class(plain, step.seen)
    np.testing.assert_allclose(look.needed, expected.share, rtol=1e-3)
    assert [("I", "II", "III", "IV")[int(c) - 1] for c in COLUMNS["class"].of(look)] == list(expected.classes)


def test_separation_is_the_share_of_the_largest_margin() -> None:
    first, second = np.eye(2)
    # one query: the best matrix is that of the direction in which its two keys differ
    keys = np.array([[1.0, 0.0], [0.0, 10.0]])
    assert separation(np.eye(2), keys) == pytest.approx(10 / np.sqrt(101) / np.sqrt(2))
    # keys on both axes and queries along them: margins force both diagonal entries, and the identity is the best
    q = np.array([first, first, first, second, second])
    k = np.array([first, second, -first, -second, 10 * first])
    assert separation(q[:4], k[:4]) == pytest.approx(1.0)
    # a key of the future does not count; seen by all, it is what the first query selects
    assert separation(q, k, np.array([0.0, 0, 0, 0, 1])) == pytest.approx(1.0)
    assert separation(q, k) < 0.9


def test_drawn_contexts_have_the_mean_field_rate() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, 4)) for n in (8, 4096, 4096))
    n = [64, 128, 256, 512, 1024]
    fit = fit_exponent(n, sampling_errors(0.5 * q, k, v, n))
    assert fit.exponent == pytest.approx(-0.5, abs=0.08)
    # one key that holds everything: no rate before it is drawn
    k[:, 0] = 100 * q[:, 0]
    assert min(sampling_errors(q[:, :1], k, v, n)) > 0.3


def test_laws_of_measures_hold_for_learners_of_tables_and_not_for_texts(model: Any) -> None:
    drawn = stored("tabpfn")
    tables = mf.lens.load(drawn.weights, config=drawn.config)
    changes = laws(tables, mf.lens.Table(**drawn.given))
    assert max(changes.values()) < 1e-4
    # kills: an order or a repetition that reaches no model
    assert min(laws(model, stored("llama").given["ids"]).values()) > 1e-2


def test_a_tied_layer_is_iterated_beyond_its_depth() -> None:
    drawn = stored("albert")
    tied = mf.lens.load(drawn.weights, config=drawn.config)
    found = mf.lens.diagnose(tied, drawn.given["ids"], lipschitz=False, sweeps=False)
    assert len(found.iterated) == 1 + 4 * found.depth
    np.testing.assert_allclose(found.iterated[1 : found.depth + 1], found.column("cosine"), atol=1e-5)
    assert "iterated" in figures(found)
    said = " ".join(found.sentences())
    assert "iterated" in said
    assert f"Of {found.column('class').size} heads" in said
    assert f"{(found.column('attraction') > 0).sum()} attract" in said
    assert "stretches" not in said  # what was not measured is not told
    # the control is another model, and the spectrum that of the cloud
    assert np.abs(found.column("cosine") - found.column("cosine", control=True)).max() > 1e-3
    assert found.column("class", control=True).shape == found.column("class").shape
    spectrum = np.array(found.spectra[-1])
    cloud = np.asarray(tied.trace(drawn.given["ids"]).measures[-1].points, np.float64)
    np.testing.assert_allclose(spectrum.sum(), np.trace(np.cov(cloud.T, bias=True)), rtol=1e-4)


def test_exponents_are_recovered_with_their_intervals() -> None:
    n = np.array([8, 16, 32, 64, 128] * 3)
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        found = fit_exponent(list(n), list(3 * n**0.25 * np.exp(0.1 * rng.normal(size=len(n)))))
        inside += found.low <= 0.25 <= found.high
    # 190 expected, with a standard deviation of 3.1
    assert 174 <= inside <= 200
    exact = fit_exponent([8, 16, 32], [2 * 8**0.5, 2 * 16**0.5, 2 * 32**0.5])
    assert (exact.exponent, exact.factor) == (pytest.approx(0.5), pytest.approx(2.0))
    assert np.isnan(fit_exponent([8, 8, 8], [1.0, 2.0, 3.0]).exponent)
    assert lengths_up_to(40) == [8, 16, 32, 40]
    assert starts(40, 8, 3) == [0, 16, 32]
    assert starts(40, 40, 3) == [0]


def test_an_interrupted_run_goes_on(model: Any, tmp_path: Path) -> None:
    ids = stored("llama").given["ids"]
    first = mf.lens.diagnose(model, ids, lipschitz=False, save=tmp_path)
    kept = tmp_path / "layer-001.json"
    row = json.loads(kept.read_text())
    row["value"]["layer"]["rank"] = 123.0
    # sealed again: otherwise it would count as damaged
    kept.write_text(json.dumps(row | {"sha256": fingerprint(json.dumps(row["value"]))}))
    (tmp_path / "layer-000.json").write_text("{")  # cut off in the middle: measured again
    again = mf.lens.diagnose(model, ids, lipschitz=False, save=tmp_path)
    assert again.column("rank").tolist() == [first.column("rank")[0], 123.0]
    assert (again.laws, again.sensitivity, again.control) == (first.laws, first.sensitivity, first.control)


def test_a_folder_of_another_model_text_or_setting_is_refused(tmp_path: Path) -> None:
    drawn = stored("gpt2")
    weights = {name: np.array(array) for name, array in drawn.weights.items()}
    ids, options = drawn.given["ids"], {"lipschitz": False, "sweeps": False, "save": tmp_path}
    load = lambda config=drawn.config: mf.lens.load(weights, config=config)  # noqa: E731
    mf.lens.diagnose(load(), ids, **options)
    name = next(name for name, array in weights.items() if array.ndim == 2 and "attn" in name)
    # the last bit of one entry of a matrix: kills fingerprints of a part of the weights, such as norms and biases
    weights[name].view(np.uint32)[-1, -1] ^= 1
    with pytest.raises(SavedRunError, match="other weights"):
        mf.lens.diagnose(load(), ids, **options)
    weights[name].view(np.uint32)[-1, -1] ^= 1
    mf.lens.diagnose(load(), ids, **options)
    for changed, words in [
        (lambda: mf.lens.diagnose(load(), ids[:-1], **options), "other text"),
        (lambda: mf.lens.diagnose(load(drawn.config | {"layer_norm_epsilon": 1e-3}), ids, **options), "other config"),
        (lambda: mf.lens.diagnose(load(), ids, **options | {"sweeps": True}), "sweeps False there, True here"),
    ]:
        with pytest.raises(SavedRunError, match=words):
            changed()


def test_the_tokenizer_counts_in_the_fingerprint(tmp_path: Path) -> None:
    where = folder(tmp_path, "gpt2")
    model, ids = mf.lens.load(where), np.arange(4)
    (where / "tokenizer.json").write_text("one")
    first = identity(model, ids)
    (where / "tokenizer.json").write_text("two")
    assert {name for name, value in identity(model, ids).items() if first[name] != value} == {"tokenizer"}


def test_a_table_is_diagnosed_too() -> None:
    drawn = stored("tabpfn")
    model = mf.lens.load(drawn.weights, config=drawn.config)
    found = mf.lens.diagnose(model, mf.lens.Table(**drawn.given), lipschitz=False)
    assert found.tokens == 9
    assert found.column("entropy").shape == (3, 2)
    assert found.sensitivity == []
    assert json.loads(found.to_json())["family"] == "TabPFN"
    with pytest.raises(OptionError, match=r"the column 'entrop'.*Did you mean entropy"):
        found.column("entrop")


def test_lipschitz_constants_of_layers_and_heads_are_bracketed() -> None:
    small, text = mf.lens.untrained(jax.random.key(1), dim=8, depth=2, heads=4), list(range(3, 43))
    found = mf.lens.diagnose(small, text)
    for lower, upper in (("lower", "upper"), ("head_lower", "head_upper"), ("layer_lower", "layer_upper")):
        assert (found.column(lower) > 0).all()
        assert (found.column(lower) <= found.column(upper)).all()
    # heads are measured in the six coordinates of eight that they see: the constants are those of all of them
    # kills: rows of K left out, coordinates that are not orthonormal, the factor of W forgotten
    step = next(iter(small.steps(text)))
    whole = mf.local_lipschitz(mf.Causal(one_head(step.block.heads, 1)), step.seen, tol=1e-2)
    assert found.column("head_lower")[0, 1] == pytest.approx(whole.lower, rel=1e-3)
    assert found.column("head_upper")[0, 1] == pytest.approx(whole.upper, rel=1e-3)
    # heads add up: no layer is above the sum of its heads
    assert (found.column("lower") <= found.column("head_upper").sum(axis=1)).all()
    assert set(found.exponents()) == {0, 1}
    assert found.sweep is not None
    assert found.sweep["lengths"][-1] == 40
    # the longest piece is the whole text: the sweep ends where the layer begins
    assert found.sweep["constants"]["0"][-1] == pytest.approx(found.column("lower")[0], rel=5e-3)
    # a share of the largest margin
    parts = found.column("separation")
    assert ((parts > 0) & (parts <= 1 + 1e-9)).all()
    assert any("changes like n^" in sentence for sentence in found.sentences())
