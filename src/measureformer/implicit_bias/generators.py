"""`random_problems`: the usual random problems for the implicit bias of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import numpy as np

from measureformer.errors import OptionError
from measureformer.implicit_bias.problem import Problem
from measureformer.maps import MLP
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key

Name = Literal["random", "picture", "prompt", "several", "orthonormal"]


@overload
def random_problems(
    name: Name, key: Key, *, count: None = None, n: int | None = None, T: int | None = None, d: int | None = None
) -> Problem: ...
@overload
def random_problems(
    name: Name, key: Key, *, count: int, n: int | None = None, T: int | None = None, d: int | None = None
) -> list[Problem]: ...
@checked
def random_problems(
    name: Name, key: Key, *, count: int | None = None, n: int | None = None, T: int | None = None, d: int | None = None
) -> Problem | list[Problem]:
    """A random problem, or a list of independent ones.

    Arguments:
        name: kind of problem, from the list below.
        key: randomness.
        count: length of the list; a single problem by default.
        n: number of examples; as in the list by default.
        T: number of tokens of each example; as in the list by default.
        d: dimension of the tokens; as in the list by default.

    - "random": tokens, queries and v uniform on the sphere, random labels; n=6, T=8, d=10.
    - "picture": two examples in the plane around (−1, 0) and (1, 0); the query is the first token; n=2, T=3, d=2.
    - "prompt": prompt tuning in the plane; the optimal token has score 1 and lies around (1, 0), the others have
      score 1/2 and lie around (−1, 1) and (−1/2, −1/2); n=3, T=7, d=3.
    - "several": n=3, T=4, d=8 and the head Σ relu(Vx) with ‖V‖_F = 1; a label is −1 at least once, and the margin
      −Σ relu(Vx) is concave: it may be largest on a mixture of tokens.
    - "orthonormal": all n·T tokens are orthonormal, one of each example has score 1 and the others 0, and
      the query is the optimal token; d ≥ nT, d=20 for n=T=4.

    Ref         tarzanagh2023; tarzanagh2023b; vasudeva2024.

    >>> import jax, measureformer as mf
    >>> problem = mf.implicit_bias.random_problems("random", jax.random.key(0))
    >>> problem.X.shape, len(mf.implicit_bias.random_problems("picture", jax.random.key(0), count=3))
    ((6, 8, 10), 3)
    """
    make, usual_sizes = _MAKERS[name]
    given = zip("nTd", (n, T, d), usual_sizes, strict=True)
    sizes = [usual if size is None else positive_int(size, axis) for axis, size, usual in given]
    if name in ("picture", "prompt") and sizes[2] != usual_sizes[2]:
        raise OptionError(got=f"d = {sizes[2]} for {name!r}", need=f"d = {usual_sizes[2]}", do="Leave d out.")
    if name == "orthonormal" and sizes[0] * sizes[1] > sizes[2]:
        raise OptionError(got=f"n, T, d = {sizes}", need="d ≥ nT", do="Orthonormal tokens need as many dimensions.")
    rng = generator(prng_key(key))
    made = [make(rng, *sizes) for _ in range(1 if count is None else positive_int(count, "count"))]
    return made[0] if count is None else made


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of norm 1."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _random(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    X, z, v = (unit(rng.normal(size=shape)) for shape in ((n, T, d), (n, d), (d,)))
    return Problem(X, z, rng.choice([-1.0, 1.0], n), v)


def _picture(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    centers = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None, None] * np.array([1.0, 0.0])
    X = 0.3 * rng.normal(size=(n, T, d)) + centers
    return Problem(X, X[:, 0], np.ones(n), rng.normal(size=d))


def _prompt(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    centers = np.array([[1.0, 0.0], [-1.0, 1.0], [-0.5, -0.5]])
    places = np.concatenate([[0], 1 + np.arange(T - 1) % 2])
    X = np.empty((n, T, d))
    X[..., :2] = centers[places] + 0.2 * rng.normal(size=(n, T, 2))
    X[..., 2] = np.where(places == 0, 1.0, 0.5)
    return Problem.prompt(X, np.ones(n), np.eye(d)[2], np.eye(d)[:2])


def _several(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    X, z = unit(rng.normal(size=(n, T, d))), unit(rng.normal(size=(n, d)))
    V, y = rng.normal(size=(d, d)), rng.choice([-1.0, 1.0], n)
    # with labels +1 only, margins are convex functions and largest on single tokens
    while not (y < 0).any():
        y = rng.choice([-1.0, 1.0], n)
    return Problem(X, z, y, MLP(V / np.linalg.norm(V), None, np.ones((1, d)), None, activation="relu"))


def _orthonormal(rng: np.random.Generator, n: int, T: int, d: int) -> Problem:
    X = np.linalg.qr(rng.normal(size=(d, n * T)))[0].T.reshape(n, T, d)
    y = rng.choice([-1.0, 1.0], n)
    return Problem(X, X[:, 0], y, y @ X[:, 0])


_MAKERS: dict[Name, tuple[Callable[[np.random.Generator, int, int, int], Problem], tuple[int, int, int]]] = {
    "random": (_random, (6, 8, 10)),
    "picture": (_picture, (2, 3, 2)),
    "prompt": (_prompt, (3, 7, 3)),
    "several": (_several, (3, 4, 8)),
    "orthonormal": (_orthonormal, (4, 4, 20)),
}
"""Makers of problems, and the usual n, T and d."""
