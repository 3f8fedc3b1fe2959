"""`Anatomy`: a model as maps between measures, and the registry of the families that are read from checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from measureformer.errors import FamilyError
from measureformer.lens.checkpoint import Checkpoint
from measureformer.maps import MLP, AbstractInContextMap, Causal, Identity, Residual
from measureformer.maps.affine import AffineAttention, RotaryAttention
from measureformer.maps.compose import Compose
from measureformer.measures import SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics.checked import checked

Heads = AffineAttention | RotaryAttention
LARGEST = 1e300
"""Beyond it a number of a configuration is no setting, and may not even be a float."""


class Half(eqx.Module):
    """after ⋄ Residual(inner ⋄ before): half a layer, with its normalisation before or after."""

    inner: AbstractInContextMap
    before: AbstractInContextMap = eqx.field(default_factory=Identity)
    after: AbstractInContextMap = eqx.field(default_factory=Identity)

    @property
    def branch(self) -> AbstractInContextMap:
        """inner ⋄ before: what is added to the residual stream."""
        return _composed(self.inner, self.before)

    @property
    def map(self) -> AbstractInContextMap:
        return _composed(self.after, Residual(self.branch))


class Block(eqx.Module):
    """One layer: attention, then a perceptron."""

    attention: Half
    perceptron: Half
    causal: bool = eqx.field(static=True)

    @property
    def heads(self) -> Heads:
        """The attention, each head with keys and values of its own."""
        inner = self.attention.inner
        assert isinstance(inner, (AffineAttention, RotaryAttention))  # see `Family.read`
        return inner.full if isinstance(inner, RotaryAttention) else inner

    @property
    def halves(self) -> tuple[AbstractInContextMap, AbstractInContextMap]:
        """The two halves as maps on the measures that a trace is made of."""
        first, second = self.attention.map, self.perceptron.map
        return Causal(first) if self.causal else first, second

    @property
    def map(self) -> AbstractInContextMap:
        """The layer as one in-context map."""
        whole = _composed(self.perceptron.map, self.attention.map)
        return Causal(whole) if self.causal else whole


def _composed(*maps: AbstractInContextMap) -> AbstractInContextMap:
    flat: list[AbstractInContextMap] = []
    for part in maps:
        flat += part.maps if isinstance(part, Compose) else [] if isinstance(part, Identity) else [part]
    return flat[0] if len(flat) == 1 else Compose(tuple(flat)) if flat else Identity()


@dataclass(frozen=True)
class Anatomy:
    """What a model is made of; every part is read from the checkpoint when it is asked for."""

    dim: int
    depth: int
    heads: int
    block: Callable[[int], Block]
    """Layer i."""
    tokens: Callable[[Any], AbstractAtomic]  # from token numbers or a Table, as `reads` says
    """Checked input to the measure of its tokens, before `entry`; a `SpaceTime` whose times are the positions."""
    entry: Callable[[], AbstractInContextMap] = Identity
    """What happens to tokens before the first layer: positions, a normalisation, a change of dimension."""
    exit: Callable[[], AbstractInContextMap] = Identity
    """What happens after the last layer."""
    head: Callable[[], AbstractInContextMap] | None = None
    """From the exit to logits, if the model predicts something."""
    vocabulary: int = 0
    limit: int | None = None
    """The longest context, if there is one."""
    limited_by: str = "positions"
    """What there are so many of."""
    causal: bool = False
    tied: bool = False
    """Whether all layers are the same one."""
    reads: Literal["text", "table"] = "text"


@dataclass(frozen=True)
class Family:
    """How to read models of a family.

    Arguments:
        name: its name in reports.
        model_types: values of `model_type` in config.json, or of general.architecture in a GGUF file, that it reads.
        read: a function from the checkpoint to the anatomy.
        marks: model type ↦ a part of a tensor's name by which it is recognised where config.json does not name it.

    >>> from measureformer.lens.families import known
    >>> "gpt2" in known()
    True
    """

    name: str
    model_types: tuple[str, ...]
    read: Callable[[Checkpoint], Anatomy]
    marks: Mapping[str, str] = field(default_factory=dict[str, str])


_REGISTRY: dict[str, Family] = {}


@checked
def register(family: Family) -> Family:
    """Make a family of models known to `mf.lens.load`, under each of its model types.

    Arguments:
        family: it replaces those of the same model types, and is returned.

    >>> import measureformer as mf
    >>> from measureformer.lens.families import gpt2
    >>> mf.lens.register(mf.lens.Family("GPT-2", ("my-gpt2",), gpt2.read)).name
    'GPT-2'
    """
    for model_type in family.model_types:
        _REGISTRY[model_type] = family
    return family


def known() -> list[str]:
    """Every model type that can be read."""
    return sorted(_REGISTRY)


def family_of(checkpoint: Checkpoint) -> Family:
    """The family of a checkpoint, from what its configuration says."""
    config = checkpoint.config
    model_type = config.get("model_type", config.get("general.architecture"))
    likely = [
        kind
        for kind, family in sorted(_REGISTRY.items())
        if kind in family.marks and any(family.marks[kind] in name for name in checkpoint.names)
    ]
    if model_type is None and likely:
        raise FamilyError(
            got=f"a configuration without model_type, and tensors with the names of {' or '.join(likely)}",
            need="the model_type",
            do=f'Add "model_type": "{likely[0]}" to config.json{", if that is what it is" if likely[1:] else ""}.',
        )
    if not isinstance(model_type, str) or model_type not in _REGISTRY:
        says = {key: config[key] for key in ("model_type", "architectures", "general.architecture") if key in config}
        raise FamilyError(
            got=f"a configuration that says {str(says)[:120]}",
            need=f"a model_type that is known: {', '.join(known())}",
            do="Register a reader for it: mf.lens.register(mf.lens.Family(name, model_types, read)).",
        )
    return _REGISTRY[model_type]


@dataclass(frozen=True)
class Settings:
    """A configuration whose entries are checked as they are read."""

    config: Mapping[str, Any]
    family: str
    _missing: object = field(default=object(), repr=False)

    def count(self, *names: str, default: int | None = None) -> int:
        """A positive whole number, under the first of these names that is there."""
        value = self._first(names, default)
        if type(value) is not int or not 0 < value < 1 << 40:
            raise self.wrong(names[0], value, "a positive whole number")
        return value

    def index(self, name: str, default: int) -> int:
        """A number of a token, which may be 0."""
        value = self._first((name,), default)
        if type(value) is not int or not 0 <= value < 1 << 40:
            raise self.wrong(name, value, "a whole number, at least 0")
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        value = self._first(names, default)
        if type(value) not in (int, float) or not abs(value) < LARGEST:
            raise self.wrong(names[0], value, "a number")
        return float(value)

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a setting that the reader does not follow; missing is fine."""
        if name in self.config and self.config[name] not in allowed:
            raise self.wrong(name, self.config[name], f"{' or '.join(map(repr, allowed))}, the only one that is read")

    def activation(self, *names: str, default: str | None = None) -> Callable[[Any], Any]:
        name = self._first(names, default)
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise self.wrong(names[0], name, f"one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[name]

    def _first(self, names: tuple[str, ...], default: Any) -> Any:
        return next((self.config[name] for name in names if self.config.get(name) is not None), default)

    def wrong(self, name: str, value: Any, need: str) -> FamilyError:
        return FamilyError(
            got=f"{name} = {str(value)[:60]} in the configuration of a {self.family} model",
            need=need,
            do="Check config.json; a variant of the family needs a reader of its own.",
        )


def _gelu(x: Any) -> Any:
    # jax.nn.gelu has erfc, which keeps digits in the tail that the reference does not have, and is slower
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


# functions that exist once, so that all layers share one compiled program
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": _gelu,
    "gelu_new": jax.nn.gelu,
    "gelu_pytorch_tanh": jax.nn.gelu,
    "gelu_fast": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "tanh": jax.numpy.tanh,
}


def rows_per_head(matrix: np.ndarray, heads: int) -> np.ndarray:
    """A projection (h·k, d) as heads (h, k, d), or its bias (h·k,) as (h, k)."""
    return matrix.reshape(heads, -1, *matrix.shape[1:])


def columns_per_head(matrix: np.ndarray, heads: int) -> np.ndarray:
    """An output projection (d, h·e) as heads (h, d, e)."""
    return matrix.reshape(matrix.shape[0], heads, -1).transpose(1, 0, 2)


def activated(matrix: np.ndarray, bias: np.ndarray, activation: Any) -> MLP:
    """x ↦ σ(Mx + b)."""
    return MLP(matrix, bias, np.eye(len(matrix), dtype=matrix.dtype), None, activation=activation)


def text_measure(
    rows: Callable[[np.ndarray], np.ndarray],
    times: Callable[[np.ndarray], np.ndarray] = lambda ids: np.arange(len(ids)),
) -> Callable[[np.ndarray], SpaceTime]:
    """Token numbers to equal masses at their vectors, at `times`: 0, 1, 2, … unless the family counts otherwise."""

    def tokens(ids: np.ndarray) -> SpaceTime:
        points = rows(ids)
        return SpaceTime.uniform(points, times(ids).astype(points.dtype))

    return tokens
