"""The hypothesis of the masked theorem: contexts that are Lipschitz in time."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from measureformer.errors import OptionError
from measureformer.measures import SpaceTime
from measureformer.measures.atomic import concrete
from measureformer.numerics.checked import checked
from measureformer.transport import wasserstein


class TimeLipschitz(NamedTuple):
    """The smallest constant C, and the pair of neighbouring times that attains it."""

    constant: float
    times: tuple[float, float]
    distances: np.ndarray
    """W_p between the contexts at each time and the next."""


@checked
def time_lipschitz(sigma: SpaceTime, *, p: float = 2) -> TimeLipschitz:
    """Smallest C with W_p(mu_s, mu_t) ≤ C |s − t| at the times of atoms; mu_t is what is seen at t, normalised.

    The masked theorem assumes prompts with a common C. The context of a prompt changes only at the times of its atoms,
    and by the triangle inequality neighbouring times suffice.

    Arguments:
        sigma: a prompt with atoms at two times or more.
        p: exponent of the distance, p ≥ 1.

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
    concrete(sigma, "time_lipschitz")
    massive = np.asarray(sigma.log_weights) > -np.inf
    times = np.unique(np.asarray(sigma.times)[massive])
    if len(times) < 2:
        raise OptionError(
            got="atoms at one time only", need="two different times with mass", do="A single time has no constant."
        )
    contexts = [sigma.until(t).normalized() for t in times]
    distances = np.array([float(wasserstein(mu, nu, p=p)) for mu, nu in pairwise(contexts)])
    rates = distances / np.diff(times)
    worst = int(rates.argmax())
    return TimeLipschitz(float(rates[worst]), (float(times[worst]), float(times[worst + 1])), distances)
