"""The commands: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner, Result

import measureformer as mf
from measureformer.atlas import index
from measureformer.atlas.registry import select
from measureformer.atlas.result import Result as AtlasResult
from measureformer.atlas.run import Event, Failure, NotRun
from measureformer.atlas.survey import survey
from measureformer.cli import atlas as commands
from measureformer.cli.app import app
from measureformer.cli.output import aligned
from planting import FAILS, HOLDS, INTERRUPTS, RAISES, UNSURE, announce, claim_source, plant, runs

Command = Callable[..., Result]
FIGURE = HOLDS.removesuffix(")") + ', Figure("T", "x", "y", (Series("s", (0.0, 1.0), (0.0, 1.0), role="measured"),)))'
TREE = {
    "first/good.py": claim_source("castin-2025-good", FIGURE),
    "first/other.py": claim_source("castin-2025-other"),
    "second/bad.py": claim_source("furuya-2024-bad", FAILS),
    "second/blind.py": claim_source("furuya-2024-blind", HOLDS, HOLDS),
    "second/unsure.py": claim_source("furuya-2024-unsure", UNSURE),
    "third/broken.py": claim_source("kim-2021-broken", RAISES),
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with `TREE` as the claims."""
    announce(tmp_path, plant(tmp_path, monkeypatch, TREE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="measureformer", catch_exceptions=False)


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as its users start it."""
    kept = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "NO_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "measureformer", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=kept | environment,
        timeout=120,
    )


def test_without_arguments_it_says_what_to_type_next() -> None:
    done = command()
    assert done.exit_code == 0
    for words in ("a function of a measure and a point", "measureformer claims", "measureformer atlas --quick"):
        assert words in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option: str) -> None:
    done = command(option)
    assert done.exit_code == 0
    for word in ("claims", "check", "atlas", "launch", "explore", "version"):
        assert word in done.stdout


def test_unknown_commands_and_options_are_refused() -> None:
    assert command("atlsa").exit_code == 2
    assert command("check", "--no-such-option").exit_code == 2
    assert command("check").exit_code == 2


@pytest.mark.usefixtures("planted")
def test_claims_are_listed_one_per_line() -> None:
    done = command("claims")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    rows = [re.split(" {2,}", line) for line in lines]
    assert [row[:2] for row in rows][:3] == [
        ["castin-2025-good", "first"],
        ["castin-2025-other", "first"],
        ["furuya-2024-bad", "second"],
    ]
    assert rows[0][2:] == ["theorem", "A planted claim", "castin2025, Section 3"]
    # kills: lines with tabs, which align only where names are about as long
    assert len({line.index("A planted claim") for line in lines}) == 1


def test_columns_are_as_wide_as_what_people_see() -> None:
    # kills: counting characters where wide and combining ones take two places and none; folding at 80
    rows = [("β̂", "a" * 100, "1"), ("測度", "", "2"), ("one  two\n", "\x1b[31m", "3")]
    lines = aligned(rows)
    assert len({cell_len(line) for line in lines}) == 1
    assert [re.split(" {2,}", line) for line in lines] == [
        ["β̂", "a" * 100, "1"],
        ["測度", "–", "2"],
        ["one two", "\ufffd[31m", "3"],
    ]
    assert aligned([]) == []


@pytest.mark.usefixtures("planted")
def test_claims_as_json() -> None:
    entries = json.loads(command("claims", "--json").stdout)
    assert len(entries) == len(TREE)
    assert entries[0]["name"] == "castin-2025-good"
    assert entries[0]["statement"] == "Every x is small."


@pytest.mark.parametrize(
    ("names", "code", "word"),
    [
        (["castin-2025-good"], 0, "holds"),
        (["castin-2025-good", "castin-2025-other"], 0, "holds"),
        (["furuya-2024-bad"], 1, "violated"),
        (["furuya-2024-blind"], 1, "control not rejected"),
        (["furuya-2024-unsure"], 1, "inconclusive"),
        (["castin-2025-good", "furuya-2024-bad"], 1, "holds"),
    ],
)
@pytest.mark.usefixtures("planted")
def test_exit_code_of_check_tells_whether_all_pass(names: list[str], code: int, word: str) -> None:
    done = command("check", *names)
    assert done.exit_code == code
    assert done.stdout.startswith(f"{word}  {names[0]}")
    for name in names:
        assert f"measureformer check {name} --seed 0 --quick" in done.stdout


@pytest.mark.usefixtures("planted")
def test_check_says_what_was_measured() -> None:
    out = command("check", "castin-2025-other").stdout
    assert "difference: 0.25, claimed ≤ 1, margin 0.75" in out
    assert "control false: 2, rejected" in out
    assert "control false: x is large" in out
    assert "control false: 0.25, holds, should be rejected" in command("check", "furuya-2024-blind").stdout


@pytest.mark.usefixtures("planted")
def test_check_as_json_can_be_read_back() -> None:
    done = command("check", "castin-2025-good", "furuya-2024-bad", "--json", "--seed", "4", "--full")
    assert done.exit_code == 1
    results = [AtlasResult.from_json(json.dumps(entry)) for entry in json.loads(done.stdout)]
    assert [(r.claim, r.seed, r.preset, r.passes) for r in results] == [
        ("castin-2025-good", 4, "full", True),
        ("furuya-2024-bad", 4, "full", False),
    ]


@pytest.mark.usefixtures("planted")
def test_claim_that_raises_is_shown_with_its_traceback_and_the_others_run() -> None:
    done = command("check", "kim-2021-broken", "castin-2025-good")
    assert done.exit_code == 1
    assert "broken.py" in done.stderr
    assert "ValueError in the measurement of claim kim-2021-broken: the matrix is singular" in done.stderr
    assert done.stdout.startswith("holds  castin-2025-good")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "castin-2025-god"], "castin-2025-good"),
        (["check", "castin-2025-good", "nonsense"], "'nonsense'"),
        (["check", "castin-2025-good", "--seed", "-1"], "seed = -1"),
        (["atlas", "--only", "secnd"], "second"),
        (["atlas", "--only", "../../etc/passwd"], "measureformer claims"),
        (["atlas", "--jobs", "0"], "0 jobs"),
        (["atlas", "--quick", "--out", "file"], "--out"),
        (["atlas", "--backend", "dask"], "without a scheduler"),
        (["atlas", "--backend", "cloud"], "'cloud'"),
        (["atlas", "--scheduler", "tcp://127.0.0.1:1"], "processes"),
        (["diff", "file", "file"], "not JSON"),
    ],
)
def test_refusals_are_one_sentence_and_exit_code_2(planted: Path, arguments: list[str], words: str) -> None:
    (planted / "file").write_text("in the way")
    done = command(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("measureformer: got ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (planted / "atlas").exists()


def test_atlas_writes_a_page_and_says_where(planted: Path) -> None:
    done = command("atlas", "--quick", "--only", "first")
    assert done.exit_code == 0
    assert "[1/2] holds                 castin-2025-good" in done.stdout
    assert "2 of 2 claims pass." in done.stdout
    assert f"The page is {Path('atlas') / 'index.html'}" in done.stdout
    assert "Next: " in done.stdout
    made = sorted(str(path.relative_to(planted / "atlas")) for path in (planted / "atlas").rglob("*.*"))
    assert made == [
        "atlas.json",
        "chapter-first.html",
        "chapter-second.html",
        "chapter-third.html",
        "figures/castin-2025-good.pdf",
        "figures/castin-2025-good.svg",
        "index.html",
        "references.bib",
        "results/castin-2025-good.json",
        "results/castin-2025-other.json",
        "tables/castin-2025-good-checks.csv",
        "tables/castin-2025-good-figure.csv",
        "tables/castin-2025-other-checks.csv",
    ]
    assert " s left" in done.stdout


def test_the_page_is_there_early_and_grows(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: a page that is written at the end only, and one that shows claims that wait for their turn as failures
    seen: list[tuple[int, int, bool]] = []

    class Watched(commands._Page):
        PATIENCE, SHARE = 0.0, 0

        def write(self, *arguments: Any, **options: Any) -> Path:
            page = super().write(*arguments, **options)
            verdicts = list(_verdicts(planted).values())
            text = page.read_text(encoding="utf-8")
            seen.append((verdicts.count("holds"), verdicts.count("not-finished"), "Not passing" in text))
            return page

    monkeypatch.setattr(commands, "_Page", Watched)
    done = command("atlas", "--quick", "--only", "first")
    assert done.stdout.startswith(f"Open {Path('atlas') / 'index.html'} in a browser")
    assert seen == [(0, 2, False), (1, 1, False), (2, 0, False)]


def test_the_page_shows_at_once_what_raised_and_what_lacks_data(planted: Path) -> None:
    # kills: claims that are shown as not asked for until the others are finished
    entries = select([])
    page = commands._Page(planted / "atlas", entries, [], survey(entries))
    page.add(Event(Failure("kim-2021-broken", "the matrix is singular"), 1, len(entries)))
    page.next = 0.0
    page.add(Event(NotRun("castin-2025-good", "make weights"), 2, len(entries)))
    shown = {"castin-2025-good": "not-run", "kim-2021-broken": "raised"}
    assert _verdicts(planted) == dict.fromkeys(CLAIMS, "not-finished") | shown
    assert "needs make weights" in (planted / "atlas" / "chapter-first.html").read_text(encoding="utf-8")


def test_atlas_resumes(planted: Path) -> None:
    command("atlas", "--quick", "--only", "castin-2025-good", "--out", "here")
    done = command("atlas", "--quick", "--only", "castin-*", "--out", "here")
    assert "castin-2025-good  (reused)" in done.stdout
    (package,) = index.packages()
    assert runs(planted, package, "first/castin_2025_good") == 1
    assert runs(planted, package, "first/castin_2025_other") == 1
    command("atlas", "--quick", "--only", "castin-*", "--out", "here", "--fresh")
    assert runs(planted, package, "first/castin_2025_good") == 2


def test_page_keeps_what_was_not_asked_for(planted: Path) -> None:
    command("atlas", "--quick", "--only", "castin-2025-good")
    command("atlas", "--quick", "--only", "castin-2025-other")
    assert set(_verdicts(planted)) == set(CLAIMS)
    assert _verdicts(planted)["castin-2025-good"] == _verdicts(planted)["castin-2025-other"] == "holds"
    assert _verdicts(planted)["furuya-2024-bad"] == "not-run"
    # a result of another seed is not that of this atlas
    command("atlas", "--quick", "--only", "castin-2025-other", "--seed", "1")
    assert _verdicts(planted)["castin-2025-good"] == "not-run"


CLAIMS = ["castin-2025-good", "castin-2025-other", "furuya-2024-bad", "furuya-2024-blind", "furuya-2024-unsure"]
CLAIMS += ["kim-2021-broken"]


def _verdicts(folder: Path) -> dict[str, str]:
    """What the pages of an atlas say of each claim."""
    pages = (path.read_text(encoding="utf-8") for path in (folder / "atlas").glob("chapter-*.html"))
    return {name: kind for page in pages for name, kind in re.findall(r'<article id="([^"]+)" class="([^"]+)"', page)}


def test_atlas_with_trouble_ends_with_1_and_names_it(planted: Path) -> None:
    done = command("atlas", "--quick")
    assert done.exit_code == 1
    assert "2 of 6 claims pass." in done.stdout
    for words in (
        "violated              furuya-2024-bad",
        "control not rejected  furuya-2024-blind",
        "inconclusive          furuya-2024-u",
    ):
        assert words in done.stdout
    assert "raised" in done.stdout
    assert "the matrix is singular" in done.stderr
    assert list(_verdicts(planted).values()).count("holds") == 2
    assert _verdicts(planted)["kim-2021-broken"] == "raised"
    assert "the matrix is singular" in (planted / "atlas" / "index.html").read_text(encoding="utf-8")
    # stored verdicts count as much as new ones
    assert command("atlas", "--quick", "--only", "furuya-2024-bad").exit_code == 1


def test_interrupted_atlas_writes_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {
        "first/a.py": claim_source("castin-2025-a"),
        "first/b.py": claim_source("castin-2025-b", INTERRUPTS),
        "first/c.py": claim_source("castin-2025-c"),
    }
    plant(tmp_path, monkeypatch, tree)
    done = command("atlas", "--quick", "--out", str(tmp_path / "atlas"))
    assert done.exit_code == 130
    assert "left to run: castin-2025-b, castin-2025-c" in done.stderr
    names = ("castin-2025-a", "castin-2025-b", "castin-2025-c")
    assert _verdicts(tmp_path) == dict(zip(names, ("holds", "not-finished", "not-finished"), strict=True))
    checked = command("check", "castin-2025-b")
    assert checked.exit_code == 130
    assert checked.stderr.startswith("Interrupted")
    assert "Traceback" not in checked.stderr


def test_version_names_what_results_depend_on() -> None:
    done = command("version")
    assert done.exit_code == 0
    assert done.stdout.split()[:2] == ["measureformer", mf.__version__]
    assert {line.split()[0] for line in done.stdout.splitlines()} == {
        "measureformer",
        "python",
        "jax",
        "numpy",
        "machine",
    }


def test_program_prints_no_control_codes_into_a_pipe(planted: Path) -> None:
    chosen = [word for chapter in ("first", "second", "third") for word in ("--only", chapter)]
    done = program(
        "atlas", "--quick", *chosen, PYTHONPATH=os.pathsep.join([str(planted), *sys.path]), TERM="xterm-256color"
    )
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "2 of 6 claims pass." in done.stdout


def on_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """What the program writes to a terminal."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    path = os.pathsep.join([str(folder), *sys.path])
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "measureformer", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=kept | {"PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "100"} | environment,
    )
    os.close(follower)
    written = b""
    try:
        while part := os.read(leader, 4096):
            written += part
    except OSError:
        pass  # the other end was closed
    os.close(leader)
    child.wait(timeout=60)
    return written.decode()


def test_terminal_gets_colours_unless_it_wants_none(planted: Path) -> None:
    assert "\x1b[32mholds" in on_terminal(planted, "check", "castin-2025-good")
    assert "\x1b" not in on_terminal(planted, "check", "castin-2025-good", NO_COLOR="1")
    assert "\x1b" not in on_terminal(planted, "check", "castin-2025-good", TERM="dumb")


def test_terminal_gets_a_bar_with_the_time_left_and_a_table(planted: Path) -> None:
    shown = on_terminal(planted, "atlas", "--quick", "--only", "first")
    assert "2/2" in shown
    assert "left" in shown
    assert "castin-2025-good" in shown
    assert "\x1b[32m" not in on_terminal(planted, "atlas", "--quick", "--only", "first", NO_COLOR="1")
    table = on_terminal(planted, "claims")
    assert table.splitlines()[0].count("reference") == 1
    assert all(name in table for name in ("castin-2025-good", "kim-2021-broken"))


def test_program_survives_a_terminal_that_knows_few_characters(planted: Path) -> None:
    path = os.pathsep.join([str(planted), *sys.path])
    done = program("check", "castin-2025-other", PYTHONPATH=path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "claimed ? 1" in done.stdout


def test_program_ends_quietly_when_its_reader_leaves(planted: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(planted), *sys.path])}
    child = subprocess.Popen(
        [sys.executable, "-m", "measureformer", "claims", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    child.wait(timeout=60)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "line",
    [
        "import measureformer",
        "import measureformer.cli.app",
        "import measureformer as mf; mf.check, mf.cite('kim2021'), mf.claims, dir(mf)",
    ],
)
def test_light_imports_load_no_heavy_library(line: str) -> None:
    heavy = ("jax", "scipy", "matplotlib", "equinox", "joblib", "numpy")
    check = f"import sys; {line}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_help_and_introduction_load_no_heavy_library() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from measureformer.cli.app import app;"
        "[CliRunner().invoke(app, line) for line in (['--help'], [], ['atlas', '--help'], ['version'])];"
        "print([name for name in ('jax', 'scipy', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
