"""Damaged files, and paths that are no files: whatever reads them refuses with a sentence, soon and without memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuzzing
from fuzzing import LOADERS, Bench, Loader
from launching import environment

# three thousand; the loaders that compile something are left to the benchmark
CASES = {
    "safetensors": 500,
    "GGUF": 150,
    "tokenizer in GGUF": 150,
    "weights in shards": 250,
    "tokenizer of words": 250,
    "tokenizer of byte pairs": 250,
    "result": 400,
    "atlas": 300,
    "survey": 300,
    "parts of a run": 250,
    "pictures": 80,
    "model, gpt2": 60,
    "model, llama3": 60,
}
# what was found once: damage that ended in a panic, in a bare exception, or in numbers that nobody wrote
FOUND = {
    "tokenizer of byte pairs": [485, 2082],
    "tokenizer of words": [630],
    "tokenizer in GGUF": [1331, 2873, 3744],
    "survey": [111, 187],
}


@pytest.mark.parametrize("name", CASES)
def test_damaged_files_are_refused_or_read(name: str, tmp_path: Path) -> None:
    bench = Bench(name, tmp_path / "files")
    ends = {seed: bench.case(seed) for seed in [*range(CASES[name]), *FOUND.get(name, [])]}
    assert [(seed, end) for seed, end in ends.items() if end.startswith("fault")] == []
    # kills: damage that is none, and a loader that refuses everything
    assert Counter(ends.values()).keys() == {"refused", "accepted"}


def test_the_sample_has_three_thousand_cases() -> None:
    assert sum(CASES.values()) == 3000
    assert set(FOUND) <= set(CASES) <= set(LOADERS)


def raises(folder: Path) -> Any:
    return [][int((folder / "x").stat().st_size)]


def panics(folder: Path) -> Any:
    raise type("PanicException", (BaseException,), {})("range end index 5 out of range")


def works(folder: Path) -> Any:
    while True:
        sum(range(10**6))
        if fuzzing.time.process_time() > works.until:  # pyright: ignore[reportFunctionMemberAccess]
            return None


@pytest.mark.parametrize(
    ("load", "end"),
    [
        (raises, "fault: IndexError"),
        (panics, "fault: PanicException: range end"),
        (lambda folder: np.array([1.0, np.nan]), "fault: a silent NaN"),
        (lambda folder: np.ones(100 << 20, np.uint8).sum(), r"fault: (9\d|1[01]\d) MB of memory"),
        (works, r"fault: \d\.\d s"),
        (lambda folder: None, "accepted"),
    ],
    ids=["raw exception", "panic", "NaN", "memory", "time", "good"],
)
def test_what_ends_badly_is_a_fault(
    load: Callable[[Path], Any], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "MB" in end and fuzzing._reset_peak() > 1 << 60:
        pytest.skip("peak memory can be reset and read on Linux only")
    good = Loader(lambda folder: fuzzing._put(folder / "x", b"1"), lambda folder: None)
    monkeypatch.setitem(LOADERS, "mine", good)
    bench = Bench("mine", tmp_path / "files")
    if load is works:
        monkeypatch.setattr(fuzzing, "SECONDS", 0.1)
    bench.loader = good._replace(load=load)
    works.until = fuzzing.time.process_time() + fuzzing.SECONDS  # pyright: ignore[reportFunctionMemberAccess]
    assert re.match(end, bench.outcome())


def test_what_is_read_must_be_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: a comparison that passes whatever is read, and seals that are not compared
    load = lambda folder: np.frombuffer((folder / "x").read_bytes(), np.uint8)  # noqa: E731
    monkeypatch.setitem(
        LOADERS, "mine", Loader(lambda folder: fuzzing._put(folder / "x", b"12345678"), load, same=True)
    )
    bench = Bench("mine", tmp_path / "files")
    assert {bench.case(seed) for seed in range(20)} >= {"fault: other numbers"}


PATHS = """
import os, sys
from pathlib import Path
import measureformer as mf
from measureformer.atlas.atlas import read_atlas
from measureformer.errors import MeasureformerError
from measureformer.memory.images import read_images
from measureformer.storage.safetensors import to_safetensors

here = Path(sys.argv[1])
names = ["config.json", "model.json", "problem.json", "model.safetensors", "tokenizer.json", "atlas.json"]
for kind in ("pipe", "zero", "folder"):
    (here / kind).mkdir()
    for name in names:
        file = here / kind / name
        os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero") if kind == "zero" else file.mkdir()
for end in (".safetensors", ".gguf", ".png", ".txt"):
    os.mkfifo(here / f"pipe{end}")
    (here / f"zero{end}").symlink_to("/dev/zero")
(here / "loop").symlink_to("loop")
paths = ["x" * 5000, "a/" * 3000, "x" * 300, "nul\\0in", "nul\\0.gguf", chr(0xD800), "/dev/null"]
paths += sorted(here.iterdir())
growth, mu = mf.Linear([[1.0]]), mf.Discrete.dirac([1.0])
loaders = {
    "lens": mf.lens.load, "flow": mf.flows.load_flow, "learner": mf.incontext.load_learner, "text": mf.text.load_text,
    "compiled": mf.universality.load_compiled, "pictures": read_images, "words": mf.text.read_text,
    "atlas": lambda path: read_atlas(Path(path)),
}
for name, load in loaders.items():
    for path in paths:
        try:
            load(path)
        except MeasureformerError:
            continue
        raise SystemExit(f"{name} accepts {path}")
for path in paths[:6]:
    try:
        mf.flow(growth, mu, [0.0, 1.0], save=path)
    except MeasureformerError:
        continue
    raise SystemExit(f"save accepts {path}")
print(len(paths), "refused by", len(loaders))
"""


def test_pipes_devices_and_impossible_names_are_refused(tmp_path: Path) -> None:
    # in a process of its own: whoever opens a pipe would wait for ever, and cannot be interrupted
    command = [sys.executable, "-c", PATHS, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "19 refused by 8\n", done.stderr[-2000:]
