"""Tasks: what is to be learned in context. A task is a pair of laws, D_X of inputs and D_F of functions.

A prompt is (x_1, f(x_1)), …, (x_n, f(x_n)) with f drawn from D_F and the x_i from D_X. A task of one's own is a
function of a key and of inputs: the key stands for f, so that `function(key, ·)` is f.

    def sine(key, x):
        w = jax.random.normal(key, x.shape[-1:], x.dtype)
        return jnp.sin(x @ w)

    task = mf.incontext.tasks.Task(3, sine)
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from measureformer.errors import OptionError, ShapeError
from measureformer.numerics.arrays import default_float, positive_int, prng_key

Inputs = Callable[[Array, Float[Array, "n d"]], Float[Array, "n d"]]
Function = Callable[[Array, Float[Array, "n d"]], Float[Array, " n"]]
Loss = Literal["square", "logistic"]


class Prompts(NamedTuple):
    """Examples of `b` functions: inputs and labels; and the questions that are put after the first i examples.

    The question after i examples is x_i itself unless the task asks others.
    """

    x: Float[Any, "b n d"]
    y: Float[Any, "b n"]
    queries: Float[Any, "b n d"]
    answers: Float[Any, "b n"]

    @property
    def asks_others(self) -> bool:
        """Whether questions are other points than the examples that follow."""
        return self.queries is not self.x


class AbstractTask(eqx.Module):
    """A law of prompts: `prompt(key, points, dtype)` draws one, `sample` a batch."""

    dim: eqx.AbstractVar[int]
    scale: eqx.AbstractVar[Any]
    """E y²: errors are divided by it, so that predicting 0 has error 1."""
    loss: eqx.AbstractVar[Loss]

    @abc.abstractmethod
    def prompt(self, key: Any, points: int, dtype: Any) -> Prompts:
        """One prompt, without the axis of the batch. Pure JAX, called under `jit` and `vmap`."""

    def sample(self, key: Any, batch: int, points: int, *, dtype: Any = None) -> Prompts:
        """`batch` prompts of `points` examples each, drawn independently.

        >>> import jax, measureformer as mf
        >>> prompts = mf.incontext.tasks.linear(3).sample(jax.random.key(0), 4, 10)
        >>> prompts.x.shape, prompts.y.shape
        ((4, 10, 3), (4, 10))
        """
        batch, points = positive_int(batch, "batch"), positive_int(points, "points")
        drawn = _drawn(self, prng_key(key), batch, points, jnp.dtype(default_float() if dtype is None else dtype))
        # one object where questions are the examples: see `asks_others`
        return drawn if drawn.queries is not None else Prompts(drawn.x, drawn.y, drawn.x, drawn.y)


@eqx.filter_jit
def _drawn(task: AbstractTask, key: Any, batch: int, points: int, dtype: Any) -> Any:
    def one(key: Any) -> Any:
        prompt = task.prompt(key, points, dtype)
        return prompt if prompt.asks_others else (prompt.x, prompt.y, None, None)

    return Prompts(*jax.vmap(one)(jax.random.split(key, batch)))


class Task(AbstractTask):
    """Independent inputs and a random function of them: f ~ D_F, x_i ~ D_X, y_i = f(x_i) + noise.

    `function(key, x)` is D_F: the values at the rows of x of the function that `key` stands for. `inputs(key, z)` is
    D_X: what it makes of standard normal rows z; left out, it leaves them as they are. `query(key, x)` is what is asked
    after the first i rows, in row i; left out, it is x. Noise is added to labels and not to answers.

    >>> import jax, jax.numpy as jnp, measureformer as mf
    >>> def sine(key, x):
    ...     w = jax.random.normal(key, x.shape[-1:], x.dtype)
    ...     return jnp.sin(x @ w)
    >>> task = mf.incontext.tasks.Task(3, sine, scale=0.5)
    >>> task.sample(jax.random.key(0), batch=2, points=5).y.shape
    (2, 5)
    """

    dim: int = eqx.field(static=True)
    function: Function
    inputs: Inputs | None
    query: Inputs | None
    noise: Float[Array, ""] | None
    scale: Float[Array, ""]
    loss: Loss = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        function: Function,
        *,
        inputs: Inputs | None = None,
        query: Inputs | None = None,
        noise: float = 0.0,
        scale: float = 1.0,
        loss: Loss = "square",
    ) -> None:
        if loss not in ("square", "logistic"):
            raise OptionError(got=f"loss = {loss!r}", need='"square" or "logistic"', do="Leave it out for the square.")
        if not (noise >= 0 and scale > 0 and math.isfinite(noise) and math.isfinite(scale)):
            raise OptionError(
                got=f"noise = {noise!r}, scale = {scale!r}",
                need="noise ≥ 0, the standard deviation, and scale > 0, the mean square of labels",
                do="Leave them out for 0 and 1.",
            )
        self.dim, self.function, self.inputs, self.query = positive_int(dim, "dim"), function, inputs, query
        # what is not drawn need not be compiled
        self.noise = jnp.asarray(float(noise)) if noise else None
        self.scale, self.loss = jnp.asarray(float(scale)), loss

    def prompt(self, key: Any, points: int, dtype: Any, dims: Any = None) -> Prompts:
        """One prompt; with `dims`, all coordinates of the inputs but the first so many are 0."""
        of_f, of_x, of_inputs, of_noise, of_query = jax.random.split(key, 5)
        x = jax.random.normal(of_x, (points, self.dim), dtype)
        x = x if self.inputs is None else self.inputs(of_inputs, x)
        x = x if dims is None else jnp.where(jnp.arange(self.dim) < dims, x, 0)
        clean = self.function(of_f, x)
        if clean.shape != (points,):
            raise ShapeError(
                got=f"values of shape {clean.shape} at {points} inputs",
                need=f"({points},)",
                do="`function(key, x)` takes rows x (n, d) and returns one number for each.",
            )
        y = clean
        if self.noise is not None:
            y = clean + self.noise.astype(dtype) * jax.random.normal(of_noise, (points,), dtype)
        if self.query is None:
            return Prompts(x, y, x, y)
        asked = self.query(of_query, x)
        return Prompts(x, y, asked, self.function(of_f, asked))


class Dynamics(AbstractTask):
    """A linear dynamical system: x_{i+1} = A x_i with A drawn for each prompt, y_i = the first coordinate of x_{i+1}.

    A is a random orthogonal matrix times `decay`, and x_1 a standard normal vector; the inputs of a prompt are its
    states, which are not independent.

    >>> import jax, numpy as np, measureformer as mf
    >>> prompts = mf.incontext.tasks.linear_dynamics(2).sample(jax.random.key(0), 1, 4)
    >>> bool(np.allclose(prompts.y[0, :-1], prompts.x[0, 1:, 0]))
    True
    """

    dim: int = eqx.field(static=True)
    decay: Float[Array, ""]
    scale: Float[Array, ""]
    loss: Loss = eqx.field(static=True)

    def prompt(self, key: Any, points: int, dtype: Any) -> Prompts:
        of_system, of_state = jax.random.split(key)
        A = self.decay.astype(dtype) * _rotation(of_system, self.dim, dtype)
        first = jax.random.normal(of_state, (self.dim,), dtype)
        _, states = jax.lax.scan(lambda x, _: (A @ x, x), first, None, points + 1)
        return Prompts(states[:-1], states[1:, 0], states[:-1], states[1:, 0])


def _rotation(key: Any, dim: int, dtype: Any) -> Array:
    """A random orthogonal matrix, uniformly distributed."""
    q, r = jnp.linalg.qr(jax.random.normal(key, (dim, dim), dtype))
    return q * jnp.sign(jnp.diagonal(r))


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


def linear(dim: int, *, noise: float = 0.0) -> Task:
    """y = ⟨w, x⟩ with w ~ N(0, I), plus noise.

    Ref         garg2022, Section 3.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.linear(5).dim
    5
    """
    return Task(dim, _linear, noise=noise, scale=float(dim))


def sparse(dim: int, *, nonzero: int = 3) -> Task:
    """y = ⟨w, x⟩ where all but `nonzero` random coordinates of w ~ N(0, I) are set to 0.

    Ref         garg2022, Section 4.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.sparse(20, nonzero=3).scale)
    3.0
    """
    if not 1 <= positive_int(nonzero, "nonzero") <= positive_int(dim, "dim"):
        raise OptionError(got=f"{nonzero} of {dim} coordinates", need="1 ≤ nonzero ≤ dim", do="Take fewer.")
    return Task(dim, _Sparse(nonzero), scale=float(nonzero))


def quadratic(dim: int) -> Task:
    """y = Σ_j w_j x_j²/√3 with w ~ N(0, I).

    Ref         garg2022.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.quadratic(5).scale)
    5.0
    """
    return Task(dim, _quadratic, scale=float(dim))


def tree(dim: int, *, depth: int = 4) -> Task:
    """A full binary tree: each node looks at the sign of a random coordinate, and leaves are N(0, 1).

    Ref         garg2022, Section 5.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.tree(20, depth=4).loss
    'square'
    """
    return Task(dim, _Tree(positive_int(depth, "depth")), scale=1.0)


def net(dim: int, *, width: int = 100) -> Task:
    """A random two-layer network √(2/r) Σ_i a_i relu⟨w_i, x⟩ with r = `width`.

    Ref         garg2022, Section 5.

    >>> import measureformer as mf
    >>> float(mf.incontext.tasks.net(20).scale)
    20.0
    """
    return Task(dim, _Net(positive_int(width, "width")), scale=float(dim))


def classification(dim: int) -> Task:
    """y = sign⟨w, x⟩; the loss is logistic, and the error the share of wrong signs.

    Ref         garg2022.

    >>> import measureformer as mf
    >>> mf.incontext.tasks.classification(5).loss
    'logistic'
    """
    return Task(dim, _sign, loss="logistic")


def linear_dynamics(dim: int, *, decay: float = 1.0) -> Dynamics:
    """x_{i+1} = A x_i for a random rotation A, times `decay`; the label is the first coordinate of the next state.

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
"""Tasks by name, each of one dimension: what the command line knows."""


# --- other inputs than in training -----------------------------------------------------------------------------------


def _skewed(key: Any, z: Any) -> Any:
    scales = 1 / jnp.arange(1, z.shape[1] + 1).astype(z.dtype)
    # normalised so that E|x|² = d stays
    scales = scales * jnp.sqrt(z.shape[1] / jnp.sum(scales**2))
    return z * scales @ _rotation(key, z.shape[1], z.dtype)


def _subspace(key: Any, z: Any) -> Any:
    half = max(z.shape[1] // 2, 1)
    cut = jnp.where(jnp.arange(z.shape[1]) < half, math.sqrt(z.shape[1] / half), 0).astype(z.dtype)
    return z * cut @ _rotation(key, z.shape[1], z.dtype)


def _orthant(key: Any, z: Any) -> Any:
    signs = jax.random.rademacher(key, (z.shape[1],), dtype=z.dtype)
    return jnp.abs(z) * signs


def _repeated(key: Any, x: Any) -> Any:
    """After i examples, one of them is asked again; before the first, x itself."""
    places = jnp.arange(x.shape[0])
    chosen = jnp.floor(jax.random.uniform(key, (x.shape[0],), x.dtype) * places).astype(int)
    return x[chosen]


def _orthogonal(key: Any, x: Any) -> Any:
    """After i examples, the part of x_i that is orthogonal to them, with the length of x_i; 0 when they span all."""
    q, _ = jnp.linalg.qr(x.T)  # the first i columns span the first i rows
    rest = jnp.zeros_like(x)
    columns = q.T
    length = jnp.linalg.norm(x, axis=1, keepdims=True)
    return rest.at[: columns.shape[0]].set(columns * length[: columns.shape[0]])


class _Scaled(eqx.Module):
    of: Any
    factor: Float[Array, ""]

    def __call__(self, key: Any, x: Any) -> Any:
        return self.factor.astype(x.dtype) * (x if self.of is None else self.of(key, x))


def shifted(task: Task) -> dict[str, Task]:
    """The task with prompts unlike those of training, as they are used to ask what a model has learned.

    Inputs on a skewed ellipsoid, a random half subspace, a random orthant; the question orthogonal to the examples, or
    one of them; inputs or labels 1/3, 1/2, 2, 3 times as large; noisy labels. Errors are over the labels' mean square.

    Ref         garg2022, Section 4.

    >>> import measureformer as mf
    >>> sorted(mf.incontext.tasks.shifted(mf.incontext.tasks.linear(4)))[:3]
    ['half subspace', 'inputs × 0.333', 'inputs × 0.5']
    """
    if not isinstance(task, Task):
        raise OptionError(
            got=f"a {type(task).__name__}", need="a Task, with laws of inputs and functions", do="Shift it by hand."
        )
    change = lambda **fields: Task(  # noqa: E731
        task.dim,
        **{
            "function": task.function,
            "inputs": task.inputs,
            "query": task.query,
            "noise": 0.0 if task.noise is None else float(task.noise),
            "scale": float(task.scale),
            "loss": task.loss,
            **fields,
        },
    )
    found = {
        "skewed inputs": change(inputs=_skewed),
        "half subspace": change(inputs=_subspace),
        "orthant": change(inputs=_orthant),
        "orthogonal query": change(query=_orthogonal),
        "repeated query": change(query=_repeated),
        "noisy labels": change(noise=1.0),
    }
    for factor in (1 / 3, 1 / 2, 2.0, 3.0):
        by, squared = jnp.asarray(factor), float(task.scale) * factor**2
        found[f"inputs × {factor:.3g}"] = change(inputs=_Scaled(task.inputs, by), scale=squared)
        found[f"labels × {factor:.3g}"] = change(function=_Scaled(task.function, by), scale=squared)
    return found


class Curriculum(eqx.Module):
    """Training that begins with fewer dimensions and points and grows: `(first, step, every)` for each.

    Coordinates beyond the current dimension are 0, and examples beyond the current number do not count.

    Ref         garg2022, Appendix A.

    >>> import measureformer as mf
    >>> plan = mf.incontext.tasks.Curriculum(dims=(5, 1, 2000), points=(11, 2, 2000))
    >>> int(plan.size(plan.dims, 4000, 20)), int(plan.size(plan.points, 10**6, 41))
    (7, 41)
    """

    dims: tuple[int, int, int] = eqx.field(static=True, default=(5, 1, 2000))
    points: tuple[int, int, int] = eqx.field(static=True, default=(11, 2, 2000))

    def size(self, rule: tuple[int, int, int], step: Any, most: int) -> Any:
        """How many there are at a step."""
        first, more, every = rule
        return jnp.minimum(first + more * (step // every), most)
