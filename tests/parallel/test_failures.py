"""A worker dies, is stopped, raises or never comes: everything ends soon, and the right one is named."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launching import PATIENCE, PROGRAMS, Launched, alive, environment, launched, lines
from measureformer.parallel.launch import COORDINATOR, COUNT, INDEX

pytestmark = pytest.mark.slow

# the promise; on a quiet machine it takes a second, or the heartbeat when a worker is stopped
PROMISED = 30.0


def ends(run: Launched, since: float) -> str:
    """Wait for the end, which must be in time, with an exit code, and leave nobody behind; what was said on stderr."""
    workers = [run.worker(number) for number in range(2)]
    assert run.wait() == 2
    assert time.monotonic() - since < PROMISED
    assert not any(map(alive, workers))
    return run.err


@pytest.mark.parametrize("victim", [1, 0], ids=["worker", "coordinator"])
def test_a_killed_worker_is_named(victim: int, tmp_path: Path) -> None:
    with launched(tmp_path, "loop.py") as run:
        ids = [run.worker(number) for number in range(2)]
        start = time.monotonic()
        os.kill(ids[victim], signal.SIGKILL)
        said = ends(run, start)
    assert f"got worker {victim} of 2 (process {ids[victim]}), which was ended by SIGKILL" in said
    assert f"The last lines of worker {victim} of 2:\n  | worker {victim} starts\n  | worker {victim} works\n" in said
    if victim == 1:
        # the survivor's exchange fails; who does not catch that leaves with the sentence, not with a traceback
        assert lines(run.out, [0])[0][-1] == "worker 0 caught WorkerLost"
        assert "[0] measureformer: got a broken exchange in worker 0 of 2" in said
        assert "Traceback" not in said


def test_a_survivor_may_go_on_after_the_loss(tmp_path: Path) -> None:
    with launched(tmp_path, "loop.py", "catch") as run:
        start = time.monotonic()
        os.kill(run.worker(1), signal.SIGKILL)
        said = ends(run, start)
    assert "got worker 1 of 2" in said
    assert lines(run.out, [0])[0][-1] == "worker 0 saves its work: got a broken exchange in worker 0 of 2"


def test_a_stopped_worker_is_named(tmp_path: Path) -> None:
    with launched(tmp_path, "loop.py", "stop") as run:
        victim = run.worker(1)
        start = time.monotonic()
        os.kill(victim, signal.SIGSTOP)
        said = ends(run, start)
    assert f"got worker 1 of 2 (process {victim}), which was stopped and no longer answered" in said


@pytest.mark.parametrize(
    ("trouble", "last"), [("raise", "ValueError: a mistake in the script"), ("exit", "no data for me")]
)
def test_a_worker_that_fails_ends_all(trouble: str, last: str, tmp_path: Path) -> None:
    # kills: a worker that waits for the others at exit, while they wait for it in an exchange
    with launched(tmp_path, "loop.py", trouble) as run:
        said = ends(run, time.monotonic())
    assert "got worker 1 of 2" in said
    assert "ended with exit code 1" in said
    assert f"  | {last}\n" in said


def test_a_worker_that_leaves_early_without_an_error_is_named(tmp_path: Path) -> None:
    # kills: a launcher that goes by exit codes, while the others wait for five minutes
    with launched(tmp_path, "loop.py", "leave") as run:
        said = ends(run, time.monotonic())
    assert "got worker 1 of 2" in said
    assert "which ended without an error after 1 of 2 exchanges" in said


def test_workers_may_end_and_compute_alone_at_different_times(tmp_path: Path) -> None:
    # kills: a worker taken for lost because another one still computes what needs no exchange
    with launched(tmp_path, "loop.py", "finish") as run:
        assert run.wait() == 0
    assert [said[-1] for said in lines(run.out, [0, 1]).values()] == ["worker 0 is done", "worker 1 is done"]


def test_a_worker_that_never_comes_is_named(tmp_path: Path) -> None:
    with launched(tmp_path, "loop.py", "early") as run:
        assert run.wait() == 2
    assert "  | no data\n" in run.err
    assert "got worker 1 of 2" in run.err


def test_waiting_for_the_others_ends_with_a_sentence() -> None:
    # a worker alone, as on a machine of its own: nobody is there at this address
    program = "import measureformer as mf; mf.join_workers('127.0.0.1:1', 2, 1, start=2)"
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert time.monotonic() - start < PROMISED
    assert "got worker 1 alone for 2 s at 127.0.0.1:1; need 2 workers there. Start the missing ones" in done.stderr


def test_workers_started_by_hand_may_finish_at_different_times(tmp_path: Path) -> None:
    # as on two machines: one address for all, a number for each; kills: whoever is done takes the others with it
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, str(PROGRAMS / "loop.py"), str(tmp_path), "finish"]
    started = []
    try:
        for number in range(2):
            place = {COORDINATOR: coordinator, COUNT: "2", INDEX: str(number)}
            started.append(subprocess.Popen(command, env=environment(**place), stdout=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=PATIENCE)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert [process.returncode for process in started] == [0, 0]
    assert [text.splitlines()[-1] for text in said] == ["worker 0 is done", "worker 1 is done"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_launcher_takes_the_workers_with_it(how: signal.Signals, tmp_path: Path) -> None:
    with launched(tmp_path, "loop.py") as run:
        ids = [run.worker(number) for number in range(2)]
        run.process.send_signal(how)
        assert run.wait() == 128 + how
        assert not any(map(alive, ids))


def test_output_carries_the_number_of_the_worker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nprint(sys.argv[1:])\nsys.stderr.write('å\\n')\n", encoding="utf-8")
    command = [sys.executable, "-m", "measureformer", "launch", "-n", "3", str(program), "--steps", "2", "-n", "7"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"[{i}] ['--steps', '2', '-n', '7']" for i in range(3)]
    assert sorted(done.stderr.splitlines()) == [f"[{i}] å" for i in range(3)]
