"""`local_lipschitz` on ill-conditioned layers; `benchmarks/certificates.py` has more of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import measureformer as mf
from attacks import sample
from attacks_regularity import lipschitz_attack


@pytest.mark.parametrize(
    ("dtype", "chain"), [(np.float32, ("mlp", "layernorm", "linear")), (np.float64, ("unitnorm", "block"))]
)
def test_brackets_hold_on_ill_conditioned_compositions(dtype: Any, chain: tuple[str, ...]) -> None:
    assert sample(lipschitz_attack(dtype, (chain,)), 24)["held"] > 20


def test_atoms_that_are_too_light_for_the_precision_do_not_converge() -> None:
    # kills: "converged" for the constant of the heavy atoms alone, when a light one is moved far
    x, log_weights = np.array([[0.0], [1.0]], np.float32), np.array([0.0, -400.0], np.float32)
    G = mf.Residual(mf.Attention.head(*np.ones((3, 1, 1), np.float32)))
    assert not mf.local_lipschitz(G, mf.Discrete(x, log_weights)).converged
    assert mf.local_lipschitz(G, mf.Discrete(x, log_weights / 100)).converged


def test_a_lower_value_that_rounding_decides_is_not_converged() -> None:
    # in float32, x + 1e7 keeps no digit of differences below 1
    x = np.float32(1e7) + np.arange(4, dtype=np.float32)[:, None] * np.array([1, 2], np.float32)
    G = mf.Attention.head(*(np.eye(2, dtype=np.float32) * s for s in (1.0, 1e-3, 1.0)))
    assert not mf.local_lipschitz(G, mf.Discrete.uniform(x)).converged
