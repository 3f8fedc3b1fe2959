"""Rule: the pages are written in idiomatic English; habits of translated prose are refused, with the usual wording.

The rule reads the Markdown files of the root and of docs/, without code. It knows only what can be recognised with few
false alarms; everything else is for reviewers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main

HABITS = {
    r"\bgo(?:es|ing)? on\b": "write 'resume', 'continue' or 'onwards'",
    r"\b(?:ones?|models?|pictures?|drawings?) in the box\b": "write 'bundled'",
    r"\bwhoever\b": "write 'anyone who', or name the person or thing",
    r"\bas \w+ as can be\b": "write 'worst-case', or an ordinary superlative",
    r"\bof today\b": "write 'current'",
    r"(?<!there) (?:is|are) no (?!(?:longer|more|less|fewer|worse|better|different)\b)(?=\w)": "write 'is not a'",
    r"\bneeds not\b": "write 'need not' or 'does not have to'",
    r"\bone's own\b": "write 'your own'",
    r"\bsame bits\b": "write 'bitwise identical'",
    r"\bcompiles? nothing\b": "write 'does not trigger a compilation'",
    r"\bfor ever\b": "write 'forever', 'indefinitely' or 'without bound'",
    r"\b(?:some|any)body\b": "write 'someone', 'anyone' or 'the user'",
    r"\bthat there (?:is|are)(?=[.,;:)])": "leave it out, or write 'available'",
    r"\b(?:and|it is) said\b": "write 'reported'",
    r"\bsecond opinion\b|\bopinion of\b": "write 'independent check'",
    r"\bleaves? the numbers\b": "write 'overflows'",
    r"\bworks? only so\b": "write 'requires'",
    r"\bin the way of\b": "write 'blocks'",
}
# pages that are not rewritten yet; the maps are made from docstrings, which are not either
UNFINISHED = {
    f"docs/{page}.md"
    for page in ("atlas", "clustering", "corrections", "imports", "limits", "mutants", "reading_map", "reliability")
}
CODE = re.compile(r"^(```|~~~).*?^\1|^ {4}.*?$|`[^`]+`", re.MULTILINE | re.DOTALL)
_KNOWN = [(re.compile(pattern.replace(" ", r"\s"), re.IGNORECASE), do) for pattern, do in HABITS.items()]


def rule(root: Path) -> Iterator[Violation]:
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        if path.relative_to(root).as_posix() in UNFINISHED:
            continue
        # code becomes as many blanks, so that lines keep their numbers
        text = CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), path.read_text(encoding="utf-8"))
        for pattern, do in _KNOWN:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
                yield Violation(path, line, f"{' '.join(match[0].split())!r} is not idiomatic", do)


if __name__ == "__main__":
    main(rule)
