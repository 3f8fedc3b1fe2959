"""Hook of MkDocs: pages that are made from files of the repository, so that nothing is kept twice.

The reference has a page for each folder of the package that is home to a public name, with those names in the order of
the stub `__init__.pyi`; modules in `WHOLE` are shown with everything they define. A folder that is public under its own
name adds what its `__init__.py` imports.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import measureformer
from measureformer.atlas.references import references

ROOT = Path(__file__).parent.parent
# MkDocs loads this file by its path
sys.path.insert(0, str(ROOT / "tools"))
from _rules import homes, namespaces, parse  # noqa: E402

PACKAGE = ROOT / "src" / "measureformer"
WHOLE = ("errors",)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"^!\[(.*)\]\(\.\./(figures/.*)\)$", re.MULTILINE)
# what every error inherits is said once, at the base class
WHOLE_OPTIONS = "{show_root_heading: false, inherited_members: false, show_if_no_docstring: false}"
COPIED = {"glossary.md": "GLOSSARY.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_config(config: Any) -> Any:
    for entry in config["nav"]:
        if "Reference" in entry:
            entry["Reference"] = [{home: f"api/{home}.md"} for home in public()]
    return config


def on_files(files: Files, config: Any) -> Files:
    pages = {page: copied(source) for page, source in COPIED.items()}
    pages["references.md"] = bibliography()
    for home, names in public().items():
        pages[f"api/{home}.md"] = reference_page(home, names)
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    if page.file.src_uri != "gallery.md":
        return markdown
    (entries,) = (entry["Tutorials"] for entry in config["nav"] if "Tutorials" in entry)
    pages = [path for entry in entries for path in entry.values() if path.startswith("tutorials/")]
    return markdown + "\n## From the tutorials\n\n" + "\n".join(map(tutorial_figure, pages))


def tutorial_figure(page: str) -> str:
    """The figure of a tutorial, and its last example, which draws it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    title, (alt, figure), last = text.split("\n")[0].lstrip("# "), IMAGE.findall(text)[-1], BLOCK.findall(text)[-1]
    return f"### {title}\n\n```python\n{last}```\n\n![{alt}]({figure})\n\n[The tutorial]({page})\n"


def copied(source: str) -> str:
    """The text of a file of the root, with its links to other such files and to docs/ turned to their pages."""
    text = (ROOT / source).read_text(encoding="utf-8")
    for page, name in COPIED.items():
        text = text.replace(f"]({name})", f"]({page})")
    return text.replace("](docs/", "](")


def public() -> dict[str, list[str]]:
    """Folder -> public names of the package that it holds, which may be none if the folder is public as a whole."""
    found: dict[str, list[str]] = {}
    for name, (home, _) in homes(PACKAGE).items():
        found.setdefault(home.split(".")[0], []).append(name)
    return found | {home: [] for home in namespaces(PACKAGE) if home not in found}


def reference_page(home: str, names: list[str]) -> str:
    source = PACKAGE / f"{home}.py"
    about = ast.get_docstring(parse(source if source.exists() else PACKAGE / home / "__init__.py")) or ""
    title = f"# {home}\n\n"
    if home in WHOLE:
        return f"{title}::: measureformer.{home}\n    options: {WHOLE_OPTIONS}\n"
    blocks, explained = [about], "^_"
    for name in [*names, *within(home, names)]:
        blocks.append(f"::: {_defined(name)}\n    options: {{filters: ['!{explained}']}}")
        if name.startswith("Abstract"):
            # said once, and left out at the classes that follow
            explained = "|".join(["^_", *(f"^{member}$" for member in members(home, name))])
    return title + "\n\n".join(blocks) + "\n"


def _defined(name: str) -> str:
    """Where a public name is defined: a folder may show a function `coupling` that its module `coupling` defines."""
    value: Any = measureformer
    for part in name.split("."):
        value = getattr(value, part)
    if inspect.ismodule(value) or not hasattr(value, "__qualname__"):
        return f"measureformer.{name}"
    return f"{value.__module__}.{value.__qualname__}"


def within(home: str, names: list[str]) -> list[str]:
    """The other names of a folder that is public as a whole, as `regularity.ball`."""
    if home not in namespaces(PACKAGE):
        return []
    imports = (node for node in parse(PACKAGE / home / "__init__.py").body if isinstance(node, ast.ImportFrom))
    shown = [alias.name for node in imports for alias in node.names if alias.asname == alias.name]
    return [f"{home}.{name}" for name in shown if name not in names]


def members(home: str, name: str) -> list[str]:
    """The public methods and properties that the body of a class defines."""
    nodes = (node for path in sorted((PACKAGE / home).glob("*.py")) for node in parse(path).body)
    classes = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    defined = (item.name for node in classes for item in node.body if isinstance(item, ast.FunctionDef))
    return [member for member in defined if not member.startswith("_")]


def bibliography() -> str:
    """The bibliography as a page, in the order of its keys, with an anchor for each."""
    lines = [
        "# References",
        "",
        "Keys are those that docstrings and claims name; `mf.cite(key)` gives the short form.",
        "",
    ]
    for key, entry in sorted(references().items()):
        *first, last = entry.authors
        authors = f"{', '.join(first)} and {last}" if first else last
        lines += [f"## {key}", "", f"{authors}: *{entry.title}*. {entry.venue}, {entry.year}.", ""]
    return "\n".join(lines)
