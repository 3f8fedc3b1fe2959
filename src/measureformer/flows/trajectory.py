"""`AbstractTrajectory`: what `mf.flow` returns, whatever moves."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array

from measureformer.errors import NoClosedFormError, TimeError
from measureformer.flows.flow_map import FlowMap
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import scalar
from measureformer.numerics.types import ArrayLike


class AbstractTrajectory(eqx.Module):
    """A moving measure: `measures` at `times`, `at(t)` in between, and `map(t)`, the flow as an in-context map."""

    @property
    @abc.abstractmethod
    def times(self) -> np.ndarray | Array:
        """The requested times, (k,); of a Gaussian those before its blow-up."""

    @property
    @abc.abstractmethod
    def measures(self) -> tuple[AbstractMeasure, ...]:
        """The measures at these times."""

    @abc.abstractmethod
    def map(self, t: ArrayLike) -> FlowMap:
        """The flow from the first time to t, as an in-context map; refused unless atoms move.

        Arguments:
            t: with adaptive steps any time of the trajectory's interval; with equal steps one of `times`.
        """

    def at(self, t: ArrayLike) -> Any:
        """The measure at time t: stored if t is one of the times, computed otherwise.

        Arguments:
            t: as in `map`.
        """
        moment = self._moment(t)
        known = np.flatnonzero(np.asarray(self.times) == moment)
        return self.measures[int(known[0])] if len(known) else self._between(moment)

    @abc.abstractmethod
    def _between(self, t: float) -> AbstractMeasure:
        """The measure at a time that is not stored."""

    def _moment(self, t: ArrayLike, *, stored: bool = False) -> float:
        """t as a number, refused outside of the interval; with `stored` unless it is one of the times."""
        times = np.asarray(self.times)
        # in their precision: 0.7 is later than the same number in single precision
        moment = float(np.asarray(scalar(t, "t"), times.dtype))
        if not (bool((times == moment).any()) if stored else times[0] <= moment <= times[-1]):
            raise TimeError(
                got=f"t = {moment:g} on a trajectory from {times[0]:g} to {times[-1]:g}",
                need="one of its times" if stored else "a time in this interval",
                do="Ask for it in `times` of mf.flow.",
            )
        return moment


def no_map(kind: str) -> NoClosedFormError:
    """The refusal of `map` where no atoms move."""
    return NoClosedFormError(
        got=f"the map of a flow that moves a {kind}",
        need="a flow of atoms: its map takes any atoms as context",
        do="Take atoms first: mf.flow(velocity, mu.discretize(n), times).map(t), or those of `measures`.",
    )
