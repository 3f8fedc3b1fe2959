"""Decision trees in context: a trained transformer beats trees that are grown greedily from the same examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.incontext_floats import floats
from measureformer.atlas.helpers.incontext_learner import Learner, learned, prompts
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.incontext.baselines import Baseline, greedy_tree


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 500
    others: int = 0
    """1 if trees of any depth are grown too."""


def _errors(key: Any, config: Config, *, blend: float) -> dict[str, np.ndarray]:
    """Squared errors over the mean square of labels, each (prompts, examples from 1 on), on the same prompts."""
    learner = config.plain()
    drawn = prompts(jax.random.fold_in(key, 7), learner, config.prompts)
    growers: dict[str, Baseline] = {"greedy tree": greedy_tree(config.depth)}
    if config.others:
        growers |= {"greedy tree, any depth": greedy_tree()}
    found = {"transformer": np.asarray(learned(key, learner, blend=blend).model.predictions(drawn.x, drawn.y))}
    found |= {name: by(drawn) for name, by in growers.items()}
    return {name: ((values - drawn.y) ** 2)[:, 1:] for name, values in found.items()}


def _checks(errors: dict[str, np.ndarray]) -> tuple[Check, ...]:
    mine = errors["transformer"]
    greedy = min((errors[name] for name in errors if name.startswith("greedy")), key=lambda entry: float(entry.mean()))
    gain = (greedy - mine).mean(axis=1)
    error = 5 * float(gain.std()) / np.sqrt(len(gain))
    ratio = float(mine[:, -1].mean() / greedy[:, -1].mean())
    return (
        Check("greedy tree minus transformer, mean over numbers of examples", float(gain.mean()), low=0.0, error=error),
        Check("transformer over greedy tree, after all examples", ratio, high=0.9),
    )


def _run(key: Any, config: Config) -> Outcome:
    errors, k = _errors(key, config, blend=0.0), floats(range(1, config.points))
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
        kind="tree", dim=3, depth=2, points=17, width=32, layers=3, steps=2500, rate=2e-3, reading="sequence",
        prompts=400, others=1,
    ),
)  # fmt: skip
