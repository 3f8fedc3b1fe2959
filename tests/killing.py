"""Long computations that are killed at a random moment, resumed, and compared with an uninterrupted one.

python tests/killing.py JOB FOLDER     one computation: prints "go" when it begins, then what came of it as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from launching import PATIENCE, environment

COUNT = [0]
"""How many pieces of work this process has done."""


class Job(NamedTuple):
    """A computation that is saved piece by piece."""

    run: Callable[[Path], Any]
    """Into a folder; gives what it computed, without the time that it took, and counts its pieces in `COUNT`."""
    saved: Callable[[Path], int]
    """How many pieces are on disk."""
    kept: str
    """Pattern of the files that must not change any more once they are there."""


def _atlas(folder: Path) -> Any:
    from measureformer.atlas.registry import select
    from measureformer.atlas.run import Settings, run_atlas

    def count(event: Any) -> None:
        COUNT[0] += not event.reused

    done = run_atlas(select(CLAIMS), Settings(folder), count)
    return [replace(result, seconds=0.0).entries() for result in done.results]


CLAIMS = ("castin-2025-gaussian-*", "castin-2025-rank-*", "castin-2025-mixture-tilt", "billingsley-*")


def _training(folder: Path) -> Any:
    import jax

    import measureformer as mf
    from measureformer.training import loop

    chunk: Any = loop._chunk

    def counted(state: Any, *rest: Any) -> Any:
        before = int(state.done)
        found = chunk(state, *rest)
        COUNT[0] += int(found[0].done) - before
        return found

    loop._chunk, loop.LONGEST = counted, 8
    key, small = jax.random.key(0), mf.Architecture(width=16, layers=1, heads=2)
    model = mf.incontext.InContextModel.random(key, 2, small, points=5)
    steps = mf.Optimization(steps=STEPS, batch=16)
    task = mf.incontext.tasks.linear(2)
    found = mf.incontext.train_learner(task, model, key, points=5, optimization=steps, save=folder)
    return [leaf.tolist() for leaf in jax.tree.leaves(found.model)]


STEPS = 400


def _trained(folder: Path) -> int:
    from measureformer.storage.safetensors import read_sealed

    file = folder / "state.safetensors"
    return int(read_sealed(file)[0][".done"]) if file.exists() else 0


def _flow(folder: Path) -> Any:
    import jax

    import measureformer as mf
    from measureformer.flows import run, saved

    write = saved.write

    def counted(to: Any, stand: Any, points: list[Any]) -> None:
        write(to, stand, points)
        COUNT[0] += len(points)

    saved.write, run.PAUSE, run.CALL = counted, 0.0, 0.02
    mu = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(200, 4)))
    head = mf.Attention.random(jax.random.key(0), 4)
    return np.asarray(mf.flow(head, mu, np.linspace(0, 2, TIMES + 1), save=folder).points).tolist()


TIMES = 60


def _reached(folder: Path) -> int:
    from measureformer.flows.saved import read_reached
    from measureformer.storage.folder import RunFolder

    return read_reached(RunFolder.existing(folder)[0], TIMES)[0] if (folder / "problem.json").exists() else 0


def _lens(folder: Path) -> Any:
    from measureformer.cli.lens_report import Request, run_lens
    from measureformer.storage.folder import RunFolder

    part = RunFolder.part

    def counted(self: RunFolder, name: str, make: Callable[[], Any]) -> Any:
        def made() -> Any:
            found = make()
            COUNT[0] += 1
            return found

        return part(self, name, made)

    RunFolder.part = counted
    (found,), _ = run_lens(Request(None, None, 24, None, folder, True))
    return json.loads(replace(found, seconds=0.0).to_json())


def _parts(folder: Path) -> int:
    return len([path for path in folder.glob("run-0/*.json") if path.name != "problem.json"])


JOBS: dict[str, Job] = {
    "atlas": Job(_atlas, lambda folder: len(list(folder.glob("results/*.json"))), "results/*.json"),
    "training": Job(_training, _trained, "problem.json"),
    "saved flow": Job(_flow, _reached, "points-*"),
    "lens report": Job(_lens, _parts, "run-0/*.json"),
}


class Ended(NamedTuple):
    """What a process said at its end."""

    result: Any
    count: int
    seconds: float


def start(job: str, folder: Path) -> subprocess.Popen[str]:
    """A process that has begun to compute."""
    command = [sys.executable, __file__, job, str(folder)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline() != "go\n":
        raise AssertionError(process.communicate()[1][-2000:])
    return process


def finish(process: subprocess.Popen[str], begun: float) -> Ended:
    out, err = process.communicate(timeout=PATIENCE * 3)
    if process.returncode:
        raise AssertionError(err[-2000:])
    result, count = json.loads(out)
    return Ended(result, count, time.monotonic() - begun)


def whole(job: str, folder: Path) -> Ended:
    """The computation without interruption."""
    return finish(start(job, folder), time.monotonic())


def difference(ended: Ended, truth: Ended, saved: int) -> str:
    """What is wrong with the end of a run that was resumed when so many pieces were saved; empty if nothing is."""
    if ended.result != truth.result:
        return "fault: other numbers"
    if ended.count != truth.count - saved:
        return f"fault: {ended.count} pieces were computed, and {saved} of {truth.count} were saved"
    return ""


def interrupted(job: str, folder: Path, delay: float, truth: Ended) -> str:
    """Kill a computation after `delay` seconds and resume it: "killed", "in time" if it had ended, or a fault."""
    process = start(job, folder)
    try:
        process.wait(delay)
        in_time = True
    except subprocess.TimeoutExpired:
        in_time = False
        process.kill()
    process.communicate()
    about = JOBS[job]
    try:
        saved = about.saved(folder)
        before = {path: path.read_bytes() for path in folder.glob(about.kept)}
        ended = finish(start(job, folder), time.monotonic())
    except Exception as error:  # a file that cannot be read, or a process that fails
        return f"fault: {type(error).__name__}: {str(error)[-300:]}"
    if fault := difference(ended, truth, saved):
        return fault
    if changed := [path.name for path, raw in before.items() if path.read_bytes() != raw]:
        return f"fault: finished files changed: {', '.join(changed)}"
    if left := [path.name for path in folder.rglob(".*") if path.name in (".lock", ".owner")]:
        return f"fault: {', '.join(left)} are left over"
    return "in time" if in_time else "killed"


if __name__ == "__main__":
    import measureformer  # noqa: F401, RUF100 what is timed begins after the import

    print("go", flush=True)
    print(json.dumps([JOBS[sys.argv[1]].run(Path(sys.argv[2])), COUNT[0]]), flush=True)
