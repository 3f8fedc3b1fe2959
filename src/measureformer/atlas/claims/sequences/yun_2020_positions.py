"""With positions, functions that depend on the order of tokens are compiled too."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from measureformer.atlas.helpers.sequences_functions import running_sum
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.sequences import yun


@dataclass(frozen=True)
class Config:
    n: int = 2
    finest: int = 16
    points: int = 2000


def _symmetrised(X: np.ndarray) -> np.ndarray:
    """The closest equivariant function: the mean over all orders of f(XP) P⁻¹."""
    n = X.shape[-2]
    orders = [np.array(order) for order in itertools.permutations(range(n))]
    return np.mean([running_sum(X[..., order, :])[..., np.argsort(order), :] for order in orders], axis=0)


def _errors(key: Key, config: Config, *, positions: bool) -> dict[int, tuple[float, float]]:
    """For each 1/δ: the L2 error, and its bound (dn)^{1/2} ω(δ/2); positions leave no two tokens in one cell."""
    X = generator(key).uniform(size=(config.points, config.n, 1))
    found: dict[int, tuple[float, float]] = {}
    D = 4
    while config.finest >= D:
        f = running_sum if positions else _symmetrised
        net = yun.compile_yun(f, d=1, n=config.n, delta=1 / D, positions=positions)
        error = np.sqrt(((net.run(X) - running_sum(X)) ** 2).sum(axis=(1, 2)).mean())
        found[D] = error, config.n**0.5 * config.n / (2 * D)
        D *= 2
    return found


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _errors(key, config, positions=variant != "no-positions")
    errors, bounds = np.array(list(found.values())).T
    ratio = errors[-1] / errors[0]
    checks = (
        *(
            Check(f"δ = 1/{D}: error over its bound", error / bound, high=1.0, rejected_by="no-positions")
            for D, (error, bound) in found.items()
        ),
        Check("error at the finest δ over that at the coarsest", ratio, high=0.3, rejected_by="no-positions"),
    )
    if variant != "claim":
        return Outcome(checks)
    without = [error for error, _ in _errors(key, config, positions=False).values()]
    cells = range(len(found))
    figure = Figure(
        "A function of the order of tokens",
        "side of the cells δ",
        "L2 distance to f",
        (
            Series("with positions", cells, errors, role="measured"),
            Series("bound", cells, bounds, "dashed", role="theory"),
            Series("control: without", cells, without, role="control"),
        ),
        yscale="log",
        xticks=tuple(f"1/{D}" for D in found),
        caption=f"f_i(X) = x_1 + … + x_i, n = {config.n}. Without positions: the closest equivariant function.",
    )
    return Outcome(checks, figure)


claim = Claim(
    name="yun-2020-positions",
    title="Positions remove the restriction to equivariant functions",
    kind="construction",
    statement=(
        "With positions added to the tokens, every continuous f on [0,1]^(n×d) is approximated: d_p(f, g) ≤ "
        "(dn)^(1/p) ω_f(δ/2) for the network with jumps, whose shifts have the scale K = (n−1)D(1+D+…) + N, the end "
        "of the range of ids."
    ),
    hypotheses=(
        "tested for p = 2, d = 1, f_i = x_1 + … + x_i, ω_f(t) = nt",
        "that no token is shifted twice is in the proof, and not measured",
    ),
    reference="yun2020, Theorem 3",
    measure=measure,
    controls={"no-positions": "No positions, and the closest equivariant function in place of f."},
    quick=Config(),
    full=Config(n=3, finest=16, points=10_000),
)
