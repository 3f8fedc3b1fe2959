"""Tasks to be learned in context. A task is a pair of laws, D_X of inputs and D_F of functions.

A prompt is (x_1, f(x_1)), …, (x_n, f(x_n)) with f drawn from D_F and the x_i from D_X. To define your own task, write
a function of a key and of inputs: the key determines f, so `function(key, ·)` is f.

    def sine(key, x):
        w = jax.random.normal(key, x.shape[-1:], x.dtype)
        return jnp.sin(x @ w)

    task = mf.incontext.Task(3, sine)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from measureformer.errors import OptionError
from measureformer.incontext.shifted import shifted as shifted
from measureformer.incontext.task import AbstractTask as AbstractTask
from measureformer.incontext.task import Curriculum as Curriculum
from measureformer.incontext.task import Dynamics as Dynamics
from measureformer.incontext.task import Prompts as Prompts
from measureformer.incontext.task import Task as Task
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked

# --- functions -------------------------------------------------------------------------------------------------------


def _linear(key: Any, x: Any) -> Any:
    return x @ jax.random.normal(key, x.shape[-1:], x.dtype)


def _quadratic(key: Any, x: Any) -> Any:
    return x**2 @ jax.random.normal(key, x.shape[-1:], x.dtype) / math.sqrt(3)


def _sign(key: Any, x: Any) -> Any:
    return jnp.where(_linear(key, x) > 0, 1, -1).astype(x.dtype)


class _Sparse(eqx.Module):
    nonzero: int = eqx.field(static=True)

    def __call__(self, key: Any, x: Any) -> Any:
        of_weights, of_places = jax.random.split(key)
        w = jax.random.normal(of_weights, x.shape[-1:], x.dtype)
        places = jax.random.permutation(of_places, x.shape[-1])
        return x @ jnp.where(places < self.nonzero, w, 0)


class _Tree(eqx.Module):
    depth: int = eqx.field(static=True)

    def __call__(self, key: Any, x: Any) -> Any:
        of_splits, of_leaves = jax.random.split(key)
        splits = jax.random.randint(of_splits, (2**self.depth - 1,), 0, x.shape[-1])
        leaves = jax.random.normal(of_leaves, (2**self.depth,), x.dtype)
        node = jnp.zeros(x.shape[0], int)
        for _ in range(self.depth):
            # children of node i are 2i + 1 and 2i + 2; right if the coordinate is positive
            right = jnp.take_along_axis(x, splits[node][:, None], axis=1)[:, 0] > 0
            node = 2 * node + 1 + right
        return leaves[node - (2**self.depth - 1)]


class _Net(eqx.Module):
    width: int = eqx.field(static=True)

    def __call__(self, key: Any, x: Any) -> Any:
        of_inner, of_outer = jax.random.split(key)
        inner = jax.random.normal(of_inner, (self.width, x.shape[-1]), x.dtype)
        outer = jax.random.normal(of_outer, (self.width,), x.dtype)
        return math.sqrt(2 / self.width) * jax.nn.relu(x @ inner.T) @ outer


@checked
def linear(dim: int, *, noise: float = 0.0) -> Task:
    """y = ⟨w, x⟩ with w ~ N(0, I), plus noise.

    Arguments:
        dim: dimension of the inputs.
        noise: standard deviation of the noise on labels.

    Ref         garg2022, Section 3.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.linear(5).dim
    5
    """
    return Task(dim, _linear, noise=noise, scale=float(dim))


@checked
def sparse(dim: int, *, nonzero: int = 3) -> Task:
    """y = ⟨w, x⟩ where all but a few random coordinates of w ~ N(0, I) are set to 0.

    Arguments:
        dim: dimension of the inputs.
        nonzero: coordinates of w that are kept, from 1 to dim.

    Ref         garg2022, Section 4.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.sparse(20, nonzero=3).scale)
    3.0
    """
    if not 1 <= positive_int(nonzero, "nonzero") <= positive_int(dim, "dim"):
        raise OptionError(got=f"{nonzero} of {dim} coordinates", need="1 ≤ nonzero ≤ dim", do="Take fewer.")
    return Task(dim, _Sparse(nonzero), scale=float(nonzero))


@checked
def quadratic(dim: int) -> Task:
    """y = Σ_j w_j x_j²/√3 with w ~ N(0, I).

    Arguments:
        dim: dimension of the inputs.

    Ref         garg2022.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.quadratic(5).scale)
    5.0
    """
    return Task(dim, _quadratic, scale=float(dim))


@checked
def tree(dim: int, *, depth: int = 4) -> Task:
    """A full binary tree: each node tests the sign of a random coordinate, and leaf values are N(0, 1).

    Arguments:
        dim: dimension of the inputs.
        depth: tests from the root to a leaf.

    Ref         garg2022, Section 5.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.tree(20, depth=4).loss
    'square'
    """
    return Task(dim, _Tree(positive_int(depth, "depth")), scale=1.0)


@checked
def net(dim: int, *, width: int = 100) -> Task:
    """A random two-layer network √(2/r) Σ_i a_i relu⟨w_i, x⟩ with normal weights.

    Arguments:
        dim: dimension of the inputs.
        width: hidden units r.

    Ref         garg2022, Section 5.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.net(20).scale)
    20.0
    """
    return Task(dim, _Net(positive_int(width, "width")), scale=float(dim))


@checked
def classification(dim: int) -> Task:
    """y = sign⟨w, x⟩; the loss is logistic, and the error is the share of wrong signs.

    Arguments:
        dim: dimension of the inputs.

    Ref         garg2022.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.classification(5).loss
    'logistic'
    """
    return Task(dim, _sign, loss="logistic")


@checked
def linear_dynamics(dim: int, *, decay: float = 1.0) -> Dynamics:
    """x_{i+1} = decay·A x_i for a random orthogonal A; the label is the first coordinate of the next state.

    Errors are divided by the mean square of labels without decay.

    Arguments:
        dim: dimension of the states.
        decay: factor of each step; below 1, labels shrink along the prompt.

    Ref         garg2022.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.linear_dynamics(3).dim
    3
    """
    return Dynamics(
        dim=positive_int(dim, "dim"), decay=jnp.asarray(float(decay)), scale=jnp.asarray(1.0), loss="square"
    )


NAMED: dict[str, Callable[[int], AbstractTask]] = {
    "linear": linear,
    "noisy": lambda dim: linear(dim, noise=1.0),
    "sparse": lambda dim: sparse(dim, nonzero=min(3, dim)),
    "quadratic": quadratic,
    "tree": tree,
    "net": net,
    "classification": classification,
    "dynamics": linear_dynamics,
}
"""Tasks by name, as functions of the dimension: those of the command line."""
