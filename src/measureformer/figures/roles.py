"""One visual language for all figures: what a colour, a dash and a marker mean, in one place.

    measured   solid, in colours, told apart by markers       what was measured
    theory     black or grey, dashed or dotted                bounds, laws, closed forms, tolerances
    control    vermilion, dash-dotted, crosses, hatched       the deliberately false variant
    measure    green, solid                                   tokens and densities themselves

Any two series of a figure differ in more than their colour, so that it can be read in grey.
"""

from __future__ import annotations

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
    "theory": ("----", "||||", "-|-|", "x-x-"),
    "control": ("////", "**"),
    "measure": ("||", "--", "OO"),
}


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
    """Hands out looks in order; a band looks like the series of its role before it."""

    used: dict[Role, int] = field(default_factory=dict[Role, int])
    last: dict[Role, Look] = field(default_factory=dict[Role, Look])

    def next(self, series: Series) -> Look:
        kind = series.role
        if series.style == "band" and kind in self.last:
            return self.last[kind]
        i = self.used.get(kind, 0)
        self.used[kind] = i + 1
        pick = {name: table[kind][i % len(table[kind])] for name, table in (("marker", MARKERS), ("hatch", HATCHES))}
        dashes = DASHES["theory"] if series.style == "dashed" and DASHES[kind] == ("solid",) else DASHES[kind]
        color, dash = COLOURS[kind][i % len(COLOURS[kind])], dashes[i % len(dashes)]
        self.last[kind] = Look(kind, color, dash, pick["marker"], pick["hatch"])
        return self.last[kind]
