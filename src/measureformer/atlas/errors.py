"""Refusals of the atlas: unknown names, claims against the rules, and claims that could not be run."""

from __future__ import annotations

from measureformer.errors import MeasureformerError


class UnknownClaimError(MeasureformerError, KeyError):
    """No claim of that name."""


class UnknownReferenceError(MeasureformerError, KeyError):
    """No entry of that key in the bibliography."""


class ReferenceFormatError(MeasureformerError, ValueError):
    """The bibliography is not in its strict format."""


class ClaimDefinitionError(MeasureformerError, ValueError):
    """A claim breaks a rule of the registry: no `claim` in its module, a bad name, a name taken twice."""


class ClaimRunError(MeasureformerError, RuntimeError):
    """The measurement of a claim or of a control raised, or returned something that is not an outcome."""


class ClaimNotRunError(MeasureformerError, RuntimeError):
    """A claim was not run, because what it is about (weights of a trained model) is not installed."""
