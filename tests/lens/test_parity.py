"""Every family against the reference implementation, from stored fixtures; and what a trace is made of."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from lens_reference import FAMILIES, TOLERANCE, Drawn, as_gguf, deviations, folder, stored
from measureformer.errors import (
    CheckpointError,
    FamilyError,
    MeasureformerError,
    NotFiniteError,
    OptionError,
    TextError,
)
from measureformer.lens import parity
from measureformer.lens.checkpoint import Checkpoint
from measureformer.lens.model import BOX

pytest.importorskip("gguf")


def opened(name: str) -> tuple[Drawn, Any, Any]:
    drawn = stored(name)
    given = mf.lens.Table(**drawn.given) if "X" in drawn.given else drawn.given["ids"]
    return drawn, mf.lens.load(drawn.weights, config=drawn.config), given


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_and_logits_are_those_of_the_reference(name: str) -> None:
    # kills: heads cut along the wrong axis, biases or positions left out, the wrong gelu, turning the wrong way
    hidden, logits = deviations(stored(name))
    assert hidden <= TOLERANCE
    # sixteen products of hidden states, each of size one
    assert logits <= 5 * TOLERANCE


@pytest.mark.parametrize("pad", [0, 1, 7])
def test_roberta_does_not_count_padding(pad: int) -> None:
    drawn = stored("roberta")
    ids = np.array([pad, 5, 9, pad, pad, 3, 12, pad])
    mu = mf.lens.load(drawn.weights, config=drawn.config | {"pad_token_id": pad}).embed(ids)
    root = next(name for name in drawn.weights if name.endswith("word_embeddings.weight"))
    root = root.removesuffix("word_embeddings.weight")
    part = lambda name: drawn.weights[root + name].astype(np.float64)  # noqa: E731
    # the reference counts the tokens that are not padding, from pad + 1 on; padding itself is at position pad
    seen, positions = 0, []
    for token in ids:
        seen += token != pad
        positions.append(pad + seen if token != pad else pad)
    x = part("word_embeddings.weight")[ids] + part("position_embeddings.weight")[positions]
    x += part("token_type_embeddings.weight")[0]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + drawn.config["layer_norm_eps"])
    expected = x * part("LayerNorm.weight") + part("LayerNorm.bias")
    np.testing.assert_allclose(mu.points, expected, atol=1e-5)


@pytest.mark.parametrize("pad", [-1, 0.5, "1"])
def test_a_padding_token_that_is_none_is_refused(pad: Any) -> None:
    drawn = stored("roberta")
    with pytest.raises(FamilyError, match=f"pad_token_id = {pad}"):
        mf.lens.load(drawn.weights, config=drawn.config | {"pad_token_id": pad})


def test_what_the_heads_add_is_what_attention_adds() -> None:
    for name in ("gpt2", "bert", "llama3"):
        _, model, given = opened(name)
        step = model.trace(given)[1]
        branch = step.block.attention.branch
        whole = (mf.Causal(branch) if step.block.causal else branch).push(step.before).points
        np.testing.assert_allclose(step.heads.total(), whole, atol=2e-6)
        assert step.heads.contributions.shape == (4, len(given), 16)
        # and the products say the same: a head that sees one token adds VO times it, and the biases
        first = np.asarray(step.VO)[0] @ np.asarray(step.seen.points)[0]
        first = first + np.asarray(step.block.heads.W)[0] @ np.asarray(step.block.heads.v_bias)[0]
        if step.block.causal:
            np.testing.assert_allclose(np.asarray(step.heads.contributions)[0, 0], first, atol=2e-6)
        # log Z by brute force, relative to what is seen
        q, k = np.asarray(step.heads.q, np.float64), np.asarray(step.heads.k, np.float64)
        logits = np.einsum("hmk,hnk->hmn", q, k)
        if step.block.causal:
            logits = np.where(np.tri(len(given), dtype=bool), logits, -np.inf)
        seen = np.arange(1, len(given) + 1) if step.block.causal else len(given)
        expected = np.log(np.exp(logits).sum(axis=2) / seen)
        np.testing.assert_allclose(step.heads.log_normalizers, expected, atol=1e-5)


def test_one_compiled_layer_serves_all_layers_and_lengths() -> None:
    _, model, ids = opened("qwen2")
    model.trace(ids)[0].heads.total()
    other = mf.lens.load(stored("qwen2").weights, config=stored("qwen2").config)
    assert count_compilations(lambda: [other.trace(ids[:n])[1].heads.total() for n in (7, 9)]) == 0


def test_layers_are_maps_like_any_other() -> None:
    _, model, ids = opened("bert")
    layer, mu = model.layers[1], model.embed(ids)
    assert isinstance(mu, mf.Discrete)
    found = mf.local_lipschitz(model.layers.block(1).heads, mu)
    assert 0 < found.lower <= found.upper < np.inf
    # an encoder layer is a map on measures: order and splitting do not matter
    doubled = mu.rows(np.r_[np.arange(mu.n), 0, 0]).with_log_weights(
        jnp.log(jnp.asarray(np.r_[1 / 3, np.ones(mu.n - 1), 1 / 3, 1 / 3].astype(np.float32)))
    )
    np.testing.assert_allclose(layer(doubled, mu.points), layer.push(mu).points, atol=2e-5)
    x = np.asarray(mu.points)[[1]] + 0.1
    np.testing.assert_allclose(mf.recover(layer.push)(mu, x), layer(mu, x), atol=1e-5)  # float32, values of size 2
    moved = mf.flow(layer, mu, [0.0, 0.5], solver="euler", steps=1).measures[-1]
    np.testing.assert_allclose(moved.points, mu.points + 0.5 * layer.push(mu).points, atol=1e-5)
    assert len(model.layers) == 2
    assert [str(part) for part in model.layers] == [str(model.layers[0])] * 2
    assert str(model.layers[-1]) == str(model.layers[0:2][1])
    with pytest.raises(OptionError, match="counted from 0"):
        model.layers.block(2)


def test_a_causal_model_is_a_map_on_space_time() -> None:
    _, model, ids = opened("llama")
    sigma = model.embed(ids)
    assert sigma.times.tolist() == list(range(len(ids)))
    # the future has no influence, and rotary scores do not feel a common shift of the times
    early = model.layers[0].push(model.embed(ids[:5])).points
    np.testing.assert_allclose(model.layers[0].push(sigma).points[:5], early, atol=1e-5)
    shifted = mf.SpaceTime.uniform(np.asarray(sigma.points), np.asarray(sigma.times) + 3)
    np.testing.assert_allclose(model.layers[0].push(shifted).points, model.layers[0].push(sigma).points, atol=1e-5)


def test_tied_layers_are_read_once_and_others_are_forgotten() -> None:
    _, model, _ = opened("albert")
    assert model.anatomy.tied
    assert model.layers.block(0) is model.layers.block(2)
    drawn = stored("gpt2")
    fleeting = mf.lens.load(drawn.weights, config=drawn.config, keep=False)
    assert fleeting.layers.block(0) is not fleeting.layers.block(0)
    steps = list(fleeting.steps(drawn.given["ids"]))
    np.testing.assert_allclose(steps[0].after.points, drawn.hidden[1], atol=TOLERANCE)


def test_the_shuffled_control_keeps_the_numbers_and_loses_the_function() -> None:
    drawn, model, ids = opened("bert")
    control = model.shuffled(3)
    name = "bert.encoder.layer.0.attention.self.query"
    mixed = control.checkpoint.tensor(f"{name}.weight")
    assert sorted(mixed.ravel()) == sorted(drawn.weights[f"{name}.weight"].ravel())
    assert not np.array_equal(mixed, drawn.weights[f"{name}.weight"])
    np.testing.assert_array_equal(control.checkpoint.tensor(f"{name}.bias"), drawn.weights[f"{name}.bias"])
    np.testing.assert_array_equal(model.shuffled(3).checkpoint.tensor(f"{name}.weight"), mixed)
    assert np.abs(np.asarray(control.trace(ids).measures[-1].points) - drawn.hidden[-1]).max() > 0.1


def test_logits_that_overflow_are_refused_by_the_part_that_did_it() -> None:
    drawn = stored("gpt2")
    name = next(name for name in drawn.weights if name.endswith("h.1.mlp.c_proj.weight"))
    model = mf.lens.load(drawn.weights | {name: np.full_like(drawn.weights[name], 3e38)}, config=drawn.config)
    with pytest.raises(NotFiniteError, match="non-finite value of MLP"):
        model.logits(drawn.given["ids"])


def test_gguf_gives_the_same_model(tmp_path: Path) -> None:
    drawn = stored("llama")
    model = mf.lens.load(as_gguf(tmp_path / "tiny.gguf", drawn))
    trace = model.trace(drawn.given["ids"])
    np.testing.assert_allclose(trace.measures[1].points, drawn.hidden[1], atol=TOLERANCE)
    np.testing.assert_allclose(trace.exit().points, drawn.hidden[-1], atol=TOLERANCE)


def test_a_folder_reads_texts(tmp_path: Path) -> None:
    model = mf.lens.load(folder(tmp_path, "gpt2"))
    ids = stored("gpt2").given["ids"]
    text = " ".join(f"w{i}" for i in ids)
    assert model.tokens(text).tolist() == ids.tolist()
    trace = model.trace(text)
    assert trace.words == text.split()
    assert len(trace.measures) == 3
    assert len(trace.halves) == 5
    np.testing.assert_allclose(trace.measures[1].points, stored("gpt2").hidden[1], atol=TOLERANCE)
    np.testing.assert_allclose(model.logits(text, last=True)[0], stored("gpt2").logits[-1], atol=5 * TOLERANCE)
    assert "GPT-2" in repr(model)


def test_texts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = mf.lens.load(folder(tmp_path, "gpt2", words=60))
    for text, words in [
        ("", "empty"),
        (" \n ", "empty"),
        ("w1 \x00", "zero byte"),
        ("w50", "another model"),
        ("w1 " * 25, "24 positions"),
        ([], "no tokens"),
        ([-1], "vocabulary"),
        ([40], "vocabulary"),
        ([0.5], "whole numbers"),
        ([[1]], "whole numbers"),
    ]:
        with pytest.raises(TextError, match=words):
            model.trace(text)
    for raw in (b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"model": {"vocab": {"a": "x", "b": 1}}}'):
        (tmp_path / "tokenizer.json").write_bytes(raw)
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            mf.lens.load(tmp_path).trace("w1")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(TextError, match="without a tokenizer"):
        mf.lens.load(tmp_path).trace("w1")
    _, table, _ = opened("tabpfn")
    with pytest.raises(TextError, match="learner of tables"):
        table.embed("a text")
    with pytest.raises(TextError, match="same features"):
        mf.lens.Table([[0.0]], [1.0], [[0.0, 1.0]])
    with pytest.raises(TextError, match="at most 6"):
        table.embed(mf.lens.Table(np.zeros((2, 7)), [0, 1], np.zeros((1, 7))))


@pytest.mark.parametrize(
    ("name", "changes", "error", "words"),
    [
        ("gpt2", {"model_type": "mamba"}, FamilyError, "known: albert, bert"),
        ("gpt2", {"model_type": None}, FamilyError, 'Add "model_type": "gpt2" to config'),
        ("gpt2", {"n_head": 3}, FamilyError, "divisor"),
        ("gpt2", {"n_head": "4"}, FamilyError, "whole number"),
        ("gpt2", {"n_layer": 5}, CheckpointError, "no tensor h.2|no tensor transformer.h.2"),
        ("gpt2", {"vocab_size": 41}, CheckpointError, "different models"),
        ("gpt2", {"activation_function": "magic"}, FamilyError, "gelu_new"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, FamilyError, "only one that is read"),
        ("bert", {"position_embedding_type": "relative_key"}, FamilyError, "only one that is read"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, FamilyError, "llama3"),
        ("llama", {"num_key_value_heads": 3}, FamilyError, "divisor"),
        ("llama", {"mlp_bias": True}, FamilyError, "only one that is read"),
    ],
)
def test_configurations_that_are_not_followed_are_refused(
    name: str, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    drawn = stored(name)
    with pytest.raises(error, match=words):
        mf.lens.load(drawn.weights, config=drawn.config | changes).trace(drawn.given["ids"])


@pytest.mark.parametrize("name", ["gpt2", "albert", "llama3"])
def test_no_configuration_crashes_a_reader(name: str) -> None:
    drawn = stored(name)
    for key in drawn.config:
        for value in (None, -1, 0, 2**70, 10**400, float("nan"), "x", [], {"rope_type": []}):
            # what is wrong is said, and said before anything is computed
            with contextlib.suppress(MeasureformerError):
                mf.lens.load(drawn.weights, config=drawn.config | {key: value})


@pytest.mark.parametrize("name", FAMILIES)
def test_a_missing_model_type_is_recognised_by_the_tensors(name: str) -> None:
    drawn = stored(name)
    config = {key: value for key, value in drawn.config.items() if key != "model_type"}
    with pytest.raises(FamilyError, match='Add "model_type": ') as refused:
        mf.lens.load(drawn.weights, config=config)
    said = str(refused.value).partition("names of ")[2].partition(";")[0]
    assert drawn.config["model_type"] in said.split(" or ")
    with pytest.raises(FamilyError, match="known: albert"):
        mf.lens.load({"x": np.zeros(1)}, config=config)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module.", "module.module."])
@pytest.mark.parametrize("name", ["gpt2", "tabpfn"])
def test_prefixes_of_torch_modules_are_left_out(name: str, prefix: str) -> None:
    drawn, model, given = opened(name)
    weights = {prefix + key: array for key, array in drawn.weights.items()}
    # a submodule that was compiled has the prefix inside of its name
    inner = {key.replace(".weight", "._orig_mod.weight"): array for key, array in drawn.weights.items()}
    for wrapped in (weights, inner):
        found = mf.lens.load(wrapped, config=drawn.config)
        assert found.checkpoint.names == model.checkpoint.names
        np.testing.assert_array_equal(found.logits(given), model.logits(given))


def test_a_weight_that_is_not_finite_is_named() -> None:
    drawn = stored("gpt2")
    for part, value in (("attn.c_proj.weight", np.nan), ("ln_f.bias", np.inf), ("wte.weight", -np.inf)):
        name = next(key for key in drawn.weights if key.endswith(part))
        broken = np.array(drawn.weights[name])
        broken[3] = value
        model = mf.lens.load(drawn.weights | {name: broken}, config=drawn.config)
        with pytest.raises(CheckpointError, match=f"{broken[3].size} entries of tensor {name}"):
            model.logits([3, 4])


@pytest.mark.parametrize("file", ["vocab.txt", "vocab.json", "tokenizer.model"])
def test_a_tokenizer_in_an_older_format_is_named(tmp_path: Path, file: str) -> None:
    where = folder(tmp_path, "gpt2")
    (where / "tokenizer.json").unlink(missing_ok=True)
    model = mf.lens.load(where)
    for text in (model.tokens, model.tokenized):
        with pytest.raises(TextError, match="Copy it there"):
            text("w1")
    (where / file).write_text("w1")
    for text in (model.tokens, model.tokenized):
        with pytest.raises(TextError, match=rf"which has {file} only.*AutoTokenizer"):
            text("w1")
    assert model.tokens([1, 2]).tolist() == [1, 2]


def test_a_sliding_window_limits_the_context() -> None:
    drawn, model, _ = opened("mistral")
    assert model.anatomy.limit == 32
    with pytest.raises(TextError, match="33 tokens for a model with 32 tokens in its sliding window"):
        model.tokens([3] * 33)
    _, plain, _ = opened("llama")
    with pytest.raises(TextError, match="65 tokens for a model with 64 positions"):
        plain.tokens([3] * 65)
    wide = mf.lens.load(drawn.weights, config=drawn.config | {"sliding_window": None})
    assert wide.anatomy.limit == 64


def test_without_a_path_the_model_in_the_box_is_opened() -> None:
    model = mf.lens.load()
    assert sum(path.stat().st_size for path in BOX.iterdir()) <= 3_000_000
    assert model.anatomy.causal
    # half precision, and what it was trained on: it knows Python's documentation far better than a uniform guess
    text = 'The "try" statement specifies exception handlers and/or cleanup code for a group of statements'
    ids = model.tokens(text)
    logits = np.asarray(model.logits(text), np.float64)
    surprise = np.log(np.exp(logits).sum(axis=1))[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]
    assert surprise.mean() < 1.7 < np.log(model.anatomy.vocabulary) / 2
    # the same function as the chapter that trained it computes
    other = mf.text.load_text(BOX).model.surprise(ids[None])
    np.testing.assert_allclose(np.asarray(other, np.float64)[0], surprise, atol=2e-3)
    assert model.trace(text).words == list(text)
    with pytest.raises(TextError, match="never seen"):
        model.tokens("Größe \u4e16")


def test_an_encoder_without_its_head_predicts_nothing() -> None:
    drawn = stored("bert")
    weights = {name.removeprefix("bert."): value for name, value in drawn.weights.items() if name.startswith("bert.")}
    model = mf.lens.load(weights, config=drawn.config)
    np.testing.assert_allclose(model.trace(drawn.given["ids"]).measures[-1].points, drawn.hidden[-1], atol=TOLERANCE)
    with pytest.raises(FamilyError, match="without a head"):
        model.logits(drawn.given["ids"])


def test_another_family_is_one_registration_away() -> None:
    drawn = stored("gpt2")

    def read(checkpoint: Checkpoint) -> Any:
        return mf.lens.families.gpt2.read(Checkpoint(drawn.weights, drawn.config))

    mf.lens.register(mf.lens.Family("mine", ("mine",), read))
    model = mf.lens.load({"x": np.zeros(1)}, config={"model_type": "mine"})
    assert model.logits(drawn.given["ids"]).shape == drawn.logits.shape


def test_the_parity_number_needs_a_reference_that_knows_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = folder(tmp_path, "gpt2")
    asked: list[tuple[str, dict[str, Any]]] = []

    def opens(path: Any, error: Exception | None, **settings: Any) -> str:
        asked.append((str(path), settings))
        if error is not None:
            raise error
        return "reference"

    def reference(error: Exception | None) -> Any:
        return SimpleNamespace(AutoModel=SimpleNamespace(from_pretrained=partial(opens, error=error)))

    checkpoint = mf.lens.load(where).checkpoint
    assert parity._opened(reference(None), checkpoint, "float32") == "reference"
    # nothing is fetched, no code of others runs, no pickle is opened
    (path, settings), *_ = asked
    assert path == str(where)
    assert settings.items() >= {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}.items()
    # kills: a cast after opening, which quantised models refuse
    assert settings["dtype"] == "float32"
    for error in (OSError("no file"), ValueError("unknown model"), KeyError("setting"), ImportError("gguf")):
        # kills: the reason passed over in silence
        said = parity._opened(reference(error), checkpoint, "float32")
        assert type(error).__name__ in said
        assert error.args[0] in said
    # a report travels: it is short, and names no folder of this machine
    said = parity._opened(reference(OSError(f"nothing in {where} " + "or elsewhere " * 1000)), checkpoint, "float32")
    assert str(where) not in said
    assert len(said) < 300
    # kills: any error at all, a defect of ours included, passed over in silence
    with pytest.raises(TypeError):
        parity._opened(reference(TypeError("a defect")), checkpoint, "float32")
    # weights that do not lie in a folder, and shuffled ones, have no reference; nor has anything without torch
    assert parity.deviation(mf.lens.load(where).shuffled(), np.arange(3)) == "the weights do not lie in a folder"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert parity.deviation(mf.lens.load(where), np.arange(3)) == "torch and transformers not installed"
    found = mf.lens.diagnose(mf.lens.load(where), [1, 2, 3], lipschitz=False, sweeps=False)
    assert found.parity is None
    assert found.sentences()[-1] == "No reference: torch and transformers not installed."


class Notices:
    """The switches of `transformers.utils.logging`."""

    def __init__(self, bars: bool) -> None:
        self.level, self.bars = 20, bars

    def get_verbosity(self) -> int:
        return self.level

    def set_verbosity(self, level: int) -> None:
        self.level = level

    def set_verbosity_error(self) -> None:
        self.level = 40

    def is_progress_bar_enabled(self) -> bool:
        return self.bars

    def enable_progress_bar(self) -> None:
        self.bars = True

    def disable_progress_bar(self) -> None:
        self.bars = False


@pytest.mark.parametrize("bars", [True, False])
def test_notices_of_the_reference_are_silenced_and_then_as_before(bars: bool) -> None:
    notices = Notices(bars)
    # kills: switches left off after an error, and bars turned on that somebody had turned off
    seen: list[tuple[int, bool]] = []

    def fails() -> None:
        with parity._silent(notices):
            seen.append((notices.level, notices.bars))
            raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        fails()
    assert seen == [(40, False)]
    assert (notices.level, notices.bars) == (20, bars)
