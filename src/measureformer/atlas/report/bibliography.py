"""The references of an atlas: which claims cite which, and BibTeX of those that are cited."""

from __future__ import annotations

import re
from collections.abc import Iterable

from measureformer.atlas.atlas import Note
from measureformer.atlas.references import Reference, bibliography, references

FILE = "references.bib"


def keys_of(reference: str) -> list[str]:
    """The keys in a reference string such as "castin2025, Section 3; hardy1934"."""
    return [part.partition(",")[0].strip() for part in reference.split(";") if part.strip()]


def cited(notes: Iterable[Note]) -> dict[Reference, list[str]]:
    """Every known reference that is cited, by first author and year, with the claims that cite it."""
    known = references()
    found: dict[Reference, list[str]] = {}
    for note in notes:
        for key in keys_of(note.reference):
            if key in known:
                found.setdefault(known[key], []).append(note.claim)
    return dict(sorted(found.items(), key=lambda item: item[0].key))


def bibtex(keys: Iterable[str]) -> str:
    """The entries with these keys, as they stand in the bibliography."""
    wanted = set(keys)
    entries = re.finditer(r"^@\w+\{([^,]+),\n.*?^\}$", bibliography(), re.MULTILINE | re.DOTALL)
    return "\n\n".join(entry[0] for entry in entries if entry[1] in wanted) + "\n"
