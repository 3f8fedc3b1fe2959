"""Matplotlib's settings for all figures: one style made for print, bundled fonts, the same on every machine."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from measureformer.errors import need

_STYLE: dict[str, Any] = {
    # all come with Matplotlib: the figure is the same on every machine
    "font.family": ["STIXGeneral", "DejaVu Serif", "DejaVu Sans"],
    "mathtext.fontset": "stix",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#333333",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 4),
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.6,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0.2,
    # at least as high as any label, so that the rows of all columns align
    "legend.handleheight": 1.3,
    "legend.labelspacing": 0.2,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
    "path.simplify": True,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "measureformer",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    # that of SVG and PDF: what was measured for the layout serves them
    "figure.dpi": 72,
    "text.usetex": False,
}


@contextmanager
def style() -> Generator[None, None, None]:
    matplotlib = need("matplotlib", "atlas")
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # a character that no font has is drawn as a box, and a number that has no place is not drawn: answer enough
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="matplotlib")
        yield
