"""Certificates of memories on adversarial patterns; `benchmarks/certificates.py` has more of them."""

from __future__ import annotations

import numpy as np

import measureformer as mf
from attacks import sample
from attacks_learning import dense_attack, modern_attack


def test_theorems_hold_for_the_exact_updates() -> None:
    assert sample(modern_attack(np.float64), 30)["held"] > 25


def test_fields_are_within_their_bounds() -> None:
    assert sample(dense_attack, 20)["held"] == 20


def test_large_exponents_round_outwards() -> None:
    # kills: a separation to the nearest number, whose rounding errors β multiplies
    rng = np.random.default_rng(0)
    X = 1e4 * rng.normal(size=(5, 3))
    found = mf.memory.Modern.store(X, 1e6).retrieve(X[0]).certificate
    assert float(found.one_step_bound) > 0
