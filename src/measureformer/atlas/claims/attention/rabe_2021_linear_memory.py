"""Streaming attention: memory that grows like n, operations that grow like n²."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.helpers.attention_operations import operations
from measureformer.atlas.toolkit import Check, Claim, Figure, Key, Outcome, Series, generator, once
from measureformer.attention import Streaming, attend

DIM = 8
STREAMED = Streaming(block=(256, 256))


@dataclass(frozen=True)
class Config:
    smallest: int = 1024
    factor: int = 4
    sizes: int = 2


def _streamed(x: Array) -> Array:
    return attend(x, x, x, method=STREAMED).values


def _materialised(x: Array) -> Array:
    return jax.nn.softmax(x @ x.T, axis=1) @ x


def _sizes(config: Config) -> list[int]:
    return [config.smallest * config.factor**i for i in range(config.sizes)]


@once
def _needs(key: Key, config: Config, attention: Callable[[Array], Array]) -> np.ndarray:
    """Bytes of the compiled program beside inputs and outputs, and its operations, for each size."""
    rng, rows = np.random.default_rng(generator(key).integers(2**32)), []
    for n in _sizes(config):
        x = jnp.asarray(rng.normal(size=(n, DIM)).astype(np.float32))
        both = jax.value_and_grad(lambda x: jnp.sum(attention(x) ** 2))
        memory = jax.jit(both).lower(x).compile().memory_analysis()
        assert memory is not None  # the CPU backend always has it
        rows.append((memory.temp_size_in_bytes, operations(both, x)))
    return np.array(rows).T


def measure(key: Key, config: Config, variant: str) -> Outcome:
    found = _needs(key, config, _materialised if variant == "whole-matrix" else _streamed)
    memory, work = (np.polyfit(np.log(_sizes(config)), np.log(numbers), 1)[0] for numbers in found)
    checks = (
        Check("order of the memory in n", memory, high=1.1, rejected_by="whole-matrix"),
        Check("order of the operations in n", work, 1.9, 2.1, context=True),
    )
    return Outcome(checks, _figure(key, config) if variant == "claim" else None)


def _figure(key: Key, config: Config) -> Figure:
    n = _sizes(config)
    streamed, materialised = (_needs(key, config, way)[0] / 1e6 for way in (_streamed, _materialised))
    return Figure(
        "Memory of attention and its gradient, beside inputs and outputs",
        "number of tokens n",
        "megabytes",
        (
            Series("streamed", n, streamed, role="measured"),
            Series("control: the whole matrix", n, materialised, "dashed", role="control"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Self-attention of n tokens, d = {DIM}, float32; what the compiled programs ask for.",
    )


claim = Claim(
    name="rabe-2021-linear-memory",
    title="Attention and its gradient in linear memory",
    kind="construction",
    statement=(
        "Streamed attention of n queries on n keys, together with its gradient in queries, keys and values, "
        "needs memory of order n beside its inputs and outputs."
    ),
    hypotheses=(
        "blocks of fixed size",
        "its operations, of order n² like those of the control, are counted and not judged",
    ),
    reference="rabe2021, Section 2",
    measure=measure,
    controls={"whole-matrix": "The softmax of the whole n × n matrix of logits."},
    quick=Config(),
    full=Config(smallest=2048, factor=2, sizes=4),
)
