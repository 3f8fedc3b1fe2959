"""A new number of atoms compiles nothing, for every public function that takes a measure: found by inspection."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations

G = mf.Residual(mf.Attention.head(np.eye(2), np.eye(2), np.eye(2)), step=0.3)
KEY = jax.random.key(0)
MESH = jax.make_mesh((1,), ("tokens",))


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 2))


def cloud(n: int, seed: int = 0) -> mf.Discrete:
    return mf.Discrete.weighted(rows(n, seed), np.linspace(1, 2, n) / np.linspace(1, 2, n).sum())


def text(n: int, seed: int = 0) -> mf.SpaceTime:
    return mf.SpaceTime.uniform(rows(n, seed), np.zeros(n))


def line(n: int) -> mf.Discrete:
    return mf.Discrete.uniform(rows(n)[:, :1])


def gauss(x: Any) -> Any:
    return -0.5 * np.sum(np.asarray(x) ** 2, axis=1)


def height(y: Any) -> Any:
    return jnp.sin(y[:, 0])


H = mf.Attention.head(np.eye(2), np.eye(2), np.eye(2))
CALLS: dict[str, Callable[[int], Any]] = {
    "a call": lambda n: G(cloud(n), rows(n)),
    "a push": lambda n: G.push(cloud(n)),
    "tokens": lambda n: G.tokens(rows(n)),
    "a causal push": lambda n: mf.Causal(G).push(text(n)),
    "attend": lambda n: mf.attend(rows(n), rows(n), rows(n), times=(np.arange(n), np.arange(n))),
    "flow": lambda n: mf.flow(G - mf.Identity(), cloud(n), [0.0, 0.1]),
    "first_variation": lambda n: mf.first_variation(H, cloud(n), [0.0, 0.0], [1.0, 0.0]),
    "shard": lambda n: mf.shard(cloud(n), MESH),
    "gather": lambda n: mf.gather(mf.shard(cloud(n), MESH)),
    "local_lipschitz": lambda n: mf.local_lipschitz(G, cloud(n)),
    "directional_derivative": lambda n: mf.structure.directional_derivative(H, cloud(n), [0.0, 0.0], height),
    "conditional_wasserstein": lambda n: mf.conditional_wasserstein(text(n), text(n, 1)),
    "coupling": lambda n: mf.coupling(cloud(n), cloud(n, 1)),
    "positive_wasserstein": lambda n: mf.positive_wasserstein(cloud(n), 2 * cloud(n, 1)),
    "sinkhorn": lambda n: mf.sinkhorn(cloud(n), cloud(n, 1), eps=0.5),
    "sliced_wasserstein": lambda n: mf.sliced_wasserstein(cloud(n), cloud(n, 1), key=jax.random.key(0)),
    "wasserstein": lambda n: mf.wasserstein(cloud(n), cloud(n, 1)),
    "wasserstein_bracket": lambda n: mf.wasserstein_bracket(cloud(n), cloud(n, 1)),
    "clusters": lambda n: mf.clustering.clusters(cloud(n), 0.1),
    "leaders": lambda n: mf.clustering.leaders(H, cloud(n)),
    "fit_retrieval": lambda n: mf.memory.fit_retrieval(cloud(n), rows(n, 1), np.arange(n), steps=1),
    "Modern.store": lambda n: mf.memory.Modern.store(cloud(n), 1.0).update(rows(n, 1)),
    "head_class": lambda n: mf.memory.head_class(H, cloud(n)),
    "as_memory": lambda n: mf.memory.as_memory(H, cloud(n)),
    "generic": lambda n: mf.structure.generic(cloud(n), 0.1, jax.random.key(0)),
    "tilted_mean": lambda n: mf.universality.tilted_mean(cloud(n), [[0.0, 1.0]]),
    "obstruction": lambda n: mf.structure.obstruction(line(2), line(n)),
    "regular_derivative": lambda n: mf.regular_derivative(G.push, cloud(n - 1), [3.0, 0.0], lambda y: np.sin(y[:, 0])),
    "push_density": lambda n: mf.flows.push_density(H + 3 * mf.Identity(), gauss, cloud(n), rows(5)),
    "time_lipschitz": lambda n: mf.universality.time_lipschitz(mf.SpaceTime.sequence(rows(n))),
    "flow: rescaled": lambda n: mf.flow(mf.Rescaled(H), cloud(n), [0.0, 0.1]),
    "worst_pair": lambda n: mf.regularity.worst_pair(G, cloud(n), mf.wasserstein, key=KEY, steps=3),
    "adversary": lambda n: mf.regularity.adversary(H, n, 1.0, steps=1),
    "memory: modern": lambda n: mf.memory.Modern.store(rows(n), 1.0).retrieve(rows(n, 1)).certificate,
    "memory: dense": lambda n: mf.memory.Dense.store(np.sign(rows(n))).retrieve(np.sign(rows(n, 1))).certificate,
    "memory: classical": lambda n: mf.memory.Classical.store(np.sign(rows(n))).retrieve(np.sign(rows(n, 1))),
    "divergence": lambda n: mf.sinkhorn(cloud(n), cloud(n - 3, 1), eps=0.5).divergence,
}
# tries the formula of a map, in a program of its own for every map; and what tests/flows/test_fit.py counts
OTHERS = {"check_laws", "fit_flow"}


A_MEASURE = re.compile(r"\b(Measure|AbstractMeasure|AbstractAtomic|Discrete|SpaceTime)\b")


def takes_a_measure(value: Any) -> bool:
    """Whether a parameter of any name is a measure or holds some; a function of measures is none."""
    if not (inspect.isfunction(value) or inspect.ismethod(value)):
        return False
    kinds = [str(parameter.annotation) for parameter in inspect.signature(value).parameters.values()]
    return any(A_MEASURE.search(kind) and not kind.startswith("Callable") for kind in kinds)


def entries(place: Any) -> set[str]:
    """Public functions and methods that take a measure; those of maps and of measures have tests of their own."""
    found = set()
    for name in dir(place):
        if name.startswith("_"):
            continue
        value = getattr(place, name)
        if takes_a_measure(value):
            found.add(name)
        if inspect.isclass(value) and not issubclass(value, mf.AbstractInContextMap | mf.Discrete | mf.SpaceTime):
            methods = {method: getattr(value, method) for method in dir(value) if not method.startswith("_")}
            found |= {f"{name}.{method}" for method, made in methods.items() if takes_a_measure(made)}
    return found


def test_every_public_function_of_a_measure_is_here() -> None:
    places = [mf, *(value for name in dir(mf) if inspect.ismodule(value := getattr(mf, name)))]
    found = set().union(*map(entries, places))
    assert {"wasserstein", "leaders", "fit_flow", "Modern.store"} <= found
    assert found - set(CALLS) - OTHERS == set()


@pytest.mark.parametrize("name", CALLS)
def test_a_new_number_of_atoms_compiles_nothing(name: str) -> None:
    call = CALLS[name]
    call(20), call(20)
    assert count_compilations(lambda: [call(n) for n in (21, 27, 32)]) == 0
