"""Decision trees in context: a trained transformer beats trees that are grown greedily from the same examples."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from measureformer.atlas.helpers.incontext_learner import Learner, learned, prompts
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.incontext.baselines import Baseline, greedy_tree
from measureformer.incontext.tasks import Prompts


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 1500
    others: int = 0
    """1 if trees of any depth are grown too."""


def _asked(key: Key, config: Config) -> Prompts:
    return prompts(jax.random.fold_in(key, 7), config.plain(), config.prompts)


@once
def _grown(key: Key, config: Config) -> dict[str, np.ndarray]:
    growers: dict[str, Baseline] = {"greedy tree": greedy_tree(config.depth)}
    if config.others:
        growers["greedy tree, any depth"] = greedy_tree()
    return {name: by(_asked(key, config)) for name, by in growers.items()}


def _errors(key: Key, config: Config, *, blend: float) -> dict[str, np.ndarray]:
    """Squared errors over the mean square of labels, each (prompts, examples from 1 on), on the same prompts."""
    drawn, model = _asked(key, config), learned(key, config.plain(), blend=blend).model
    found = {"transformer": np.asarray(model.predictions(drawn.x, drawn.y)), **_grown(key, config)}
    return {name: ((values - drawn.y) ** 2)[:, 1:] for name, values in found.items()}


def measure(key: Key, config: Config, variant: str) -> Outcome:
    errors = _errors(key, config, blend=1.0 if variant == "leaves-drawn-anew" else 0.0)
    mine = errors["transformer"]
    greedy = min((errors[name] for name in errors if name.startswith("greedy")), key=lambda entry: entry.mean())
    gain = (greedy - mine).mean(axis=1)
    error, ratio = 5 * gain.std() / np.sqrt(len(gain)), mine[:, -1].mean() / greedy[:, -1].mean()
    minus, anew = "greedy tree minus transformer, mean over numbers of examples", "leaves-drawn-anew"
    checks = (
        Check(minus, gain.mean(), low=0.0, error=error, rejected_by=anew),
        Check("transformer over greedy tree, after all examples", ratio, high=0.9, rejected_by=anew),
    )
    return Outcome(checks, _figure(config, errors) if variant == "claim" else None)


def _figure(config: Config, errors: dict[str, np.ndarray]) -> Figure:
    k = range(1, config.points)
    return Figure(
        "Decision trees",
        "examples",
        "error over that of predicting 0",
        tuple(Series(name, k, values.mean(axis=0), role="measured") for name, values in errors.items()),
        caption=(
            f"Trees of depth {config.depth} in R^{config.dim}, normal leaves; {config.steps} steps of {config.batch} "
            f"fresh prompts; errors over {config.prompts} others. Trees are grown from the examples of each prompt."
        ),
    )


claim = Claim(
    name="garg-2022-trees",
    title="A trained transformer beats greedy trees at small trees",
    kind="observation",
    statement=(
        "Observed for a transformer trained on prompts of fresh decision trees, whose nodes look at the sign of a "
        "random coordinate: it predicts with at most 0.9 of the error of regression trees grown greedily from the "
        "examples, after all of them."
    ),
    hypotheses=(
        "x and leaves standard normal; greedy trees have to find the thresholds, which the transformer has learned",
        "small trees: depth 4 in R^20 with 100 examples, as in the reference, takes days of training and was not tried",
    ),
    reference="garg2022, Section 5",
    measure=measure,
    controls={"leaves-drawn-anew": "The same training on labels whose leaves are drawn anew for each example."},
    quick=Config(kind="tree"),
    full=Config(
        kind="tree", dim=3, depth=2, points=17, width=32, layers=3, steps=2500, rate=2e-3, reading="sequence",
        prompts=400, others=1,
    ),
)  # fmt: skip
