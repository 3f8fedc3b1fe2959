"""Claims of the chapter: what passing does not show. Each control alone is rejected, and no check is empty."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from measureformer.atlas.claims.incontext import (
    furuya_2024_prompt_measures as measures,
)
from measureformer.atlas.claims.incontext import (
    garg_2022_linear as linear_functions,
)
from measureformer.atlas.claims.incontext import (
    xie_2022_ginc as ginc,
)
from measureformer.atlas.helpers.incontext_learner import learned, start
from measureformer.incontext.baselines import least_squares_error
from measureformer.incontext.retrieval import Retrieval

KEY = jax.random.key(0)


def test_both_controls_of_linear_functions_are_rejected_alone() -> None:
    config = linear_functions.claim.quick
    learner = config.plain()
    models = {
        "trained": learned(KEY, learner).model,
        "untrained": start(KEY, learner),
        "labels of others": learned(KEY, learner, blend=1.0).model,
    }
    checks = {
        name: linear_functions._checks(linear_functions._errors(KEY, config, model), config)
        for name, model in models.items()
    }
    # kills: a distance that looks at no example only, where a measure predicts 0 by definition
    assert {check.verdict for check in checks["trained"]} == {"holds"}
    for name in ("untrained", "labels of others"):
        assert [check.verdict for check in checks[name]] == ["violated"] * 3, name


@pytest.mark.parametrize(("reading", "empty"), [("measure", 0.0), ("sequence", 0.5)])
def test_without_an_example_only_a_sequence_is_judged(reading: str, empty: float) -> None:
    config = replace(linear_functions.claim.quick, dim=3, points=5, reading=reading)
    law = least_squares_error(3, np.arange(5))
    found = law.copy()
    found[0] += 0.5
    distance = linear_functions._checks((found, 0 * found), config)[1]
    assert distance.value == pytest.approx(empty)
    found[2] += 0.7
    assert linear_functions._checks((found, 0 * found), config)[1].value == pytest.approx(0.7)


def test_more_examples_than_in_training_are_asked_and_judged() -> None:
    for config in (measures.claim.quick, measures.claim.full):
        k = (config.points - 1) // 2
        assert 2**config.doublings * k >= 8 * (config.points - 1)
    laws = measures._laws(KEY, measures.claim.quick, "measure")
    gaps = laws.gaps
    assert len(gaps) == measures.claim.quick.doublings
    # an answer that moves on and on has no limit, and is rejected by that alone
    endless = measures._checks(replace(laws, gaps=gaps[:1].repeat(len(gaps))))
    assert [check.verdict for check in endless].count("violated") == 1
    assert {check.verdict for check in measures._checks(laws)} == {"holds"}


def test_a_reader_that_gains_nothing_does_not_hold() -> None:
    def table(accuracy: np.ndarray) -> Retrieval:
        error = np.sqrt(accuracy * (1 - accuracy) / 4000)
        return Retrieval((3, 5, 8), (0, 1, 2), accuracy, error, None)

    grown = np.array([[0.6, 0.65, 0.7], [0.7, 0.8, 0.85], [0.8, 0.85, 0.9]])
    number, length, last = ginc._model_checks(table(grown))
    assert {check.verdict for check in (number, length, last)} == {"holds"}
    assert number.value == pytest.approx(0.35 / 3)
    assert length.value == pytest.approx(0.2)
    # five standard errors of a mean of three differences
    by_hand = np.sqrt((grown * (1 - grown) / 4000)[:, [0, 2]].sum()) / 3
    assert number.error == pytest.approx(5 * by_hand)
    flat = ginc._model_checks(table(np.repeat(grown[:, :1], 3, axis=1)))
    assert [check.verdict for check in flat] == ["inconclusive", "holds", "holds"]
    falling = ginc._model_checks(table(grown[:, ::-1]))
    assert falling[0].verdict == "violated"
    assert ginc._model_checks(table(np.full((3, 3), 0.5)))[1].verdict == "violated"
