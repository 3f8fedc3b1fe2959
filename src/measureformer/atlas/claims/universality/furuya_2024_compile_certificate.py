"""Compiled products are never worse than certified, and their error falls with the square of the width."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import numpy as np

from measureformer.atlas.helpers.universality_blocks import SQUARE, cloud, expression, largest
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator
from measureformer.universality import compile
from measureformer.universality.compiled import Compiled


@dataclass(frozen=True)
class Config:
    smallest: int = 8
    doublings: int = 2
    measures: int = 3
    atoms: int = 12
    components: int = 1
    queries: int = 400


def _without_a_knot(net: Compiled) -> Compiled:
    """The network with one hidden unit of its widest layer silenced."""
    effects = np.abs(np.asarray(net.layers.W2)).sum(axis=1)
    layer = int((effects > 0).sum(axis=1).argmax())
    units = np.flatnonzero(effects[layer] > 0)
    return eqx.tree_at(lambda n: n.layers.W2, net, net.layers.W2.at[layer, :, units[len(units) // 8]].set(0.0))


def measure(key: Key, config: Config, variant: str) -> Outcome:
    rng = generator(key)
    e = expression(rng, components=config.components)
    contexts = [cloud(rng, config.atoms) for _ in range(config.measures)]
    x = rng.uniform(-1, 1, (config.queries, 2))
    truths = [np.asarray(e(mu, x)) for mu in contexts]
    cells = [config.smallest * 2**k for k in range(config.doublings + 1)]
    nets = [compile(e, SQUARE, cells=count) for count in cells]
    bounds = np.array([net.error_bound for net in nets])
    if variant == "missing-knot":
        nets = [_without_a_knot(net) for net in nets]
    gaps = [np.array([np.asarray(net(mu, x)) - y for mu, y in zip(contexts, truths, strict=True)]) for net in nets]
    errors = np.array([largest(gap) for gap in gaps])
    # of the root mean square: the largest of some points depends on where they lie in their cells
    slope = np.polyfit(np.log(cells), [np.log((gap**2).mean()) / 2 for gap in gaps], 1)[0]
    checks = (
        Check("largest error / certificate", (errors / bounds).max(), high=1.0, rejected_by="missing-knot"),
        Check(
            "slope of the mean error in the number of cells", slope, low=-2.25, high=-1.75, rejected_by="missing-knot"
        ),
    )
    figure = Figure(
        "Error of a compiled transformer",
        "cells of each product",
        "largest error",
        (
            Series("measured", cells, errors, "points", role="measured"),
            Series("certificate", cells, bounds, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
    )
    return Outcome(checks, figure if variant == "claim" else None)


claim = Claim(
    name="furuya-2024-compile-certificate",
    title="Polynomials in blocks, compiled to ReLU transformers with a certified error",
    kind="construction",
    statement=(
        "For all measures with atoms in the domain and all points of it, the compiled transformer differs from the "
        "polynomial in blocks by at most its certificate, and the difference falls like the inverse square of the "
        "number of cells of a product."
    ),
    hypotheses=("points in the domain that it was compiled for",),
    reference="furuya2024",
    measure=measure,
    controls={"missing-knot": "One hidden unit, a knot of one product, is removed."},
    quick=Config(),
    full=Config(doublings=5, components=2, measures=20, atoms=200, queries=2000),
)
