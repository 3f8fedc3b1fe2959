"""What a shell offers when Tab is pressed: names of claims and of apps, found without importing any of them."""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_NAME = re.compile(r'^    name="([a-z0-9-]+)",$', re.MULTILINE)


def claim_names(incomplete: str) -> list[str]:
    """The claims of the package that begin so.

    >>> claim_names("castin-2025-gaussian-t")
    ['castin-2025-gaussian-tilt']
    """
    files = sorted(_PACKAGE.glob("_claims/*/[a-z]*.py"))
    found = (_NAME.search(path.read_text(encoding="utf-8")) for path in files)
    return sorted(match[1] for match in found if match and match[1].startswith(incomplete))


def app_names(incomplete: str) -> list[str]:
    """The apps of the explorer that begin so.

    >>> app_names("part")
    ['particles']
    """
    names = sorted(path.stem for path in _PACKAGE.glob("explore/apps/[a-z]*.py"))
    return [name for name in names if name.startswith(incomplete)]
