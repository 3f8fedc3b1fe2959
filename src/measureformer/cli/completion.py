"""What a shell offers when Tab is pressed: names of claims and of apps, found without importing any of them."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def claim_names(incomplete: str) -> list[str]:
    """The claims that begin so.

    >>> claim_names("castin-2025-gaussian-t")
    ['castin-2025-gaussian-tilt']
    """
    from measureformer.atlas.index import index

    return sorted(name for name in index() if name.startswith(incomplete))


def app_names(incomplete: str) -> list[str]:
    """The apps of the explorer that begin so.

    >>> app_names("part")
    ['particles']
    """
    names = sorted(path.stem for path in _PACKAGE.glob("explore/apps/[a-z]*.py"))
    return [name for name in names if name.startswith(incomplete)]
