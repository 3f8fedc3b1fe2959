"""Runs of many claims: what is finished is kept, reused while nothing changed, and the same in parallel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

from measureformer.atlas.errors import ClaimNotRunError
from measureformer.atlas.registry import check, select
from measureformer.atlas.result import Result
from measureformer.atlas.run import AtlasRun, Event, Failure, Settings, run_atlas
from measureformer.errors import OptionError, OutputError
from measureformer.storage.files import write_atomically
from planting import HOLDS, INTERRUPTS, RAISES, RANDOM, claim_source, plant, runs

NAMES = ["castin-2025-a", "castin-2025-b", "castin-2025-c"]


class Garden:
    """A planted package with an atlas folder, and the runs that were made of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **bodies: str) -> None:
        self.folder = folder
        sources = {letter: claim_source(f"castin-2025-{letter}", body) for letter, body in bodies.items()}
        self.package = plant(folder, patch, {f"chapter/{letter}.py": text for letter, text in sources.items()})
        self.settings = Settings(folder / "atlas")
        self.events: list[Event] = []
        # processes that an earlier test left would look for its claims
        get_reusable_executor().shutdown(wait=True)

    def run(self, **changes: object) -> AtlasRun:
        self.events = []
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        return run_atlas(select([]), settings, self.events.append)

    def runs(self) -> dict[str, int]:
        modules = sorted(entry.module for entry in select([]))
        return {m[-1]: runs(self.folder, self.package, m.partition(".")[2].replace(".", "/")) for m in modules}

    def file(self, letter: str) -> Path:
        return self.folder / "atlas" / "results" / f"castin-2025-{letter}.json"


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Garden:
    return Garden(tmp_path, monkeypatch, a=HOLDS, b=RANDOM, c=HOLDS)


def test_a_claim_without_what_it_needs_is_not_run_and_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # kills: a claim without weights counted as passed, or its absence passed over in silence
    source = claim_source(
        NAMES[0], needs="lambda: '' if (Path(__file__).parent / 'weights').exists() else 'make weights'"
    )
    package = plant(tmp_path, monkeypatch, {"chapter/a.py": source, "chapter/b.py": claim_source(NAMES[1])})
    events: list[Event] = []
    done = run_atlas(select([]), Settings(tmp_path / "atlas"), events.append)
    assert [claim.claim for claim in done.not_run] == [NAMES[0]]
    assert [result.claim for result in done.results] == [NAMES[1]]
    assert done.passes
    assert [(gap.kind, gap.why) for gap in done.missing()] == [("not run", "needs make weights")]
    assert runs(tmp_path, package, "chapter/castin_2025_a") == 0
    assert {event.outcome.claim for event in events} == set(NAMES[:2])
    with pytest.raises(ClaimNotRunError, match="need make weights"):
        check(NAMES[0])
    # once they are there, it is run
    (tmp_path / package / "chapter" / "weights").touch()
    assert not run_atlas(select([]), Settings(tmp_path / "atlas"), events.append).not_run
    assert runs(tmp_path, package, "chapter/castin_2025_a") == 1


def test_results_are_stored_one_file_each(garden: Garden) -> None:
    done = garden.run()
    assert [result.claim for result in done.results] == NAMES
    assert done.failures == done.left == ()
    assert not done.interrupted
    for result in done.results:
        assert Result.from_json(garden.file(result.claim[-1]).read_text(encoding="utf-8")) == result
    assert sorted(path.name for path in garden.file("a").parent.iterdir()) == [f"{name}.json" for name in NAMES]
    assert [(event.done, event.total, event.reused) for event in garden.events] == [(i, 3, False) for i in (1, 2, 3)]


def test_second_run_runs_nothing(garden: Garden) -> None:
    first = garden.run()
    assert garden.run() == first
    assert garden.runs() == {"a": 1, "b": 1, "c": 1}
    assert all(event.reused for event in garden.events)


def test_time_left_follows_from_what_claims_took_before(garden: Garden) -> None:
    garden.run()
    assert [event.left is not None for event in garden.events] == [True] * 3
    assert garden.events[-1].left == 0.0
    # one of them is known to take nearly all of the time: it is started first, and when it is done little is left
    for letter, seconds in (("a", 1.0), ("b", 1.0), ("c", 98.0)):
        path = garden.file(letter)
        result = replace(Result.from_json(path.read_text(encoding="utf-8")), seconds=seconds)
        path.write_text(result.to_json(), encoding="utf-8")
    start = time.monotonic()
    garden.run(fresh=True)
    took = time.monotonic() - start
    assert [event.outcome.claim[-1] for event in garden.events] == ["c", "a", "b"]
    assert garden.events[0].left is not None
    assert garden.events[0].left < 0.03 * took


def test_fresh_run_runs_everything(garden: Garden) -> None:
    garden.run()
    garden.run(fresh=True)
    assert garden.runs() == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("change", [{"seed": 1}, {"preset": "full"}])
def test_another_seed_or_preset_runs_again(garden: Garden, change: dict[str, object]) -> None:
    garden.run()
    done = garden.run(**change)
    assert garden.runs() == {"a": 2, "b": 2, "c": 2}
    assert all(getattr(result, name) == value for result in done.results for name, value in change.items())


def test_changed_source_runs_only_that_claim_again(garden: Garden) -> None:
    garden.run()
    module = garden.folder / garden.package / "chapter" / "castin_2025_b.py"
    module.write_text(module.read_text() + "\n# changed\n")
    garden.run()
    assert garden.runs() == {"a": 1, "b": 2, "c": 1}


def test_damaged_files_run_again(garden: Garden) -> None:
    garden.run()
    whole = garden.file("a").read_text(encoding="utf-8")
    garden.file("a").write_text(whole[:-30], encoding="utf-8")
    garden.file("b").write_bytes(b"\xff\xfe\x00")
    # a good result of another claim under this name
    garden.file("c").write_text(whole, encoding="utf-8")
    done = garden.run()
    assert garden.runs() == {"a": 2, "b": 2, "c": 2}
    assert [result.claim for result in done.results] == NAMES


def test_result_under_a_false_name_runs_again(garden: Garden) -> None:
    garden.run()
    text = garden.file("c").read_text(encoding="utf-8")
    garden.file("c").write_text(text.replace("castin-2025-c", "castin-2025-x"), encoding="utf-8")
    assert [result.claim for result in garden.run().results] == NAMES
    assert garden.runs() == {"a": 1, "b": 1, "c": 2}


def test_raising_claim_is_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = Garden(tmp_path, monkeypatch, a=HOLDS, b=RAISES, c=HOLDS)
    done = garden.run()
    assert [result.claim for result in done.results] == ["castin-2025-a", "castin-2025-c"]
    (failure,) = done.failures
    assert failure.claim == "castin-2025-b"
    assert "the matrix is singular" in failure.message
    assert "b.py" in failure.traceback
    assert not done.passes
    assert not garden.file("b").exists()
    # it is tried again, and only it
    garden.run()
    assert garden.runs() == {"a": 1, "b": 2, "c": 1}


def test_interruption_keeps_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = Garden(tmp_path, monkeypatch, a=HOLDS, b=INTERRUPTS, c=HOLDS)
    done = garden.run()
    assert [result.claim for result in done.results] == ["castin-2025-a"]
    assert done.left == ("castin-2025-b", "castin-2025-c")
    assert done.interrupted
    assert not done.passes
    assert garden.file("a").exists()
    assert not garden.file("c").exists()
    assert garden.runs() == {"a": 1, "b": 1, "c": 0}


def test_stored_failures_of_verdict_do_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'return Outcome((Check("difference", 2.0, high=1.0),))'
    garden = Garden(tmp_path, monkeypatch, a=body, b=HOLDS)
    assert not garden.run().passes
    assert not garden.run().passes
    assert garden.runs() == {"a": 1, "b": 1}


def test_two_jobs_measure_what_one_does(garden: Garden) -> None:
    one = garden.run()
    two = garden.run(jobs=2, fresh=True)
    assert garden.runs() == {"a": 2, "b": 2, "c": 2}
    assert [(r.claim, r.run, r.controls, r.fingerprint) for r in two.results] == [
        (r.claim, r.run, r.controls, r.fingerprint) for r in one.results
    ]
    for result in two.results:
        assert Result.from_json(garden.file(result.claim[-1]).read_text(encoding="utf-8")) == result
    assert garden.run() == two


def test_two_jobs_report_what_raises_and_what_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = Garden(tmp_path, monkeypatch, a=HOLDS, b=RAISES)
    done = garden.run(jobs=2)
    assert [result.claim for result in done.results] == ["castin-2025-a"]
    assert [failure.claim for failure in done.failures] == ["castin-2025-b"]
    killed = Garden(tmp_path, monkeypatch, d="import os, signal; os.kill(os.getpid(), signal.SIGKILL)", e=HOLDS)
    lost = killed.run(jobs=2)
    assert "castin-2025-d" in [failure.claim for failure in lost.failures]
    assert all("worker process died" in failure.message for failure in lost.failures)
    assert not lost.left


def test_interruption_between_results_stops_busy_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garden = Garden(tmp_path, monkeypatch, a=HOLDS, b=f"import time; time.sleep(300); {HOLDS}")

    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    start = time.monotonic()
    done = run_atlas(select([]), replace(garden.settings, jobs=2), interrupt)
    assert [result.claim for result in done.results] == ["castin-2025-a"]
    assert done.left == ("castin-2025-b",)
    assert time.monotonic() - start < 100


def test_result_that_was_written_but_not_reported_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the first claim does what a worker may do just before the parent is interrupted: write another one's result
    kept, place = tmp_path / "kept.json", tmp_path / "atlas" / "results" / "castin-2025-b.json"
    garden = Garden(tmp_path, monkeypatch, a=f"Path({str(kept)!r}).rename({str(place)!r}); {INTERRUPTS}", b=HOLDS)
    run_atlas([entry for entry in select([]) if entry.name[-1] == "b"], garden.settings, print)
    place.rename(kept)
    done = garden.run()
    assert [result.claim for result in done.results] == ["castin-2025-b"]
    assert done.left == ("castin-2025-a",)
    assert garden.runs() == {"a": 1, "b": 1}


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_jobs_are_refused(garden: Garden, jobs: int) -> None:
    with pytest.raises(OptionError, match="jobs"):
        garden.run(jobs=jobs)


def test_folder_that_is_a_file_is_refused(garden: Garden) -> None:
    (garden.folder / "atlas").write_text("not a folder")
    with pytest.raises(OutputError, match="--out"):
        garden.run()


def test_failure_of_a_claim_is_not_a_failure_of_writing(garden: Garden) -> None:
    # a full disk must end the run with a message, not be booked as a fault of the claim
    (garden.folder / "atlas").mkdir()
    (garden.folder / "atlas" / "results").write_text("in the way")
    with pytest.raises(OutputError):
        garden.run()
    assert not any(isinstance(event.outcome, Failure) for event in garden.events)


def test_write_that_dies_half_way_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, b"old")

    def die(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("os.fsync", "os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(function, die)
            with pytest.raises(OutputError, match="No space left on device"):
                write_atomically(path, b"new")
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_bytes_are_on_the_disk_before_they_take_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr("os.replace", lambda a, b: (order.append("replace"), rename(a, b))[1])
    write_atomically(tmp_path / "result.json", b"new")
    assert order == ["fsync", "replace"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_signal_ends_a_run_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    sleep = f"import time; Path({str(tmp_path / 'asleep')!r}).touch(); time.sleep(60); {HOLDS}"
    garden = Garden(tmp_path, monkeypatch, a=HOLDS, b=HOLDS, c=sleep)
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from measureformer.atlas.run import Settings, run_atlas
        from measureformer.atlas import index
        from measureformer.atlas.registry import select
        sys.path.insert(0, {str(tmp_path)!r})
        index.packages = lambda: ({garden.package!r},)
        settings = Settings(Path({str(tmp_path / "atlas")!r}), jobs={jobs})
        done = run_atlas(select([]), settings, lambda event: None)
        print([result.claim for result in done.results], done.left)
    """)
    # a session of its own, so that the signal reaches the program and its workers as from a keyboard
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        finished = [garden.file("a"), garden.file("b"), tmp_path / "asleep"]
        deadline = time.monotonic() + 60
        while not all(path.exists() for path in finished) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out.strip() == "['castin-2025-a', 'castin-2025-b'] ('castin-2025-c',)"
    assert "Traceback" not in err
    assert child.returncode == 0
