"""What maps refuse, and the sentence with which they do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    NotFiniteError,
    NothingVisibleError,
    OptionError,
    ShapeError,
    TimeError,
    ZeroVectorError,
)

I2, I3 = np.eye(2), np.eye(3)
KEY = jax.random.key(0)
MU = mf.Discrete.uniform([[1.0, 0.0], [0.0, 1.0]])
SIGMA = mf.SpaceTime.uniform([[1.0, 0.0], [0.0, 1.0]], [0.5, 1.0])
LATE = mf.SpaceTime.weighted([[1.0, 0.0], [0.0, 1.0]], [0.5, 1.0], [0.0, 1.0])
G = mf.Attention.head(I2, I2, I2)

REFUSALS: dict[str, tuple[type[Exception], Any, str]] = {
    "context is an array": (DtypeError, lambda: G.check_meets(np.ones((3, 2)), None), "ndarray"),
    "context of another dimension": (DimensionMismatchError, lambda: G(mf.Discrete.dirac([1.0]), [0.0]), "R\\^2"),
    "query of another dimension": (DimensionMismatchError, lambda: G(MU, [0.0, 0.0, 0.0]), "R\\^3"),
    "query with three axes": (ShapeError, lambda: G(MU, np.zeros((1, 1, 2))), r"\(1, 1, 2\)"),
    "no queries": (ShapeError, lambda: G(MU, np.zeros((0, 2))), r"\(0, 2\)"),
    "NaN query": (NotFiniteError, lambda: G(MU, [np.nan, 0.0]), "non-finite"),
    "complex query": (DtypeError, lambda: G(MU, [1j, 0]), "complex"),
    "push in another dimension": (DimensionMismatchError, lambda: G.push(mf.Discrete.dirac([1.0])), "R\\^1"),
    "overflow": (NotFiniteError, lambda: mf.UnnormalizedAttention.head(I2, I2, I2)(MU, [1e3, 0]), "query 0"),
    "heads of different number": (
        DimensionMismatchError,
        lambda: mf.Attention(I2[None], I2[None], I2[None], [I2, I2]),
        "h, k",
    ),
    "keys and queries": (DimensionMismatchError, lambda: mf.Attention.head(I2, I3, I2), r"\(1, 3, 3\)"),
    "matrix for a stack": (ShapeError, lambda: mf.Attention(I2, I2, I2, I2), "3 axes"),
    "stack for a matrix": (ShapeError, lambda: mf.Attention.head(I2[None], I2, I2), "2 axes"),
    "NaN weights of a head": (NotFiniteError, lambda: mf.Attention.head(I2 * np.nan, I2, I2), "Q with 4"),
    "scale": (ShapeError, lambda: mf.Attention.head(I2, I2, I2, scale=[1.0, 2.0]), "scale"),
    "seed for a key": (DtypeError, lambda: mf.Attention.random(0, 2), r"jax\.random\.key"),
    "no heads": (OptionError, lambda: mf.Attention.random(KEY, 2, heads=0), "heads = 0"),
    "Sinkhorn tolerance": (OptionError, lambda: mf.SinkhornAttention.head(I2, I2, I2, tol=0.0), r"tol = 0\.0"),
    "Sinkhorn in a mask": (
        TimeError,
        lambda: mf.Causal(mf.SinkhornAttention.head(I2, I2, I2))(SIGMA, [0, 0], 1),
        "Causal",
    ),
    "composition": (DimensionMismatchError, lambda: mf.Linear(I3) @ mf.Linear(I2), "R\\^2"),
    "deep composition": (DimensionMismatchError, lambda: mf.Linear(I3) @ mf.Identity() @ mf.Linear(I2), "R\\^2"),
    "transformer": (DimensionMismatchError, lambda: mf.Transformer(mf.Linear(I2), mf.Linear(I3)), "R\\^2"),
    "empty transformer": (OptionError, lambda: mf.Transformer(), "0 layers"),
    "norm": (OptionError, lambda: mf.Transformer.random(KEY, dim=2, depth=1, norm="batch"), "batch"),  # type: ignore[arg-type]
    "depth": (OptionError, lambda: mf.Transformer.random(KEY, dim=2, depth=0), "depth = 0"),
    "sum": (DimensionMismatchError, lambda: mf.Linear(I3) + mf.Linear(I2), "sum"),
    "sum of outputs": (DimensionMismatchError, lambda: mf.Linear(I2[:1]) + mf.Linear(I2), "sum"),
    "residual": (DimensionMismatchError, lambda: mf.Residual(mf.Linear(I2[:1])), "R\\^1"),
    "step": (NotFiniteError, lambda: mf.Residual(mf.Identity(), step=np.inf), "step"),
    "bias": (ShapeError, lambda: mf.Linear(I2, [1.0]), "bias"),
    "widths": (DimensionMismatchError, lambda: mf.MLP(I2, None, I3, None), "W2"),
    "skip": (DimensionMismatchError, lambda: mf.MLP(I2, None, I2[:1], None, skip=True), "skip"),
    "activation": (OptionError, lambda: mf.MLP(I2, None, I2, None, activation="swoosh"), "swoosh"),
    "private activation": (OptionError, lambda: mf.MLP(I2, None, I2, None, activation="__doc__"), "__doc__"),
    "norm shift": (DimensionMismatchError, lambda: mf.UnitNorm([1.0, 1.0], [1.0]), "1 shifts"),
    "negative eps": (OptionError, lambda: mf.RMSNorm([1.0], eps=-1.0), "eps"),
    "zero query": (ZeroVectorError, lambda: mf.UnitNorm([1.0, 1.0])(MU, [0.0, 0.0]), "query 0"),
    "zero atom": (
        ZeroVectorError,
        lambda: mf.UnitNorm([1.0, 1.0]).push(MU + mf.Discrete.dirac([0, 0])),
        "atom 2|query 2",
    ),
    "zero for RMS": (ZeroVectorError, lambda: mf.RMSNorm([1.0, 1.0], eps=0.0)(MU, [0, 0]), "RMSNorm"),
    "constant for LayerNorm": (
        ZeroVectorError,
        lambda: mf.LayerNorm([1.0, 1.0], eps=0.0)(MU, [2, 2]),
        "equal coordinates",
    ),
    # the zero vector appears only after the first layer has run
    "zero inside": (
        ZeroVectorError,
        lambda: (mf.UnitNorm([1.0, 1.0]) @ mf.Linear(I2 - I2 + 0.0))(MU, [1, 1]),
        "UnitNorm",
    ),
    "zero in a skip": (
        ZeroVectorError,
        lambda: mf.Residual(mf.UnitNorm([1.0, 1.0]) @ mf.Linear(0 * I2)).push(MU),
        "UnitNorm",
    ),
    "no time": (TimeError, lambda: mf.Causal(G)(SIGMA, [0.0, 0.0]), "without query times"),
    "no space–time": (TimeError, lambda: mf.Causal(G)(MU, [0.0, 0.0], 1.0), "Discrete"),
    "Gaussian has no time": (TimeError, lambda: mf.Causal(G).push(mf.Gaussian([0, 0], I2)), "Gaussian"),
    "time of wrong length": (ShapeError, lambda: mf.Causal(G)(SIGMA, np.zeros((3, 2)), [1.0, 1.0]), r"\(2,\)"),
    "NaN time": (NotFiniteError, lambda: mf.Causal(G)(SIGMA, [0.0, 0.0], np.nan), "t = nan"),
    "too early": (
        NothingVisibleError,
        lambda: mf.Causal(G)(SIGMA, np.zeros((2, 2)), [1.0, 0.4]),
        "query 1 at time 0.4",
    ),
    "mass too late": (NothingVisibleError, lambda: mf.Causal(G).push(LATE), "first mass at 1"),
    "too early inside": (NothingVisibleError, lambda: (mf.Causal(G) @ mf.Identity())(SIGMA, [0.0, 0.0], 0.1), "0.1"),
    "odd positions": (OptionError, lambda: mf.Sinusoidal(3), "dim = 3"),
    "positions in another dimension": (
        DimensionMismatchError,
        lambda: mf.Positional(mf.Sinusoidal(4))(SIGMA, [0.0, 0.0], 1.0),
        "R\\^4",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str) -> None:
    error, call, message = REFUSALS[case]
    with pytest.raises(error, match=message) as caught:
        call()
    # every refusal has its three parts
    assert all(getattr(caught.value, part) for part in ("got", "need", "do"))


def test_lists_and_integers_are_accepted() -> None:
    head = mf.Attention.head([[1, 0], [0, 1]], [[1, 0], [0, 1]], [[2, 0], [0, 2]])
    assert head(mf.Discrete.uniform([[1, 0], [1, 0]]), [5, 5]).tolist() == [2.0, 0.0]
    assert mf.Causal(head)(SIGMA, [0, 0], 1).shape == (2,)


def test_a_time_finds_its_atom_in_any_precision() -> None:
    # kills: a float64 query time compared with float32 atom times, where 0.1 comes before 0.1
    sigma = mf.SpaceTime.uniform(np.eye(2, dtype=np.float32), np.array([0.1, 0.2], np.float32))
    for x in (np.zeros(2, np.float32), np.zeros(2)):
        np.testing.assert_allclose(mf.Causal(G)(sigma, x, 0.1), [1.0, 0.0], atol=1e-6)


def test_concrete_arguments_inside_somebodys_jit() -> None:
    value, moved = jax.jit(lambda y: (y + G(MU, [0.0, 1.0]), y + G.push(MU).points))(1.0)
    np.testing.assert_allclose(value, 1 + np.asarray(G(MU, [0.0, 1.0])), atol=1e-15)
    np.testing.assert_allclose(moved, 1 + np.asarray(G.push(MU).points), atol=1e-15)


def test_under_a_trace_nothing_is_refused_by_value() -> None:
    # the documented behaviour: shapes are checked, values are not
    value = jax.jit(lambda x: mf.UnitNorm(jnp.ones(2))(MU, x))(np.zeros(2))
    assert np.isnan(np.asarray(value)).all()
    with pytest.raises(DimensionMismatchError):
        jax.jit(lambda x: G(MU, x))(np.zeros(3))
