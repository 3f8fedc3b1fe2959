"""Extension of Griffe, which reads docstrings for the documentation: they are plain text first, and Markdown here.

Four things would be lost otherwise: `>>>` examples, which are quotations in Markdown; the aligned lines of a theorem
(`Statement`, `Hypotheses`, …) and those of `Arguments:`, which would run together; and formulas like Γ[mu](x), which
are links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

LABELS = "Model|Statement|Proof|Hypotheses|Sharp\\?|Cost|Ref:?|Derived"
ARGUMENT = re.compile(r"^    (\S[^:]*): ")
LABEL = re.compile(rf"^({LABELS})[ \t]+(?=\S)")


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Blocks of lines that hold an example are fenced; those of a theorem become a list.

    >>> print(markdown("One.\\n\\n>>> 1 + 1\\n2"))
    One.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    >>> print(markdown("Arguments:\\n    x: a number,\\n        or two."))
    **Arguments**
    <BLANKLINE>
    - `x`: a number,
      or two.
    <BLANKLINE>
    <!-- -->
    """
    blocks = re.split(r"\n[ \t]*\n", text.strip("\n"))
    return "\n\n".join(_block(block.split("\n")) for block in blocks)


def _block(lines: list[str]) -> str:
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if lines[0] == "Arguments:":
        lines = _arguments(lines[1:])
    return _no_links("\n".join(_list(lines) if LABEL.match(lines[0]) else lines))


def _arguments(lines: list[str]) -> list[str]:
    """An item for each argument; what is indented by more belongs to the one before. The comment ends the list."""
    items = ["**Arguments**", ""]
    for line in lines:
        match = ARGUMENT.match(line)
        items.append(f"- `{match[1]}`: {line[match.end() :]}" if match else f"  {line.strip()}")
    return [*items, "", "<!-- -->"]


def _list(lines: list[str]) -> list[str]:
    """`Label  text` begins an item; what follows is indented by more than the label and belongs to it."""
    items: list[str] = []
    for line in lines:
        if match := LABEL.match(line):
            items.append(f"- **{match[1].rstrip(':')}** {line[match.end() :]}")
        else:
            items.append(f"  {line.strip()}")
    return items


def _no_links(text: str) -> str:
    # every second piece is inside backticks, where a backslash would be seen
    pieces = text.split("`")
    pieces[::2] = [re.sub(r"\](?=[(\[])", r"]\\", piece) for piece in pieces[::2]]
    return "`".join(pieces)
