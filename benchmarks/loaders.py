"""Damaged files for everything that reads files: how many are refused, read, or end badly, by loader.

    make bench                                              a hundred thousand files
    .venv/bin/python benchmarks/loaders.py 1000             a thousand, to try it
    .venv/bin/python benchmarks/loaders.py LOADER SEED      one of them again, with what is raised

Worker processes announce each case before they try it: one that dies or hangs counts as a fault, and is replaced.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from page import write_block

from measureformer.storage.files import write_atomically

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
RESULT = HERE / "results" / "loaders.md"
CASES = 100_000
HANGS = 120
"""Seconds without a word after which a worker is killed: making the good files compiles programs."""
ENDS = ("refused", "accepted", "raw exception", "panic", "silent NaN", "other numbers", "over 2 s", "memory", "died")
ABOUT = """Good files of every kind, damaged from a seed: bytes changed, cut off, put in, moved; sizes and numbers
replaced by extreme ones. *Accepted* means that the file was read and every number that came of it is finite; saved
runs and compiled networks must also be what was written, to the last bit. Faults: a raw exception, a panic inside a
library, a silent NaN, other numbers, more than two seconds of the processor, more memory than four times the files (and
32 MB; pictures may take 24 bytes a pixel), a process that died."""


def shares() -> dict[str, int]:
    """Cases of each loader: those that compute cost more and get fewer."""
    from fuzzing import LOADERS

    weights = {name: 10 if loader.cheap else 1 for name, loader in LOADERS.items()}
    return {name: -(-CASES * weight // sum(weights.values())) for name, weight in weights.items()}


def work(name: str, first: int, last: int, log: str) -> None:
    """Try the cases of a loader; each is announced, so that a death can be told."""
    from fuzzing import Bench, limited

    limited()
    with tempfile.TemporaryDirectory() as folder, Path(log).open("a", encoding="utf-8") as out:
        bench = Bench(name, Path(folder) / "files")
        for seed in range(first, last):
            print(json.dumps([seed, "fault: died"]), file=out, flush=True)
            print(json.dumps([seed, bench.case(seed)]), file=out, flush=True)


def found_in(log: Path) -> dict[int, str]:
    return dict(json.loads(line) for line in log.read_text("utf-8").splitlines())


def end_of(said: str) -> str:
    """The column of an outcome."""
    fault = said.removeprefix("fault: ")
    if fault == said or fault in ENDS:
        return fault
    return next(
        (end for sign, end in ((" s", "over 2 s"), (" MB of memory", "memory")) if fault.endswith(sign)),
        "panic" if fault.startswith("PanicException") else "raw exception",
    )


class Worker:
    """A process at the cases of one loader."""

    def __init__(self, name: str, count: int, folder: Path) -> None:
        self.name, self.count = name, count
        self.log = folder / f"{name}.jsonl"
        self.log.touch()
        self.start()

    def start(self) -> None:
        done = len(found_in(self.log))
        command = [sys.executable, __file__, "--work", self.name, str(done), str(self.count), str(self.log)]
        # messages of libraries about damaged files are expected; the symbols of a backtrace would count as memory
        given = os.environ | {"RUST_BACKTRACE": "0"}
        self.process = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.began, self.since = done, time.time()

    def ended(self) -> bool:
        """Whether all cases are done; a worker that died or hangs is replaced."""
        code = self.process.poll()
        if code is None:
            quiet = time.time() - max(self.log.stat().st_mtime, self.since)
            if quiet < HANGS:
                return False
            self.process.kill()
            self.process.wait()
        done = len(found_in(self.log))
        if done >= self.count:
            return True
        if done == self.began:
            raise SystemExit(f"the worker of {self.name!r} fails before its first case")
        self.start()
        return False


def run(counts: dict[str, int], jobs: int) -> dict[str, dict[int, str]]:
    """How each case of each loader ended."""
    folder, waiting, running = Path(tempfile.mkdtemp()), list(counts), list[Worker]()
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            running.append(Worker(name, counts[name], folder))
        time.sleep(0.5)
        for worker in list(running):
            if worker.ended():
                running.remove(worker)
                tally = Counter(end_of(said) for said in found_in(worker.log).values())
                print(worker.name, dict(tally), file=sys.stderr, flush=True)
    return {name: found_in(folder / f"{name}.jsonl") for name in counts}


def main() -> None:
    counts = shares()
    if len(sys.argv) > 1:
        counts = {name: max(1, count * int(sys.argv[1]) // CASES) for name, count in counts.items()}
    found = run(counts, min(os.cpu_count() or 1, 8))
    table = {name: Counter(end_of(said) for said in cases.values()) for name, cases in found.items()}
    total = sum(table.values(), Counter[str]())
    lines = [f"| loader | cases | {' | '.join(ENDS)} |", "|---" * (len(ENDS) + 2) + "|"]
    for name, tally in [*table.items(), ("all", total)]:
        lines.append(f"| {name} | {tally.total()} | {' | '.join(str(tally[end]) for end in ENDS)} |")
    faults = [
        f"- {name}, seed {seed}: {said}"
        for name, cases in found.items()
        for seed, said in cases.items()
        if said.startswith("fault")
    ]
    print("\n".join([*lines, *faults]))
    if len(sys.argv) == 1:
        parts = ["# Damaged files", ABOUT, "\n".join(lines), "## Faults", "\n".join(faults or ["None."])]
        write_atomically(RESULT, ("\n\n".join(parts) + "\n").encode())
        good, bad = total["refused"] + total["accepted"], len(faults)
        write_block(
            "loaders",
            f"The last full run had {good + bad:,} damaged files of {len(table)} kinds: {total['refused']:,} were "
            f"refused, {total['accepted']:,} read; faults: {bad:,}.",
        )
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    elif len(sys.argv) > 2:
        from fuzzing import Bench

        bench = Bench(sys.argv[1], Path(tempfile.mkdtemp()) / "files")
        bench.damage(int(sys.argv[2]))
        print(bench.folder, bench.loader.load(bench.folder))
    else:
        main()
