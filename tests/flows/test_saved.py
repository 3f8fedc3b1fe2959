"""Flows that are saved: the answers of the other driver, the bits of an uninterrupted run, and refused folders."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import measureformer as mf
from compilations import count_compilations
from flow_examples import DIM, cloud, head, largest
from launching import PATIENCE, environment
from measureformer import errors
from measureformer.flows import run as _run
from measureformer.flows import saved as _saved
from measureformer.parallel import progress
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.safetensors import read_sealed, sealed

TIMES = [0.0, 0.3, 0.31, 0.8, 1.0]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Everything is written at once; and how many times had been reached at each write."""
    counts: list[int] = []
    write = _saved.write

    def noted(folder: Any, stand: Any, points: Any) -> None:
        write(folder, stand, points)
        counts.append(stand.reached)

    monkeypatch.setattr(_run, "PAUSE", 0.0)
    monkeypatch.setattr(_saved, "write", noted)
    return counts


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException] = KeyboardInterrupt) -> list[Any]:
    """Raise in the middle of the loop, after that many writes; returns what was written."""
    write, done = _saved.write, []

    def broken(folder: Any, stand: Any, points: Any) -> None:
        write(folder, stand, points)
        done.append(stand)
        if len(done) == after:
            raise error

    monkeypatch.setattr(_saved, "write", broken)
    return done


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where every call of the compiled program began."""
    seen: list[Any] = []
    original = _run.Run.go

    def go(self: Any, stand: Any, budget: int) -> Any:
        seen.append(stand)
        return original(self, stand, budget)

    monkeypatch.setattr(_run.Run, "go", go)
    return seen


FLOWS: dict[str, dict[str, Any]] = {
    "tsit5": {},
    "dopri8": {"solver": "dopri8", "steps": diffrax.PIDController(rtol=1e-9, atol=1e-9)},
    "layers": {"layers": 3},
    "euler": {"solver": "euler", "steps": 6},
    "rk4 with layers": {"solver": "rk4", "steps": 3, "layers": 2, "times": [0.0, 0.5, 1.0]},
    "tsit5 in equal steps": {"steps": 4},
}


def arguments(case: str) -> tuple[Any, dict[str, Any]]:
    options = dict(FLOWS[case])
    layers, times = options.pop("layers", 1), options.pop("times", TIMES)
    velocity = head() if layers == 1 else [head(i) for i in range(layers)]
    return (velocity, cloud(), times), options


@pytest.mark.parametrize("case", FLOWS)
def test_both_drivers_agree(case: str, tmp_path: Path) -> None:
    given, options = arguments(case)
    one, two = mf.flow(*given, **options), mf.flow(*given, **options, save=tmp_path / "run")
    # the same steps, compiled differently: other steps would differ by the tolerances, 1e-4 to 1e-9
    assert largest(one.points - two.points) < 1e-13
    assert one.times.tolist() == two.times.tolist()
    np.testing.assert_array_equal(mf.flows.load_flow(tmp_path / "run").points, two.points)


@pytest.mark.parametrize("case", ["tsit5", "layers", "rk4 with layers"])
def test_an_interrupted_run_goes_on_with_the_same_bits(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[int], stands: list[Any]
) -> None:
    # the bits kill a run that chooses its next step anew, or lost points; a velocity that is computed again, and errors
    # that are forgotten (this control does not look at old ones), change no bit: so the states are compared as well
    given, options = arguments(case)
    whole = mf.flow(*given, **options, save=tmp_path / "whole")
    written.clear()
    # one step in each call: where a call ends changes no bit
    monkeypatch.setattr(_run, "CALL", 0.0)
    np.testing.assert_array_equal(mf.flow(*given, **options, save=tmp_path / "by step").points, whole.points)
    writes = len(written)
    assert writes >= 4
    for after in range(1, writes, max(1, writes // 4)):
        folder = tmp_path / f"after {after}"
        with monkeypatch.context() as patch:
            kept = interrupt(patch, after)
            with pytest.raises(KeyboardInterrupt, match=f"saved in .*after {after}: the same call resumes"):
                mf.flow(*given, **options, save=folder)
        written.clear()
        stands.clear()
        again = mf.flow(*given, **options, save=folder)
        assert len(written) < writes  # it did not begin anew
        assert stands[0][2:] == kept[-1][2:]
        jax.tree.map(np.testing.assert_array_equal, stands[0].state, kept[-1].state)
        np.testing.assert_array_equal(again.points, whole.points)


def test_more_times_in_a_step_than_a_call_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: times that are lost, and steps that are taken from another place, when a call is made again
    times = np.linspace(0.0, 0.5, 40)
    whole = mf.flow(head(), cloud(), times)
    monkeypatch.setattr(_run, "CHUNK", 1)
    few = mf.flow(head(), cloud(), times, save=tmp_path)
    assert largest(few.points - whole.points) < 1e-13


def test_what_was_reached_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[int]) -> None:
    whole = mf.flow(head(), cloud(), TIMES)
    while not written or written[-1] < 2:
        with monkeypatch.context() as patch:
            interrupt(patch, 1, MemoryError)
            with pytest.raises(MemoryError):
                mf.flow(head(), cloud(), TIMES, save=tmp_path / "run")
        if written[-1] == 0:
            with pytest.raises(errors.SavedRunError, match="not come to its second time"):
                mf.flows.load_flow(tmp_path / "run")
    part = mf.flows.load_flow(tmp_path / "run")
    assert part.times.tolist() == TIMES[: written[-1] + 1] != TIMES
    assert largest(part.points - whole.points[: len(part.times)]) < 1e-13


def test_what_is_computed_from_a_loaded_trajectory_needs_its_velocity(tmp_path: Path) -> None:
    growth, x = mf.Linear(np.eye(DIM)), np.asarray(cloud().points)
    mf.flow(growth, cloud(), [0.0, 1.0], save=tmp_path)
    assert largest(mf.flows.load_flow(tmp_path).at(1.0).points - np.e * x) < 1e-5
    for act in (lambda traj: traj.at(0.5), lambda traj: traj.log_density(lambda y: y[:, 0])):
        with pytest.raises(errors.OptionError, match="loaded without its velocity"):
            act(mf.flows.load_flow(tmp_path))
    assert largest(mf.flows.load_flow(tmp_path, growth).at(0.5).points - np.exp(0.5) * x) < 1e-5


PROGRAM = """
import os, signal, sys
import jax, numpy as np
import measureformer as mf
from measureformer.flows import run as _run
from measureformer.storage import folder as _saved

folder, fatal, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
_run.PAUSE = 0.0
write, done = _saved.write_atomically, []

def then_die(path, data, **options):
    write(path, data, **options)
    done.append(path.name.partition("-")[0].partition(".")[0])
    if done.count(fatal) == count:
        os.kill(os.getpid(), signal.SIGKILL)

_saved.write_atomically = then_die
rng = np.random.default_rng(0)
mu, G = mf.Discrete.uniform(rng.normal(size=(7, 2))), mf.Attention.random(jax.random.key(0), 2)
times = np.linspace(0, 1, 21)
done.clear()
resumed = np.asarray(mf.flow(G, mu, times, save=folder).points)
print(len(done))
done.clear()
print((np.asarray(mf.flow(G, mu, times, save=folder + "2").points) == resumed).all(), len(done))
"""


def test_a_run_that_is_killed_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def run(folder: str, fatal: str, count: int = 1) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / folder), fatal, str(count)]
        given = environment()
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)

    # dead with points that no state knows of, and right after a state
    for fatal in ("points", "state"):
        assert run("killed", fatal, 2).returncode == -signal.SIGKILL
        assert not (tmp_path / "killed" / "points-000020.safetensors").exists()
    last = run("killed", "never")
    assert last.returncode == 0, last.stderr
    writes, same, all_writes = last.stdout.split()
    assert same == "True"
    assert int(writes) < int(all_writes)


def test_a_finished_run_is_read_and_not_run_again(tmp_path: Path) -> None:
    one = mf.flow(head(), cloud(), TIMES, save=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    two = mf.flow(head(), cloud(), TIMES, save=tmp_path)
    np.testing.assert_array_equal(one.points, two.points)
    assert before == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_a_new_number_of_tokens_or_times_compiles_nothing(tmp_path: Path) -> None:
    mf.flow(head(), cloud(1, 8), [0.0, 0.3, 0.7], save=tmp_path / "a")
    assert count_compilations(lambda: mf.flow(head(), cloud(1, 13), [0.5, 0.6, 0.7, 1.0], save=tmp_path / "b")) == 0


def test_times_of_tokens_and_single_precision_are_kept(tmp_path: Path) -> None:
    sigma = mf.SpaceTime.sequence(np.asarray(cloud().points, np.float32))
    mf.flow(mf.Linear(np.eye(DIM, dtype=np.float32)), sigma, [0.0, 1.0], save=tmp_path)
    loaded = mf.flows.load_flow(tmp_path)
    assert loaded.points.dtype == np.float32
    assert largest(loaded.points[-1] - np.e * np.asarray(sigma.points)) < 1e-3
    np.testing.assert_array_equal(loaded.measures[-1].times, sigma.times)


def test_the_limit_counts_steps_between_times(tmp_path: Path) -> None:
    turn = 5e4 * np.array([[0.0, -1.0], [1.0, 0.0]])
    with pytest.raises(errors.StepLimitError, match="4096 steps of tsit5"):
        mf.flow(mf.Linear(turn), cloud(), [0.0, 1.0], save=tmp_path / "one")
    with pytest.raises(errors.StepLimitError) as caught:
        mf.flow(mf.Linear(turn), cloud(), [0.0, 1.0], save=tmp_path / "one")  # the folder knows
    assert caught.value.last is not None
    time, measure = caught.value.last
    assert 0 < time < 1
    assert largest(measure.points - np.asarray(cloud().points) @ expm(turn * time).T) < 0.1
    times = np.linspace(0, 1.5 * time, 4)
    traj = mf.flow(mf.Linear(turn), cloud(), times, save=tmp_path / "several")
    assert largest(traj.points[-1] - np.asarray(cloud().points) @ expm(turn * times[-1]).T) < 0.1


def test_blow_up_leaves_what_was_reached(tmp_path: Path) -> None:
    square, start = mf.flows.Interaction(lambda x, y: x * x), mf.Discrete.uniform([[1.0], [0.5]])
    for _ in range(2):
        with pytest.raises(errors.BlowUpError, match="soon after t = 1") as caught:
            mf.flow(square, start, [0.0, 0.5, 2.0], save=tmp_path)
        assert caught.value.last is not None
        assert abs(caught.value.last[0] - 1) < 1e-3
    assert mf.flows.load_flow(tmp_path).times.tolist() == [0.0, 0.5]


def test_overflow_in_equal_steps_is_reported_with_the_last_time_before(tmp_path: Path) -> None:
    growth = mf.Linear([[1e150]])
    for _ in range(2):
        with pytest.raises(errors.BlowUpError) as caught:
            mf.flow(growth, mf.Discrete.dirac([1.0]), [0.0, 1.0, 2.0, 3.0], solver="euler", steps=1, save=tmp_path)
        assert caught.value.last is not None
        assert caught.value.last[0] == 2
        assert abs(float(caught.value.last[1].points[0, 0]) / 1e300 - 1) < 1e-12


# ---- folders that are refused -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    mf.flow(head(), cloud(), [0.0, 0.5, 1.0], save=folder)
    return folder


OTHERS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "velocity": ((head(1), cloud(), [0.0, 0.5, 1.0]), {}, "other velocity"),
    "class": ((mf.HardmaxAttention(*(getattr(head(), k) for k in "QKVW")), cloud(), [0.0, 0.5, 1.0]), {}, "velocity"),
    "measure": ((head(), cloud(1), [0.0, 0.5, 1.0]), {}, "other measure"),
    "weights": ((head(), mf.Discrete.uniform(cloud().points), [0.0, 0.5, 1.0]), {}, "other measure"),
    "times": ((head(), cloud(), [0.0, 0.5, 1.5]), {}, "other times"),
    "tolerance": (
        (head(), cloud(), [0.0, 0.5, 1.0]),
        {"steps": diffrax.PIDController(rtol=1e-5, atol=1e-6)},
        "control.rtol 1e-06 there, 1e-05 here",
    ),
    "solver": ((head(), cloud(), [0.0, 0.5, 1.0]), {"solver": "heun"}, "solver 'Tsit5' there, 'Heun' here"),
    "steps": ((head(), cloud(), [0.0, 0.5, 1.0]), {"steps": 2}, "steps None there, 2 here"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_flow_is_refused(case: str, good: Path) -> None:
    given, options, words = OTHERS[case]
    before = {path.name: path.read_bytes() for path in good.iterdir()}
    with pytest.raises(errors.SavedRunError, match=f"holds another run .*{words}"):
        mf.flow(*given, **options, save=good)
    assert before == {path.name: path.read_bytes() for path in good.iterdir()}


def test_another_velocity_is_refused_when_loading(good: Path) -> None:
    with pytest.raises(errors.SavedRunError, match="another velocity"):
        mf.flows.load_flow(good, head(1))


def changed_json(folder: Path, **entries: Any) -> None:
    about = json.loads((folder / "problem.json").read_text())
    (folder / "problem.json").write_text(json.dumps(about | entries))


def changed(folder: Path, name: str, **arrays: Any) -> None:
    file = folder / f"{name}.safetensors"
    found, metadata = read_sealed(file)
    file.write_bytes(sealed({k: v for k, v in (found | arrays).items() if v is not None}, metadata))


def cut(folder: Path, name: str) -> None:
    file = folder / f"{name}.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


DAMAGES: dict[str, tuple[Any, str]] = {
    "no JSON": (lambda f: (f / "problem.json").write_text("{"), "problem.json, which cannot be read"),
    "not text": (lambda f: (f / "problem.json").write_bytes(b"\xff\xfe"), "problem.json, which cannot be read"),
    "a list": (lambda f: (f / "problem.json").write_text("[1]"), "problem.json, which is not"),
    "another format": (
        lambda f: changed_json(f, format=2),
        "not that of a flow in the format 4|format 2 there, 4 here",
    ),
    "no solver": (lambda f: changed_json(f, solver="magic"), "not that of a flow|solver .* there, 'Tsit5' here"),
    "a solver that is a list": (
        lambda f: changed_json(f, solver=["tsit5"]),
        "not that of a flow|solver .* there, 'Tsit5' here",
    ),
    "no measure": (lambda f: changed_json(f, kind="Gaussian"), "not that of a flow|kind 'Gaussian' there"),
    "times in words": (lambda f: changed_json(f, times=["now", "then"]), "not that of a flow|other times"),
    "truncated points": (lambda f: cut(f, "points-000001"), "points-000001.safetensors, which cannot be read"),
    "no points": (lambda f: (f / "points-000001.safetensors").unlink(), "points-000001.* cannot be read"),
    "points of another shape": (
        lambda f: changed(f, "points-000001", points=np.zeros((2, 6, DIM))),
        r"points of shape \(2, 6, 2\) in float64 instead of \(k, 7, 2\)",
    ),
    "points of no shape": (lambda f: changed(f, "points-000001", points=np.array(0.0)), r"points of shape \(\)"),
    "points in single precision": (
        lambda f: changed(f, "points-000001", points=np.zeros((2, 7, DIM), np.float32)),
        r"in float32 instead of \(k, 7, 2\) in float64",
    ),
    "other arrays": (lambda f: changed(f, "points-000001", points=None, lines=np.zeros(3)), r"points of shape \(0,\)"),
    "truncated state": (lambda f: cut(f, "state"), "state.safetensors, which cannot be read"),
    "more times than there are": (lambda f: changed(f, "state", counts=np.array([9, 0, 0, 0])), "counts"),
    "nested too deeply": (lambda f: (f / "problem.json").write_text("[" * 10**5), "problem.json, which cannot be read"),
    "too many layers": (lambda f: changed_json(f, layers=10**12), "not that of a flow|layers 1000000000000 there"),
    "no steps": (lambda f: changed_json(f, steps=0), "not that of a flow|steps 0 there"),
    "a state without counts": (
        lambda f: changed(f, "state", counts=None),
        "state.safetensors, which has counts missing",
    ),
    "points of another run": (
        lambda f: (f / "points-000001.safetensors").write_bytes(sealed({"points": np.zeros((2, 7, DIM))}, {})),
        "points-000001.safetensors, which belongs to another run",
    ),
    "an executable": (lambda f: (f / "state.safetensors").write_bytes(b"\x7fELF" * 99), "cannot be read"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_folders_are_refused(case: str, good: Path, tmp_path: Path) -> None:
    damage, words = DAMAGES[case]
    for path in good.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damage(tmp_path)
    for act in (lambda: mf.flows.load_flow(tmp_path), lambda: mf.flow(head(), cloud(), [0.0, 0.5, 1.0], save=tmp_path)):
        with pytest.raises(errors.SavedRunError, match=words):
            act()


def test_counts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    # a walk that believed them would never end, or look for a segment that is not there
    mf.flow(head(), cloud(), [0.0, 0.5, 1.0], solver="euler", steps=2, save=tmp_path / "equal")
    mf.flow(head(), cloud(), [0.0, 0.5, 1.0], save=tmp_path / "adaptive")
    for name, options, counts in (
        ("adaptive", {}, [1, 5000, 0, 0]),
        ("adaptive", {}, [1, 0, 3, 0]),
        ("adaptive", {}, [1, 0, 0, 7]),
        ("equal", {"solver": "euler", "steps": 2}, [1, 0, 9, 0]),
        ("equal", {"solver": "euler", "steps": 2}, [1, 0, 0, 0]),
    ):
        changed(tmp_path / name, "state", counts=np.array(counts))
        with pytest.raises(errors.SavedRunError, match=f"counts {', '.join(map(str, counts))}"):
            mf.flow(head(), cloud(), [0.0, 0.5, 1.0], **options, save=tmp_path / name)


def test_measures_that_are_damaged_are_refused_when_loading(good: Path, tmp_path: Path) -> None:
    for path in good.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for arrays, words in (
        ({"log_weights": np.zeros(3)}, "is no Discrete"),
        ({"log_weights": np.zeros(7, np.float32)}, "is no Discrete"),
        ({"points": np.zeros(7)}, "is no Discrete"),
        ({"points": None}, "is no Discrete"),
    ):
        (tmp_path / "initial.safetensors").write_bytes((good / "initial.safetensors").read_bytes())
        changed(tmp_path, "initial", **arrays)
        with pytest.raises(errors.SavedRunError, match=words):
            mf.flows.load_flow(tmp_path)
    (tmp_path / "initial.safetensors").write_bytes((good / "initial.safetensors").read_bytes())
    changed_json(tmp_path, times=[1.0, 0.5, 0.0])
    with pytest.raises(errors.SavedRunError, match="not that of a flow"):
        mf.flows.load_flow(tmp_path)


def test_places_that_are_no_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.SavedRunError, match=r"file, in which there is no problem\.json"):
        mf.flows.load_flow(tmp_path / "file")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(errors.OutputError, match="need a folder that can be written to"):
            mf.flow(head(), cloud(), [0.0, 1.0], save=place)
    for empty in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(errors.SavedRunError, match=r"no problem\.json"):
            mf.flows.load_flow(empty)


def test_a_traced_flow_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(errors.TracedError, match="flow with save"):
        jax.jit(lambda mu: mf.flow(head(), mu, [0.0, 1.0], save=tmp_path).points)(cloud())


# ---- fingerprints and progress ----------------------------------------------------------------------------------


def attraction(strength: float, power: Any = 1) -> Any:
    return mf.flows.Interaction(lambda x, y: strength * (y - x) ** power)


def test_functions_count_with_their_code_and_what_they_close_over() -> None:
    assert fingerprint(attraction(1.0)) == fingerprint(attraction(1.0))
    others = [
        attraction(2.0),
        attraction(1.0, 3),
        attraction(1.0, np.ones(2)),
        mf.flows.Interaction(lambda x, y: y - x),
        mf.flows.Interaction(lambda x, y: x - y),
        mf.flows.Interaction(jnp.add),
        mf.flows.Interaction(jnp.subtract),
    ]
    assert len({fingerprint(v) for v in [attraction(1.0), *others]}) == len(others) + 1


def test_functions_count_with_the_numbers_and_functions_that_they_name() -> None:
    def kernel(scale: float, sign: str) -> Any:
        scope: dict[str, Any] = {"SCALE": scale, "__name__": "planted"}
        exec(f"def inner(x): return {sign}x\ndef kernel(x, y): return SCALE * inner(y - x)", scope)
        return mf.flows.Interaction(scope["kernel"])

    prints = [fingerprint(kernel(*given)) for given in ((1.0, "+"), (1.0, "+"), (2.0, "+"), (1.0, "-"))]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    class Kernel:
        def __call__(self, x: Any, y: Any) -> Any:
            return y - x

    with pytest.raises(errors.OptionError, match="a velocity with a Kernel"):
        mf.flow(mf.flows.Interaction(Kernel()), cloud(), [0.0, 1.0], save=tmp_path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_run_on_a_terminal_shows_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for quiet, shown in ((3600.0, False), (0.0, True)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(progress, "QUIET", quiet)
        mf.flow(head(), cloud(), TIMES, save=tmp_path / str(quiet))
        assert ("t = 1 of 1" in terminal.getvalue()) == shown


def test_elsewhere_nothing_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.0)
    mf.flow(head(), cloud(), TIMES, save=tmp_path)
    assert tuple(capfd.readouterr()) == ("", "")
