"""What all pages share: a head with one style sheet. Nothing is ever fetched, and no script runs but the page's own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from measureformer.pages.markup import Markup, tag
from measureformer.pages.words import one_line


@cache
def asset(package: str, name: str) -> str:
    """The text of a file that lies beside the modules of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _seal(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def head(title: str, *, script: str = "") -> Markup:
    """The head of a page: one style sheet, nothing that is fetched, and no script but the given one."""
    style = asset("measureformer.pages", "style.css")
    # a second wall behind the escaping: no style and no script but these two apply, and nothing can be fetched
    policy = f"default-src 'none'; img-src data:; style-src {_seal(style)}; base-uri 'none'; form-action 'none'"
    if script:
        policy += f"; script-src {_seal(script)}"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", one_line(title)),
        tag("style", Markup(style)),
    )
