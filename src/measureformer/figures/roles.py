"""One visual language for all figures: what a colour, a dash and a marker mean, in one place.

    measured   solid, in colours, told apart by markers       what the experiment gave
    theory     black or grey, dashed or dotted                bounds, laws, closed forms, tolerances
    control    vermilion, dash-dotted, crosses, hatched       the deliberately false variant
    measure    green, solid                                   tokens and densities themselves

The role of a series is the one it was given, or follows from its style and its label: figures of all claims obey one
rule, and few have to be told. Any two series of a figure differ in more than their colour, so that it can be read in
grey.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from measureformer.figures.figure import Role, Series

# Okabe and Ito's palette, which people who do not see all colours can tell apart; vermilion is kept for controls and
# green for measures, and the yellow is too pale for lines
PALETTE = ("#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#6A3D9A", "#7A5C3E")
INK = ("#1A1A1A", "#767676", "#4A4A4A", "#9A9A9A")
CONTROL = ("#D55E00", "#8F3F00")
MEASURE = ("#009E73", "#00543D", "#5CC9A7")
COLOURS: dict[Role, tuple[str, ...]] = {"measured": PALETTE, "theory": INK, "control": CONTROL, "measure": MEASURE}

MARKERS: dict[Role, tuple[str, ...]] = {
    "measured": ("o", "s", "^", "D", "v", "P"),
    "theory": ("None",),
    "control": ("X", "d"),
    "measure": ("h", "p", "*"),
}
Dash = tuple[int, tuple[float, ...]] | str
DASHES: dict[Role, tuple[Dash, ...]] = {
    "measured": ("solid",),
    "theory": ((0, (4, 2.2)), (0, (1, 1.5)), (0, (8, 2, 1.5, 2)), (0, (2.4, 1.2))),
    "control": ((0, (6, 1.6, 1.2, 1.6)), (0, (3, 1.4, 1, 1.4, 1, 1.4))),
    "measure": ("solid",),
}
HATCHES: dict[Role, tuple[str, ...]] = {
    "measured": ("", "....", "\\\\\\\\", "xxxx", "++++", "oooo"),
    "theory": ("----", "||||"),
    "control": ("////", "**"),
    "measure": ("||", "--", "OO"),
}

_CONTROL = re.compile(r"(^|: )control\b", re.IGNORECASE)
_THEORY = re.compile(
    r"\b(bounds?|certificate|certified|equality|equation|closed form|limit|claimed|tolerance|allowed|required)\b"
    r"|^order ",
    re.IGNORECASE,
)
_MEASURE = re.compile(r"^(start|tokens|particles|density|law)\b", re.IGNORECASE)


def role(series: Series) -> Role:
    """What a series stands for.

    >>> role(Series("control: no mask", (), ())), role(Series("N^(-1/2)", (), (), "dashed"))
    ('control', 'theory')
    >>> role(Series("sum of the error bounds", (), ())), role(Series("trained", (), ()))
    ('theory', 'measured')
    >>> role(Series("trained", (), (), role="control"))
    'control'
    """
    if series.role is not None:
        return series.role
    if _CONTROL.search(series.label):
        return "control"
    if series.style == "dashed" or (series.style == "line" and _THEORY.search(series.label)):
        return "theory"
    return "measure" if _MEASURE.match(series.label) else "measured"


@dataclass(frozen=True)
class Look:
    """How one series is drawn."""

    role: Role
    color: str
    dash: Dash
    marker: str
    hatch: str


@dataclass
class Looks:
    """Hands out looks in order; a band without a role looks like the series before it."""

    used: dict[Role, int] = field(default_factory=dict[Role, int])
    last: Look | None = None

    def next(self, series: Series) -> Look:
        if series.style == "band" and series.role is None and self.last is not None:
            return self.last
        kind = role(series)
        i = self.used.get(kind, 0)
        self.used[kind] = i + 1
        pick = {name: table[kind][i % len(table[kind])] for name, table in (("marker", MARKERS), ("hatch", HATCHES))}
        dashes = DASHES["theory"] if series.style == "dashed" and DASHES[kind] == ("solid",) else DASHES[kind]
        color, dash = COLOURS[kind][i % len(COLOURS[kind])], dashes[i % len(dashes)]
        self.last = Look(kind, color, dash, pick["marker"], pick["hatch"])
        return self.last
