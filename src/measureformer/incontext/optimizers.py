"""Why Adam? Small models trained by several optimisers, each at its own best rate: measured, and left open.

Nothing here concludes. It trains the same model on the same prompts from the same weights, many rates and seeds at a
time, and reports losses, the gradient of each group of weights, and the structure of the trained heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import OptionError
from measureformer.incontext._observe import Logits, structure
from measureformer.incontext._train import METHODS, InContextLoss, Method, Training, direction
from measureformer.incontext.models import Architecture, Blocks, InContextModel
from measureformer.incontext.tasks import AbstractTask
from measureformer.numerics.arrays import positive_int, prng_key

GROUPS = ("Q", "K", "V", "MLP", "embedding", "rest")
"""Of weights, whose gradients are measured separately."""


class Optimizer(NamedTuple):
    """An optimiser of the study: a method of `Training`, and the largest norm of the gradient."""

    method: Method
    clip: float | None = None


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": Optimizer("sgd"),
    "momentum": Optimizer("momentum"),
    "clipped": Optimizer("sgd", 0.1),
    "normalised": Optimizer("normalized"),
    "sign": Optimizer("sign"),
    "Adam": Optimizer("adam"),
}
"""By name."""


@dataclass(frozen=True)
class Comparison:
    """What optimisers did to the same model: axes are rates (r), seeds (s), steps (t), groups of weights (g)."""

    rates: dict[str, Float[np.ndarray, " r"]]
    losses: dict[str, Float[np.ndarray, "r s t"]]
    """Before each step; NaN after a training has blown up."""
    gradients: dict[str, Float[np.ndarray, "r s t g"]]
    """Norms of the gradients of `GROUPS` before each step."""
    structures: dict[str, Logits]
    """Of the first seed, trained at the best rate."""

    def final(self, name: str, share: float = 0.1) -> Float[np.ndarray, "r s"]:
        """Mean loss over the last share of the steps; infinite where training blew up."""
        tail = self.losses[name][..., -max(int(share * self.losses[name].shape[-1]), 1) :]
        return np.where(np.isfinite(tail).all(axis=-1), tail.mean(axis=-1), np.inf)

    def best(self, name: str) -> int:
        """Which rate has the least final loss, in the median over seeds."""
        return int(np.median(self.final(name), axis=1).argmin())

    def at_edge(self, name: str) -> bool:
        """Whether the best rate is the first or last that was tried: then others should be tried."""
        return self.best(name) in (0, len(self.rates[name]) - 1)


def compare_optimizers(
    task: AbstractTask,
    key: Any,
    *,
    architecture: Architecture | None = None,
    points: int = 7,
    training: Training | None = None,
    rates: Any = None,
    seeds: int = 3,
) -> Comparison:
    """Trains a small in-context learner by SGD, momentum, clipped, normalised and sign descent, and Adam.

    All share weights and prompts seed by seed. `rates` are tried by every optimiser; left out, six that suit each. Of
    `training`, steps, batch, warm-up and the shape of the rate are used.

    >>> import jax, measureformer as mf
    >>> small = mf.incontext.Architecture(width=8, layers=1, heads=1)
    >>> few = mf.incontext.Training(steps=3, batch=4)
    >>> task = mf.incontext.tasks.linear(1)
    >>> found = mf.incontext.compare_optimizers(
    ...     task, jax.random.key(0), architecture=small, points=3, training=few, rates=[0.1, 0.01], seeds=1
    ... )
    >>> sorted(found.losses), found.losses["Adam"].shape, found.gradients["SGD"].shape
    (['Adam', 'SGD', 'clipped', 'momentum', 'normalised', 'sign'], (2, 1, 3), (2, 1, 3, 6))
    """
    architecture = Architecture(width=32, layers=2, heads=2) if architecture is None else architecture
    training = Training(steps=1000, batch=32) if training is None else training
    if rates is not None and not (np.asarray(rates, float) > 0).all():
        raise OptionError(got=f"rates {rates}", need="positive numbers", do="Leave them out for six that suit each.")
    keys = jax.random.split(prng_key(key), 2 * positive_int(seeds, "seeds")).reshape(2, seeds)
    starts = eqx.filter_vmap(lambda k: InContextModel.random(k, task.dim, architecture, points=points))(keys[0])
    objective = InContextLoss(task, None, training.batch, points)
    found: dict[str, list[Any]] = {}
    for name, optimizer in OPTIMIZERS.items():
        tried = np.asarray(_rates(optimizer.method) if rates is None else rates, np.float32)
        ended, losses, gradients = _swept(starts, keys[1], objective, training, optimizer, tried)
        found[name] = [tried, np.asarray(losses), np.asarray(gradients), ended]
    plain = Comparison(*({name: entry[i] for name, entry in found.items()} for i in range(3)), structures={})
    best = {name: _picked(entry[3], plain.best(name)) for name, entry in found.items()}
    return Comparison(plain.rates, plain.losses, plain.gradients, {n: structure(m) for n, m in best.items()})


def _rates(method: Method) -> np.ndarray:
    """Six rates, each a third of the one before, where such models train."""
    top = {"sgd": 3.0, "momentum": 0.3, "normalized": 0.3, "sign": 0.01, "adam": 0.1}[method]
    return top / 3.0 ** np.arange(6)


def _picked(models: Any, rate: int) -> InContextModel:
    return jax.tree.map(lambda leaf: leaf[rate, 0], models)


@eqx.filter_jit
def _swept(
    starts: InContextModel, keys: Array, objective: Any, training: Training, optimizer: Optimizer, rates: Any
) -> tuple[Any, Array, Array]:
    """The trained models (r, s), losses (r, s, t) and gradients (r, s, t, g): one program for all rates and seeds."""
    import optax

    assert optimizer.method in METHODS
    clip = optax.identity() if optimizer.clip is None else optax.clip_by_global_norm(optimizer.clip)
    rule: Any = optax.chain(clip, direction(optimizer.method))
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, int(training.warmup * training.steps), training.steps, 0.01)

    def one(rate: Array, start: InContextModel, key: Array) -> Any:
        def step(carry: Any, i: Array) -> tuple[Any, Any]:
            model, memory = carry
            value, slope = jax.value_and_grad(objective)(model, jax.random.fold_in(key, i), i)
            changes, memory = rule.update(slope, memory, model)
            factor = rate * (jnp.ones(()) if training.constant else shape(i))
            moved = jax.tree.map(lambda w, c: w - factor.astype(w.dtype) * c, model, changes)
            return (moved, memory), (value, group_norms(slope))

        (model, _), (losses, gradients) = jax.lax.scan(step, (start, rule.init(start)), jnp.arange(training.steps))
        return model, losses, gradients

    over_seeds = jax.vmap(one, in_axes=(None, 0, 0))
    return jax.vmap(over_seeds, in_axes=(0, None, None))(jnp.asarray(rates), starts, keys)


def group_norms(slope: InContextModel) -> Float[Array, " g"]:
    """Norms of the gradients of `GROUPS`: queries, keys, values, perceptrons, embedding, everything else."""
    blocks: Blocks = slope.blocks
    q, k, v = jnp.split(blocks.qkv, 3, axis=2)
    groups: list[list[Any]] = [[q], [k], [v], [blocks.up, blocks.up_bias, blocks.down, blocks.down_bias]]
    groups.append([slope.read_in, slope.read_in_bias, *([] if slope.positions is None else [slope.positions])])
    rest = [blocks.qkv_bias, blocks.out, blocks.out_bias, blocks.norm_1, blocks.norm_2]
    groups.append([*rest, slope.final_norm, slope.read_out, slope.read_out_bias])
    return jnp.stack([jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in group)) for group in groups])
