"""The run-time checker of annotations that `conftest.py` applies to the package."""

from __future__ import annotations

from typing import Self

from beartype import BeartypeConf, FrozenDict, beartype

# jaxtyping decorates methods one by one, and outside a decorated class beartype refuses Self
function = beartype(conf=BeartypeConf(hint_overrides=FrozenDict({Self: object})))
