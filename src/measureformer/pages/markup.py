"""HTML by construction: strings are escaped where they enter, and only what `tag` made is markup."""

from __future__ import annotations

import html

from measureformer.pages.words import clean


class Markup(str):
    """A string that is HTML already; made by `tag` and `join` only."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | None) -> Markup:
    """An element. Plain strings among the children and all attributes are escaped; `class_` is spelled `class`.

    >>> tag("p", "1 < 2", class_='a"b')
    '<p class="a&quot;b">1 &lt; 2</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in ("img", "meta", "input"):
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: str, by: str = "") -> Markup:
    """The children one after another, plain strings escaped."""
    return Markup(by.join(child if isinstance(child, Markup) else escape(child) for child in children))


def escape(text: str) -> str:
    """`text` as HTML, in an element or in a quoted attribute, without characters that HTML forbids."""
    return html.escape(clean(text), quote=True)
