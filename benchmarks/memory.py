"""Large memories: sixty thousand exponential patterns, and a million modern ones, with the memory that they take.

    make bench                                    both, about two minutes
    .venv/bin/python benchmarks/memory.py --fast  smaller sizes, to try it

Every size runs in a process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from compare import CONSOLE, Number, machine, write

FAST = "--fast" in sys.argv
EXPONENTIAL, MODERN = (6000, 50_000) if FAST else (60_000, 1_000_000)


def exponential(count: int) -> dict[str, float]:
    import measureformer as mf

    X = np.random.default_rng(19).integers(0, 2, (count, 40), dtype=np.int8) * 2 - 1
    memory = mf.memory.Dense.store(X)
    memory.stable()  # compiled before, so that it is the work that is measured
    begin = time.perf_counter()
    fixed = np.asarray(memory.stable())
    return {"seconds": time.perf_counter() - begin, "wrong": float((~fixed).sum())}


def modern(count: int) -> dict[str, float]:
    import measureformer as mf

    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, 64), np.float32)
    X *= 8 / np.linalg.norm(X, axis=1, keepdims=True)
    queries = X[:256] + 0.3 * rng.standard_normal((256, 64), np.float32)
    memory = mf.memory.Modern.store(X, 2.0)
    memory.retrieve(queries, steps=2)
    begin = time.perf_counter()
    found = memory.retrieve(queries, steps=2)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "wrong": float((np.abs(np.asarray(found.state) - X[:256]).max(axis=1) > 1e-3).sum())}


def alone(what: str, count: int) -> dict[str, Any]:
    with CONSOLE.status(f"{what}, {count} patterns"):
        done = subprocess.run([sys.executable, __file__, what, str(count)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    numbers: list[Number] = []
    for what, count, name in (
        ("exponential", EXPONENTIAL, "exponential memory, d=40"),
        ("modern", MODERN, "modern memory, d=64, 256 queries, two updates"),
    ):
        found = alone(what, count)
        CONSOLE.print(f"{name}, {count} patterns: {found}")
        numbers += [
            Number(f"{name}, {count} patterns", found["seconds"], 60, "s"),
            Number(f"{name}, patterns that are not held", found["wrong"], 0, ""),
            Number(f"{name}, peak memory of the process", found["gigabytes"], 4, "GB"),
        ]
    write("memory-fast" if FAST else "memory", [], numbers, machine({"ours": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    if sys.argv[1:2] in (["exponential"], ["modern"]):
        import resource

        result = {"exponential": exponential, "modern": modern}[sys.argv[1]](int(sys.argv[2]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(json.dumps({**result, "gigabytes": peak}))
    else:
        main()
