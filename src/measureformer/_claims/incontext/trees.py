"""Decision trees in context: a trained transformer beats trees that are grown greedily from the same examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer._claims.base import Claim
from measureformer._claims.incontext._floats import floats
from measureformer._claims.incontext._learner import Learner, learned, prompts
from measureformer.incontext.baselines import Baseline, boosting, greedy_tree
from measureformer.result import Check, Figure, Outcome, Series


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 400
    every: int = 2
    """Between numbers of examples at which trees are grown."""
    boosted: int = 0
    """1 if boosting is drawn too."""


def _counts(config: Config) -> list[int]:
    return list(range(config.points - 1, 0, -config.every))[::-1]


def _errors(key: Any, config: Config, *, blend: float) -> dict[str, np.ndarray]:
    """Squared errors over the mean square of labels, each (prompts, counts), on the same prompts."""
    learner, counts = config.plain(), _counts(config)
    drawn = prompts(jax.random.fold_in(key, 7), learner, config.prompts)
    growers: dict[str, Baseline] = {"greedy tree": greedy_tree(config.depth), "greedy tree, any depth": greedy_tree()}
    growers |= {"boosting": boosting(depth=config.depth)} if config.boosted else {}
    found = {"transformer": np.asarray(learned(key, learner, blend=blend).model.predictions(drawn.x, drawn.y))}
    found |= {name: by(drawn, counts=counts) for name, by in growers.items()}
    return {name: ((values - drawn.y) ** 2)[:, counts] for name, values in found.items()}


def _checks(errors: dict[str, np.ndarray]) -> tuple[Check, ...]:
    mine = errors["transformer"]
    greedy = [errors[name] for name in errors if name.startswith("greedy")]
    best = min(greedy, key=lambda entry: float(entry[:, -1].mean()))
    gain = best[:, -1] - mine[:, -1]
    error = 5 * float(gain.std()) / np.sqrt(len(gain))
    whole = [float(entry.mean()) for entry in greedy]
    return (
        Check("best greedy tree minus transformer, after all examples", float(gain.mean()), low=0.0, error=error),
        Check("transformer over the best greedy tree, mean over numbers", float(mine.mean()) / min(whole), high=0.9),
    )


def _run(key: Any, config: Config) -> Outcome:
    errors, k = _errors(key, config, blend=0.0), floats(_counts(config))
    figure = Figure(
        "Decision trees",
        "examples",
        "error over that of predicting 0",
        tuple(Series(name, k, floats(values.mean(axis=0))) for name, values in errors.items()),
        caption=(
            f"Trees of depth {config.depth} in R^{config.dim}, normal leaves; {config.steps} steps of {config.batch} "
            f"fresh prompts; errors over {config.prompts} others. Trees are grown from the examples of each prompt."
        ),
    )
    return Outcome(_checks(errors), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_errors(key, config, blend=1.0)))


claim = Claim(
    name="garg-2022-trees",
    title="A trained transformer beats greedy trees at small trees",
    statement=(
        "A transformer trained on prompts of fresh decision trees, whose nodes look at the sign of a random "
        "coordinate, predicts with a smaller error than regression trees grown greedily from the examples."
    ),
    hypotheses=(
        "x and leaves standard normal; greedy trees have to find the thresholds, which the transformer has learned",
        "small trees: depth 4 in R^20 with 100 examples, as in the reference, takes days of training and was not tried",
    ),
    reference="garg2022, Section 5",
    run=_run,
    control=_control,
    control_statement="The same training on labels whose leaves are drawn anew for each example.",
    quick=Config(kind="tree"),
    full=Config(
        kind="tree", dim=3, depth=2, points=17, width=32, layers=3, steps=4000, rate=2e-3, reading="sequence", every=1,
        prompts=600, boosted=1,
    ),
)  # fmt: skip
