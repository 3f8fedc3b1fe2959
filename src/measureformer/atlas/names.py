"""Names of claims, which are names of files as well."""

from __future__ import annotations

import re
from pathlib import Path

from measureformer.errors import ResultFormatError

CLAIM_NAME = re.compile(r"[a-z]+(-[a-z]+)*-[0-9]{4}[a-z]?(-[a-z0-9]+)+")
"""`author-year-what` in lower-case kebab style; several authors are joined by dashes."""

LONGEST_NAME = 100


def is_claim_name(name: str) -> bool:
    """Whether `name` is a well-formed name of a claim, and so a safe name of a file.

    >>> is_claim_name("castin-2025-gaussian-closed-form"), is_claim_name("../../etc/passwd")
    (True, False)
    """
    return len(name) <= LONGEST_NAME and CLAIM_NAME.fullmatch(name) is not None


def claim_file(folder: Path, claim: str, suffix: str) -> Path:
    """`folder/claim.suffix`; a name that could leave the folder is refused, because results may come from anywhere."""
    if not is_claim_name(claim):
        raise ResultFormatError(
            got=f"a result whose claim is called {claim[:60]!r}",
            need="a name of the form author-year-what, in lower-case letters, digits and dashes",
            do="Delete the file, or run the claim again with --fresh.",
        )
    return folder / f"{claim}.{suffix}"
