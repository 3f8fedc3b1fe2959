"""Real pretrained models, where `make lens-data` has put them: hidden states of the reference, and what they know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import measureformer as mf
from lens_real import FIXTURE, TEXTS, data, some, table
from measureformer.atlas.claims.lens.hollmann_2023_tabpfn_is_a_map_on_measures import moons

TOLERANCE = 1e-4
"""Relative to the largest entry of a layer: thirty layers of float32, in another order of operations."""
SENTENCES = {
    "A man is eating food.": "A man is eating a piece of bread.",
    "A woman plays the violin.": "Somebody is making music.",
    "The stock market fell sharply today.": "Shares lost much of their value.",
}


def opened(name: str) -> Any:
    if not (data() / name / "done").is_file():
        pytest.skip(f"no weights of {name}: make lens-data")
    return mf.lens.load(data() / name)


@pytest.mark.parametrize("name", [*TEXTS, "tabpfn"])
def test_hidden_states_are_those_of_the_reference(name: str) -> None:
    model, stored = opened(name), load_file(FIXTURE)
    given: Any = mf.lens.Table(*table()) if name == "tabpfn" else model.tokens(TEXTS[name])
    if name != "tabpfn":
        assert given.tolist() == stored[f"{name}/ids"].tolist()
    trace = model.trace(given)
    found = np.stack([np.asarray(mu.points) for mu in (*trace.measures[:-1], trace.exit())])
    apart = np.abs(some(found) - stored[f"{name}/hidden"]).max(axis=(1, 2)) / stored[f"{name}/sizes"]
    assert apart.max() <= TOLERANCE


def test_smollm2_knows_a_capital() -> None:
    model = opened("smollm2")
    logits = np.asarray(model.logits("The capital of France is", last=True))[0]
    assert model.tokenizer.decode([int(logits.argmax())]) == " Paris"


def test_minilm_ranks_sentences_by_meaning() -> None:
    model = opened("minilm")

    def embedded(text: str) -> np.ndarray:
        mean = np.asarray(model.trace(text).measures[-1].points, np.float64).mean(axis=0)
        return mean / np.linalg.norm(mean)

    near = np.array([[embedded(a) @ embedded(b) for b in SENTENCES.values()] for a in SENTENCES])
    assert near.argmax(axis=1).tolist() == [0, 1, 2]


def test_tabpfn_learns_two_moons_in_its_context() -> None:
    model, rng = opened("tabpfn"), np.random.default_rng(0)
    (X, y), (asked, labels) = moons(rng, 100), moons(rng, 100)
    logits = np.asarray(model.logits(mf.lens.Table(X, y, asked)))[len(X) :, :2]
    # 95 of 100 expected
    assert (logits.argmax(axis=1) == labels).mean() >= 0.9
