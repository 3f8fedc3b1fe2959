"""Processes that live long: eight threads at once, hundreds of shapes, hundreds of models opened."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import measureformer as mf
from compilations import count_compilations
from lens_reference import folder

THREADS = 8
HEAD = mf.Attention.head(np.eye(2), np.eye(2), np.eye(2))


def cloud(seed: int, n: int = 7) -> mf.Discrete:
    return mf.Discrete.uniform(np.random.default_rng(seed).normal(size=(n, 2)))


WORK: dict[str, Callable[[int], Any]] = {
    "map": lambda seed: HEAD.push(cloud(seed)).points,
    "flow": lambda seed: mf.flow(HEAD - mf.Identity(), cloud(seed), [0.0, 0.1]).points,
    "exact transport": lambda seed: mf.wasserstein(cloud(seed), cloud(seed + 1)),
    "entropic transport": lambda seed: mf.sinkhorn(cloud(seed), cloud(seed + 1), eps=0.5).cost,
}


def test_eight_threads_compute_what_one_does() -> None:
    # nothing is compiled yet in the first round: the threads meet in the caches too
    start = threading.Barrier(THREADS)

    def work(thread: int) -> dict[str, bytes]:
        start.wait()
        names = list(WORK)[thread % len(WORK) :] + list(WORK)[: thread % len(WORK)]
        return {f"{name} {seed}": np.asarray(WORK[name](seed)).tobytes() for name in names for seed in (0, thread)}

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(work, range(THREADS)))
    # kills: state of a computation that is kept outside of it
    for thread, results in enumerate(found):
        alone = {f"{name} {seed}": np.asarray(WORK[name](seed)).tobytes() for name in WORK for seed in (0, thread)}
        assert results == alone


def test_five_hundred_shapes_are_six_programs() -> None:
    def calls() -> None:
        for n in range(1, 501):
            HEAD.push(cloud(n, n))

    # buckets of 16, 32, 64, 128, 256, 512 rows; kills: a program for each number of atoms, which would stay in memory
    assert 0 < count_compilations(calls) <= 6 * PROGRAMS
    assert count_compilations(calls) == 0


PROGRAMS = 2
"""Programs of one push, at most: that of the map, and the check of its result."""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed in /proc, on Linux only")
def test_two_hundred_models_leave_no_file_and_no_thread_open(tmp_path: Path) -> None:
    folder(tmp_path, "gpt2")

    def opened() -> tuple[int, int, int]:
        gc.collect()
        maps = Path("/proc/self/maps").read_text().count("model.safetensors")
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir())), maps

    def load() -> None:
        model = mf.lens.load(tmp_path)
        assert len(model.tokens("w1 w2 w3")) == 3
        assert model.layers.block(0).heads.Q.shape[0] == 4

    load()
    before = opened()
    kept = mf.lens.load(tmp_path).checkpoint
    for _ in range(200):
        load()
    # one model is alive and has its file open and mapped: kills a count that would see nothing
    assert kept.names
    assert opened() == (before[0] + 1, before[1], before[2] + 1)
