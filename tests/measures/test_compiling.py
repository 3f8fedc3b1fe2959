"""A new number of atoms compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from measure_examples import CONCRETE_ONLY, DIM, KEY, KINDS, TRACEABLE, arrays, entries, gaussian, mixture

WARM, NEW = 1000, (1000, 1001, 1023)


def test_the_count_sees_a_compilation() -> None:
    """The control: eager JAX on arrays of the user's size."""
    assert count_compilations(lambda: jnp.ones(1009) * 2) > 0
    assert count_compilations(lambda: np.ones(1009) * 2) == 0


# called inside the compiled programs of maps only, never on its own
INTERNAL = {"log_mass_until", "seen_at"}
ATOMIC = [
    entry for entry in entries(TRACEABLE, CONCRETE_ONLY) if "Gaussian" not in entry[0] and entry[1] not in INTERNAL
]


@pytest.mark.parametrize(("kind", "case"), ATOMIC)
def test_functions_of_atoms(kind: str, case: str) -> None:
    run = (TRACEABLE[kind] | CONCRETE_ONLY[kind])[case]
    run(KINDS[kind](0, WARM))
    for n in NEW:
        mu = KINDS[kind](1, n)
        assert count_compilations(lambda mu=mu: run(mu)) == 0


CONSTRUCTORS: dict[str, Callable[[int], Any]] = {
    "uniform": lambda n: mf.Discrete.uniform(arrays(1, n)[0]),
    "uniform, integers": lambda n: mf.Discrete.uniform(np.arange(2 * n).reshape(n, 2)),
    "uniform, lists": lambda n: mf.Discrete.uniform(arrays(1, n)[0].tolist()),
    "weighted": lambda n: mf.Discrete.weighted(*arrays(1, n)),
    "weighted, JAX arrays": lambda n: mf.Discrete.weighted(*map(jax.device_put, arrays(1, n))),
    "weighted, JAX integers": lambda n: mf.Discrete.weighted(
        *(jax.device_put(np.ones(s, int)) for s in ((n, 2), (n,)))
    ),
    "weighted, mixed": lambda n: mf.Discrete.weighted(arrays(1, n)[0].astype(np.float32), jax.device_put(np.ones(n))),
    "space–time": lambda n: mf.SpaceTime.weighted(arrays(1, n)[0], np.ones(n), jax.device_put(np.ones(n))),
    "sequence": lambda n: mf.SpaceTime.sequence(arrays(1, n)[0]),
}


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructors(case: str) -> None:
    CONSTRUCTORS[case](WARM)
    for n in NEW:
        assert count_compilations(lambda n=n: CONSTRUCTORS[case](n)) == 0


SIZED: dict[str, tuple[Callable[..., Any], Callable[[Any, int], Any]]] = {
    "sample of a Gaussian": (gaussian, lambda mu, n: mu.sample(KEY, n)),
    "sample of a mixture": (mixture, lambda mu, n: mu.sample(KEY, n)),
    "atoms of a Gaussian": (gaussian, lambda mu, n: mu.discretize(n)),
    "atoms of a mixture": (mixture, lambda mu, n: mu.discretize(n)),
    "tilts of a mixture": (mixture, lambda mu, m: mu.tilt(np.ones((m, DIM)))),
    "tilts of a Gaussian with H": (gaussian, lambda mu, m: mu.tilt(np.ones((m, DIM)), np.eye(DIM))),
}


@pytest.mark.parametrize("case", SIZED)
def test_functions_of_gaussians(case: str) -> None:
    make, run = SIZED[case]
    run(make(0), WARM)
    for n in NEW:
        mu = make(1)
        assert count_compilations(lambda n=n, mu=mu: run(mu, n)) == 0


def test_padded_measures_share_a_program() -> None:
    # kills: n as a static field of the measure
    program = jax.jit(lambda mu: mu.mean())
    program(KINDS["Discrete"](0, WARM).padded())
    for n in NEW:
        padded = KINDS["Discrete"](1, n).padded()
        assert count_compilations(lambda padded=padded: program(padded)) == 0
