"""Training an in-context learner: steps per second against the same loop in eager PyTorch, and what it reaches.

Both train the same model (64 wide, 3 layers, 2 heads, causal, learned positions) on 64 fresh prompts of 11 examples of
linear functions in R^5, by Adam with clipped gradients and the same schedule, in single precision, with all cores: ours
with a part of the batch on each, PyTorch as it uses them by itself.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from compare import CONSOLE, Number, interleaved, machine, row, write

import measureformer as mf
from measureformer import text
from measureformer.cli.incontext import PRESETS
from measureformer.incontext import (
    InContextModel,
    LanguageModel,
    error_curve,
    tasks,
    train_learner,
)
from measureformer.incontext.language import CorpusLoss
from measureformer.incontext.train import InContextLoss
from measureformer.text.corpus import documentation
from measureformer.training import loop
from measureformer.training.architecture import Architecture
from measureformer.training.devices import everywhere
from measureformer.training.optimization import Optimization

FAST = "--fast" in sys.argv
DIM, POINTS = 5, 11
STEPS, BATCH, RATE = PRESETS["minutes"]
TIMED = 20 if FAST else 100
RUNS = Path(__file__).parent / "runs" / "incontext"
"""Where trainings are saved: when they are interrupted, the next run goes on."""
SIZES = Architecture()


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        b, n, d = h.shape
        q, k, v = self.qkv(self.norm_1(h)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(seen.transpose(1, 2).reshape(b, n, d))
        return h + self.down(F.gelu(self.up(self.norm_2(h)), approximate="tanh"))


class Theirs(torch.nn.Module):
    """The same model."""

    def __init__(self) -> None:
        super().__init__()
        self.read_in = torch.nn.Linear(DIM, SIZES.width)
        self.positions = torch.nn.Parameter(0.1 * torch.randn(2 * POINTS, SIZES.width))
        self.blocks = torch.nn.ModuleList(Block(SIZES.width, SIZES.heads) for _ in range(SIZES.layers))
        self.norm, self.read_out = torch.nn.LayerNorm(SIZES.width), torch.nn.Linear(SIZES.width, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        labels = torch.zeros_like(x)
        labels[..., 0] = y
        h = self.read_in(torch.stack([x, labels], dim=2).reshape(x.shape[0], 2 * x.shape[1], DIM)) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.read_out(self.norm(h))[:, ::2, 0]


def theirs() -> Any:
    """Steps of the PyTorch loop."""
    model = Theirs()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    rise = STEPS // 10
    shape = lambda i: (i + 1) / rise if i < rise else 0.5 * (1 + math.cos(math.pi * (i - rise) / (STEPS - rise)))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
    count = sum(p.numel() for p in model.parameters())

    def run() -> None:
        for _ in range(TIMED):
            x, w = torch.randn(BATCH, POINTS, DIM), torch.randn(BATCH, DIM)
            y = torch.einsum("bnd,bd->bn", x, w)
            loss = ((model(x, y) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    return run, count


def ours() -> Any:
    """Steps of our loop, as `train` takes them."""
    model = InContextModel.random(jax.random.key(0), DIM, SIZES, points=POINTS)
    objective = InContextLoss(tasks.linear(DIM), None, BATCH, POINTS)
    return steps(model, objective, BATCH, TIMED), model.parameters


def steps(model: Any, objective: Any, batch: int, count: int) -> Any:
    """So many steps of a training, going on from the last ones."""
    settings = Optimization(steps=10**9, batch=batch, rate=RATE, warmup=0.0)
    program = loop.prepared(objective, settings, jax.random.key(1), model)
    state = [everywhere(loop._started(model, settings), program.mesh)]

    def run() -> None:
        state[0], values = loop._chunk(state[0], program, np.asarray(count), np.asarray(True))
        values.block_until_ready()

    return run


def timed(folder: Path, train: Any, seconds: float, steps: int) -> tuple[Any, Number]:
    """A training and the minutes that it took; of one that goes on from before, those that its steps take now."""
    whole, begun = not folder.exists(), time.perf_counter()
    found = train()
    minutes = (time.perf_counter() - begun if whole else steps * seconds) / 60
    return found, Number(f"its training, {steps} steps" + ("" if whole else ", by the time of a step"), minutes, 0, "")


def reached(preset: str, seconds: float, least: float, minutes: float) -> list[Number]:
    """The error after all steps of a preset, at k = 10 and against 1 − k/d for k < d. Goes on where it was."""
    task, model = tasks.linear(DIM), InContextModel.random(jax.random.key(0), DIM, SIZES, points=POINTS)
    count, batch, rate = PRESETS[preset]
    optimization, folder = Optimization(steps=count, batch=batch, rate=rate), RUNS / f"linear-{preset}"
    go = lambda: train_learner(task, model, jax.random.key(1), points=POINTS, optimization=optimization, save=folder)  # noqa: E731
    found, spent = timed(folder, go, seconds, count)
    curve = error_curve(found.model, task, jax.random.key(2), prompts=20_000)
    away = float(np.abs(curve.error[:DIM] - (1 - np.arange(DIM) / DIM)).max())
    CONSOLE.print(f"errors {np.round(curve.error, 4)}")
    return [
        Number(f'normalised error after 10 examples in R^5, preset "{preset}"', float(curve.error[-1]), least, ""),
        Number("largest distance from 1 − k/d for k < d", away, 0.1, ""),
        replace(spent, limit=minutes, unit="minutes"),
    ]


def written() -> tuple[list[Number], str]:
    """A model of text against a trigram model, on text that was held out, and what it writes. Goes on where it was."""
    documents, folder = documentation(), RUNS / "text"
    letters = text.Tokenizer.characters(documents)
    small = Architecture(width=128, layers=4, heads=4)
    net = LanguageModel.random(jax.random.key(0), small, vocabulary=letters.size, context=128)
    run = steps(net, CorpusLoss(jnp.asarray(letters.encode(documents)), 16), 16, 5)
    seconds = min(interleaved({"ours": run}, rounds=5)["ours"]) / 5
    found, spent = timed(folder, lambda: text.train_text(documents, jax.random.key(0), save=folder), seconds, 2000)
    net, letters = found.text_model
    lines = ["What the model of text writes after a prompt, at temperature 0.7:", ""]
    for prompt in ("The ", "If the "):
        more = text.generate(found.text_model, prompt, jax.random.key(1), length=300, temperature=0.7)
        lines += ["```text", prompt + more, "```", ""]
    both = f"{found.perplexity:.2f} and {found.trigram:.2f}"
    ratio = found.perplexity / found.trigram
    numbers = [
        Number(f"held-out perplexity of a character over that of a trigram model, {both}", ratio, 1.0, ""),
        Number("parameters of that model", net.parameters, 1e6, ""),
        replace(spent, limit=15, unit="minutes"),
    ]
    return numbers, "\n".join(lines)


def main() -> None:
    mf.use_cores()  # as `measureformer incontext train` does
    (mine, count), (other, same) = ours(), theirs()
    if abs(count - same) > 0.01 * count:
        raise SystemExit(f"models of {count} and {same} parameters are not the same")
    work = f"{TIMED} steps, {count} parameters, {BATCH} prompts of {POINTS} examples"
    rows = [row(work, {"ours": mine, "torch": other}, rounds=5, bars={"torch": 2.0})]
    numbers, samples = [], ""
    if not FAST:
        seconds = rows[0].ours / TIMED
        numbers = [*reached("minutes", seconds, 0.10, 10), *reached("hour", seconds, 0.02, 60)]
        more, samples = written()
        numbers += more
    threads = {"ours": len(os.sched_getaffinity(0)), "torch": torch.get_num_threads()}
    write("incontext-fast" if FAST else "incontext", rows, numbers, machine(threads), samples)


if __name__ == "__main__":
    main()
