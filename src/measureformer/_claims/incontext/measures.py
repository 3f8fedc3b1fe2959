"""A prompt as a measure: order and repetition of examples do not matter, and any number of them may be given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from measureformer._claims._random import once
from measureformer._claims.base import Claim
from measureformer._claims.incontext._floats import floats
from measureformer._claims.incontext._learner import Learner, learned, prompts, start, task
from measureformer.incontext import MeasureLaws
from measureformer.incontext._laws import laws_on
from measureformer.incontext.models import Reading
from measureformer.result import Check, Figure, Outcome, Series


@dataclass(frozen=True)
class Config(Learner):
    prompts: int = 256
    doublings: int = 1
    both: int = 0
    """1 if the sequence is trained too: order and repetition matter to it before that already."""


@once
def _laws(key: Any, config: Config, reading: Reading) -> MeasureLaws:
    learner = config.plain(reading=reading)
    model = learned(key, learner).model if reading == "measure" or config.both else start(key, learner)
    k = (config.points - 1) // 2
    most = 2**config.doublings * k if reading == "measure" else 2 * k
    return laws_on(model, prompts(jax.random.fold_in(key, 5), learner, config.prompts, most + 1), task(learner), k)


def _checks(laws: MeasureLaws) -> tuple[Check, ...]:
    return (
        Check("another order: relative change of the answer", laws.permuted, high=1e-4),
        Check("every example twice: relative change of the answer", laws.repeated, high=1e-4),
        Check(
            "one example moved: slopes, largest over smallest", float(laws.slopes.max() / laws.slopes.min()), high=20.0
        ),
        Check("error after the most examples over that of predicting 0", float(laws.errors[-1]), high=0.6),
    )


def _run(key: Any, config: Config) -> Outcome:
    readings: tuple[Reading, Reading] = ("measure", "sequence")
    both = {reading: _laws(key, config, reading) for reading in readings}
    names = ("order", "repetition")
    places = floats(range(len(names)))
    bars = [
        Series(f"read as a {reading}", places, floats(max(v, 1e-8) for v in (laws.permuted, laws.repeated)), "bars")
        for reading, laws in both.items()
    ]
    figure = Figure(
        "What a change of the prompt does to the answer",
        "",
        "relative change",
        tuple(bars),
        yscale="log",
        xticks=names,
        caption=(
            f"Errors of the measure reading after {', '.join(f'{n:g}' for n in both['measure'].examples)} examples: "
            f"{', '.join(f'{e:.2g}' for e in both['measure'].errors)}; it was trained with fewer than {config.points}."
        ),
    )
    return Outcome(_checks(both["measure"]), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_laws(key, config, "sequence")))


claim = Claim(
    name="furuya-2024-prompt-measures",
    title="A trained learner that reads measures is blind to order and repetition",
    statement=(
        "A transformer trained to predict at a point x from the measure (1/k) Σ δ_(x_i, y_i) gives the same answer "
        "when examples are permuted or each is repeated, changes it by a bounded multiple of the distance W_1, "
        "and can be asked with more examples than in training. With positions and a causal mask it does not."
    ),
    hypotheses=("both are trained on linear functions, in single precision",),
    reference="furuya2024",
    run=_run,
    control=_control,
    control_statement="The prompt is read as a sequence, with a causal mask and learned positions.",
    quick=Config(),
    full=Config(dim=3, points=7, width=32, layers=3, steps=2500, rate=2e-3, doublings=5, both=1),
)
