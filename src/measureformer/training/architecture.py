"""`Architecture`: the shape of a transformer that is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from measureformer.errors import DimensionMismatchError, OptionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import check_fields


@dataclass(frozen=True)
class Architecture:
    """Shape of a transformer: its layers alternate attention and perceptron, each added to the tokens.

    Arguments:
        width: dimension of the tokens.
        layers: number of blocks, each an attention and a perceptron.
        heads: attention heads of each block; they divide the width.
        hidden: units of each perceptron; 4·width by default.
        norm: "layer" puts LayerNorm before each attention, each perceptron and the read-out; "none" leaves it out.
        branch: factor of what each attention and each perceptron adds to the tokens.

    >>> import measureformer as mf
    >>> mf.Architecture(width=64, layers=3, heads=2).units
    256
    """

    width: int = 64
    layers: int = 3
    heads: int = 2
    hidden: int | None = None
    norm: Literal["layer", "none"] = "layer"
    branch: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("width", "layers", "heads", "units"):
            positive_int(getattr(self, name), "hidden" if name == "units" else name)
        if self.width % self.heads:
            raise DimensionMismatchError(
                got=f"{self.heads} heads on width {self.width}", need="heads that divide the width", do="Change one."
            )
        if self.norm not in ("layer", "none"):
            raise OptionError(got=f"norm = {self.norm!r}", need='"layer" or "none"', do='Leave it out for "layer".')
        if not 0 < self.branch < math.inf:
            raise OptionError(got=f"branch = {self.branch!r}", need="a positive number", do="Leave it out for 1.")
        if self.hidden == 4 * self.width:  # one shape, one value
            object.__setattr__(self, "hidden", None)

    @property
    def units(self) -> int:
        """Units of each perceptron."""
        return 4 * self.width if self.hidden is None else self.hidden
