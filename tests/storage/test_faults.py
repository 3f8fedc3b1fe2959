"""Full disks, read-only folders, signals, odd environments: nothing finished is lost, and what is wrong is said."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest

import measureformer as mf
from killing import Ended, difference
from launching import PATIENCE, environment
from measureformer.errors import OutputError

FIELD = mf.Linear([[0.0, 1.0], [-1.0, 0.0]])
CLOUD = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(400, 2)))
TIMES = [0.0, 0.5, 1.0]


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file may grow beyond this: what a write to a full disk does, by the system itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who owns nothing: root may write everywhere."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_a_full_disk_is_said_and_the_run_is_resumed_when_there_is_room(tmp_path: Path) -> None:
    whole = mf.flow(FIELD, CLOUD, TIMES).points
    # the description fits, the points do not
    with disk_of(3000), pytest.raises(OutputError, match=r"File too large.*Choose another folder, or make room"):
        mf.flow(FIELD, CLOUD, TIMES, save=tmp_path)
    # kills: a temporary file that stays, and half a file under the name of a whole one
    assert [path.name for path in tmp_path.iterdir()] == ["problem.json"]
    resumed = mf.flow(FIELD, CLOUD, TIMES, save=tmp_path).points
    np.testing.assert_allclose(resumed, whole, atol=1e-12)
    np.testing.assert_array_equal(mf.flow(FIELD, CLOUD, TIMES, save=tmp_path).points, resumed)


@pytest.mark.parametrize("name", ["new", "."])
def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # everything is loaded and compiled while it can be, and the folders above need not be open to others
    mf.flow(FIELD, CLOUD, TIMES, save=tmp_path / "before")
    here = tmp_path / "here"
    here.mkdir()
    here.chmod(0o555)
    monkeypatch.chdir(here)
    with without_rights(), pytest.raises(OutputError, match=r"Permission denied.*need a folder that can be written"):
        mf.flow(FIELD, CLOUD, TIMES, save=name)
    assert list(here.iterdir()) == []


ENDED = """
import json, os, signal, sys
import jax
import measureformer as mf
from measureformer.storage.folder import RunFolder

part, made = RunFolder.part, []

def then_end(self, name, make):
    found = part(self, name, make)
    made.append(name)
    if len(made) == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return found

RunFolder.part = then_end
model = mf.lens.untrained(jax.random.key(0), dim=8, depth=4, heads=2, vocabulary=16)
mf.lens.diagnose(model, list(range(10)), lipschitz=False, sweeps=False, save=sys.argv[1])
"""


def test_a_lens_report_that_was_ended_by_sigterm_is_resumed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDED, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGTERM, done.stderr
    finished = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("layer-*.json")}
    assert len(finished) == 3
    options = {"lipschitz": False, "sweeps": False}
    model = mf.lens.untrained(jax.random.key(0), dim=8, depth=4, heads=2, vocabulary=16)
    given = list(range(10))
    resumed = mf.lens.diagnose(model, given, **options, save=tmp_path / "run")
    # kills: finished layers that are measured again, and a lock that outlives its process
    assert finished.items() <= {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}.items()
    assert not list((tmp_path / "run").glob(".*"))
    assert resumed.layers == mf.lens.diagnose(model, given, **options).layers


ODD = """
import sys
from pathlib import Path
import measureformer as mf

assert False, "-O leaves this out"
folder = Path(sys.argv[1])
mu = mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.0]])
one = mf.flow(mf.Linear([[0.0, 1.0], [-1.0, 0.0]]), mu, [0.0, 1.0], save=folder)
two = mf.flows.load_flow(folder)
print(one.points.dtype, (one.points == two.points).all())
words = folder / "wörter.txt"
words.write_bytes("grün\\n".encode())
print(mf.text.read_text(words).strip())
try:
    mf.flow(mf.Linear([[1.0]]), mu, [0.0, 1.0])
except mf.MeasureformerError as refusal:
    print(type(refusal).__name__)
"""


def test_odd_environments_change_nothing(tmp_path: Path) -> None:
    # no HOME, the C locale, -O, X64 off, and a folder whose name has about everything that a name may have
    odd = tmp_path / 'it\'s a $HOME; "naïve"\n[x]* 語 -rf'
    gone = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "XDG_CACHE_HOME", "JAX_ENABLE_X64", "PYTHONUTF8", "PYTHONIOENCODING")
    given = {name: value for name, value in environment().items() if name not in gone}
    given |= {"LC_ALL": "C", "JAX_ENABLE_X64": "0"}
    command = [sys.executable, "-O", "-c", ODD, str(odd)]
    done = subprocess.run(command, env=given, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == ["float32 True", "grün", "DimensionMismatchError"]
    assert json.loads((odd / "problem.json").read_text())["kind"] == "Discrete"


def test_what_was_saved_is_not_computed_again() -> None:
    truth = Ended([1.0, 2.0], 10, 1.0)
    assert difference(Ended([1.0, 2.0], 6, 1.0), truth, 4) == ""
    assert difference(Ended([1.0, 2.5], 6, 1.0), truth, 4) == "fault: other numbers"
    for count in (5, 7, 10):
        assert "4 of 10 were saved" in difference(Ended([1.0, 2.0], count, 1.0), truth, 4)
