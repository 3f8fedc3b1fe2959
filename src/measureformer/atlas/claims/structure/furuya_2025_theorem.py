"""The theorem on a zoo of maps whose answers are known; without its condition on the derivative it would err."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import once
from measureformer.atlas.helpers.structure_zoo import zoo
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.structure import is_transformer


@dataclass(frozen=True)
class Config:
    trials: int = 3
    left_out: str = "transformer, flow, mean, quantiles, hard attention"
    """Maps that take long to compile or to run."""


Answers = dict[str, tuple[bool, bool, str, float]]


@once
def _answers(key: Any, config: Config) -> Answers:
    """For each map: whether it is representable, the verdict, the reason, and the error of the recovered map."""
    answers: Answers = {}
    for name, animal in zoo(key).items():
        if name in config.left_out.split(", "):
            continue
        found = is_transformer(animal.f, animal.domain, key, trials=config.trials)
        fits = not animal.reasons if found.verdict == "representable" else found.reason in animal.reasons
        answers[name] = (not animal.reasons, fits, found.reason, found.held_out / found.scale)
    return answers


def _outcome(answers: Answers, *, derivative: bool, figure: Figure | None) -> Outcome:
    if not derivative:
        # without (B2) what is rejected for its derivative alone passes
        answers = {
            name: (true, fits and reason != "derivative", reason, gap)
            for name, (true, fits, reason, gap) in answers.items()
        }
    wrong = [sum(not fits for true, fits, _, _ in answers.values() if true is kind) for kind in (True, False)]
    held_out = max((gap for true, _, _, gap in answers.values() if true and gap == gap), default=float("nan"))
    return Outcome(
        (
            Check("representable maps", float(sum(true for true, *_ in answers.values())), low=6),
            Check("wrong answers on them", float(wrong[0]), high=0),
            Check("other maps", float(sum(not true for true, *_ in answers.values())), low=6),
            Check("wrong answers or reasons on them", float(wrong[1]), high=0),
            Check("W_1 between f and the recovered map, held out", held_out, high=1e-9),
        ),
        figure,
    )


def _run(key: Any, config: Config) -> Outcome:
    answers = _answers(key, config)
    levels = {"f discontinuous": 1.0, "support": 2.0, "derivative": 3.0}
    at = tuple(float(i) for i in range(len(answers)))
    figure = Figure(
        "Which of these are transformers?",
        "number of the map",
        "0: none; 1: jumps; 2: support; 3: derivative",
        (Series("answer", at, tuple(levels.get(reason, 0.0) for _, _, reason, _ in answers.values()), "bars"),),
        # names of 18 maps do not fit under their bars
        xticks=tuple(str(i) for i in range(1, len(answers) + 1)),
        caption="The violation found on each of these maps: "
        + ", ".join(f"{i} {name}" for i, name in enumerate(answers, 1))
        + f". {config.trials} paths for each search.",
    )
    return _outcome(answers, derivative=True, figure=figure)


def _control(key: Any, config: Config) -> Outcome:
    return _outcome(_answers(key, config), derivative=False, figure=None)


claim = Claim(
    name="furuya-2025-theorem",
    title="Continuous in-context maps are the support-preserving maps with a continuous regular derivative",
    statement=(
        "Let f be continuous for W_1 on measures on a compact domain. Then f(μ) = G(μ,·)♯μ with a continuous G iff f "
        "is support preserving and its regular derivative D̄f is uniformly continuous. A search for violations gives "
        "the right answer, with the right reason, on each of 18 maps whose answers are known."
    ),
    hypotheses=("the search is evidence, not a proof", "causal attention: on fixed distinct times with fixed masses"),
    reference="furuya2025, Theorem 1",
    run=_run,
    control=_control,
    control_statement="The condition on the derivative is dropped: the counterexample passes.",
    quick=Config(),
    full=Config(trials=24, left_out=""),
)
