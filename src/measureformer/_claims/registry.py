"""Registry of claims by discovery: a module in a chapter's folder that defines `claim` is a claim.

There is no list to keep. Modules whose name begins with an underscore are helpers that a chapter's claims share.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import metadata
from types import ModuleType
from typing import Any, cast, get_args

from measureformer import __version__
from measureformer._claims.base import Claim, Preset
from measureformer._claims.fingerprint import fingerprint
from measureformer.errors import (
    ClaimDefinitionError,
    ClaimNotRunError,
    ClaimRunError,
    OptionError,
    UnknownClaimError,
    did_you_mean,
)
from measureformer.files import is_claim_name
from measureformer.refs import cite
from measureformer.result import Outcome, Result

PACKAGE = "measureformer._claims"


@dataclass(frozen=True)
class Entry:
    """A claim and where it was found: its module, and the chapter that the module's folder is."""

    claim: Claim[Any]
    chapter: str
    chapter_title: str
    module: str

    @property
    def name(self) -> str:
        return self.claim.name


def claims(*, package: str = PACKAGE) -> dict[str, Claim[Any]]:
    """Every claim by name, in order of chapter and name.

    >>> import measureformer as mf
    >>> all(claim.name == name for name, claim in mf.claims().items())
    True
    """
    return {entry.name: entry.claim for entry in discover(package)}


def check(name: str, *, seed: int = 0, preset: Preset = "quick", package: str = PACKAGE) -> Result:
    """Run a claim and its control, and return what was measured.

    The same name, seed, preset and versions give the same numbers. An unknown name is refused with the closest ones;
    an exception in the experiment is raised again under the claim's name.

    >>> import measureformer as mf
    >>> first = next(iter(mf.claims()))
    >>> result = mf.check(first, seed=1)
    >>> result.verdict, result.passes
    ('holds', True)
    """
    return run(find(name, package=package), seed=seed, preset=preset)


def discover(package: str = PACKAGE) -> tuple[Entry, ...]:
    """All claims in the chapters of `package`, each checked against the rules of the registry."""
    entries: list[Entry] = []
    home: dict[str, str] = {}
    for chapter in _children(_import(package)):
        if chapter.ispkg:
            entries.extend(load(module.name) for module in _children(_import(chapter.name)))
    for entry in entries:
        if entry.name in home:
            raise _broken(
                f"the name {entry.name} in {home[entry.name]} and in {entry.module}",
                "a name that no other claim has",
                "Rename one of the two.",
            )
        home[entry.name] = entry.module
    return tuple(sorted(entries, key=lambda entry: (entry.chapter, entry.name)))


def load(module: str) -> Entry:
    """The claim that a module in a chapter's folder defines."""
    chapter = module.rpartition(".")[0]
    title = (_import(chapter).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    if not title:
        raise _broken(
            f"the chapter {chapter} without a docstring",
            "the chapter's title as the first line of the docstring of its __init__.py",
            "Write it.",
        )
    claim = getattr(_import(module), "claim", None)
    if not isinstance(claim, Claim):
        raise _broken(
            f"module {module} without a claim",
            "a module-level name `claim` that is a Claim",
            "Define it, or begin the name of a helper module with an underscore.",
        )
    if not is_claim_name(claim.name):
        raise _broken(
            f"a claim called {claim.name!r} in {module}",
            "a name of the form author-year-what, in lower-case letters, digits and dashes",
            "Rename it.",
        )
    _require_plain_configs(cast(Claim[Any], claim), module)
    return Entry(cast(Claim[Any], claim), chapter.rpartition(".")[2], title, module)


def _require_plain_configs(claim: Claim[Any], module: str) -> None:
    """Configurations are stored and compared: their entries must read back as they were written."""
    for preset in get_args(Preset):
        for name, value in claim.config_entries(preset).items():
            if type(value) not in (int, float, str) or value in (math.inf, -math.inf) or value != value:
                raise _broken(
                    f"{name} = {str(value)[:60]} in the {preset} configuration of {module}",
                    "an integer, a finite number or a string",
                    "Make it one; a choice can be a string.",
                )


def _children(package: ModuleType) -> list[pkgutil.ModuleInfo]:
    found = pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}.")
    return [child for child in found if not child.name.rpartition(".")[2].startswith("_")]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(
            f"module {name}, which cannot be imported ({type(error).__name__}: {error})",
            "a module that can be imported",
            "Correct it, or install what it imports.",
        ) from error


def _broken(got: str, need: str, do: str) -> ClaimDefinitionError:
    return ClaimDefinitionError(got=got, need=need, do=do)


def find(name: str, *, package: str = PACKAGE) -> Entry:
    """The claim of that name."""
    entries = {entry.name: entry for entry in discover(package)}
    if name not in entries:
        raise _unknown(f"the claim {name[:100]!r}", "the name of a claim", name, list(entries))
    return entries[name]


def select(patterns: Sequence[str], *, package: str = PACKAGE) -> tuple[Entry, ...]:
    """The claims that a pattern names: a claim, a glob such as `castin-*`, or a chapter. No patterns: all claims."""
    entries = discover(package)
    if not patterns:
        return entries
    chosen: set[str] = set()
    for pattern in patterns:
        hits = {e.name for e in entries if pattern == e.chapter or fnmatchcase(e.name, pattern)}
        if not hits:
            words = [entry.name for entry in entries] + sorted({entry.chapter for entry in entries})
            need = "the name of a claim, a glob that fits one, or a chapter"
            raise _unknown(f"{pattern[:100]!r}", need, pattern, words)
        chosen |= hits
    return tuple(entry for entry in entries if entry.name in chosen)


def _unknown(got: str, need: str, word: str, known: list[str]) -> UnknownClaimError:
    hint = did_you_mean(word, known)
    return UnknownClaimError(got=got, need=need, do=f"{hint} `measureformer claims` lists all.".lstrip())


def run(entry: Entry, *, seed: int, preset: Preset) -> Result:
    """Run the claim of `entry` and its control with the same key."""
    require(seed, preset)
    if entry.claim.needs is not None and (why := entry.claim.needs()):
        raise ClaimNotRunError(got=f"the claim {entry.name}, which was not run", need="what it is about", do=why)
    import jax  # here, because listing claims must not wait for JAX

    claim, config = entry.claim, entry.claim.config(preset)
    key = jax.random.key(seed)
    # before the run: if the source is edited meanwhile, the result must not pass for one of the new source
    sources = fingerprint_of(entry, seed=seed, preset=preset)
    start = time.perf_counter()
    outcome = _measure(entry, "experiment", lambda: claim.run(key, config))
    control = _measure(entry, "control", lambda: claim.control(key, config))
    seconds = time.perf_counter() - start
    result = Result(
        claim=claim.name,
        chapter=entry.chapter,
        chapter_title=entry.chapter_title,
        title=claim.title,
        statement=claim.statement,
        hypotheses=claim.hypotheses,
        reference=claim.reference,
        citation=cite(claim),
        control_statement=claim.control_statement,
        run=outcome,
        control=control,
        seed=seed,
        preset=preset,
        config=claim.config_entries(preset),
        versions=versions(),
        seconds=seconds,
        fingerprint=sources,
        command=f"measureformer check {claim.name} --seed {seed} --{preset}",
    )
    # what cannot be read back must not reach a file: arrays where numbers belong are found here, by name
    return _measure(entry, "result", lambda: Result.from_json(result.to_json()))


def _measure(entry: Entry, what: str, measure: Any) -> Any:
    try:
        measured = measure()
    except Exception as error:
        raise ClaimRunError(
            got=f"{type(error).__name__} in the {what} of claim {entry.name}: {error}",
            need="an experiment that ends with an Outcome of plain Python numbers",
            do=f"The experiment is in module {entry.module}.",
        ) from error
    if not isinstance(measured, (Outcome, Result)):
        raise ClaimRunError(
            got=f"{type(measured).__name__} from the {what} of claim {entry.name}",
            need="an Outcome",
            do=f"The experiment is in module {entry.module}.",
        )
    return measured


def require(seed: int, preset: str) -> None:
    """Refuse a seed or a preset that cannot be run."""
    if preset not in get_args(Preset):
        raise OptionError(got=f"preset {preset!r}", need="'quick' or 'full'", do="Quick takes seconds.")
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise OptionError(got=f"seed {seed!r}", need="an integer from 0 to 2³² − 1", do="Take 0 if any will do.")


def fingerprint_of(entry: Entry, *, seed: int, preset: Preset) -> str:
    """The fingerprint that a result of this run has, without running it."""
    inputs = {
        "config": entry.claim.config_entries(preset),
        "preset": preset,
        "seed": seed,
        "citation": cite(entry.claim),
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
    }
    return fingerprint(entry.module, inputs)


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "measureformer": __version__,
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
        "python": platform.python_version(),
    }
