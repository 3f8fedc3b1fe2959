"""Two atlases compared: what got worse decides the exit code; what is no atlas is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from measureformer.atlas.atlas import Atlas, Missing
from measureformer.atlas.report.diff import compare
from measureformer.atlas.result import Check, Outcome
from measureformer.cli.app import app
from planting import a_control, a_result

FAR, NEAR = (
    Outcome((Check("x", 0.1, high=1.0, rejected_by="false"),)),
    Outcome((Check("x", 0.8, high=1.0, rejected_by="false"),)),
)
BAD, UNSURE = (
    Outcome((Check("x", 2.0, high=1.0, rejected_by="false"),)),
    Outcome((Check("x", 1.0, high=1.0, error=0.5, rejected_by="false"),)),
)


def atlas(missing: tuple[Missing, ...] = (), **outcomes: Outcome) -> Atlas:
    return Atlas.of(
        [a_result(f"castin-2025-{name}", run=run, controls=a_control(BAD)) for name, run in outcomes.items()], missing
    )


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        (FAR, BAD, "worse"),
        (FAR, UNSURE, "worse"),
        (UNSURE, BAD, "worse"),
        (BAD, FAR, "better"),
        (BAD, UNSURE, "better"),
    ],
)
def test_directions(old: Outcome, new: Outcome, direction: str) -> None:
    found = compare(atlas(a=old, b=FAR), atlas(a=new, b=FAR))
    assert [(change.claim, change.direction) for change in found.verdicts] == [("castin-2025-a", direction)]
    assert found.worse == (direction == "worse")
    assert found.margins == found.added == found.removed == ()


def test_claims_that_raise_got_worse_and_those_that_were_not_run_did_not() -> None:
    lost = compare(atlas(a=FAR), atlas((Missing("castin-2025-a", "raised", "ValueError"),)))
    assert lost.worse
    idle = compare(atlas(a=FAR), atlas((Missing("castin-2025-a", "not run", "No weights."),)))
    assert not idle.worse
    assert [change.direction for change in idle.verdicts] == ["changed"]


def test_a_control_that_passes_got_worse() -> None:
    blind = Atlas.of([a_result("castin-2025-a", run=FAR, controls=a_control(FAR))])
    assert compare(atlas(a=FAR), blind).worse


def test_margins_claims_and_versions() -> None:
    new = atlas(a=NEAR, c=FAR)
    new = Atlas.of([replace(result, versions={"jax": "9"}, seed=4) for result in new.results])
    found = compare(atlas(a=FAR, b=FAR), new)
    assert [(change.claim, round(change.new_margin - change.old_margin, 3)) for change in found.margins] == [
        ("castin-2025-a", -0.7)
    ]
    assert (found.added, found.removed) == (("castin-2025-c",), ("castin-2025-b",))
    assert ("jax", "0.0", "9") in found.settings
    assert ("seed", "3", "4") in found.settings
    assert not compare(atlas(a=FAR), atlas(a=NEAR), moved=0.71).margins
    same = compare(atlas(a=FAR), atlas(a=FAR), moved=0.0)
    assert same.verdicts + same.margins + same.settings == ()


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diff", *arguments], prog_name="measureformer", catch_exceptions=False)


def write(path: Path, what: Atlas) -> str:
    path.write_text(what.to_json(), encoding="utf-8")
    return str(path)


def test_command_prints_what_changed_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.json", atlas(a=FAR, b=FAR)), write(tmp_path / "bad.json", atlas(a=BAD, b=NEAR))
    worse = command(good, bad)
    assert worse.exit_code == 1
    assert worse.stdout.splitlines()[0].split()[:2] == ["worse", "castin-2025-a"]
    assert worse.stdout.splitlines()[-1] == "1 worse, 1 margins moved."
    assert command(bad, good).exit_code == 0
    same = command(good, good)
    assert (same.exit_code, same.stdout) == (0, "No verdict changed, and no margin moved.\n")
    # the folder of an atlas will do
    (tmp_path / "atlas.json").write_text(atlas(a=FAR, b=FAR).to_json(), encoding="utf-8")
    assert command(str(tmp_path), bad).exit_code == 1


def test_hostile_strings_reach_the_terminal_clean(tmp_path: Path) -> None:
    hostile = "\x1b[31mred\x1b[0m [bold]x[/bold] \u202e"
    old = atlas(a=FAR)
    new = Atlas.of([replace(result, versions={hostile: hostile}, preset=hostile) for result in old.results])
    done = command(write(tmp_path / "old.json", old), write(tmp_path / "new.json", new))
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "[bold]x[/bold]" in done.stdout


def _damaged(change: dict[str, object]) -> str:
    return json.dumps(json.loads(atlas(a=FAR).to_json()) | change)


DAMAGED = {
    "not JSON": ("{", "not JSON"),
    "nested": ("[" * 100_000, "not JSON"),
    "a list": ("[]", "another kind"),
    "a result": (a_result().to_json(), "another kind"),
    "of the future": (_damaged({"schema": 99}), "schema version '99'"),
    "without results": (_damaged({"results": None}), "results that are no list"),
    "result without survey": (_damaged({"survey": {"chapters": [], "notes": []}}), "damaged"),
    "two of a kind": (_damaged({"results": [json.loads(a_result("castin-2025-a").to_json())] * 2}), "two results"),
    "an odd gap": (_damaged({"missing": [{"claim": "../x", "kind": "raised", "why": ""}]}), "damaged"),
    "a false verdict": (
        _damaged({"results": [json.loads(a_result("castin-2025-a").to_json()) | {"verdict": "violated"}]}),
        "does not follow",
    ),
}


@pytest.mark.parametrize(("text", "words"), DAMAGED.values(), ids=DAMAGED.keys())
def test_files_that_are_no_atlas_are_refused(tmp_path: Path, text: str, words: str) -> None:
    good = write(tmp_path / "good.json", atlas(a=FAR))
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    done = command(good, str(tmp_path / "bad.json"))
    assert done.exit_code == 2
    assert done.stderr.startswith("measureformer: got ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_that_are_not_there_or_no_text_are_refused(tmp_path: Path) -> None:
    good = write(tmp_path / "good.json", atlas(a=FAR))
    assert command(good, str(tmp_path / "none.json")).exit_code == 2
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    assert "not text" in command(good, str(tmp_path / "bytes.json")).stderr
    assert command(good, good, "--moved", "-1").exit_code == 2
