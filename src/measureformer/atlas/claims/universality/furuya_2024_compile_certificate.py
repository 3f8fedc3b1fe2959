"""Compiled products are never worse than certified, and their error falls with the square of the width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.helpers.universality_blocks import SQUARE, cloud, expression, largest
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.universality import Compiled, compile


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


def _measured(key: Any, config: Config, *, broken: bool) -> Outcome:
    rng = generator(key)
    e = expression(rng, components=config.components)
    contexts = [cloud(rng, config.atoms) for _ in range(config.measures)]
    x = rng.uniform(-1, 1, (config.queries, 2))
    truths = [np.asarray(e(mu, x)) for mu in contexts]
    cells = [config.smallest * 2**k for k in range(config.doublings + 1)]
    errors: list[float] = []
    bounds: list[float] = []
    for count in cells:
        net = compile(e, SQUARE, cells=count)
        bounds.append(net.error_bound)
        used = _without_a_knot(net) if broken else net
        errors.append(max(largest(np.asarray(used(mu, x)) - truth) for mu, truth in zip(contexts, truths, strict=True)))
    slope = float(np.polyfit(np.log(cells), np.log(errors), 1)[0])
    checks = (
        Check("largest error / certificate", max(e / b for e, b in zip(errors, bounds, strict=True)), high=1.0),
        Check("slope in the number of cells", slope, low=-2.25, high=-1.75),
    )
    places = tuple(map(float, cells))
    figure = Figure(
        "Error of a compiled transformer",
        "cells of each product",
        "largest error",
        (
            Series("measured", places, tuple(errors), "points"),
            Series("certificate", places, tuple(bounds), "dashed"),
        ),
        xscale="log",
        yscale="log",
    )
    return Outcome(checks, figure)


def _run(key: Any, config: Config) -> Outcome:
    return _measured(key, config, broken=False)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_measured(key, config, broken=True).checks)


claim = Claim(
    name="furuya-2024-compile-certificate",
    title="Polynomials in blocks, compiled to ReLU transformers with a certified error",
    statement=(
        "For all measures with atoms in the domain and all points of it, the compiled transformer differs from the "
        "polynomial in blocks by at most its certificate, and the difference falls like the inverse square of the "
        "number of cells of a product."
    ),
    hypotheses=("points in the domain that it was compiled for",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="One hidden unit, a knot of one product, is removed.",
    quick=Config(),
    full=Config(doublings=5, components=2, measures=20, atoms=200, queries=2000),
)
