"""Counting what JAX compiles while something runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_seen: list[str] = []


def _listen(event: str, duration: float, **details: Any) -> None:
    if event == _EVENT:
        _seen.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


def count_compilations(run: Callable[[], Any]) -> int:
    """How many programs JAX compiles during `run()`."""
    before = len(_seen)
    run()
    return len(_seen) - before
