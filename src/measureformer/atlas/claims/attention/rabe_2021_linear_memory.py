"""Streaming attention: memory that grows like n, time that grows like n²."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.atlas.claim import Claim
from measureformer.atlas.helpers.random import generator
from measureformer.atlas.result import Check, Outcome
from measureformer.attention import Streaming, attend
from measureformer.figures.figure import Figure, Series

DIM = 8
STREAMED = Streaming(block=(256, 256))


@dataclass(frozen=True)
class Config:
    smallest: int = 1024
    factor: int = 4
    sizes: int = 2
    repetitions: int = 3


def _streamed(x: Array) -> Array:
    return attend(x, x, x, method=STREAMED).values


def _materialised(x: Array) -> Array:
    return jax.nn.softmax(x @ x.T, axis=1) @ x


def _with_gradient(f: Callable[[Array], Array]) -> Callable[[Array], Any]:
    return jax.value_and_grad(lambda x: jnp.sum(f(x) ** 2))


def _sizes(config: Config) -> list[int]:
    return [config.smallest * config.factor**i for i in range(config.sizes)]


@lru_cache(maxsize=2)
def _measured(entropy: int, config: Config) -> dict[str, np.ndarray]:
    """Bytes that the compiled programs need beside inputs and outputs, and the least seconds of several runs."""
    rng = np.random.default_rng(entropy)
    ways = {"streamed": _with_gradient(_streamed), "materialised": _with_gradient(_materialised)}
    found: dict[str, list[float]] = {f"{name}: {what}": [] for name in ways for what in ("bytes", "seconds")}
    for n in _sizes(config):
        x = jnp.asarray(rng.normal(size=(n, DIM)).astype(np.float32))
        for name, f in ways.items():
            program = jax.jit(f).lower(x).compile()
            memory = program.memory_analysis()
            assert memory is not None  # the CPU backend always has it
            seconds = []
            for _ in range(config.repetitions):
                # of all threads of this process: what else runs on the machine counts little
                start = time.process_time()
                jax.block_until_ready(program(x))
                seconds.append(time.process_time() - start)
            found[f"{name}: bytes"].append(float(memory.temp_size_in_bytes))
            found[f"{name}: seconds"].append(min(seconds))
    return {name: np.array(numbers) for name, numbers in found.items()}


def _order(config: Config, numbers: np.ndarray) -> float:
    return float(np.polyfit(np.log(_sizes(config)), np.log(numbers), 1)[0])


def _checks(found: dict[str, np.ndarray], config: Config, way: str) -> tuple[Check, ...]:
    return (
        Check("order of the memory in n", _order(config, found[f"{way}: bytes"]), high=1.1),
        Check("order of the time in n", _order(config, found[f"{way}: seconds"]), 1.2, 2.8),
    )


def _run(key: Any, config: Config) -> Outcome:
    found = _measured(int(generator(key).integers(2**32)), config)
    n = tuple(float(size) for size in _sizes(config))

    megabytes = {way: tuple(float(b) / 1e6 for b in found[f"{way}: bytes"]) for way in ("streamed", "materialised")}
    figure = Figure(
        "Memory of attention and its gradient, beside inputs and outputs",
        "number of tokens n",
        "megabytes",
        (
            Series("streamed", n, megabytes["streamed"], "line"),
            Series("control: the whole matrix", n, megabytes["materialised"], "dashed"),
        ),
        xscale="log",
        yscale="log",
        caption=f"Self-attention of n tokens, d = {DIM}, float32; what the compiled programs ask for.",
    )
    return Outcome(_checks(found, config, "streamed"), figure)


def _control(key: Any, config: Config) -> Outcome:
    return Outcome(_checks(_measured(int(generator(key).integers(2**32)), config), config, "materialised"))


claim = Claim(
    name="rabe-2021-linear-memory",
    title="Attention and its gradient in linear memory",
    statement=(
        "Streamed attention of n queries on n keys, together with its gradient in queries, keys and values, "
        "needs memory of order n beside its inputs and outputs, and time of order n²."
    ),
    hypotheses=("blocks of fixed size",),
    reference="rabe2021, Section 2",
    run=_run,
    control=_control,
    control_statement="The softmax of the whole n × n matrix of logits.",
    quick=Config(),
    full=Config(smallest=2048, factor=2, sizes=4, repetitions=5),
)
