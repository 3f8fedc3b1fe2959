"""What the ring exchanges, compiles, keeps in memory and refuses, on two devices of one process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launching import run_program


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return json.loads(run_program("structure.py", devices=2))


def test_a_new_number_of_tokens_compiles_nothing(found: dict[str, Any]) -> None:
    assert found["compiled for a new n"] == 0


def test_what_is_in_pieces_stays_in_pieces(found: dict[str, Any]) -> None:
    assert found["answer in pieces"]
    assert found["pieces agree"] < 1e-14
    assert found["full agree"] < 1e-14


def test_neighbours_exchange_and_nobody_collects(found: dict[str, Any]) -> None:
    # kills: maps that leave the partition to the compiler, which gathers all keys on every device
    assert found["exchanges"] == ["collective-permute"]


def test_a_gradient_on_two_devices_needs_less_memory_on_each(found: dict[str, Any]) -> None:
    # kills: reverse mode through the rounds, which keeps every shard that has passed by (1.58 times as much as one
    # device; 0.84 without, of which two shards are on their way)
    one, two = found["memory"]
    assert two < 0.9 * one


REFUSED = {
    "explicit pieces": "MeshError: got an array that is spread by NamedSharding",
    "explicit ambient": "MeshError: got an ambient mesh whose axes 'tokens' are explicit",
    "NaN": "NotFiniteError: got q with 2 non-finite entries, the first at index (40, 0)",
    "overflow": "NotFiniteError: got logits that overflow float64",
    # kills: all keys brought to one device without a word
    "window": "OptionError: got a window with keys that are spread over devices",
    "blind": "NothingVisibleError: got query 0 at time 0.001",
    "zero vector": "ZeroVectorError: got the zero vector (query 0)",
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_on_a_mesh(case: str, found: dict[str, Any]) -> None:
    assert found[case].startswith(REFUSED[case])
