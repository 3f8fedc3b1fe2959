"""Where real weights lie, if they are there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "MEASUREFORMER_LENS_DATA"
"""Names the folder that `make lens-data` filled, if it is not `lens-data` here."""

TOPICS = ("assert", "class", "comparisons", "context-managers", "exceptions", "formatstrings")


def folder(name: str) -> Path:
    return Path(os.environ.get(VARIABLE, "lens-data")) / name


def needs(*names: str) -> Callable[[], str]:
    """What a claim about these models needs first: the command that installs their weights, or nothing."""

    def lacking() -> str:
        return "" if all((folder(name) / "done").is_file() for name in names) else "make lens-data"

    return lacking


@cache
def model(name: str) -> Any:
    """The model in the folder of that name, kept for the claims that follow."""
    from measureformer.lens import load

    return load(folder(name))


def real_text(reader: Any, tokens: int) -> np.ndarray:
    """The first tokens of a text that every Python brings along."""
    from pydoc_data.topics import topics

    text = " ".join(" ".join(topics[name].split()) for name in TOPICS if name in topics)
    return reader.tokenized(text)[:tokens]
