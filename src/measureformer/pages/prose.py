"""Mathematics in running text: x_i and e^{2s} with true indices and exponents, everything else as it stands."""

from __future__ import annotations

import re

from measureformer.pages.markup import Markup, join, tag
from measureformer.pages.words import clean, one_line

_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_SCRIPT = re.compile(rf"(?<=[^\s_^])([_^])({_GROUP}|\([^()]*\)|[−+-]?\w+|½|\*)")


def prose(text: str, *, lines: bool = False) -> Markup:
    """`text` escaped, with indices and exponents raised; `lines` keeps its line breaks.

    >>> prose("x_i ≤ e^{2s_1}")
    'x<sub>i</sub> ≤ e<sup>2s<sub>1</sub></sup>'
    """
    return _raised(clean(text) if lines else one_line(text), 3)


def _raised(text: str, depth: int) -> Markup:
    """The scripts of a script are raised too, down to a depth that no mathematics reaches."""
    parts: list[str] = []
    end = 0
    for hit in _SCRIPT.finditer(text) if depth else ():
        body = hit[2][1:-1] if hit[2][0] in "{(" and len(hit[2]) > 2 else hit[2]
        parts += [text[end : hit.start()], tag("sub" if hit[1] == "_" else "sup", _raised(body, depth - 1))]
        end = hit.end()
    return join(*parts, text[end:])
