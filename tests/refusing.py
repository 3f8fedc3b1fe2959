"""Tables of bad input: what is tried, the error it gets, and what the error says it received."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from measureformer.errors import MeasureformerError

Case = tuple[Callable[[], Any], type[MeasureformerError], str]


def assert_refused(case: Case) -> None:
    """What was received, what is needed, what to do: all three are there."""
    run, error, said = case
    with pytest.raises(error) as caught:
        run()
    assert type(caught.value) is error
    assert re.search(said, caught.value.got)
    assert caught.value.got in str(caught.value)
    assert caught.value.need
    assert caught.value.do
