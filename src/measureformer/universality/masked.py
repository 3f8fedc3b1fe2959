"""The hypothesis of the masked theorem: contexts that are Lipschitz in time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from measureformer.errors import DtypeError, OptionError
from measureformer.measures import Discrete, SpaceTime
from measureformer.measures.atomic import concrete
from measureformer.transport import wasserstein


class TimeLipschitz(NamedTuple):
    """The smallest constant C, and the pair of neighbouring times that needs it."""

    constant: float
    times: tuple[float, float]
    distances: np.ndarray
    """W_p between the contexts at each time and the next."""


def time_lipschitz(sigma: Any, *, p: int = 2) -> TimeLipschitz:
    """The smallest C with W_p(mu_s, mu_t) ≤ C |s − t| for all times of atoms, mu_t = what is seen at t, normalised.

    The masked theorem is about prompts with a common C. Between the times of its atoms the context of a prompt does not
    change, so that only these times matter; and of those only neighbours, by the triangle inequality.

    Statement   for n tokens at times 1/n, …, 1 with diameter D: C ≤ n·D, and C ≥ n·|x_1 − x_2|/2^{1/p}, since the
                second token halves the weight of the first. So independent tokens have no common C as n grows, and a
                curve t ↦ x(t) with Lipschitz constant L, sampled at n times, has C ≤ L.
    Ref         furuya2024.

    >>> import measureformer as mf
    >>> sigma = mf.SpaceTime.uniform([[0.0], [1.0]], times=[0.5, 1.0])
    >>> found = mf.universality.time_lipschitz(sigma, p=1)
    >>> found.constant, found.times
    (1.0, (0.5, 1.0))
    """
    if not isinstance(sigma, SpaceTime):
        raise DtypeError(
            got=f"a context of type {type(sigma).__name__}", need="a SpaceTime", do="Use mf.SpaceTime.sequence(tokens)."
        )
    concrete(sigma, "time_lipschitz")
    massive = np.asarray(sigma.log_weights) > -np.inf
    times = np.unique(np.asarray(sigma.times)[massive])
    if len(times) < 2:
        raise OptionError(
            got="atoms at one time only", need="two different times with mass", do="A single time has no constant."
        )
    contexts = [sigma.until(t).normalized() for t in times]
    distances = np.array([_distance(mu, nu, p) for mu, nu in pairwise(contexts)])
    rates = distances / np.diff(times)
    worst = int(rates.argmax())
    return TimeLipschitz(float(rates[worst]), (float(times[worst]), float(times[worst + 1])), distances)


def _distance(mu: Discrete, nu: Discrete, p: Any) -> float:
    return float(wasserstein(mu, nu, p=p))
