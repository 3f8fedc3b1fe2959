"""Bad arguments for every public function: how many are refused with a sentence, accepted, or end badly, by chapter.

Each worker takes its share of the functions, with bounded memory. A worker that dies, or is silent for minutes, is
replaced, and the case that it was at counts as a fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from page import write_block

HERE = Path(__file__).resolve().parent
ENDS = ("refused", "accepted", "passed on", "fault")
WORDS = ("refused", "accepted", "exceptions of the user's own function passed on", "faults")
SILENT = 300
"""Seconds after which a worker that has written nothing is killed: it hangs where no signal reaches it."""
RESULT = HERE / "results" / "refusals.md"


def work(worker: int, workers: int, log: str, done: int) -> None:
    """Try every case of this worker after the first `done`; each is announced, so that a death can be told."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import bad_arguments

    bad_arguments.limited()
    cases = bad_arguments.cases(bad_arguments.good_calls())[worker::workers]
    with Path(log).open("a", encoding="utf-8") as out:
        for name, run in cases[done:]:
            print(json.dumps([name, "fault: the process died or hung"]), file=out, flush=True)
            print(json.dumps([name, bad_arguments.outcome(run)]), file=out, flush=True)


def ends(log: Path) -> dict[str, str]:
    """How each case of a worker ended."""
    return dict(map(json.loads, log.read_text("utf-8").splitlines()))


def main() -> None:
    workers = min(os.cpu_count() or 1, 8)
    folder = Path(tempfile.mkdtemp())
    logs = [folder / f"{i}.jsonl" for i in range(workers)]
    for log in logs:
        log.touch()
    waiting = {i: _start(i, workers, logs[i]) for i in range(workers)}
    started = dict.fromkeys(waiting, -1)
    while waiting:
        for i, process in list(waiting.items()):
            try:
                failed = process.wait(1) != 0
            except subprocess.TimeoutExpired:
                if logs[i].stat().st_size and time.time() - logs[i].stat().st_mtime > SILENT:
                    process.kill()
                continue
            del waiting[i]
            if failed:
                done = len(ends(logs[i]))
                if done == started[i]:
                    raise SystemExit(f"worker {i} fails before its first case")
                started[i], waiting[i] = done, _start(i, workers, logs[i])
    found = {name: end for log in logs for name, end in ends(log).items()}
    write(found)


def _start(worker: int, workers: int, log: Path) -> subprocess.Popen[bytes]:
    arguments = [str(worker), str(workers), str(log), str(len(ends(log)))]
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.DEVNULL)


def write(found: dict[str, str]) -> None:
    """The table, and the list of faults."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for name, end in found.items():
        parts = name.partition("(")[0].split(".")
        table[parts[1] if len(parts) > 2 and parts[1].islower() else "mf"][end.partition(":")[0]] += 1
    total = sum(table.values(), Counter())
    lines = [
        "# Bad arguments",
        "",
        "Every argument of one good call of each public function, replaced in turn by each value of a catalogue: wrong",
        "types and shapes, NaN and infinity, huge, tiny and negative numbers. *Passed on* is an exception raised by",
        "the user's own function. A fault is any other exception that is not the library's, a silent NaN, a call of",
        "more than 12 s, or a process that died.",
        "",
        "| chapter | tried | refused | accepted | passed on | faults |",
        "|---|---|---|---|---|---|",
    ]
    for chapter, counts in [*sorted(table.items()), ("all", total)]:
        lines.append(f"| {chapter} | {counts.total()} | {' | '.join(str(counts[end]) for end in ENDS)} |")
    faults = sorted(f"- `{name}`: {end}" for name, end in found.items() if end.startswith("fault"))
    lines += ["", "## Faults", "", *(faults or ["None."]), ""]
    RESULT.write_text("\n".join(lines), "utf-8")
    figures = ", ".join(f"{total[end]:,} {words}" for end, words in zip(ENDS, WORDS, strict=True))
    write_block("refusals", f"Last full run (`benchmarks/results/refusals.md`): {total.total():,} calls: {figures}.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        main()
