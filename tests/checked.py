"""The run-time checker of annotations that `conftest.py` applies to the package: it checks the shapes of arrays.

Other types are pyright's business. A user's wrong value is answered by the library's own sentence, which the tests want
to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray, PRNGKeyArray


def function(checked: Callable[..., Any]) -> Callable[..., Any]:
    hints = checked.__annotations__
    checked.__annotations__ = {name: hint if _has_shape(hint) else Any for name, hint in hints.items()}
    return beartype(checked)


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return not issubclass(hint, PRNGKeyArray)
    return any(map(_has_shape, get_args(hint)))
