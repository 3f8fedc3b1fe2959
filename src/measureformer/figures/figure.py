"""`Figure`: everything needed to draw a figure, as data, and nothing of how it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, TypeAlias, cast, get_args

from measureformer.errors import ResultFormatError
from measureformer.pages.words import number, one_line

if TYPE_CHECKING:
    from jax import Array

Scale = Literal["linear", "log"]
Style = Literal["line", "dashed", "points", "bars", "band"]
Role = Literal["measured", "theory", "control", "measure"]
Numbers: TypeAlias = "Iterable[SupportsFloat] | Array"
"""One number for each point: any sequence, a NumPy or a JAX array with one axis."""


@dataclass(frozen=True, init=False)
class Series:
    """One curve, cloud, set of bars or band of a figure.

    Arguments:
        label: its words in the legend.
        x: positions; any sequence of numbers, NumPy and JAX arrays included.
        y: values, as many as `x`; not-a-number interrupts a curve.
        style: "line", "dashed", "points", "bars" or "band".
        y2: the other edge of a band; empty for everything else.
        role: what the series stands for, which decides how it is drawn: "measured" in colours, "theory" black and
            dashed, "control" vermilion with crosses, "measure" (tokens and densities themselves) green. A band takes
            the colour of the series of the same role before it.

    >>> Series("measured", x=(10.0, 100.0), y=(0.3, 0.1), style="points", role="measured").y
    (0.3, 0.1)
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Style = "line"
    y2: tuple[float, ...] = ()
    role: Role = field(kw_only=True)

    def __init__(
        self, label: str, x: Numbers, y: Numbers, style: Style = "line", y2: Numbers = (), *, role: Role
    ) -> None:
        # a result holds plain numbers only: arrays would be neither JSON nor comparable
        numbers = {name: _numbers(given, label) for name, given in (("x", x), ("y", y), ("y2", y2))}
        for name, value in {"label": label, **numbers, "style": style, "role": role}.items():
            object.__setattr__(self, name, value)
        _require_one_of(self.style, Style, f"style of the series {str(self.label)[:60]!r}")
        _require_one_of(
            self.role, Role, f"role of the series {str(self.label)[:60]!r}", "Say what the series stands for."
        )
        if len(self.x) != len(self.y) or len(self.y2) != (len(self.y) if self.style == "band" else 0):
            raise ResultFormatError(
                got=f"{len(self.x)} x, {len(self.y)} y and {len(self.y2)} y2 in the series {str(self.label)[:60]!r}",
                need="as many x as y, and as many y2 for a band but none otherwise",
                do="Give arrays of the same length.",
            )


def _numbers(values: Any, label: str) -> tuple[float, ...]:
    try:
        # entry by entry, an array of JAX is slow to read
        return tuple(map(float, values.tolist() if hasattr(values, "tolist") else values))
    except (TypeError, ValueError):
        raise ResultFormatError(
            got=f"entries that are no numbers in the series {label[:60]!r}",
            need="one number for each point",
            do="Give arrays with one axis.",
        ) from None


@dataclass(frozen=True)
class Figure:
    """Everything needed to draw a figure, and nothing of how it is drawn.

    Arguments:
        title: words above the axes.
        xlabel: words below the horizontal axis.
        ylabel: words beside the vertical axis.
        series: one `Series`, or several.
        xscale: "linear" or "log".
        yscale: "linear" or "log".
        xticks: names of the positions 0, 1, 2, … on the horizontal axis, for bars; empty for a numerical axis.
        caption: what the figure shows, in sentences.
        equal: whether a unit is as long on both axes, so that a circle is round; both are then linear.

    >>> error = Series("error", (10.0, 100.0), (0.3, 0.1), role="measured")
    >>> figure = Figure("Error", "n", "error", (error,), xscale="log")
    >>> figure.xscale, figure.yscale
    ('log', 'linear')
    """

    title: str
    xlabel: str
    ylabel: str
    series: tuple[Series, ...]
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    xticks: tuple[str, ...] = ()
    caption: str = ""
    equal: bool = False

    def __post_init__(self) -> None:
        # one series, or a list of them, is what people write who make their first figure
        given: Any = self.series
        object.__setattr__(
            self, "series", tuple(given) if hasattr(given, "__iter__") and getattr(given, "ndim", 1) else (given,)
        )
        if strange := [entry for entry in cast(tuple[Any, ...], self.series) if not isinstance(entry, Series)]:
            raise ResultFormatError(
                got=f"a {type(strange[0]).__name__} among the series of the figure {self.title[:60]!r}",
                need="curves and clouds with a label",
                do='Make them with mf.Series("label", x, y, role="measured").',
            )
        _require_one_of(self.xscale, Scale, "xscale")
        _require_one_of(self.yscale, Scale, "yscale")
        if self.equal and (self.xticks or "log" in (self.xscale, self.yscale)):
            raise ResultFormatError(
                got=f"equal axes, one of them logarithmic or of names, in the figure {self.title[:60]!r}",
                need="two linear axes of numbers",
                do="Leave out equal, or the scales and names.",
            )

    def in_words(self) -> str:
        """A text alternative: the axes, and where each series begins and ends."""
        curves = "; ".join(f"{series.label} ({series.style}{_ends(series.y)})" for series in self.series)
        return one_line(f"{self.title}. {self.ylabel} against {self.xlabel}: {curves}.")

    def _repr_svg_(self) -> str:
        from measureformer.figures.draw import draw  # which knows figures

        return draw(self).to_bytes("svg").decode()

    def _repr_png_(self) -> bytes:
        from measureformer.figures.draw import draw

        return draw(self).to_bytes("png")


def _ends(y: tuple[float, ...]) -> str:
    return f", from {number(y[0])} to {number(y[-1])}" if len(y) > 1 else f", {number(y[0])}" if y else ""


def _require_one_of(value: Any, choices: Any, what: str, do: str = "Leave it out for the first.") -> None:
    if not isinstance(value, str) or value not in get_args(choices):
        need = ", ".join(f'"{choice}"' for choice in get_args(choices))
        raise ResultFormatError(got=f"{value!r} as the {what}", need=f"one of {need}", do=do)
