"""The kinds of claims: what stands behind a statement. A claim is of the weakest kind among its checks."""

from __future__ import annotations

from typing import Literal

Kind = Literal["theorem", "construction", "observation"]

KINDS: dict[Kind, str] = {
    "theorem": "proved, in the source or in the documentation, and tested on examples here",
    "construction": "an explicit network, algorithm or example, with a property that is checked as the proof says",
    "observation": "measured, and not proved: a description, with intervals that do not follow from theory",
}
"""From the strongest to the weakest, each with its meaning."""
