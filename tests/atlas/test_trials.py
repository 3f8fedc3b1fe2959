"""How often a claim passes: fresh seeds, what counts as a failure, and trials that survive interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from measureformer.atlas import run as atlas_run
from measureformer.atlas.atlas import Atlas
from measureformer.atlas.registry import check, select
from measureformer.atlas.report import write_report
from measureformer.atlas.result import Result
from measureformer.atlas.run import Settings, run_atlas
from measureformer.cli.app import app
from measureformer.errors import OptionError, ResultFormatError
from planting import claim_source, plant, runs

# the claim fails on 1001 and raises on 1003; its control is not rejected on 1002
CLAIM = """
        import jax
        seed = int(jax.random.key_data(key)[1])
        if seed == 1003:
            raise ValueError("the matrix is singular")
        return Outcome((Check("difference", 2.0 if seed == 1001 else 0.25, high=1.0, rejected_by="false"),))
"""
CONTROL = """
        import jax
        seed = int(jax.random.key_data(key)[1])
        return Outcome((Check("difference", 0.5 if seed == 1002 else 2.0, high=1.0),))
"""
NAME = "castin-2025-a"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return plant(tmp_path, monkeypatch, {"chapter/a.py": claim_source(NAME, CLAIM, CONTROL)})


@pytest.mark.usefixtures("package")
def test_a_seed_counts_if_the_claim_holds_and_its_controls_are_rejected() -> None:
    # kills: only the verdict of the claim counted, a raised error left out of the count, the first seed counted twice
    result = check(NAME, seeds=6)
    assert result.passes
    assert [trial.seed for trial in result.trials if trial.passes] == [1000, 1004, 1005]
    bad = {trial.seed: trial for trial in result.trials if not trial.passes}
    assert bad[1001].failed == ("difference",)
    assert bad[1002].unrejected == (("difference", "false"),)
    assert "the matrix is singular" in bad[1003].raised
    expected = binomtest(3, 6).proportion_ci(method="wilson")
    assert result.rate == pytest.approx((0.5, expected.low, expected.high))
    assert check(NAME).rate is None
    again = Result.from_json(result.to_json())
    assert again == result
    with pytest.raises(ResultFormatError, match="does not follow"):
        Result.from_json(json.dumps({**result.entries(), "rate": [1.0, 0.6, 1.0]}))


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("seeds", [-1, True, 1.0, 10**9])
def test_bad_numbers_of_seeds_are_refused(seeds: int) -> None:
    with pytest.raises(OptionError, match="seeds"):
        check(NAME, seeds=seeds)


@pytest.mark.usefixtures("package")
def test_the_command_and_the_page_say_how_often(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["check", NAME, "--seeds", "4", "--jobs", "1"])
    # the seed itself passes, a quarter of the fresh ones does
    assert ran.exit_code == 1
    assert "fresh seeds that pass: 1 of 4 (95 % interval 0.046 to 0.7)" in ran.stdout
    assert "seed 1002: difference is not rejected by false" in ran.stdout
    assert CliRunner().invoke(app, ["check", NAME, "--seeds", "1", "--jobs", "1"]).exit_code == 0
    result = check(NAME, seeds=4)
    page = write_report([result], tmp_path / "atlas").read_text(encoding="utf-8")
    card = (tmp_path / "atlas" / "chapter-chapter.html").read_text(encoding="utf-8")
    assert "1 of 4 (95 % interval 0.046 to 0.7)" in page
    assert "seed 1001: difference does not hold" in card
    assert Atlas.from_json((tmp_path / "atlas" / "atlas.json").read_text(encoding="utf-8")).results == (result,)


def test_trials_are_kept_one_by_one(tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: trials written at the end only, all of them run again, or run for claims that take long
    settings = Settings(tmp_path / "atlas", seeds=2)
    tried, left = atlas_run.tried, [1]

    def interrupted(*args: object) -> Result:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return tried(*args)  # type: ignore[arg-type]

    def measured() -> int:
        return runs(tmp_path, package, "chapter/castin_2025_a")

    monkeypatch.setattr(atlas_run, "tried", interrupted)
    assert run_atlas(select([]), settings, lambda event: None).left == (NAME,)
    assert measured() == 2
    monkeypatch.setattr(atlas_run, "tried", tried)
    done = run_atlas(select([]), settings, lambda event: None)
    assert (measured(), len(done.results[0].trials)) == (3, 2)
    assert [trial.seed for trial in done.results[0].trials] == [1000, 1001]
    before = measured()
    assert run_atlas(select([]), settings, lambda event: None) == done
    path = tmp_path / "atlas" / "results" / f"{NAME}.json"
    path.write_text(replace(done.results[0], trials=(), seconds=25.0).to_json(), encoding="utf-8")
    assert run_atlas(select([]), settings, lambda event: None).results[0].trials == ()
    assert measured() == before
