"""Attention on a Gaussian is an affine map, V(m + ΣAx) with A = KᵀQ. Transposing A is a mistake that shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.maps_quadrature import gauss_hermite
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.maps import Attention, L2Attention, LinearAttention
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import Gaussian

KINDS: dict[str, type[AbstractHeads]] = {"softmax": Attention, "linear": LinearAttention, "L2": L2Attention}


@dataclass(frozen=True)
class Config:
    nodes: int = 40
    queries: int = 25
    tolerance: float = 1e-9


def _matrices(key: Any) -> tuple[np.ndarray, ...]:
    """Q, K, V with a non-symmetric KᵀQ of moderate size, and an affine image of the disc for m and Σ."""
    draws = generator(key).normal(size=(5, 2, 2))
    Q, K, V = draws[:3] / np.linalg.norm(draws[:3], axis=(1, 2), keepdims=True)
    root = draws[3] / np.linalg.norm(draws[3])
    return Q, K, V, draws[4, 0], root @ root.T + 0.2 * np.eye(2)


def _line(config: Config) -> np.ndarray:
    s = np.linspace(-2, 2, config.queries)
    return np.stack([s, 0.5 - s / 2], axis=1)


def _values(key: Any, config: Config, name: str, *, transposed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Closed form and quadrature on a line of queries; the control's closed form takes Q for K and K for Q."""
    Q, K, V, mean, cov = _matrices(key)
    g, kind, x = Gaussian(mean, cov), KINDS[name], _line(config)
    formula = kind.head(K, Q, V) if transposed else kind.head(Q, K, V)
    return np.asarray(formula(g, x)), np.asarray(kind.head(Q, K, V)(gauss_hermite(g, config.nodes), x))


def _outcome(key: Any, config: Config, *, transposed: bool) -> Outcome:
    checks: list[Check] = []
    for name in KINDS:
        formula, quadrature = _values(key, config, name, transposed=transposed)
        checks.append(Check(f"{name} field", float(np.abs(formula - quadrature).max()), high=config.tolerance))
    Q, K, V, mean, cov = _matrices(key)
    g = Gaussian(mean, cov)
    pushed = (Attention.head(K, Q, V) if transposed else Attention.head(Q, K, V)).push(g)
    cloud = Attention.head(Q, K, V).push(gauss_hermite(g, config.nodes))
    gaps = np.abs(pushed.mean() - cloud.mean()).max(), np.abs(pushed.covariance() - cloud.covariance()).max()
    checks.append(Check("mean of the push-forward", float(gaps[0]), high=config.tolerance))
    checks.append(Check("covariance of the push-forward", float(gaps[1]), high=config.tolerance))
    return Outcome(tuple(checks))


def _run(key: Any, config: Config) -> Outcome:
    formula, quadrature = _values(key, config, "softmax", transposed=False)
    wrong, _ = _values(key, config, "softmax", transposed=True)
    s = tuple(float(v) for v in _line(config)[:, 0])
    figure = Figure(
        "Attention on a Gaussian is affine",
        "query x = (s, ½ − s/2), position s",
        "first coordinate of Γ[N(m,Σ)](x)",
        (
            Series("V(m + ΣKᵀQx)", s, tuple(map(float, formula[:, 0])), "line"),
            Series("quadrature", s[::2], tuple(map(float, quadrature[::2, 0])), "points"),
            Series("control: V(m + ΣQᵀKx)", s, tuple(map(float, wrong[:, 0])), "dashed"),
        ),
        caption=f"Gauss–Hermite rule with {config.nodes}² nodes; random Q, K, V, with KᵀQ not symmetric.",
    )
    return Outcome(_outcome(key, config, transposed=False).checks, figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(key, config, transposed=True)


claim = Claim(
    name="castin-2025-gaussian-tilt",
    title="Attention on a Gaussian, in closed form",
    statement=(
        "For μ = N(m, Σ), every Q, K, V and every x, with A = KᵀQ: softmax attention is V(m + ΣAx), linear attention "
        "V(Σ + mmᵀ)Ax, L2 attention V(I + 2ΣKᵀK)⁻¹(m + 2ΣAx). "
        "All are affine in x, so Gaussians are pushed to Gaussians."
    ),
    hypotheses=(
        "kernels exp⟨Qx,Ky⟩, ⟨Qx,Ky⟩ and exp(−|Qx−Ky|²)",
        "Σ may be singular; here it is not, for the quadrature",
    ),
    reference="castin2025",
    run=_run,
    control=_control,
    control_statement="The same formulas with QᵀK in place of KᵀQ.",
    quick=Config(),
    full=Config(nodes=80, queries=101, tolerance=1e-11),
)
