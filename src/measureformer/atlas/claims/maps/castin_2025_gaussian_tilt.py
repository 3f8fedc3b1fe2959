"""Attention on a Gaussian is an affine map, V(m + ΣAx) with A = KᵀQ. Transposing A is a mistake that shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.maps_quadrature import gauss_hermite
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.maps import Attention, L2Attention, LinearAttention
from measureformer.maps.heads import AbstractHeads
from measureformer.measures import Gaussian

KINDS: dict[str, type[AbstractHeads]] = {"softmax": Attention, "linear": LinearAttention, "L2": L2Attention}


@dataclass(frozen=True)
class Config:
    nodes: int = 40
    queries: int = 25
    tolerance: float = 1e-9


def _matrices(key: Key) -> tuple[np.ndarray, ...]:
    """Q, K, V with a non-symmetric KᵀQ of moderate size, and an affine image of the disc for m and Σ."""
    draws = generator(key).normal(size=(5, 2, 2))
    Q, K, V = draws[:3] / np.linalg.norm(draws[:3], axis=(1, 2), keepdims=True)
    root = draws[3] / np.linalg.norm(draws[3])
    return Q, K, V, draws[4, 0], root @ root.T + 0.2 * np.eye(2)


def _line(config: Config) -> np.ndarray:
    s = np.linspace(-2, 2, config.queries)
    return np.stack([s, 0.5 - s / 2], axis=1)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    Q, K, V, mean, cov = _matrices(key)
    g, x = Gaussian(mean, cov), _line(config)
    rule = gauss_hermite(g, config.nodes)
    ours = (Q, K, V) if variant == "claim" else (K, Q, V)
    formulas = {name: np.asarray(kind.head(*ours)(g, x)) for name, kind in KINDS.items()}
    rules = {name: np.asarray(kind.head(Q, K, V)(rule, x)) for name, kind in KINDS.items()}
    pushed, cloud = Attention.head(*ours).push(g), Attention.head(Q, K, V).push(rule)
    gaps = {f"{name} field": formulas[name] - rules[name] for name in KINDS} | {
        "mean of the push-forward": pushed.mean() - cloud.mean(),
        "covariance of the push-forward": pushed.covariance() - cloud.covariance(),
    }
    checks = tuple(
        Check(name, np.abs(gap).max(), high=config.tolerance, rejected_by="transposed") for name, gap in gaps.items()
    )
    if variant != "claim":
        return Outcome(checks)
    s, wrong = x[:, 0], np.asarray(Attention.head(K, Q, V)(g, x))
    figure = Figure(
        "Attention on a Gaussian is affine",
        "query x = (s, ½ − s/2), position s",
        "first coordinate of Γ[N(m,Σ)](x)",
        (
            Series("V(m + ΣKᵀQx)", s, formulas["softmax"][:, 0], role="theory"),
            Series("quadrature", s[::2], rules["softmax"][::2, 0], "points", role="measured"),
            Series("control: V(m + ΣQᵀKx)", s, wrong[:, 0], "dashed", role="control"),
        ),
        caption=f"Gauss–Hermite rule with {config.nodes}² nodes; random Q, K, V, with KᵀQ not symmetric.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="castin-2025-gaussian-tilt",
    title="Attention on a Gaussian, in closed form",
    kind="theorem",
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
    measure=measure,
    controls={"transposed": "The same formulas with QᵀK in place of KᵀQ."},
    quick=Config(),
    full=Config(nodes=80, queries=101, tolerance=1e-11),
)
