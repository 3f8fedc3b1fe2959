"""The solution map of a Vlasov equation as a transformer, on populations ten times larger than any seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer._claims.base import Claim
from measureformer.flows import flow
from measureformer.maps import Attention
from measureformer.measures import Box, Discrete
from measureformer.result import Check, Figure, Outcome, Series
from measureformer.universality import MapFit, Search, fit_map


@dataclass(frozen=True)
class Config:
    terms: int = 40
    blocks: int = 60
    candidates: int = 300
    contexts: int = 24
    queries: int = 16
    atoms: int = 6
    trials: int = 5
    time: float = 0.5


def _solution_map(config: Config) -> Any:
    velocity = Attention.head([[1.0]], [[1.0]], [[1.0]])

    def f(mu: Discrete) -> Discrete:
        return flow(velocity, mu, [0.0, config.time], solver="rk4", steps=4).measures[-1]

    return f


def _fitted(key: Any, config: Config, *, terms: int) -> MapFit:
    search = Search(
        terms=terms,
        blocks=config.blocks,
        candidates=config.candidates,
        contexts=config.contexts,
        queries=config.queries,
        atoms=config.atoms,
        rounds=1,
    )
    return fit_map(_solution_map(config), Box([-1.0], [1.0]), key, tol=1e-4, search=search, trials=config.trials)


def _outcome(found: MapFit, figure: Figure | None = None) -> Outcome:
    return Outcome((Check("largest W_1 error / largest displacement", found.relative_error, high=0.05),), figure)


def _run(key: Any, config: Config) -> Outcome:
    found = _fitted(key, config, terms=config.terms)
    order = np.argsort(found.displacements)
    places = tuple(float(i + 1) for i in range(len(order)))
    figure = Figure(
        f"The Vlasov map on {10 * config.atoms} tokens, fitted on at most {config.atoms}",
        "population, by displacement",
        "W_1",
        (
            Series("displacement", places, tuple(found.displacements[order].tolist()), "points"),
            Series("error of the transformer", places, tuple(found.errors[order].tolist()), "points"),
        ),
        yscale="log",
    )
    return _outcome(found, figure)


def _control(key: Any, config: Config) -> Outcome:
    # one term is the best constant or linear map: it cannot look at the population
    return _outcome(_fitted(key, config, terms=1))


claim = Claim(
    name="furuya-2025-corollary-vlasov",
    title="A Vlasov solution map as the push-forward of a transformer",
    statement=(
        "A map between measures that keeps supports and has a uniformly continuous regular derivative is approximated "
        "in W_1, uniformly, by push-forwards of transformers: here the solution map of ẋ = softmax attention, from "
        "evaluations alone, to 5 % of the displacement on populations ten times larger than any in the fit."
    ),
    hypotheses=("support preserving", "uniformly continuous regular derivative", "compact domain"),
    reference="furuya2025, Corollary 1",
    run=_run,
    control=_control,
    control_statement="A single term, which cannot depend on the population and on the point.",
    quick=Config(),
    full=Config(terms=150, blocks=300, candidates=1500, contexts=200, atoms=12, trials=20),
)
