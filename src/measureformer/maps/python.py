"""`AbstractPythonMap`: a map that calls Python, such as a simulator, and cannot be compiled."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Array

from measureformer.errors import TracedError
from measureformer.maps.base import AbstractInContextMap
from measureformer.measures import AbstractMeasure
from measureformer.numerics.arrays import is_traced, on_device


class AbstractPythonMap(AbstractInContextMap):
    """A map whose values are computed in Python, on concrete arrays; a composition with it is computed part by part.

    It is refused under `jit`, `grad`, `vmap` and in flows.
    """

    @abc.abstractmethod
    def compute(self, mu: AbstractMeasure, x: Any, t: Any) -> np.ndarray:
        """The values (m, e), from concrete arrays; all atoms of mu have mass.

        Arguments:
            mu: the context.
            x: queries, (m, d).
            t: times of the queries, (m,), or None off space–time.
        """

    @property
    def eager(self) -> bool:
        return True

    def evaluate(self, mu: AbstractMeasure, x: Array, t: Array | None) -> Array:
        if is_traced(self, mu, x, t):
            raise TracedError(
                got=f"a {type(self).__name__} inside jit, grad, vmap or a flow",
                need="concrete measures: it is computed eagerly, in Python",
                do="Call G(mu, x) outside of the transformed function.",
            )
        return on_device(self.compute(mu, x, t))
