"""Solution maps of Vlasov and Cucker–Smale as transformers, on populations ten times larger than any seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.structure_zoo import LINE, PLANE, Map, alignment, flowed, softmax
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.universality import MapErrors, Search, fit_map, map_errors, mean


@dataclass(frozen=True)
class Config:
    terms: int = 100
    blocks: int = 120
    candidates: int = 800
    contexts: int = 120
    queries: int = 8
    atoms: int = 8
    trials: int = 5
    time: float = 0.5
    sharpness: float = 2.0
    """Less than that of `Search`: solution maps of smooth equations are smooth."""
    flock: int = 0
    """Whether Cucker and Smale's model is approximated as well; it takes longer."""


def _maps(config: Config) -> dict[str, tuple[Map, Any]]:
    """Simulators as others would write them, without a word of transformers: black boxes from measures to measures."""
    maps: dict[str, tuple[Map, Any]] = {
        "Vlasov": (flowed(lambda x, a: softmax(x @ x.T, a) @ x, config.time), LINE),
        "Cucker–Smale": (flowed(alignment, config.time), PLANE),
    }
    return maps if config.flock else {"Vlasov": maps["Vlasov"]}


def _fitted(key: Any, config: Config) -> dict[str, MapErrors]:
    search = Search(
        terms=config.terms,
        blocks=config.blocks,
        candidates=config.candidates,
        sharpness=config.sharpness,
        contexts=config.contexts,
        queries=config.queries,
        atoms=config.atoms,
        rounds=1,
    )
    return {
        name: fit_map(f, domain, key, tol=1e-4, search=search, trials=config.trials).held_out
        for name, (f, domain) in _maps(config).items()
    }


def _outcome(found: dict[str, MapErrors], figure: Figure | None = None) -> Outcome:
    return Outcome(
        tuple(
            Check(f"{name}: largest W_1 error / largest displacement", errors.relative_error, high=0.05)
            for name, errors in found.items()
        ),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    found = _fitted(key, config)
    series: list[Series] = []
    for name, errors in found.items():
        order = np.argsort(errors.displacements)
        places = tuple(float(i + 1) for i in range(len(order)))
        series.append(Series(f"{name}: displacement", places, tuple(errors.displacements[order].tolist())))
        series.append(Series(f"{name}: error", places, tuple(errors.errors[order].tolist()), "points"))
    figure = Figure(
        f"Solution maps on {10 * config.atoms} particles, fitted on at most {config.atoms}",
        "population, by displacement",
        "W_1",
        tuple(series),
        yscale="log",
    )
    return _outcome(found, figure)


def _control(key: Any, config: Config) -> Outcome:
    options = {"atoms": 10 * config.atoms, "trials": config.trials}
    maps = _maps(config).items()
    return _outcome({name: map_errors(mean(domain.dim), f, domain, key, **options) for name, (f, domain) in maps})


claim = Claim(
    name="furuya-2025-corollary-vlasov",
    title="Solution maps as push-forwards of transformers",
    statement=(
        "A map between measures that keeps supports and has a uniformly continuous regular derivative is approximated "
        "in W_1, uniformly, by push-forwards of transformers: here the solution maps of ẋ = softmax attention and of "
        "Cucker and Smale's model, from evaluations alone, to 5 % of the displacement on populations ten times larger "
        "than any in the fit."
    ),
    hypotheses=("support preserving", "uniformly continuous regular derivative", "compact domain"),
    reference="furuya2025, Corollary 1",
    run=_run,
    control=_control,
    control_statement="A map that looks at the population alone: every point goes to its mean.",
    quick=Config(),
    full=Config(terms=200, blocks=300, candidates=3000, contexts=450, atoms=12, trials=20, flock=1),
)
