"""`Task`: a law of inputs and a law of functions, and the prompts that are drawn from them."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from measureformer.errors import OptionError, ShapeError
from measureformer.numerics import lapack
from measureformer.numerics.arrays import default_float, positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.types import Key

Inputs = Callable[[Array, Float[Array, "n d"]], Float[Array, "n d"]]
Function = Callable[[Array, Float[Array, "n d"]], Float[Array, " n"]]
Loss = Literal["square", "logistic"]


class Prompts(NamedTuple):
    """Examples of b functions, and the questions asked after the first i examples.

    Arguments:
        x: inputs (b, n, d).
        y: labels (b, n), possibly noisy.
        queries: questions (b, n, d), in row i the one after i examples; x itself unless the task asks others.
        answers: noise-free labels of the questions, (b, n).
    """

    x: Float[Any, "b n d"]
    y: Float[Any, "b n"]
    queries: Float[Any, "b n d"]
    answers: Float[Any, "b n"]

    @property
    def asks_others(self) -> bool:
        """Whether the questions differ from the examples that follow."""
        return self.queries is not self.x


class AbstractTask(eqx.Module):
    """A law of prompts: `prompt(key, points, dtype)` draws one, `sample` a batch."""

    dim: eqx.AbstractVar[int]
    scale: eqx.AbstractVar[Any]
    """E y². Errors are divided by it, so predicting 0 has error 1."""
    loss: eqx.AbstractVar[Loss]

    @abc.abstractmethod
    def prompt(self, key: Key, points: int, dtype: DTypeLike) -> Prompts:
        """One prompt, without the batch axis. Pure JAX, called under `jit` and `vmap`.

        Arguments:
            key: randomness of the function, the inputs and the noise.
            points: examples in the prompt.
            dtype: floating type of the prompt.
        """

    def sample(self, key: Key, batch: int, points: int, *, dtype: DTypeLike | None = None) -> Prompts:
        """Independent prompts.

        Arguments:
            key: randomness of the prompts.
            batch: number of prompts.
            points: examples in each.
            dtype: floating type; the default precision of JAX if omitted.

        >>> import jax, measureformer as mf
        >>> prompts = mf.incontext.tasks.linear(3).sample(jax.random.key(0), 4, 10)
        >>> prompts.x.shape, prompts.y.shape
        ((4, 10, 3), (4, 10))
        """
        batch, points = positive_int(batch, "batch"), positive_int(points, "points")
        drawn = _drawn(self, prng_key(key), batch, points, jnp.dtype(default_float() if dtype is None else dtype))
        # one object where questions are the examples: see `asks_others`
        return drawn if drawn.queries is not None else drawn._replace(queries=drawn.x)


@eqx.filter_jit
def _drawn(task: AbstractTask, key: Any, batch: int, points: int, dtype: Any) -> Any:
    def one(key: Any) -> Any:
        prompt = task.prompt(key, points, dtype)
        return prompt if prompt.asks_others else prompt._replace(queries=None)

    return jax.vmap(one)(jax.random.split(key, batch))


class Task(AbstractTask):
    """Independent inputs and a random function of them: f ~ D_F, x_i ~ D_X, y_i = f(x_i) + noise.

    Arguments:
        dim: dimension of the inputs.
        function: D_F; `function(key, x)` are the values at the rows of x of the function that `key` determines.
        inputs: D_X; `inputs(key, z)` transforms standard normal rows z. Standard normal by default.
        query: `query(key, x)` has in row i the question after the first i rows; x by default.
        noise: standard deviation of the noise on labels; answers have none.
        scale: E y², by which errors are divided.
        loss: "square", or "logistic" for labels ±1.

    >>> import jax, jax.numpy as jnp, measureformer as mf
    >>> def sine(key, x):
    ...     w = jax.random.normal(key, x.shape[-1:], x.dtype)
    ...     return jnp.sin(x @ w)
    >>> task = mf.incontext.Task(3, sine, scale=0.5)
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

    @checked
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
        if not (noise >= 0 and scale > 0 and math.isfinite(noise) and math.isfinite(scale)):
            raise OptionError(
                got=f"noise = {noise!r}, scale = {scale!r}",
                need="noise ≥ 0, the standard deviation, and scale > 0, the mean square of labels",
                do="Leave them out for 0 and 1.",
            )
        self.dim, self.function, self.inputs, self.query = positive_int(dim, "dim"), function, inputs, query
        # without noise, nothing is compiled for it
        self.noise = jnp.asarray(float(noise)) if noise else None
        self.scale, self.loss = jnp.asarray(float(scale)), loss

    def prompt(self, key: Key, points: int, dtype: DTypeLike, dims: int | Array | None = None) -> Prompts:
        """One prompt; with `dims`, only that many leading coordinates of the inputs are nonzero."""
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
            return Prompts(x, y, x, clean)
        asked = self.query(of_query, x)
        return Prompts(x, y, asked, self.function(of_f, asked))


class Dynamics(AbstractTask):
    """A linear dynamical system: x_{i+1} = A x_i with A drawn for each prompt, y_i = the first coordinate of x_{i+1}.

    A is a random orthogonal matrix times `decay`, and x_1 is standard normal. Made by `tasks.linear_dynamics`.

    Arguments:
        dim: dimension of the states.
        decay: factor of each step.
        scale: E y², by which errors are divided.
        loss: "square".

    >>> import jax, numpy as np, measureformer as mf
    >>> prompts = mf.incontext.tasks.linear_dynamics(2).sample(jax.random.key(0), 1, 4)
    >>> bool(np.allclose(prompts.y[0, :-1], prompts.x[0, 1:, 0]))
    True
    """

    dim: int = eqx.field(static=True)
    decay: Float[Array, ""]
    scale: Float[Array, ""]
    loss: Loss = eqx.field(static=True)

    def prompt(self, key: Key, points: int, dtype: DTypeLike) -> Prompts:
        of_system, of_state = jax.random.split(key)
        A = self.decay.astype(dtype) * rotation(of_system, self.dim, dtype)
        first = jax.random.normal(of_state, (self.dim,), dtype)
        _, states = jax.lax.scan(lambda x, _: (A @ x, x), first, None, points + 1)
        return Prompts(states[:-1], states[1:, 0], states[:-1], states[1:, 0])


def rotation(key: Key, dim: int, dtype: DTypeLike) -> Array:
    """A random orthogonal matrix, uniformly distributed."""
    q, r = lapack.qr(jax.random.normal(key, (dim, dim), dtype))
    return q * jnp.sign(jnp.diagonal(r))


class Curriculum(eqx.Module):
    """Training that starts with fewer dimensions and points and adds more.

    Coordinates beyond the current dimension are 0, and examples beyond the current number do not count.

    Arguments:
        dims: (first, step, every): start with `first` dimensions and add `step` after every `every` training steps.
        points: the same for the number of examples.

    Ref         garg2022, Appendix A.

    >>> from measureformer.incontext.task import Curriculum
    >>> plan = Curriculum(dims=(5, 1, 2000), points=(11, 2, 2000))
    >>> int(plan.size(plan.dims, 4000, 20)), int(plan.size(plan.points, 10**6, 41))
    (7, 41)
    """

    dims: tuple[int, int, int] = eqx.field(static=True, default=(5, 1, 2000))
    points: tuple[int, int, int] = eqx.field(static=True, default=(11, 2, 2000))

    def __check_init__(self) -> None:
        for name, rule in (("dims", self.dims), ("points", self.points)):
            whole = len(rule) == 3 and all(isinstance(entry, int) for entry in rule)  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            if not (whole and rule[0] >= 1 and rule[1] >= 0 and rule[2] >= 1):
                raise OptionError(
                    got=f"{name} = {rule!r}",
                    need="(first, step, every): whole numbers, at least 1, 0 and 1",
                    do="Take (5, 1, 2000), say: 5 at first, and one more every 2000 steps.",
                )

    def size(self, rule: tuple[int, int, int], step: int | Array, most: int) -> Array:
        """Dimensions or points at a training step.

        Arguments:
            rule: `dims` or `points`.
            step: the training step.
            most: upper bound.
        """
        first, more, every = rule
        return jnp.minimum(first + more * (step // every), most)
