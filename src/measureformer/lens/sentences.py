"""A diagnosis in a few sentences: the answers that figures and tables show in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from measureformer.lens.diagnose import Diagnosis

CLASSES = "I", "II", "III", "IV"


def sentences(found: Diagnosis) -> list[str]:
    """One sentence for each question that was asked of the model."""
    return [sentence for tell in ASKED if (sentence := tell(found))]


def _parity(found: Diagnosis) -> str:
    if found.parity is None:
        return f"No reference: {found.no_reference}." if found.no_reference else ""
    return f"Hidden states are those of transformers up to {found.parity:.1e}."


def _lipschitz(found: Diagnosis) -> str:
    lower, upper = found.column("lower"), found.column("upper")
    if not np.isfinite(lower).any():
        return ""
    said = f"Attention stretches small changes of this text by {_range(lower)}, from layer to layer"
    return said + (f"; certified is at most {_range(upper)}." if np.isfinite(upper).all() else ".")


def _growth(found: Diagnosis) -> str:
    fits = [
        f"n^{fit.exponent:.2f} in layer {i + 1} (95 % [{fit.low:.2f}, {fit.high:.2f}])"
        for i, fit in found.exponents().items()
    ]
    return f"As the context grows that changes like {', '.join(fits)}; the worst case is √n." if fits else ""


def _cloud(found: Diagnosis) -> str:
    parts: list[str] = []
    for name, words in (("cosine", "Two tokens have a mean cosine of"), ("rank", "The cloud has effective rank")):
        values, mixed = found.column(name), found.column(name, control=True)
        shuffled = f", {mixed[-1]:.3g} if weights are shuffled" if len(mixed) else ""
        ends = f"{values[0]:.3g} after the first layer and {values[-1]:.3g} after the last"
        parts.append(f"{words} {ends}{shuffled}.")
    return " ".join(parts)


def _memories(found: Diagnosis) -> str:
    classes, signs = found.column("class"), found.column("attraction")
    counts = ", ".join(f"{int((classes == i + 1).sum())} of class {name}" for i, name in enumerate(CLASSES))
    attract = int((signs > 0).sum())
    return (
        f"Of {classes.size} heads, as memories, {counts} (I averages, IV retrieves single tokens); "
        f"{attract} attract and {int((signs < 0).sum())} repel."
    )


def _closure(found: Diagnosis) -> str:
    errors = found.column("closure")
    return (
        f"The median head is {np.nanmedian(errors):.3g} away from its Gaussian closure: "
        "0 if it saw no more than mean and covariance, 1 if these explained nothing."
    )


def _laws(found: Diagnosis) -> str:
    changes = ", ".join(f"{name} {value:.1e}" for name, value in found.laws.items())
    return f"The answer changes with the context {changes}, relative: 0 for a map on measures." if changes else ""


def _iterated(found: Diagnosis) -> str:
    if not found.iterated:
        return ""
    ends = f"{found.iterated[found.depth]:.2f} after {found.depth} layers, {found.iterated[-1]:.2f} after"
    return f"Its one layer, iterated: mean cosine of two tokens {ends} {len(found.iterated) - 1}."


def _range(values: np.ndarray) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


ASKED: tuple[Callable[[Diagnosis], str], ...] = (
    _lipschitz,
    _growth,
    _cloud,
    _memories,
    _closure,
    _laws,
    _iterated,
    _parity,
)
