"""`Optimization`: how weights are trained, whatever they are the weights of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from measureformer.errors import OptionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import check_fields

Method = Literal["adam", "sgd", "momentum", "normalized", "sign"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class Optimization:
    """How to train: the number of steps, the rule, and its rate.

    Arguments:
        steps: updates at most.
        rate: the largest learning rate.
        method: "adam", "sgd", "momentum" (0.9), "normalized" (the gradient over its norm) or "sign" (of its entries).
        batch: examples that are drawn for each step; ignored where each step sees all data.
        clip: the largest norm of the gradient, or None.
        warmup: the share of the steps over which the rate grows linearly, in [0, 1).
        final: the last rate over the largest; after the warm-up the rate falls as a cosine. 1 keeps it constant.
        tol: training ends when the loss is at most this, or its gradient vanishes; None takes all steps.

    >>> import measureformer as mf
    >>> mf.Optimization(steps=100, rate=3e-3).method
    'adam'
    """

    steps: int = 1000
    rate: float = 1e-3
    method: Method = "adam"
    batch: int = 64
    clip: float | None = 1.0
    warmup: float = 0.1
    final: float = 0.01
    tol: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        positive_int(self.steps, "steps")
        positive_int(self.batch, "batch")
        if self.method not in METHODS:
            raise OptionError(
                got=f"method = {self.method!r}", need=f"one of {', '.join(METHODS)}", do='Leave it out for "adam".'
            )
        for name, value in (("rate", self.rate), ("clip", self.clip), ("tol", self.tol)):
            if value is None and name != "rate":
                continue
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise OptionError(got=f"{name} = {value!r}", need="a positive number", do="Leave it out.")
        for name, value in (("warmup", self.warmup), ("final", 0.0 if self.final == 1 else self.final)):
            # users pass anything
            if not (isinstance(value, (int, float)) and 0 <= value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(got=f"{name} = {value!r}", need="a share, in [0, 1)", do="Leave it out.")

    @property
    def optimizer(self) -> Any:
        """Of optax."""
        import optax

        rate = self.rate if self.final == 1 and not self.warmup else self._rate_at
        clipped = optax.identity() if self.clip is None else optax.clip_by_global_norm(self.clip)
        return optax.chain(clipped, direction(self.method), optax.scale_by_learning_rate(rate))

    def _rate_at(self, step: Any) -> Array:
        """The rate of a step, as a branch: the compiler would compute its cosine again for every weight otherwise."""
        rise, least = int(self.warmup * self.steps), self.rate * self.final
        length = max(self.steps - rise, 1)
        grow = lambda s: self.rate * s / max(rise, 1)  # noqa: E731
        fall = lambda s: (  # noqa: E731
            least + (self.rate - least) * 0.5 * (1 + jnp.cos(math.pi * jnp.minimum((s - rise) / length, 1)))
        )
        return jax.lax.cond(step < rise, grow, fall, jnp.asarray(step, jnp.float32))


def direction(method: Method) -> Any:
    """What an optimiser makes of the gradient, before the rate."""
    import optax

    return {
        "adam": optax.scale_by_adam,
        "sgd": optax.identity,
        "momentum": lambda: optax.trace(0.9),
        "normalized": optax.normalize_by_update_norm,
        "sign": optax.scale_by_sign,
    }[method]()
