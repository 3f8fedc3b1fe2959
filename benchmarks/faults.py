"""Computations that are killed with SIGKILL at random moments, resumed, and compared with an uninterrupted one.

make bench                                      twenty moments each
.venv/bin/python benchmarks/faults.py 2         two moments each, to try it
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from page import write_block

from measureformer.storage.files import write_atomically

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from killing import JOBS, interrupted, whole

RESULT = Path(__file__).parent / "results" / "faults.md"
MOMENTS = 20
ABOUT = """Each computation ran once without interruption, and then in new folders, where it was killed with SIGKILL at
a random moment between its beginning and 90 % of that time, and run again to its end. It must end with the same
numbers, compute what was not saved and nothing else, and leave the files of finished pieces as they were. *In time*:
it had ended before it was to be killed."""
HEAD = "| computation | pieces | seconds | killed | in time | faults |\n|---|---|---|---|---|---|"


def main() -> None:
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else MOMENTS
    rng, lines, faults, total = np.random.default_rng(0), [HEAD], list[str](), Counter[str]()
    for job in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            truth = whole(job, Path(folder) / "whole")
            found = Counter[str]()
            for i, share in enumerate(rng.uniform(0, 0.9, moments)):
                end = interrupted(job, Path(folder) / str(i), share * truth.seconds, truth)
                found["fault" if end.startswith("fault") else end] += 1
                faults += [f"- {job}, moment {i}: {end}"] if end.startswith("fault") else []
                print(job, i, end, file=sys.stderr, flush=True)
        tally = f"{found['killed']} | {found['in time']} | {found['fault']}"
        lines.append(f"| {job} | {truth.count} | {truth.seconds:.1f} | {tally} |")
        total += found
    print("\n".join([*lines, *faults]))
    if moments >= MOMENTS:
        parts = ["# Killed computations", ABOUT, "\n".join(lines), "## Faults", "\n".join(faults or ["None."])]
        write_atomically(RESULT, ("\n\n".join(parts) + "\n").encode())
        write_block(
            "faults",
            f"In the last full run {total['killed']} of {total.total()} computations (atlas, training, flow, lens "
            f"report) were killed while they ran; {total['fault']} of them lost something or ended with other numbers.",
        )
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
