"""`Drawing`: a Matplotlib figure in our style, which notebooks show and which is saved without a date."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib.figure import Figure as Canvas

from measureformer.figures.style import style

_UNDATED: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


class Drawing(Canvas):
    """A `matplotlib.figure.Figure` whose style does not depend on settings elsewhere."""

    def draw(self, renderer: Any) -> None:
        # ticks are made while drawing
        with style():
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Save as Matplotlib does, without a date."""
        kind = options.get("format") or str(fname).rpartition(".")[2].lower()
        with style():
            super().savefig(fname, **dict[str, Any](metadata=_UNDATED.get(kind)) | options)

    def to_bytes(self, kind: str) -> bytes:
        stream = BytesIO()
        self.savefig(stream, format=kind)
        return stream.getvalue()

    def _repr_svg_(self) -> str:
        return self.to_bytes("svg").decode()

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")
