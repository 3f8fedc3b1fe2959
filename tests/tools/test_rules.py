"""Each rule says no to a planted violation, at the right line, and yes to its repaired twin and to this repository."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RULES = sorted(path.stem for path in (ROOT / "tools").glob("[a-z]*.py"))
INIT = "src/measureformer/__init__.py"
STUB = "src/measureformer/__init__.pyi"
CLAIMS = "src/measureformer/atlas/claims"
REFS = "src/measureformer/atlas/refs.bib"
BIB = "@book{knuth1984,\n  author = {A},\n  title = {T},\n  year = {1984},\n}\n"


def check(rule: str, root: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "tools" / f"{rule}.py"), str(root)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in ran.stderr
    lines = ran.stdout.splitlines()
    assert ran.returncode == (1 if lines else 0)
    return lines


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def one(module: str) -> dict[str, str]:
    """A package with one public function `f` in the module `a`."""
    return package("from .a import f as f\n", a=module)


def package(stub: str, **modules: str) -> dict[str, str]:
    init = "import lazy_loader\n__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n"
    files = {f"src/measureformer/{name}.py": text for name, text in modules.items()}
    return {INIT: init, STUB: stub, **files}


def whole(module: str, name: str = "b") -> dict[str, str]:
    """A package in which the folder `b` is public, and shows what its module `c` defines."""
    shown = {f"{name}/__init__.py": f"from measureformer.{name}.c import g as g\n", f"{name}/c.py": module}
    files = {f"src/measureformer/{path}": text for path, text in shown.items()}
    return one(FINE) | {STUB: f"from . import {name} as {name}\nfrom .a import f as f\n"} | files


def within(module: str) -> dict[str, str]:
    """A package in which the folder `b` is public, and shows its module `c` as a whole."""
    return whole(module) | {"src/measureformer/b/__init__.py": "from measureformer.b import c as c\n"}


def tool(name: str) -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def pinned(constraints: str) -> dict[str, str]:
    project = '[project]\ndependencies = ["numpy>=2"]\n[project.optional-dependencies]\nx = ["torch==2.13.0"]\n'
    return {"pyproject.toml": project, "constraints.txt": constraints}


def billed(**versions: str) -> dict[str, str]:
    components = [{"name": name, "version": version} for name, version in versions.items()]
    return pinned("numpy==2.4.6\ntorch==2.13.0\n") | {"bill.cdx.json": json.dumps({"components": components})}


def imports(where: str, line: str) -> dict[str, str]:
    return {STUB: "from .maps import Linear as Linear\n", f"src/measureformer/{where}": f"\n{line}\n"}


def chapters(*more: str, without: str = "") -> dict[str, str]:
    """A repository with every chapter in its four places, and further files."""
    names = tool("chapters").NAMES
    paths = [
        path.format(n) for n in names for path in ("src/measureformer/{}/a.py", "tests/{}/test_a.py", "docs/{}.md")
    ]
    paths += [f"{CLAIMS}/{name}/a.py" for name in names]
    return dict.fromkeys({*paths, *more} - {without}, "")


def comparing(body: str) -> dict[str, str]:
    return {"tests/a/test_b.py": f"def test_c(a, b):\n{body}"}


def read(reference: str, test: str, page: str = "") -> dict[str, str]:
    """A package with one theorem, a claim on it, a test, and a reading map."""
    theorem = f'def bound():\n    """A bound.\n\n    Statement  it holds.\n    Ref        {reference}\n    """\n'
    return {
        STUB: "from .maps import bound as bound\n",
        "src/measureformer/maps/__init__.py": "from measureformer.maps.a import bound as bound\n",
        "src/measureformer/maps/a.py": theorem,
        REFS: BIB,
        "tests/maps/test_a.py": test,
        "docs/reading_map.md": page,
    }


def mutated(old: str, new: str = "0") -> dict[str, str]:
    """A package with one line, and a list of one mutation."""
    entry = f'[[mutant]]\nfile = "a.py"\nold = "{old}"\nnew = "{new}"\nwhat = "slip"\nfirst = "tests/test_a.py"\n'
    return {"src/measureformer/a.py": "x - x\n", "tests/test_a.py": "", "tools/mutants.toml": entry}


def mapped(line: str, page: str = "", picture: str = "") -> dict[str, str]:
    """A package in which `maps` imports what the line says, and a map of its imports."""
    return {
        **imports("maps/a.py", line),
        "src/measureformer/measures/b.py": "",
        "docs/imports.md": page,
        "docs/figures/imports.svg": picture,
    }


FINE = 'def f():\n    """Two.\n\n    >>> 1 + 1\n    2\n    """\n'
EXPLAINED, SUM = 'def f(x, y, *z):\n    """Sum.\n\n', '\n    >>> f(1, 2)\n    3\n    """\n    return x + y\n'
TWIN = FINE.replace("def f", "def g")
LONG = "    pass\n" * 60
DOCUMENTED = 'def f():\n    """A\n' + "    long\n" * 20 + '    docstring."""\n' + "    pass\n" * 59
THEORY = 'def bound():\n    """A bound.\n\n    Statement  it holds.\n    Ref        {}\n    """\n'

NO = {
    "import: upwards": ("import_direction", imports("measures/a.py", "from measureformer.maps import b"), "a.py:2:"),
    "import: relative": ("import_direction", imports("measures/a.py", "from ..maps import b"), "imports maps"),
    "import: relative module": ("import_direction", imports("measures/a.py", "from .. import maps"), "imports maps"),
    "import: sideways": ("import_direction", imports("maps/a.py", "import measureformer.transport"), "maps imports t"),
    "import: attention": (
        "import_direction",
        imports("attention/a.py", "from ..measures import b"),
        "imports measures",
    ),
    "import: in a function": (
        "import_direction",
        imports("numerics/a.py", "def f():\n    from measureformer.measures import b"),
        "a.py:3:",
    ),
    "import: public name": ("import_direction", imports("measures/a.py", "from measureformer import Linear"), "maps"),
    "import: attribute": (
        "import_direction",
        imports("measures/a.py", "import measureformer as mf\nmf.Linear"),
        "a.py:3: measures imports maps",
    ),
    "import: by string": (
        "import_direction",
        imports("measures/a.py", "importlib.import_module('measureformer.maps.base')"),
        "imports maps",
    ),
    "import: report": ("import_direction", imports("atlas/report/a.py", "import measureformer.maps"), "report may"),
    "import: the atlas": ("import_direction", imports("lens/a.py", "import measureformer.atlas"), "may import atlas"),
    "import: a claim": (
        "import_direction",
        imports("maps/a.py", "def ClaimError(): ..."),
        "maps mentions claims, 'Claim",
    ),
    "import: a claim in words": ("import_direction", imports("pages/a.js", "// No claim.\n"), "a.js:2: pages mentions"),
    "import: no place": ("import_direction", imports("novelty/a.py", ""), "novelty has no place"),
    "names: unresolved": ("public_names", one("g = 1\n"), "f does not resolve"),
    "names: no docstring": ("public_names", one("def f():\n    pass\n"), "f has no docstring"),
    "names: signature as docstring": (
        "public_names",
        one("import dataclasses\n@dataclasses.dataclass\nclass f:\n    x: int\n"),
        "f has no docstring",
    ),
    "names: no example": ("public_names", one('def f():\n    """Two."""\n'), "f has no example"),
    "names: wrong example": (
        "public_names",
        one(FINE.replace("    2\n", "    3\n")),
        "f has an example in f that fails",
    ),
    "names: in a public folder": ("public_names", whole("def g():\n    pass\n"), "g has no docstring"),
    "names: in a module of one": ("public_names", within("def g():\n    pass\n"), "c.py:1: g has no docstring"),
    "names: unexplained": (
        "public_names",
        one(f"{EXPLAINED}    Arguments:\n        x: a number.\n{SUM}"),
        "f does not explain y, z; add it",
    ),
    "names: two meanings": (
        "public_names",
        whole(TWIN) | {STUB: "from . import b as b\nfrom .a import g as g\n", "src/measureformer/a.py": TWIN},
        "g is one thing in mf and another in mf.b",
    ),
    "names: advertised": (
        "public_names",
        one(FINE) | {"docs/a.md": "Call `mf.f(1)`\nor `mf.a.f`."},
        "a.md:2: mf.a.f is",
    ),
    "names: of an inner module": (
        "public_names",
        whole(FINE.replace("def f", "def g")) | {"README.md": "See mf.b.c.g."},
        "README.md:1: mf.b.c.g is advertised",
    ),
    "names: too many": (
        "public_names",
        within("".join(FINE.replace("def f", f"def f{i}") for i in range(231))),
        "232 public names, which is more than 230",
    ),
    "references: no source": (
        "references",
        {"src/a.py": 'def bound():\n    """A bound.\n\n    Statement  it holds.\n    """\n'},
        "a.py:2: bound has a statement without a source",
    ),
    "references: unknown key": ("references", {"src/a.py": THEORY.format("nobody1999, Theorem 1.")}, "nobody1999"),
    "references: second key": (
        "references",
        {"src/a.py": THEORY.format("knuth1984, p. 3; nobody1999."), REFS: BIB},
        "nobody1999",
    ),
    "references: colon": ("references", {"src/a.py": THEORY.replace("Ref ", "Ref:").format("a1999")}, "a line `Ref:`"),
    "references: no key": ("references", {"src/a.py": THEORY.format("folklore.")}, "'folklore.'"),
    "references: claim": ("references", {"src/a.py": 'claim = Claim(\n    reference="nobody1999")\n'}, "a.py:2:"),
    "references: claim without": (
        "references",
        {"src/a.py": "claim = Claim(name='a')\n"},
        "without a literal reference",
    ),
    "references: twice": ("references", {REFS: BIB + BIB}, "refs.bib:6: the key knuth1984"),
    "references: no year": (
        "references",
        {REFS: BIB.replace("  year = {1984},\n", "")},
        "has no year",
    ),
    "chapters: no tests": ("chapters", chapters(without="tests/maps/test_a.py"), "tests/maps:1: the chapter maps is"),
    "chapters: no claims": ("chapters", chapters(without=f"{CLAIMS}/text/a.py"), "claims/text:1: the chapter text is"),
    "chapters: no page": ("chapters", chapters(without="docs/flows.md"), "docs/flows.md:1: the chapter flows has no"),
    "chapters: in the package": ("chapters", chapters("src/measureformer/novelty/a.py"), "novelty is no chapter"),
    "chapters: in the tests": ("chapters", chapters("tests/vlasov/test_a.py"), "vlasov is no chapter"),
    "chapters: of claims": ("chapters", chapters(f"{CLAIMS}/engine/a.py"), "engine is no chapter"),
    "chapters: page": ("chapters", chapters("docs/sweeps.md"), "docs/sweeps.md:1: sweeps is no chapter"),
    "chapters: mixed": ("chapters", chapters("src/measureformer/maps/_b.py"), "_b.py is private beside public modules"),
    "sizes: file": ("sizes", {"src/a.py": "\n" * 401}, "a.py:401: 401 lines"),
    "sizes: test file": ("sizes", {"tests/a.py": "\n" * 601}, "601 lines"),
    "sizes: function": ("sizes", {"tools/a.py": f"\ndef f():\n{LONG}"}, "a.py:2: f has 61 lines"),
    "comparisons: allclose": ("bare_comparisons", comparing("    np.allclose(a, b)\n"), "test_b.py:2:"),
    "comparisons: isclose": ("bare_comparisons", comparing("    isclose(a, b)\n"), "test_b.py:2:"),
    "comparisons: ==": ("bare_comparisons", comparing("    a == b\n"), "`a == b`"),
    "comparisons: and": ("bare_comparisons", comparing("    a.same_as(b) and a < b\n"), "asserts nothing"),
    "comparisons: all": ("bare_comparisons", comparing("    for _ in a:\n        (a == b).all()\n"), "test_b.py:3:"),
    "words: home": ("house_words", {"a.md": "see /ho" + "me/someone/a.txt"}, "a.md:1: a home folder"),
    "words: defined twice": (
        "house_words",
        {"GLOSSARY.md": "| word | symbol |\n|---|---|\n| cell | δ |\n\n| word |\n|---|\n| cell | a box |\n"},
        "GLOSSARY.md:7: 'cell' is defined in line 3 too",
    ),
    "words: local": ("house_words", {"a.txt": "\nfile:" + "///tmp/a"}, "a.txt:2:"),
    "words: registry": ("house_words", {"a.toml": "https://py" + "pi.org/simple"}, "package registry"),
    "code: pickle": ("code_from_data", {"src/a.py": "\nimport pickle\n"}, "a.py:2: pickle: a pickle runs any"),
    "code: from pickle": ("code_from_data", {"src/a.py": "from pickle import load\n"}, "a.py:1: pickle"),
    "code: eval": ("code_from_data", {"src/a.py": "x = eval('1')\n"}, "a.py:1: eval: it turns text"),
    "code: hidden exec": (
        "code_from_data",
        {"src/a.py": "from builtins import exec as run\n"},
        "a.py:1: builtins.exec",
    ),
    "code: yaml": ("code_from_data", {"tools/a.py": "import yaml\nyaml.load(text)\n"}, "a.py:2: yaml.load: it can"),
    "code: shell": ("code_from_data", {"tools/a.py": "subprocess.run(line, shell=True)\n"}, "a.py:1: shell"),
    "code: shell by a name": ("code_from_data", {"tools/a.py": "run(line, shell=wanted)\n"}, "a.py:1: shell"),
    "code: npz": ("code_from_data", {"src/a.py": "np.load(path, allow_pickle=True)\n"}, "a.py:1: allow_pickle"),
    "code: torch": ("code_from_data", {"src/a.py": "torch.load(path)\n"}, "weights_only=True is missing"),
    "prose: habit": (
        "prose",
        {"docs/b/a.md": "\nIt goes on."},
        "docs/b/a.md:2: 'goes on' is not idiomatic; write 'resume'",
    ),
    "notebooks: no notebook": ("notebooks", {"docs/tutorials/a.md": "# A\n"}, "a.ipynb:1: the notebook is not what"),
    "notebooks: no page": ("notebooks", {"docs/notebooks/a.ipynb": "{}"}, "a.ipynb:1: a notebook without a page"),
    "notebooks: old": (
        "notebooks",
        {"docs/exercises.md": "# A\n", "docs/notebooks/exercises.ipynb": "{}"},
        "exercises.ipynb:1: the notebook is not what",
    ),
    "prose: over a line": ("prose", {"README.md": "`a`\nis\nno bound."}, "README.md:2: 'is no' is not"),
    "reading: stale": ("reading_map", read("knuth1984.", "import measureformer as mf\nmf.bound()\n"), "the map is not"),
    "reading: no test": ("reading_map", read("knuth1984.", "bound = 1\n"), "a.py:2: mf.bound is a statement that no"),
    "imports: stale": ("import_map", mapped("from measureformer.measures import b"), "imports.svg:1: the map is not"),
    "imports: circle": (
        "import_map",
        {
            **mapped("from measureformer.measures import b"),
            "src/measureformer/measures/b.py": "import measureformer.maps.a",
        },
        "in a circle, maps → measures → maps",
    ),
    "mutants: gone": ("mutants", mutated("x + y"), "slip: 0 places in a.py"),
    "mutants: twice": ("mutants", mutated("x"), "slip: 2 places in a.py"),
    "mutants: no change": ("mutants", mutated("x - x", "x - x"), "slip: no change"),
    "mutants: few": ("mutants", mutated("x - x"), "1 mutations, at least 60"),
    "bill: missing": ("bill", pinned("numpy==2.4.6\ntorch==2.13.0\n"), "the bill of materials is missing"),
    "bill: other version": ("bill", billed(numpy="2.4.5", torch="2.13.0"), "numpy 2.4.5 is listed and 2.4.6 is pinned"),
    "bill: not listed": ("bill", billed(numpy="2.4.6"), "torch is declared and not listed"),
    "pin: missing": ("pin", pinned("numpy==2.4.6\n"), "torch is not pinned"),
    "pin: other version": ("pin", pinned("numpy==2.4.6\ntorch==2.12.0\n"), "pinned at 2.12.0, declared 2.13.0"),
    "pin: local build": ("pin", pinned("numpy==2.4.6\ntorch==2.13.0+cpu\n"), "not name==version"),
    "pin: address": ("pin", pinned("numpy @ https://example.org/n.whl\n"), "not name==version"),
}

YES = {
    "import: down": (
        "import_direction",
        imports("maps/a.py", "from ..measures import b\nfrom measureformer import errors"),
    ),
    "import: claims of a guest": ("import_direction", imports("cli/a.py", "claims = 1  # reclaimed")),
    "import: no claims": ("import_direction", imports("maps/a.py", "reclaimed = 'exclaim'")),
    "import: itself": ("import_direction", imports("maps/a.py", "from measureformer import Linear\nfrom . import b")),
    "import: version": ("import_direction", imports("numerics/a.py", "from measureformer import __version__")),
    "import: others": ("import_direction", imports("errors.py", "import numpy.maps\nfrom measureformer_x import maps")),
    "chapters": ("chapters", chapters("tests/tools/test_a.py", "docs/index.md")),
    "chapters: all private": (
        "chapters",
        chapters("src/measureformer/storage/_a.py", "src/measureformer/storage/_b.py"),
    ),
    "names": ("public_names", one(FINE)),
    "names: advertised": (
        "public_names",
        within(FINE.replace("def f", "def g")) | {"README.md": "See mf.f, mf.b, mf.b.c.g(1) and mf.f.__doc__."},
    ),
    "names: explained": (
        "public_names",
        one(f"{EXPLAINED}    Arguments:\n        x, y: numbers.\n            Any.\n        *z: more.\n{SUM}"),
    ),
    "names: public folder": ("public_names", whole(TWIN)),
    "names: exception": ("public_names", one('class f(Exception):\n    """No."""\n')),
    "references": (
        "references",
        {"src/a.py": THEORY.format("knuth1984, p. 3.  Derived: here."), REFS: BIB},
    ),
    "sizes: docstring": ("sizes", {"src/a.py": DOCUMENTED}),
    "comparisons": (
        "bare_comparisons",
        comparing(
            "    assert a == b\n    c = a < b\n    assume(a < b)\n    with pytest.raises(TypeError):\n        a < b\n"
        ),
    ),
    "code": (
        "code_from_data",
        {
            "src/a.py": "from b import compile\ncompile(f)\nmodel.eval()\nnp.load(p, allow_pickle=False)\n"
            "torch.load(p, weights_only=True)\nyaml.safe_load(t)\nre.compile(p)\n"
        },
    ),
    "words": ("house_words", {"a.md": "a/home/b, /rooted, profile://, the word home"}),
    "prose": (
        "prose",
        {
            "docs/a.md": "It is no longer so; there is\nno bound. `it goes on`\n\n```\nwhoever\n```\n\n    for ever\n",
            "docs/limits.md": "It goes on.",
            "benchmarks/results/a.md": "It goes on.",
        },
    ),
    "bill": ("bill", billed(numpy="2.4.6", torch="2.13.0")),
    "pin": ("pin", pinned("# why\nnumpy==2.4.6\ntorch==2.13.0\n")),
}


@pytest.mark.parametrize("case", NO)
def test_says_no_to_a_planted_violation(case: str, tmp_path: Path) -> None:
    rule, files, expected = NO[case]
    lines = check(rule, plant(tmp_path, files))
    assert any(expected in line for line in lines), lines


@pytest.mark.parametrize("case", YES)
def test_says_yes_when_nothing_is_wrong(case: str, tmp_path: Path) -> None:
    rule, files = YES[case]
    assert check(rule, plant(tmp_path, files)) == []


# `public_names` runs every example of the reference: `make check` waits for that once
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "public_names"])
def test_says_yes_to_this_repository(rule: str) -> None:
    assert check(rule, ROOT) == []


def test_a_written_reading_map_is_current_and_names_the_place(tmp_path: Path) -> None:
    root = plant(tmp_path, read("knuth1984, Theorem 2.", "from measureformer.maps import bound\n"))
    made = tool("reading_map")
    (root / "docs/reading_map.md").write_text(made.written(root, made.collect(root)), encoding="utf-8")
    assert "| Theorem 2 | `mf.bound` |  | `maps/test_a.py` |" in (root / "docs/reading_map.md").read_text()
    assert check("reading_map", root) == []


def test_a_written_import_map_is_current_and_draws_the_arrow(tmp_path: Path) -> None:
    root = plant(tmp_path, mapped("from measureformer.measures import b"))
    made = tool("import_map")
    uses = made.graph(root)
    assert uses == {"maps": {"measures"}, "measures": set()}
    (root / made.PAGE).write_text(made.page(root, uses), encoding="utf-8")
    (root / made.PICTURE).write_text(made.picture(uses), encoding="utf-8")
    assert made.picture(uses).count("<line ") == 1
    assert check("import_map", root) == []


def test_arrows_that_follow_from_others_are_left_out() -> None:
    uses = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert tool("import_map").direct(uses, "a") == {"b"}


def test_a_written_notebook_is_current_shows_its_figure_and_links_to_the_pages(tmp_path: Path) -> None:
    text = "# A\n\n```python\nmf.save_figure(figure, 'a.svg')\n```\n\nSee [b](b.md) and [c](../c.md).\n"
    root = plant(tmp_path, {"docs/tutorials/a.md": text})
    made = tool("notebooks")
    made.write(root)
    book = json.loads((root / "docs/notebooks/a.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in book["cells"]]
    assert cells[0] == "# A"
    assert cells[2:] == [
        "mf.save_figure(figure, 'a.svg')\nmf.plot(figure)",
        "See [b](../tutorials/b.md) and [c](../c.md).",
    ]
    assert all(not cell.get("outputs") for cell in book["cells"])
    assert check("notebooks", root) == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_said_no(rule: str) -> None:
    assert any(rule == planted for planted, _, _ in NO.values())
