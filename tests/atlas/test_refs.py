"""The bibliography parses, and citations are complete."""

from __future__ import annotations

import pytest

from measureformer.atlas.errors import ReferenceFormatError, UnknownReferenceError
from measureformer.atlas.references import cite, parse, reference_of, references

ENTRY = """@article{someone2020,
  author = {Ann B. Someone and Bob van der Else},
  title = {On things},
  journal = {Journal of Things},
  year = {2020},
}
"""


class Documented:
    """A quantity.

    Statement   it is what it is.
    Ref         castin2024, Theorem 3.3.    Derived: somewhere else
    """


class Twice:
    """A quantity.

    Ref         castin2024, Theorem 3.3; kim2021.
    """


class Stated:
    reference = "furuya2024, Section 2"


HOW_SMOOTH = "Castin, Ablin, Peyré (2024). How smooth is attention? International Conference on Machine Learning"


@pytest.mark.parametrize(
    ("source", "start", "end"),
    [
        ("castin2024", HOW_SMOOTH, "arXiv:2312.14820."),
        ("castin2024, Theorem 3.3", HOW_SMOOTH, "arXiv:2312.14820. Theorem 3.3."),
        ("castin2024, Theorem 3.3.", HOW_SMOOTH, "arXiv:2312.14820. Theorem 3.3."),
        ("castin2024, Theorem 3.3, page 7", HOW_SMOOTH, "Theorem 3.3, page 7."),
        (Documented, HOW_SMOOTH, "arXiv:2312.14820. Theorem 3.3."),
        (Documented(), HOW_SMOOTH, "Theorem 3.3."),
        (Twice, HOW_SMOOTH, "arXiv:2006.04710."),
        (Stated(), "Furuya, de Hoop, Peyré (2024). Transformers are universal", "Section 2."),
        ("vandervaart1998", "van der Vaart (1998). Asymptotic Statistics. Cambridge", "Press."),
    ],
)
def test_citations(source: object, start: str, end: str) -> None:
    assert cite(source).startswith(start)
    assert cite(source).endswith(end)


def test_every_entry_can_be_cited() -> None:
    assert references()
    for key, entry in references().items():
        assert entry.year in cite(key)
        assert entry.title in cite(key)


def test_several_references_are_all_cited() -> None:
    assert "Theorem 3.3. Kim, Papamakarios, Mnih (2021)." in cite(Twice)


def test_unknown_keys_are_refused_with_near_ones() -> None:
    with pytest.raises(UnknownReferenceError, match="castin2024"):
        cite("castin2042")
    with pytest.raises(KeyError, match="The keys are"):
        cite("")


def test_objects_without_reference_are_refused() -> None:
    with pytest.raises(UnknownReferenceError, match="test_objects_without_reference_are_refused"):
        reference_of(test_objects_without_reference_are_refused)


def test_strict_format_is_read() -> None:
    (entry,) = parse(ENTRY).values()
    assert str(entry) == "Someone, van der Else (2020). On things. Journal of Things."


MALFORMED = {
    "unknown kind": ENTRY.replace("@article", "@misc"),
    "bad key": ENTRY.replace("someone2020", "Someone:2020"),
    "TeX command": ENTRY.replace("things}", "\\emph things}"),
    "braces": ENTRY.replace("things}", "{T}hings}"),
    "missing field": ENTRY.replace("  year = {2020},\n", ""),
    "field twice": ENTRY.replace("  year", "  year = {2021},\n  year"),
    "unknown field": ENTRY.replace("  year", "  note = {x},\n  year"),
    "field of another kind": ENTRY.replace("journal", "publisher"),
    "not closed": ENTRY[:-2],
    "opened twice": ENTRY[:-2] + ENTRY,
    "key twice": ENTRY + ENTRY,
    "words between": "Hello\n" + ENTRY,
    "empty value": ENTRY.replace("On things", ""),
    "blank line inside": ENTRY.replace("  year", "\n  year"),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(ReferenceFormatError):
        parse(text)
