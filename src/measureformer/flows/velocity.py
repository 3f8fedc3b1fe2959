"""`Depthwise`: the velocity of a flow as a function of depth, and what flows ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DimensionMismatchError, DtypeError, OffSphereError, OptionError
from measureformer.flows.settings import Accuracy
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.call import refuse_input
from measureformer.maps.rescaled import Rescaled
from measureformer.maps.tangent import Tangent, normalized
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.arrays import host, is_spread, is_traced

Velocity = AbstractInContextMap | Sequence[AbstractInContextMap]


class Depthwise(eqx.Module):
    """The velocity as a function of depth: one map, or several of the same form that take turns (θ(t))."""

    maps: tuple[AbstractInContextMap, ...]

    def at(self, index: int | Array, t: Any) -> AbstractInContextMap:
        """The map number `index`, which may be traced, at time t."""
        G = self._piece(index)
        return G.at_time(t) if isinstance(G, Rescaled) else G

    def settled(self, points: Array) -> Array:
        """Points of a trajectory as they are shown: on the sphere, for a `Tangent` velocity."""
        return normalized(points) if isinstance(self.maps[0], Tangent) else points

    def accuracy(self, mu: AbstractAtomic, dtype: np.dtype[Any]) -> Accuracy:
        """Solver and tolerances where the user gives none."""
        if isinstance(self.maps[0], (Tangent, Rescaled)):
            growing = isinstance(self.maps[0], Rescaled) and not is_traced(mu)
            size = (float(mu.radius()) or 1.0) if growing else 1.0
            rtol = max(1e-9, 50 * float(np.finfo(dtype).eps))
            return Accuracy("dopri8", rtol, rtol * size, (0.3, 0.4), 1 << 16)
        return Accuracy(rtol=1e-4, atol=1e-5) if dtype == np.float32 else Accuracy()

    def refuse_values(self, mu: Any, times: np.ndarray) -> None:
        """Refuse concrete points that the velocity is not made for."""
        moments = getattr(mu, "times", None)
        for G in self.maps:
            refuse_input(G, mu, mu.points, moments)
            if isinstance(G, Tangent) and not is_spread(mu):
                _refuse_off_sphere(np.asarray(host(mu.points)))
            if isinstance(G, Rescaled):
                if times[0] != 0:
                    raise OptionError(
                        got=f"times that begin at {times[0]:g}",
                        need="times[0] = 0 for a Rescaled velocity",
                        do="At 0 rescaled tokens and tokens are the same.",
                    )
                G.refuse_overflow(float(times[-1]), float(mu.radius()))

    def _piece(self, index: int | Array) -> AbstractInContextMap:
        if len(self.maps) == 1:
            return self.maps[0]
        arrays, rest = zip(*(eqx.partition(G, eqx.is_array) for G in self.maps), strict=True)
        chosen = jax.tree.map(lambda *leaves: jnp.stack(leaves)[index], *arrays)
        return eqx.combine(chosen, rest[0])


def checked_layers(velocity: Velocity) -> Depthwise:
    """The velocity as layers, refused unless they are alike."""
    maps = tuple(velocity) if isinstance(velocity, Sequence) else (velocity,)
    for G in maps:
        if not isinstance(G, AbstractInContextMap):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DtypeError(
                got=f"{type(G).__name__} as a velocity",
                need="an in-context map, or a list of them",
                do="Pass a layer such as mf.Attention; a function of two points becomes one by mf.flows.Interaction.",
            )
    if not maps or len({_form(G) for G in maps}) > 1:
        raise OptionError(
            got=f"{len(maps)} layers of {'different forms' if maps else 'any form'}",
            need="at least one layer, and all with arrays of the same shapes",
            do="Layers of a flow differ in their parameters only; follow one flow by another for different layers.",
        )
    return Depthwise(maps)


def alike(velocity: Array, points: Array) -> Array:
    """Refuse a velocity that is not one vector of R^d for each point."""
    if velocity.shape != points.shape:
        raise DimensionMismatchError(
            got=f"a velocity with values in R^{velocity.shape[-1]} for tokens in R^{points.shape[-1]}",
            need="a velocity in the space of the tokens",
            do="Compose it with mf.Linear.",
        )
    return velocity


def _form(G: AbstractInContextMap) -> Any:
    """What layers of one flow share: structure, shapes, and everything that is not an array."""
    leaves, structure = jax.tree.flatten(G)
    return structure, tuple(leaf.shape if eqx.is_array(leaf) else leaf for leaf in leaves)


def _refuse_off_sphere(points: np.ndarray) -> None:
    off = np.abs(np.linalg.norm(points, axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > 1e4 * np.finfo(points.dtype).eps:
        raise OffSphereError(
            got=f"point {worst} with norm {float(np.linalg.norm(points[worst])):.12g}",
            need="points of norm 1",
            do="Divide each by its norm: mf.UnitNorm(np.ones(d)).tokens(points).",
        )
