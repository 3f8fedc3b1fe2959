"""What several tests of flows share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module")
def light_compilation() -> Iterator[None]:
    """What holds, holds for any machine code: many programs are compiled here without optimisation, to save time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # other tests must not meet these programs
