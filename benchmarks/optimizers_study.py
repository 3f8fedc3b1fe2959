"""Why Adam? Small models trained by several optimisers, each at its own best rate: measured, and left open.

Nothing here concludes. It trains the same model on the same prompts from the same weights, many rates and seeds at a
time, and reports losses, the gradient of each group of weights, and the structure of the trained heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from measureformer.errors import DimensionMismatchError, DtypeError, OptionError
from measureformer.incontext.blocks import Blocks
from measureformer.incontext.language import Corpus, CorpusLoss, LanguageModel
from measureformer.incontext.models import InContextModel
from measureformer.incontext.observe import Logits, head_matrices
from measureformer.incontext.tasks import AbstractTask
from measureformer.incontext.train import InContextLoss
from measureformer.numerics.arrays import positive_int, prng_key
from measureformer.training.architecture import Architecture
from measureformer.training.optimization import METHODS, Method, Optimization, direction

Model = InContextModel | LanguageModel
GROUPS = ("Q", "K", "V", "MLP", "embedding", "rest")
"""Of weights, whose gradients are measured separately."""


class Optimizer(NamedTuple):
    """An optimiser of the study: a method of `mf.Optimization`, the largest rate, the largest norm of a gradient."""

    method: Method
    top: float
    clip: float | None = None

    @property
    def rates(self) -> np.ndarray:
        """Five rates, each a quarter of the one before, where such models train."""
        return self.top / 4.0 ** np.arange(5)


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": Optimizer("sgd", 4.0),
    "momentum": Optimizer("momentum", 1.0),
    "clipped": Optimizer("sgd", 40.0, clip=0.1),
    "normalised": Optimizer("normalized", 3.0),
    "sign": Optimizer("sign", 0.04),
    "Adam": Optimizer("adam", 0.1),
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
    """At the best rate, of the seed with the least final loss; nothing for an optimiser that blew up at all rates."""
    before: dict[str, Logits] = field(default_factory=dict[str, Logits])
    """The same heads before training."""

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

    def joined(self, other: Comparison) -> Comparison:
        """Both comparisons in one, the largest rates first: trainings at other rates refine a best rate."""
        shapes = [{name: kept.shape[1:] for name, kept in one.losses.items()} for one in (self, other)]
        if shapes[0] != shapes[1]:
            raise DimensionMismatchError(
                got=f"seeds and steps {shapes[0]} and {shapes[1]}",
                need="the same optimisers, seeds and steps in both",
                do="Change only the rates.",
            )
        order = {name: np.argsort(-np.r_[self.rates[name], other.rates[name]], kind="stable") for name in self.rates}
        with_rates = (self.rates, other.rates), (self.losses, other.losses), (self.gradients, other.gradients)
        rows = [{name: np.concatenate([a[name], b[name]])[order[name]] for name in a} for a, b in with_rates]
        both = Comparison(*rows, structures={})
        for name, at in order.items():
            home = self if at[both.best(name)] < len(self.rates[name]) else other
            if name in home.structures:
                both.structures[name], both.before[name] = home.structures[name], home.before[name]
        return both


def compare_optimizers(
    task: Any,
    key: Any,
    *,
    architecture: Architecture | None = None,
    optimization: Optimization | None = None,
    rates: Any = None,
    seeds: int = 3,
    names: Iterable[str] = tuple(OPTIMIZERS),
) -> Comparison:
    """Trains a small model by SGD, momentum, clipped, normalised and sign descent, and Adam.

    The task is one of in-context learning, of which prompts have 2·dim + 1 examples, or a `Corpus`, of which the next
    token is predicted. All share weights and data seed by seed. `rates` are tried by every optimiser; left out, five
    that suit each. Of `training`, steps, batch, warm-up and the shape of the rate are used.
    """
    architecture = Architecture(width=32, layers=2, heads=2) if architecture is None else architecture
    optimization = Optimization(steps=1000, batch=32) if optimization is None else optimization
    names = tuple(names)
    if rates is not None and not (np.asarray(rates, float) > 0).all():
        raise OptionError(got=f"rates {rates}", need="positive numbers", do="Leave them out for five that suit each.")
    if not names or any(name not in OPTIMIZERS for name in names):
        raise OptionError(got=f"names {list(names)}", need=f"some of {', '.join(OPTIMIZERS)}", do="Leave them out.")
    keys = jax.random.split(prng_key(key), 2 * positive_int(seeds, "seeds")).reshape(2, seeds)
    fresh, objective = _problem(task, architecture, optimization.batch)
    starts = eqx.filter_vmap(fresh)(keys[0])
    found: dict[str, list[Any]] = {}
    for name in names:
        optimizer = OPTIMIZERS[name]
        tried = np.asarray(optimizer.rates if rates is None else rates, np.float32)
        most = np.float32(np.inf if optimizer.clip is None else optimizer.clip)
        number = np.asarray(METHODS.index(optimizer.method)), np.asarray(most)
        ended, losses, gradients = _swept(starts, keys[1], objective, optimization, number, tried)
        found[name] = [tried, np.asarray(losses), np.asarray(gradients), ended]
    plain = Comparison(*({name: entry[i] for name, entry in found.items()} for i in range(3)), structures={})
    for name, entry in found.items():
        final, rate = plain.final(name), plain.best(name)
        seed = int(final[rate].argmin())
        if np.isfinite(final[rate, seed]):
            plain.structures[name] = head_matrices(jax.tree.map(lambda leaf, at=(rate, seed): leaf[at], entry[3]))
            plain.before[name] = head_matrices(jax.tree.map(lambda leaf, at=seed: leaf[at], starts))
    return plain


def _problem(task: Any, architecture: Architecture, batch: int) -> tuple[Callable[[Any], Model], Any]:
    """A model before training, by key, and what is minimised."""
    if isinstance(task, Corpus):
        return lambda key: LanguageModel.random(
            key, architecture, vocabulary=task.vocabulary, context=task.context
        ), CorpusLoss(jnp.asarray(task.tokens), batch)
    if not isinstance(task, AbstractTask):
        raise DtypeError(
            got=f"a task of type {type(task).__name__}",
            need="a task of in-context learning, or a Corpus",
            do="Pass mf.incontext.tasks.linear(3), say.",
        )
    points = 2 * task.dim + 1
    return (
        lambda key: InContextModel.random(key, task.dim, architecture, points=points),
        InContextLoss(task, None, batch, points),
    )


@eqx.filter_jit
def _swept(
    starts: Model, keys: Array, objective: Any, optimization: Optimization, optimizer: tuple[Any, Any], rates: Any
) -> tuple[Any, Array, Array]:
    """The trained models (r, s), losses (r, s, t) and gradients (r, s, t, g): one program for all rates and seeds, and
    for all optimisers too. Each step computes the directions of all methods, which is little, and takes one."""
    import optax

    which, most = optimizer
    rules = [direction(method) for method in METHODS]
    clip = optax.clip_by_global_norm(most)
    shape = optax.warmup_cosine_decay_schedule(
        0.0, 1.0, int(optimization.warmup * optimization.steps), optimization.steps, optimization.final
    )

    def one(rate: Array, start: Model, key: Array) -> Any:
        first, shaped = ravel_pytree(start)

        def step(carry: Any, i: Array) -> tuple[Any, Any]:
            vector, memories = carry
            value, slope = jax.value_and_grad(lambda v: objective(shaped(v), jax.random.fold_in(key, i), i))(vector)
            clipped, _ = clip.update(slope, clip.init(vector))
            pairs = [rule.update(clipped, memory) for rule, memory in zip(rules, memories, strict=True)]
            change = jnp.stack([change for change, _ in pairs])[which]
            factor = rate * (jnp.ones(()) if optimization.final == 1 else shape(i))
            moved = vector - factor.astype(vector.dtype) * change
            return (moved, [memory for _, memory in pairs]), (value, group_norms(shaped(slope)))

        begun = first, [rule.init(first) for rule in rules]
        (vector, _), (losses, gradients) = jax.lax.scan(step, begun, jnp.arange(optimization.steps))
        return shaped(vector), losses, gradients

    over_seeds = jax.vmap(one, in_axes=(None, 0, 0))
    return jax.vmap(over_seeds, in_axes=(0, None, None))(jnp.asarray(rates), starts, keys)


def group_norms(slope: Model) -> Float[Array, " g"]:
    """Norms of the gradients of `GROUPS`: queries, keys, values, perceptrons, embedding (and positions), the rest."""
    blocks: Blocks = slope.blocks
    q, k, v = jnp.split(blocks.qkv, 3, axis=2)
    groups = {"Q": [q], "K": [k], "V": [v], "MLP": [blocks.up, blocks.up_bias, blocks.down, blocks.down_bias]}
    if isinstance(slope, InContextModel):
        groups["embedding"] = [slope.read_in, slope.read_in_bias]
        rest = [slope.read_out, slope.read_out_bias]
    else:
        groups["embedding"], rest = [slope.embedding], []
    groups["embedding"] += [] if slope.positions is None else [slope.positions]
    norms = [blocks.norm_1, blocks.norm_2, slope.final_norm]
    groups["rest"] = [blocks.qkv_bias, blocks.out, blocks.out_bias, *norms, *rest]
    return jnp.stack([jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in groups[name])) for name in GROUPS])
