"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from measureformer.atlas.claim import Preset

VIOLATED = 1
"""Exit code: a claim did not pass."""

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quick = Annotated[bool, typer.Option("--quick/--full", help="Small sizes that take seconds, or the real ones.")]


def preset_of(quick: bool) -> Preset:
    return "quick" if quick else "full"
