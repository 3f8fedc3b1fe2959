"""A prompt as a measure: order and repetition of examples do not matter, and there is a limit of ever more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from measureformer.atlas.helpers.incontext_learner import Learner, learned, prompts, start, task
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, once
from measureformer.incontext.measure_laws import MeasureLaws, laws_on
from measureformer.incontext.models import Reading


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 256
    doublings: int = 5
    """How often the number of examples is doubled, from half of those in training: all but one go beyond them."""
    both: int = 0
    """1 if the sequence is trained too: order and repetition matter to it before that already."""


@once
def _laws(key: Key, config: Config, reading: Reading) -> MeasureLaws:
    k = (config.points - 1) // 2
    most = 2**config.doublings * k
    learner = config.plain(reading=reading, room=most + 1 if reading == "sequence" else 0)
    model = learned(key, learner).model if reading == "measure" or config.both else start(key, learner)
    return laws_on(model, prompts(jax.random.fold_in(key, 5), learner, config.prompts, most + 1), task(learner), k)


def _checks(laws: MeasureLaws) -> tuple[Check, ...]:
    sequence, square, doubled = "sequence", "square-of-distance", "twice as many examples: change of the answer"
    spread = laws.slopes.max() / laws.slopes.min()
    slope = np.polyfit(np.log(laws.examples[:-1]), np.log(laws.gaps), 1)[0]
    last = "error after the most examples over that of predicting 0"
    return (
        Check("another order: relative change of the answer", laws.permuted, high=1e-4, rejected_by=sequence),
        Check("every example twice: relative change of the answer", laws.repeated, high=1e-4, rejected_by=sequence),
        Check("one example moved: slopes, largest over smallest", spread, high=20.0, rejected_by=square),
        # n independent examples are n^(−1/2) away from their limit
        Check(f"{doubled}, order in n", slope, high=-0.4, rejected_by=sequence),
        Check(last, laws.errors[-1], high=0.6, rejected_by=sequence),
    )


def measure(key: Key, config: Config, variant: str) -> Outcome:
    laws = _laws(key, config, "sequence" if variant == "sequence" else "measure")
    if variant == "square-of-distance":
        laws = replace(laws, slopes=laws.slopes / laws.moves)
    return Outcome(_checks(laws), _figure(config, laws, _laws(key, config, "sequence")) if variant == "claim" else None)


def _figure(config: Config, laws: MeasureLaws, sequence: MeasureLaws) -> Figure:
    n = laws.examples[:-1]
    start = "trained" if config.both else "not trained"
    return Figure(
        "Ever more examples",
        "examples n",
        "relative change from n to 2n; error (points)",
        (
            Series("read as a measure: from n to 2n", n, laws.gaps, role="measured"),
            Series("error after n", laws.examples, laws.errors, "points", role="measured"),
            Series("control: read as a sequence", n, sequence.gaps, role="control"),
            Series("n^(−1/2)", n, laws.gaps[0] * (n / n[0]) ** -0.5, "dashed", role="theory"),
        ),
        xscale="log",
        yscale="log",
        caption=(
            f"Training had at most {config.points - 1} examples. Another order of {n[0]:g} examples changes the answer "
            f"by {laws.permuted:.1g} as a measure and {sequence.permuted:.1g} as a sequence ({start}), repetition "
            f"of each by {laws.repeated:.1g} and {sequence.repeated:.1g}."
        ),
    )


claim = Claim(
    name="furuya-2024-prompt-measures",
    title="A trained learner that reads measures is blind to order and repetition",
    kind="observation",
    statement=(
        "A transformer trained to predict at a point x from the measure (1/k) Σ δ_(x_i, y_i) gives the same answer "
        "when examples are permuted or each is repeated. Observed: answers change in proportion to the distance W_1, "
        "up to a factor 20, and from n examples to 2n they change less and less, also beyond the numbers in training. "
        "With positions and a causal mask order and repetition matter."
    ),
    hypotheses=(
        "trained on linear functions, in single precision; the sequence is trained in the full preset only: order and "
        "repetition matter to it before that already",
        "up to 16 times as many examples as in training: that there is a limit is seen in the fall, and not proved",
    ),
    reference="furuya2024",
    measure=measure,
    controls={
        "sequence": "The prompt is read as a sequence, with a causal mask and learned positions.",
        "square-of-distance": "The answer changes by a bounded multiple of the square of W_1, not of W_1 itself.",
    },
    quick=Config(),
    full=Config(dim=3, points=7, width=32, layers=3, steps=2500, rate=2e-3, doublings=5, both=1),
)
