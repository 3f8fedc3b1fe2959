"""What users pass to a `Problem`, checked: arrays, heads, labels, masks and indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError, ShapeError
from measureformer.maps import MLP, AbstractInContextMap, Linear
from measureformer.numerics.arrays import finite, first_index, floats, shaped
from measureformer.numerics.types import ArrayLike


def array_of(value: ArrayLike, name: str, axes: str) -> Array:
    array = shaped(floats(value, name), name, axes)
    finite(array, name)
    return array


def head_of(v: ArrayLike | AbstractInContextMap, d: int) -> Linear | MLP:
    if isinstance(v, AbstractInContextMap):
        if not isinstance(v, (Linear, MLP)):
            raise DtypeError(
                got=f"a head of type {type(v).__name__}",
                need="a vector (d,), a matrix (c, d), mf.Linear or mf.MLP",
                do="The head sees one point, the attended one, and no context.",
            )
        head = v
    else:
        rows = floats(v, "v")
        if rows.ndim not in (1, 2) or 0 in rows.shape:
            raise ShapeError(got=f"v of shape {rows.shape}", need="(d,), or (c, d) for c classes", do="Check the axes.")
        head = Linear(rows.reshape(-1, rows.shape[-1]))
    if head.in_dim != d:
        raise DimensionMismatchError(
            got=f"a head on R^{head.in_dim} and tokens in R^{d}", need="one dimension", do="Check the axes of X and v."
        )
    return head


def check_labels(y: Any, outputs: int) -> None:
    known = np.array([-1.0, 1.0]) if outputs == 1 else np.arange(outputs, dtype=float)
    bad = ~np.isin(y, known)
    if bad.any():
        raise OptionError(
            got=f"label {y[first_index(bad)]:g} of example {first_index(bad)[0]}",
            need="labels −1 and 1" if outputs == 1 else f"labels 0, …, {outputs - 1}, one for each output of the head",
            do="Labels 0 and 1: pass 2*y − 1." if outputs == 1 else "Number the classes from 0.",
        )


def visible_of(visible: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    mask = np.ones(shape, bool) if visible is None else np.asarray(visible)
    if mask.shape != shape or mask.dtype != bool or not mask.any(axis=1).all():
        raise ShapeError(
            got=f"visible of shape {mask.shape} and dtype {mask.dtype}",
            need=f"booleans {shape}, with a visible token in each example",
            do="Leave it out if all tokens are visible.",
        )
    return mask


def indices_of(entry: np.ndarray, T: int) -> np.ndarray:
    if not entry.size:
        return np.zeros(0, int)  # an empty list has no type; that nothing was chosen is refused elsewhere
    if not np.issubdtype(entry.dtype, np.integer) or (entry < 0).any() or (entry >= T).any():
        raise OptionError(
            got=f"tokens {str(entry.tolist())[:60]}", need=f"whole numbers from 0 to {T - 1}", do="Count from 0."
        )
    return entry
