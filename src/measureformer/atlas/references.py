"""The bibliography: `refs.bib` read once, and `cite` for keys, claims and documented objects.

The file is kept in a strict subset of BibTeX, one field per line and plain Unicode instead of TeX commands, so that
reading it needs neither a TeX engine nor a dependency.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from measureformer.atlas.errors import ReferenceFormatError, UnknownReferenceError
from measureformer.atlas.index import PACKAGE, folder_of, packages
from measureformer.errors import did_you_mean

_HEAD = re.compile(r"@(article|book)\{([a-z]+[0-9]{4}[a-z]?),")
_FIELD = re.compile(r"  ([a-z]+) = \{([^{}\\]+)\},")
_FIELDS = {"article": {"author", "title", "journal", "year"}, "book": {"author", "title", "publisher", "year"}}
# what follows two spaces or "Derived:" on a Ref line is not part of the reference
_REF_LINE = re.compile(r"^\s*Ref\s+(.+?)\.?\s*(?:\s{2}.*|Derived:.*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """One entry of the bibliography."""

    key: str
    authors: tuple[str, ...]
    title: str
    venue: str
    year: str

    def __str__(self) -> str:
        names = ", ".join(map(_family_name, self.authors))
        title = self.title if self.title[-1] in ".?!" else f"{self.title}."
        return f"{names} ({self.year}). {title} {self.venue}."


def _family_name(author: str) -> str:
    """The last word, with the particles before it: de Hoop, van der Vaart."""
    words = author.split()
    first = next((i for i, word in enumerate(words) if word.islower()), len(words) - 1)
    return " ".join(words[first:])


def parse(text: str) -> dict[str, Reference]:
    """Read a bibliography in the strict format; a line that does not fit is refused with its number."""
    found: dict[str, Reference] = {}
    kind, key = "", ""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        head, field = _HEAD.fullmatch(line), _FIELD.fullmatch(line)
        if head and not key and head[2] not in found:
            kind, key, values = head[1], head[2], {}
        elif field and key and field[1] not in values:
            values[field[1]] = field[2]
        elif line == "}" and key and set(values) == _FIELDS[kind]:
            venue = values["journal" if kind == "article" else "publisher"]
            authors = tuple(values["author"].split(" and "))
            found[key] = Reference(key, authors, values["title"], venue, values["year"])
            key = ""
        elif line or key:
            raise _malformed(f"line {number}, {line[:60]!r}")
    if key:
        raise _malformed(f"an entry {key} that is not closed")
    return found


def _malformed(got: str) -> ReferenceFormatError:
    return ReferenceFormatError(
        got=f"{got} in the bibliography",
        need="entries '@article{key,' or '@book{key,' with one line '  name = {value},' for each of author, title, "
        "year and journal or publisher, closed by '}', with neither braces nor TeX commands inside, and no key twice",
        do="Correct the entry.",
    )


def references() -> dict[str, Reference]:
    """All entries by key: those of `refs.bib` here, and of the `refs.bib` of each other package of claims."""
    return _parsed(bibliography())


def bibliography() -> str:
    """The text of every `refs.bib`, one after the other."""
    files = [resources.files("measureformer.atlas").joinpath("refs.bib")]
    files += [folder_of(package) / "refs.bib" for package in packages() if package != PACKAGE]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


@lru_cache(maxsize=8)
def _parsed(text: str) -> dict[str, Reference]:
    return parse(text)


def cite(source: object) -> str:
    """The formatted citation of a bibliography key, a reference string, a claim, or an object with a `Ref` line.

    Arguments:
        source: a key of the bibliography with or without a place, "kim2021, Theorem 3.1" (several are separated by
            semicolons), a claim, or any object whose docstring has a `Ref` line.

    >>> cite("kim2021, Theorem 3.1")  # doctest: +NORMALIZE_WHITESPACE
    'Kim, Papamakarios, Mnih (2021). The Lipschitz constant of self-attention. International Conference on Machine
    Learning, arXiv:2006.04710. Theorem 3.1.'
    """
    parts = [part.strip() for part in reference_of(source).split(";")]
    return " ".join(_cite_one(part) for part in parts)


def reference_of(source: object) -> str:
    """The reference string of an object: itself, its attribute `reference`, or the `Ref` line of its docstring.

    >>> reference_of("castin2025, Section 3")
    'castin2025, Section 3'
    """
    if isinstance(source, str):
        return source
    stated = getattr(source, "reference", None)
    if isinstance(stated, str):
        return stated
    line = _REF_LINE.search(inspect.getdoc(source) or "")
    if line is None:
        name = getattr(source, "__qualname__", type(source).__qualname__)
        raise UnknownReferenceError(
            got=f"{name}, which names no reference",
            need="a key, a claim, or an object whose docstring has a line 'Ref  key, place.'",
            do="Give the key of an entry of the bibliography instead.",
        )
    return line[1]


def _cite_one(reference: str) -> str:
    key, _, place = (part.strip() for part in reference.partition(","))
    known = references()
    if key not in known:
        raise UnknownReferenceError(
            got=f"the reference {key[:60]!r}",
            need="the key of an entry of refs.bib",
            do=did_you_mean(key, known) or f"The keys are {', '.join(sorted(known))}.",
        )
    return f"{known[key]} {place.rstrip('.')}." if place else str(known[key])
