"""Refusals: every way in which measureformer says no, in one place.

Each error says what it got, what it needs, and what to do; the three parts are separate arguments so that none can be
forgotten. Every class also derives from the built-in exception that a caller would expect (`ValueError`, `TypeError`,
`KeyError`, `NotImplementedError`), so ordinary `except` clauses work.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question with the names most like `word`, three at most; empty if none is near.

    >>> did_you_mean("wasserstien", ["attend", "wasserstein", "sliced_wasserstein"])
    'Did you mean wasserstein or sliced_wasserstein?'
    """
    import difflib  # here, because importing the package must be quick

    names = list(known)
    near = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    # a part of a name is no misprint, and near all the same
    near += [name for name in names if len(word) > 2 and word in name and name not in near][: 3 - len(near)]
    return f"Did you mean {' or '.join(near)}?" if near else ""


def suggest_names(
    module: str, resolve: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Module-level `__getattr__`, whose refusal names the nearest public names, and `__dir__`, which lists them.

    Notebooks do not show Python's own hint. Public are the names in `__all__`; without one, those that the module
    imports as themselves, and not the submodules that happen to be loaded.
    """

    def public() -> list[str]:
        home = sys.modules[module]
        return list(vars(home).get("__all__") or _imported_as_themselves(Path(home.__file__ or "")))

    def find(name: str) -> Any:
        if name == "__all__":
            return public()
        if resolve is not None and name in public():
            return resolve(name)
        hint = did_you_mean(name, public()) or f"dir({module}) lists what it has."
        # without `obj`, lest Python ask the same question after ours
        raise AttributeError(f"module {module!r} has no attribute {name!r}. {hint}", name=name)

    return find, public


def _imported_as_themselves(source: Path) -> list[str]:
    import ast  # here, because importing the package must be quick

    imports = (node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.ImportFrom))
    return sorted(alias.name for node in imports for alias in node.names if alias.asname == alias.name)


class MeasureformerError(Exception):
    """Base class of all refusals: `raise ShapeError(got=…, need=…, do=…)`."""

    def __init__(self, *, got: str, need: str, do: str) -> None:
        self.got = got
        self.need = need
        self.do = do
        super().__init__(f"got {got}; need {need}. {do}")

    def __str__(self) -> str:
        # KeyError would show the repr of its argument
        return f"got {self.got}; need {self.need}. {self.do}"

    def __reduce__(self) -> tuple[Any, ...]:
        # keyword-only arguments do not survive the default protocol, and errors cross process borders in parallel runs
        return _rebuild, (type(self), self.got, self.need, self.do)


def _rebuild(cls: type[MeasureformerError], got: str, need: str, do: str) -> MeasureformerError:
    return cls(got=got, need=need, do=do)


class ShapeError(MeasureformerError, ValueError):
    """An array has the wrong number of axes or the wrong length along one."""


class DtypeError(MeasureformerError, TypeError):
    """An input is not an array of real numbers, or an option has the wrong type."""


class NotFiniteError(MeasureformerError, ValueError):
    """NaN or infinity in an input, or in a result that should have been finite."""


class NegativeWeightError(MeasureformerError, ValueError):
    """A measure was given a negative weight, or scaled by a number that is not positive."""


class ZeroMassError(MeasureformerError, ValueError):
    """All weights of a measure are zero; the zero measure has no mean and cannot be attended to."""


class EmptyMeasureError(MeasureformerError, ValueError):
    """A measure without atoms."""


class DimensionMismatchError(MeasureformerError, ValueError):
    """Two objects that meet live in spaces of different dimension."""


class MassError(MeasureformerError, ValueError):
    """Two measures that are to be coupled differ in mass, or in their mass at some time."""


class NotPositiveSemidefiniteError(MeasureformerError, ValueError):
    """A covariance is not symmetric, or has a clearly negative eigenvalue."""


class NothingVisibleError(MeasureformerError, ValueError):
    """A causal query lies before every atom that has mass."""


class LawError(MeasureformerError, ValueError):
    """A map breaks a law that all in-context maps obey: it is no function of a measure and a point."""


class TimeError(MeasureformerError, ValueError):
    """A space–time map was called without times, or on a measure that has none; or times of a flow out of order."""


class FlowError(MeasureformerError, ArithmeticError):
    """A flow ended before its last time; `last` is the pair (time, measure) of the last state that is valid."""

    def __init__(self, *, got: str, need: str, do: str, last: Any = None) -> None:
        super().__init__(got=got, need=need, do=do)
        self.last = last

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_flow, (type(self), self.got, self.need, self.do, self.last)


def _rebuild_flow(cls: type[FlowError], got: str, need: str, do: str, last: Any) -> FlowError:
    return cls(got=got, need=need, do=do, last=last)


class BlowUpError(FlowError):
    """A flow left every bounded set, or its velocity stopped being finite, before the last time."""


class StepLimitError(FlowError):
    """An adaptive solver used all the steps it may take before the last time."""


class TrainingError(FlowError):
    """The loss stopped being finite in training; `last` are the last weights with a finite one."""


class BoxError(FlowError):
    """Mass left the box of a grid."""


class NotInvertibleError(MeasureformerError, ArithmeticError):
    """A map that should be a diffeomorphism is not one, or its inverse was not found."""


class ZeroVectorError(MeasureformerError, ValueError):
    """A map that divides by the norm met the zero vector."""


class OffSphereError(MeasureformerError, ValueError):
    """A point that should lie on the unit sphere does not."""


class NoClosedFormError(MeasureformerError, NotImplementedError):
    """The integral against this continuous measure has no closed form here."""


class NoAtomsError(NoClosedFormError, AttributeError):
    """The atoms of a measure that has none were asked for, as a formula does that sums over tokens."""


class DerivativeError(MeasureformerError, ArithmeticError):
    """A derivative was asked for where there is none."""


class TooManyAtomsError(MeasureformerError, ValueError):
    """An exponential algorithm was asked for too many atoms."""


class TracedError(MeasureformerError, TypeError):
    """A function whose output shape depends on values was called under jit, grad or vmap."""


class DomainError(MeasureformerError, ValueError):
    """A set of points that is not compact or empty, or a measure that does not live on it."""


class NotDeterministicError(MeasureformerError, ValueError):
    """A black box gave two answers to the same question."""


class SupportError(MeasureformerError, ArithmeticError):
    """A map between measures does not keep atoms together, where something was to be read from them."""


class ConstructionError(MeasureformerError, ValueError):
    """A construction would be too large, or its function does not fit into it."""


class NotEquivariantError(MeasureformerError, ValueError):
    """A function of sequences depends on the order of tokens; `witness` is a pair (permutation, sequence)."""

    def __init__(self, *, got: str, need: str, do: str, witness: Any = None) -> None:
        super().__init__(got=got, need=need, do=do)
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_witness, (type(self), self.got, self.need, self.do, self.witness)


def _rebuild_witness(cls: type[NotEquivariantError], got: str, need: str, do: str, witness: Any) -> NotEquivariantError:
    return cls(got=got, need=need, do=do, witness=witness)


class OptionError(MeasureformerError, ValueError):
    """An option has a value outside the listed ones."""


class TieError(MeasureformerError, ValueError):
    """Several tokens have the largest score, where one was to be chosen."""


class InfeasibleError(MeasureformerError, ValueError):
    """The solution of a problem that has none was asked for."""


class ToleranceError(MeasureformerError, ArithmeticError):
    """The requested accuracy cannot be guaranteed in this arithmetic."""


class PatternError(MeasureformerError, ValueError):
    """Patterns that a memory cannot hold, or states that it cannot have: entries other than ±1 in a binary one."""


class ImageError(MeasureformerError, ValueError):
    """A file that is not a picture, a damaged or huge one, or pictures that do not go together."""


class PlanError(MeasureformerError, ValueError):
    """A plan was used for points that have left its cells."""


class ResultFormatError(MeasureformerError, ValueError):
    """A stored result is not one of ours: wrong JSON, wrong schema version, wrong or missing fields."""


class OutputError(MeasureformerError, OSError):
    """A file could not be written."""


class SavedRunError(MeasureformerError, ValueError):
    """A folder holds no saved run, a damaged one, or another one than that to be resumed."""


class FolderInUseError(MeasureformerError, RuntimeError):
    """Another process, or another call in this one, writes into the folder in which a run was to be saved."""


class CheckpointError(MeasureformerError, ValueError):
    """A checkpoint is missing, truncated, damaged or hostile, or is in a format that is not read."""


class FamilyError(MeasureformerError, ValueError):
    """A model of an unknown family, or with a setting that the family does not have."""


class TextError(MeasureformerError, ValueError):
    """A text that is empty, binary, too short or too long, or that does not fit the model's tokens."""


class DependencyError(MeasureformerError, ImportError):
    """A library that an optional part needs, or the data it brings, is not installed."""


def need(module: str, extra: str, *, instead: str = "") -> Any:
    """Import a module of an optional library, or refuse with the command that installs its extra.

    Arguments:
        module: dotted name of the module, which is returned.
        extra: the extra of this package that brings it.
        instead: what the user can do without it.

    >>> need("no_such_library.parts", "atlas", instead="do without")
    Traceback (most recent call last):
    measureformer.errors.DependencyError: got no library no_such_library that can be imported (No module named \
'no_such_library'); need the extra "atlas". Install it with pip install "measureformer[atlas]", or do without.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DependencyError(
            got=f"no library {module.partition('.')[0]} that can be imported ({error})",
            need=f'the extra "{extra}"',
            do=f'Install it with pip install "measureformer[{extra}]"{", or " if instead else ""}{instead}.',
        ) from None


class MeshError(MeasureformerError, ValueError):
    """A mesh of devices lacks the axis that tokens are spread over, or an array lies on it in another way."""


class SpreadError(MeasureformerError, TypeError):
    """A function that needs all atoms in one process met a measure that lies on several machines."""


class LaunchError(MeasureformerError, RuntimeError):
    """Workers cannot be started, or cannot meet: no script, no workers, contradictory settings, joined too late."""


class SchedulerError(MeasureformerError, ConnectionError):
    """The scheduler of a cluster cannot be reached, or has no workers."""


class WorkerLost(MeasureformerError, RuntimeError):
    """A worker ended or fell silent while the others were counting on it."""
