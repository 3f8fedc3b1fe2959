"""A prompt as a measure: order and repetition of examples do not matter, and there is a limit of ever more of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.incontext_floats import floats
from measureformer.atlas.helpers.incontext_learner import Learner, learned, prompts, start, task
from measureformer.atlas.helpers.random import once
from measureformer.atlas.result import Check, Outcome
from measureformer.figures.figure import Figure, Series
from measureformer.incontext import MeasureLaws
from measureformer.incontext.laws import laws_on
from measureformer.incontext.models import Reading


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 256
    doublings: int = 5
    """How often the number of examples is doubled, from half of those in training: all but one go beyond them."""
    both: int = 0
    """1 if the sequence is trained too: order and repetition matter to it before that already."""


@once
def _laws(key: Any, config: Config, reading: Reading) -> MeasureLaws:
    k = (config.points - 1) // 2
    most = 2**config.doublings * k
    learner = config.plain(reading=reading, room=most + 1 if reading == "sequence" else 0)
    model = learned(key, learner).model if reading == "measure" or config.both else start(key, learner)
    return laws_on(model, prompts(jax.random.fold_in(key, 5), learner, config.prompts, most + 1), task(learner), k)


def _checks(laws: MeasureLaws) -> tuple[Check, ...]:
    slopes, gaps = laws.slopes, laws.gaps
    return (
        Check("another order: relative change of the answer", laws.permuted, high=1e-4),
        Check("every example twice: relative change of the answer", laws.repeated, high=1e-4),
        Check("one example moved: slopes, largest over smallest", float(slopes.max() / slopes.min()), high=20.0),
        Check("twice as many examples: change of the answer, last over first", float(gaps[-1] / gaps[0]), high=0.6),
        Check("error after the most examples over that of predicting 0", float(laws.errors[-1]), high=0.6),
    )


def _run(key: Any, config: Config) -> Outcome:
    measure, sequence = _laws(key, config, "measure"), _laws(key, config, "sequence")
    n = measure.examples[:-1]
    start = "trained" if config.both else "not trained"
    figure = Figure(
        "Ever more examples",
        "examples n",
        "relative change from n to 2n; error (points)",
        (
            Series("read as a measure: from n to 2n", floats(n), floats(measure.gaps)),
            Series("error after n", floats(measure.examples), floats(measure.errors), "points"),
            Series("control: read as a sequence", floats(n), floats(sequence.gaps)),
            Series("n^(−1/2)", floats(n), floats(measure.gaps[0] * (n / n[0]) ** -0.5), "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption=(
            f"Training had at most {config.points - 1} examples. Another order of {n[0]:g} examples changes the answer "
            f"by {measure.permuted:.1g} as a measure and {sequence.permuted:.1g} as a sequence ({start}), repetition "
            f"of each by {measure.repeated:.1g} and {sequence.repeated:.1g}."
        ),
    )
    return Outcome(_checks(measure), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_laws(key, config, "sequence")))


claim = Claim(
    name="furuya-2024-prompt-measures",
    title="A trained learner that reads measures is blind to order and repetition",
    statement=(
        "A transformer trained to predict at a point x from the measure (1/k) Σ δ_(x_i, y_i) gives the same answer "
        "when examples are permuted or each is repeated, changes it by a bounded multiple of the distance W_1, "
        "and can be asked with more examples than in training: from n of them to 2n it changes less and less. With "
        "positions and a causal mask it does not."
    ),
    hypotheses=(
        "trained on linear functions, in single precision; the sequence is trained in the full preset only: order and "
        "repetition matter to it before that already",
        "up to 16 times as many examples as in training: that there is a limit is seen in the fall, and not proved",
    ),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The prompt is read as a sequence, with a causal mask and learned positions.",
    quick=Config(),
    full=Config(dim=3, points=7, width=32, layers=3, steps=2500, rate=2e-3, doublings=5, both=1),
)
