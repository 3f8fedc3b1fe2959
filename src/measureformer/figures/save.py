"""`save_figure`: a figure as an SVG or PDF file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from measureformer.errors import DtypeError, OptionError
from measureformer.figures.draw import draw, to_pdf, to_svg
from measureformer.figures.figure import Figure
from measureformer.storage.files import write_atomically

if TYPE_CHECKING:  # figures must not wait for JAX
    from measureformer.numerics.types import PathLike

_KINDS = {".svg": to_svg, ".pdf": to_pdf}


def save_figure(figure: Figure, path: PathLike) -> Path:
    """Draw a figure in the house style, write it, and return its path.

    The same figure gives the same bytes.

    Arguments:
        figure: what to draw.
        path: file to write; .svg or .pdf decides the format.

    >>> import numpy as np, measureformer as mf
    >>> t = np.linspace(0, 1, 50)
    >>> figure = mf.Figure("A wave", "t", "height", (mf.Series("sine", t, np.sin(6 * t), role="measured"),))
    >>> mf.save_figure(figure, "wave.txt")
    Traceback (most recent call last):
    ...
    measureformer.errors.OptionError: got a path that ends in '.txt'; need one that ends in .svg or .pdf. Rename it.
    """
    if not isinstance(figure, Figure):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DtypeError(
            got=f"a {type(figure).__name__}", need="an mf.Figure", do="Make one from its title, labels and mf.Series."
        )
    if not isinstance(path, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DtypeError(got=f"a path of type {type(path).__name__}", need="a str or a pathlib.Path", do="Name a file.")
    target = Path(path)
    kind = _KINDS.get(target.suffix.lower())
    if kind is None:
        raise OptionError(
            got=f"a path that ends in {target.suffix!r}", need="one that ends in .svg or .pdf", do="Rename it."
        )
    write_atomically(target, kind(draw(figure)), do="Choose another folder, or make room.")
    return target
