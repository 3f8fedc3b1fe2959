"""Which apps there are: the files in `apps/`, with the title and the words of their first lines."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from measureformer.errors import OptionError, did_you_mean

FOLDER = Path(__file__).parent / "apps"


@dataclass(frozen=True)
class App:
    """One app: its name on the command line, its title, and what it shows."""

    name: str
    title: str
    about: str
    path: Path


def catalogue() -> tuple[App, ...]:
    """All apps, by name; the docstring of a file is its title, a colon, and what it shows.

    >>> [app.name for app in catalogue()][:3]
    ['compile', 'counterexample', 'gaussian']
    """
    return tuple(_app(path) for path in sorted(FOLDER.glob("[a-z]*.py")))


def find(name: str) -> App:
    """The app of that name, or a refusal that lists them.

    >>> find("particles").title
    'Tokens as particles'
    """
    apps = {app.name: app for app in catalogue()}
    if name not in apps:
        raise OptionError(
            got=f"the app {name[:40]!r}",
            need=f"one of {', '.join(apps)}",
            do=f"{did_you_mean(name, apps)} Leave the name out for a page that says what each shows.".lstrip(),
        )
    return apps[name]


def _app(path: Path) -> App:
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    title, _, about = " ".join(words.split()).partition(": ")
    return App(path.stem, title, about[:1].upper() + about[1:], path)
