"""Running a claim by its name: one module is imported, every variant is measured with the same key."""

from __future__ import annotations

import importlib
import math
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast, get_args

from measureformer import __version__
from measureformer.atlas.claim import CLAIM, Claim, Preset
from measureformer.atlas.errors import ClaimNotRunError, ClaimRunError, UnknownClaimError
from measureformer.atlas.fingerprint import source_fingerprint
from measureformer.atlas.index import Listed, broken, index
from measureformer.atlas.references import cite
from measureformer.atlas.result import Control, Outcome, Result
from measureformer.atlas.trials import Trial, fresh_seeds
from measureformer.errors import DependencyError, OptionError, did_you_mean

if TYPE_CHECKING:  # claims are listed without JAX
    from measureformer.parallel.pool import Pool

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Entry:
    """A claim that has been imported, and what the index says about it."""

    claim: Claim[Any]
    listed: Listed

    @property
    def name(self) -> str:
        return self.listed.name

    @property
    def chapter(self) -> str:
        return self.listed.chapter

    @property
    def module(self) -> str:
        return self.listed.module


def claims() -> dict[str, str]:
    """Names and titles of all claims, in order of chapter and name; none of their modules is imported.

    >>> import measureformer as mf
    >>> mf.claims()["castin-2025-gaussian-tilt"]
    'Attention on a Gaussian, in closed form'
    """
    return {name: listed.title for name, listed in index().items()}


def check(name: str, *, seed: int = 0, preset: Preset = "quick", seeds: int = 0, pool: Pool | None = None) -> Result:
    """Run a claim and its controls, and return what was measured.

    The same name, seed, preset and versions give the same numbers. An unknown name is refused with the closest ones;
    an exception in the measurement is raised again under the claim's name.

    Arguments:
        name: the name of a claim; `mf.claims()` lists them.
        seed: the seed of all randomness.
        preset: "quick" takes seconds, "full" has the real sizes.
        seeds: number of fresh seeds, seed + 1000 and so on, on which the claim and its controls are run again;
            `result.rate` is the share of them that pass and its 95 % confidence interval.
        pool: where fresh seeds are run; by default in this process.

    >>> import measureformer as mf
    >>> result = mf.check("castin-2025-gaussian-tilt", seed=1, seeds=2)
    >>> result.verdict, result.passes, result.rate[0]
    ('holds', True, 1.0)
    """
    if type(seeds) is not int or not 0 <= seeds <= MOST_SEEDS:
        raise _refused("seeds", seeds, f"an integer from 0 to {MOST_SEEDS}", "20 are usual.")
    if not (pool is None or callable(getattr(pool, "each", None))):
        raise _refused("pool", pool, "a Pool", "Pass measureformer.parallel.Pool(jobs=2).")
    entry = find(name)
    return tried(entry.listed, run(entry, seed=seed, preset=preset), seeds, pool)


def tried(listed: Listed, result: Result, seeds: int, pool: Pool | None = None) -> Result:
    """The result with that many trials: those that it has, and new ones for the fresh seeds that it lacks."""
    known = {trial.seed: trial for trial in result.trials}
    wanted = fresh_seeds(result.seed, seeds)
    if missing := [seed for seed in wanted if seed not in known]:
        from measureformer.parallel.pool import Lost, Pool

        with closing((pool or Pool()).each(partial(trial, listed, cast(Preset, result.preset)), missing)) as found:
            for i, one in found:
                lost = isinstance(one, Lost)
                known[missing[i]] = Trial(missing[i], raised=f"its process died: {one.why}") if lost else one
    return replace(result, trials=tuple(known[seed] for seed in wanted)) if wanted else result


def trial(listed: Listed, preset: Preset, seed: int) -> Trial:
    """What a run on this seed gives; what it raises counts against the claim."""
    start = time.perf_counter()
    try:
        result = run(load(listed), seed=seed, preset=preset)
    except ClaimRunError as error:
        return Trial(seed, raised=error.got, seconds=time.perf_counter() - start)
    failed = tuple(check.name for check in result.run.evidence if check.verdict != "holds")
    return Trial(seed, failed, result.unrejected, "", result.seconds)


def find(name: str) -> Entry:
    """The claim of that name, imported."""
    if not isinstance(cast(object, name), str):
        raise _refused("name", name, "the name of a claim", "mf.claims() lists them.")
    listed = index()
    if name not in listed:
        raise _unknown(f"the claim {name[:100]!r}", "the name of a claim", name, list(listed))
    return load(listed[name])


def select(patterns: Sequence[str]) -> tuple[Listed, ...]:
    """The claims that a pattern names: a claim, a glob such as `castin-*`, or a chapter. No patterns: all claims."""
    listed = index()
    if not patterns:
        return tuple(listed.values())
    chosen: set[str] = set()
    for pattern in patterns:
        hits = {one.name for one in listed.values() if pattern == one.chapter or fnmatchcase(one.name, pattern)}
        if not hits:
            words = [*listed, *sorted({one.chapter for one in listed.values()})]
            need = "the name of a claim, a glob that fits one, or a chapter"
            raise _unknown(f"{pattern[:100]!r}", need, pattern, words)
        chosen |= hits
    return tuple(one for one in listed.values() if one.name in chosen)


def load(listed: Listed) -> Entry:
    """The claim that a module defines, imported and checked."""
    try:
        claim = importlib.import_module(listed.module).claim
    except Exception as error:
        raise broken(
            f"module {listed.module}, which cannot be imported ({type(error).__name__}: {error})",
            "a module that can be imported",
            "Correct it, or install what it imports.",
        ) from error
    if not isinstance(claim, Claim):
        raise broken(f"module {listed.module}, whose `claim` is no Claim", "a Claim", "Make it one.")
    checked = cast(Claim[Any], claim)
    if CLAIM in checked.controls or not checked.controls:
        raise broken(
            f"module {listed.module} with the controls {sorted(checked.controls)}",
            f"at least one control, none of them called {CLAIM!r}",
            "Add the nearest false variant of the statement.",
        )
    _require_plain_configs(checked, listed.module)
    return Entry(checked, listed)


def _require_plain_configs(claim: Claim[Any], module: str) -> None:
    """Configurations are stored and compared: their entries must read back as they were written."""
    for preset in get_args(Preset):
        for name, value in claim.config_entries(preset).items():
            if type(value) not in (int, float, str) or value in (math.inf, -math.inf) or value != value:
                raise broken(
                    f"{name} = {str(value)[:60]} in the {preset} configuration of {module}",
                    "an integer, a finite number or a string",
                    "Make it one; a choice can be a string.",
                )


def _unknown(got: str, need: str, word: str, known: list[str]) -> UnknownClaimError:
    hint = did_you_mean(word, known)
    return UnknownClaimError(got=got, need=need, do=f"{hint} `measureformer claims` lists all.".lstrip())


def run(entry: Entry, *, seed: int, preset: Preset) -> Result:
    """Run the claim of `entry` and its controls with the same key."""
    require(seed, preset)
    if entry.claim.needs is not None and (why := entry.claim.needs()):
        raise ClaimNotRunError(
            got=f"the claim {entry.name} without the data that it is about", need=why, do="Then run the claim again."
        )
    import jax  # here, because listing claims must not wait for JAX

    claim, config = entry.claim, entry.claim.config(preset)
    key = jax.random.key(seed)
    # before the run: if the source is edited meanwhile, the result must not pass for one of the new source
    sources = fingerprint_of(entry, seed=seed, preset=preset)
    start = time.perf_counter()
    outcome = _measure(entry, "measurement", lambda: claim.measure(key, config, CLAIM))
    controls = tuple(
        Control(name, about, _measure(entry, f"control {name!r}", lambda name=name: claim.measure(key, config, name)))
        for name, about in claim.controls.items()
    )
    seconds = time.perf_counter() - start
    _require_known_controls(entry, outcome)
    result = Result(
        claim=claim.name,
        chapter=entry.chapter,
        chapter_title=entry.listed.chapter_title,
        title=claim.title,
        kind=claim.kind,
        statement=claim.statement,
        hypotheses=claim.hypotheses,
        reference=claim.reference,
        citation=cite(claim),
        run=outcome,
        controls=controls,
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


def _require_known_controls(entry: Entry, outcome: Outcome) -> None:
    named = {control for check in outcome.checks for control in check.rejected_by}
    if strange := sorted(named - set(entry.claim.controls)):
        raise broken(
            f"a check of {entry.name} that is rejected by {', '.join(strange)}",
            f"names of its controls: {', '.join(entry.claim.controls)}",
            "Correct the name, or add the control.",
        )


def _measure(entry: Entry, what: str, measure: Callable[[], Any]) -> Any:
    try:
        measured = measure()
    except DependencyError as missing:
        raise ClaimNotRunError(
            got=f"{missing.got}, in the {what} of claim {entry.name}", need=missing.need, do=missing.do
        ) from None
    except Exception as error:
        raise ClaimRunError(
            got=f"{type(error).__name__} in the {what} of claim {entry.name}: {error}",
            need="a measurement that ends with an Outcome of plain Python numbers",
            do=f"The measurement is in module {entry.module}.",
        ) from error
    if not isinstance(measured, (Outcome, Result)):
        raise ClaimRunError(
            got=f"{type(measured).__name__} from the {what} of claim {entry.name}",
            need="an Outcome",
            do=f"The measurement is in module {entry.module}.",
        )
    return measured


def require(seed: int, preset: str) -> None:
    """Refuse a seed or a preset that cannot be run."""
    if not isinstance(cast(object, preset), str) or preset not in get_args(Preset):
        raise _refused("preset", preset, "'quick' or 'full'", "Quick takes seconds.")
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise _refused("seed", seed, "an integer from 0 to 2³² − 1", "Take 0 if any will do.")


def _refused(name: str, value: Any, need: str, do: str) -> OptionError:
    # imports JAX, which claims are listed without
    from measureformer.numerics.arrays import shown

    return OptionError(got=shown(value, name), need=need, do=do)


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
    return source_fingerprint(entry.module, inputs)


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "measureformer": __version__,
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
        "python": platform.python_version(),
    }
