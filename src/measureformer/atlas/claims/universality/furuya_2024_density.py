"""Polynomials in blocks approximate continuous in-context maps, the better the more terms; and no others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Role, Series, once
from measureformer.measures import Box
from measureformer.structure import counterexample
from measureformer.universality import Search, fit
from measureformer.universality.fit import Fit
from measureformer.universality.targets import softmin_distance


@dataclass(frozen=True)
class Config:
    terms: int = 60
    blocks: int = 120
    candidates: int = 600
    contexts: int = 200
    rounds: int = 2
    temperature: float = 0.5
    sharpness: float = 8.0
    """Logits of the target, |x − y|²/temperature on [−1, 1], differ by so much: no milder blocks are sharp enough."""
    share: float = 0.7
    """What the error may be of that with ten terms: a map with a jump stays at 1, or above."""


@once
def _fitted(key: Key, config: Config, *, jump: bool) -> Fit:
    target = counterexample().map if jump else softmin_distance(1, config.temperature)
    settings = ("terms", "blocks", "candidates", "contexts", "rounds", "sharpness")
    search = Search(**{name: getattr(config, name) for name in settings})
    return fit(target, Box([-1.0], [1.0]), key, tol=1e-9, search=search)


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _fitted(key, config, jump=variant == "jump")
    at_ten = next(row for row in found.rows if row.terms >= 10)
    growth = np.diff(found.training_errors).max(initial=0.0)
    share = found.rows[-1].held_out / at_ten.held_out
    checks = (
        Check("largest growth of the training error by a term", growth, high=1e-12 * found.scale, context=True),
        Check("held-out error with all terms / with 10", share, high=config.share, rejected_by="jump"),
    )
    return Outcome(checks, _figure(found, _fitted(key, config, jump=True)) if variant == "claim" else None)


def _figure(found: Fit, jump: Fit) -> Figure:
    def curve(label: str, fit: Fit, role: Role) -> Series:
        return Series(label, [row.terms for row in fit.rows], [row.worst / fit.scale for row in fit.rows], role=role)

    return Figure(
        "Error of the best polynomial in blocks",
        "terms",
        "largest error found / size of the target",
        (
            curve("soft distance to the cloud", found, "measured"),
            curve("control: a discontinuous map", jump, "control"),
        ),
        xscale="log",
        yscale="log",
        caption="On measures of numbers of atoms that were not seen in fitting, some of them found by an adversary.",
    )


claim = Claim(
    name="furuya-2024-density",
    title="Polynomials in blocks are dense",
    kind="observation",
    statement=(
        "For every continuous Γ*(mu, x) on a compact domain and every ε there is a polynomial in blocks within ε, "
        "uniformly in mu and x. Observed for one target on the line: the largest error on measures that were not seen "
        "falls from 10 terms to 300 by half or more, and to 60 by 30 %; what an adversary finds is drawn, and falls "
        "more slowly."
    ),
    hypotheses=(
        "Γ* continuous for W_1 and |·|, compact domain",
        "the training error cannot grow, by construction: shown and not judged",
    ),
    reference="furuya2024",
    measure=measure,
    controls={"jump": "A map with a jump: the in-context map of the structure chapter's counterexample."},
    quick=Config(),
    full=Config(terms=300, blocks=400, candidates=2000, contexts=1000, rounds=24, share=0.5),
)
