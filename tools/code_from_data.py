"""Rule: data never becomes code. No pickles, no evaluated strings, no shell.

`ALLOWED` lists the exceptions, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from _rules import Violation, main, parse, python_files

MODULES = {
    "pickle": "a pickle runs any program when it is opened",
    "cPickle": "a pickle runs any program when it is opened",
    "dill": "a pickle runs any program when it is opened",
    "cloudpickle": "a pickle runs any program when it is opened",
    "marshal": "its files can hold code",
    "shelve": "a shelf is made of pickles",
    "runpy": "it runs a file",
}
BUILTINS = {"eval", "exec", "compile", "__import__"}
# function -> the keyword that makes it safe, with its value; None: nothing does
CALLS: dict[str, tuple[str, bool] | None] = {
    "yaml.load": None,
    "yaml.unsafe_load": None,
    "yaml.full_load": None,
    "joblib.load": None,
    "os.system": None,
    "os.popen": None,
    "torch.load": ("weights_only", True),
}
KEYWORDS = {"shell": "the shell interprets it", "allow_pickle": "a pickle runs any program when it is opened"}
ALLOWED: dict[tuple[str, str], str] = {
    ("tools/_figures.py", "compile"): "the examples of this repository's own pages",
    ("tools/_figures.py", "exec"): "the examples of this repository's own pages",
}
"""(file, what is called) -> why it is safe there."""


def rule(root: Path) -> Iterator[Violation]:
    for path in python_files(root, "src", "tools", "benchmarks", "examples"):
        tree = parse(path)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} | _imported(tree)
        for node in ast.walk(tree):
            for name, why in _found(node, own):
                if (path.relative_to(root).as_posix(), name) not in ALLOWED:
                    do = "use JSON, npz or safetensors and a table of functions, or enter it in ALLOWED with a reason"
                    yield Violation(path, getattr(node, "lineno", 1), f"{name}: {why}", do)


def _imported(tree: ast.Module) -> set[str]:
    """Names that the file imports from somewhere: `from a import compile` is not the builtin."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "builtins"
        for alias in node.names
    }


def _found(node: ast.AST, own: set[str]) -> Iterator[tuple[str, str]]:
    """What is dangerous in one node, and why; `own` are names that this file defines itself."""
    if isinstance(node, ast.Import):
        yield from ((a.name, MODULES[top]) for a in node.names if (top := a.name.split(".")[0]) in MODULES)
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        if (top := node.module.split(".")[0]) in MODULES:
            yield node.module, MODULES[top]
        for alias in node.names:
            if (name := f"{node.module}.{alias.name}") in CALLS or (
                node.module == "builtins" and alias.name in BUILTINS
            ):
                yield name, "its bare name would hide it from this rule"
    elif isinstance(node, ast.Call):
        yield from _of_call(node, own)


def _of_call(node: ast.Call, own: set[str]) -> Iterator[tuple[str, str]]:
    name = ast.unparse(node.func)
    if name.removeprefix("builtins.") in BUILTINS and name not in own:
        yield name, "it turns text into code"
    if name in CALLS:
        safe = CALLS[name]
        given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
        if safe is None or given.get(safe[0]) is not safe[1]:
            yield name, "it can run what it reads" if safe is None else f"{safe[0]}={safe[1]} is missing"
    for keyword in node.keywords:
        off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in KEYWORDS and not off:
            yield keyword.arg, KEYWORDS[keyword.arg]


if __name__ == "__main__":
    main(rule)
