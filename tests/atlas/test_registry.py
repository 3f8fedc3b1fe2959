"""Claims are found by walking folders, run with their controls, and refused when they break a rule."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import jax
import pytest

import measureformer as mf
from measureformer.atlas.errors import ClaimDefinitionError, ClaimRunError, UnknownClaimError
from measureformer.atlas.registry import check, claims, find, fingerprint_of, load, select, versions
from measureformer.cli.completion import claim_names
from measureformer.errors import MeasureformerError, OptionError
from planting import FAILS, HOLDS, RAISES, RANDOM, UNSURE, claim_source, plant

TREE = {
    "second/zeta.py": claim_source("castin-2025-zeta"),
    "second/alpha.py": claim_source("castin-2025-alpha"),
    "first/mu.py": claim_source("furuya-2024-mu"),
    "loose.py": "raise RuntimeError('modules beside the chapters are not claims')",
}


def test_the_index_finds_every_claim_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = plant(tmp_path, monkeypatch, TREE)
    found = select([])
    assert [(listed.chapter, listed.name) for listed in found] == [
        ("first", "furuya-2024-mu"),
        ("second", "castin-2025-alpha"),
        ("second", "castin-2025-zeta"),
    ]
    assert found[0].chapter_title == "The chapter first"
    assert found[0].module == f"{package}.first.furuya_2024_mu"
    assert (found[0].title, found[0].hypotheses) == ("A planted claim", ("x is real",))
    assert claims() == {listed.name: "A planted claim" for listed in found}


def test_listing_imports_no_claim_and_checking_imports_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # kills: an index that imports, and a check that imports all claims
    package = plant(tmp_path, monkeypatch, TREE)
    claims()
    assert not [name for name in sys.modules if name.startswith(f"{package}.")]
    check("castin-2025-zeta")
    assert [name for name in sys.modules if name.startswith(f"{package}.")] == [
        f"{package}.second",
        f"{package}.second.castin_2025_zeta",
    ]


def test_a_shell_is_offered_every_claim() -> None:
    assert claim_names("") == sorted(claims())
    assert set(claim_names("castin")) == {name for name in claims() if name.startswith("castin")}


def test_public_functions_are_those_of_the_registry() -> None:
    assert mf.claims is claims
    assert mf.check is check


BROKEN = {
    "no claim": ({"first/mu.py": "mu = 3"}, "without a claim"),
    "not a call": ({"first/mu.py": "claim = 3"}, "without a claim"),
    "no Python": ({"first/mu.py": "claim ="}, "which is not Python"),
    "no title": ({"first/mu.py": claim_source("castin-2025-mu"), "first/__init__.py": ""}, "without a docstring"),
    "computed statement": (
        {"first/mu.py": claim_source("castin-2025-mu").replace('"Every x is small."', "str(3)")},
        "no literal statement",
    ),
    "no kind": (
        {"first/mu.py": claim_source("castin-2025-mu").replace("kind='theorem', ", "")},
        "no literal kind",
    ),
    "unknown kind": ({"first/mu.py": claim_source("castin-2025-mu", kind="folklore")}, "of the kind 'folklore'"),
    "cannot be imported": ({"first/mu.py": claim_source("castin-2025-mu", imports="import none")}, "ModuleNotFound"),
    "duplicate name": (
        {"first/mu.py": claim_source("castin-2025-mu"), "second/nu.py": claim_source("castin-2025-mu")},
        "the name castin-2025-mu in",
    ),
    "no control": (
        {"first/mu.py": claim_source("castin-2025-mu").replace('{"false": "x is large"}', "{}")},
        "with the controls []",
    ),
    "control called claim": (
        {"first/mu.py": claim_source("castin-2025-mu").replace('{"false"', '{"claim"')},
        "with the controls ['claim']",
    ),
    "infinite configuration": (
        {"first/mu.py": claim_source("castin-2025-mu").replace("Config(10 * 1)", "Config(float('inf'))")},
        "size = inf in the full configuration",
    ),
    "configuration of arrays": (
        {"first/mu.py": claim_source("castin-2025-mu").replace("Config(1)", "Config((1, 2))")},
        "size = (1, 2) in the quick configuration",
    ),
}
BAD_NAMES = ["", "mu", "Castin-2025-mu", "castin-2025", "castin2025-mu", "castin-25-mu", "castin-2025-mu_1"]
BAD_NAMES += ["../castin-2025-mu", "castin-2025-mu/..", "castin-2025-mu\n", "castin-2025-µ", "a-2025-" + "b" * 100]
BROKEN |= {f"name {name!r}": ({"first/mu.py": claim_source(name)}, f"a claim called {name!r}") for name in BAD_NAMES}


@pytest.mark.parametrize(("tree", "got"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_rules_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: dict[str, str], got: str
) -> None:
    plant(tmp_path, monkeypatch, tree)
    with pytest.raises(ClaimDefinitionError) as refusal:
        _ = [load(listed) for listed in select([])]
    assert got in refusal.value.got


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("castin-2025-zetta", "castin-2025-zeta"),
        ("zeta", "castin-2025-zeta"),
        ("furuya-2042-mu", "furuya-2024-mu"),
        ("", "measureformer claims"),
        ("../../etc/passwd", "measureformer claims"),
    ],
)
def test_unknown_names_are_refused_with_near_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    plant(tmp_path, monkeypatch, TREE)
    with pytest.raises(UnknownClaimError) as refusal:
        check(name)
    assert near in refusal.value.do
    assert repr(name) in refusal.value.got


def test_selection_by_name_glob_and_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, TREE)

    def names(*patterns: str) -> list[str]:
        return [entry.name for entry in select(patterns)]

    assert names() == ["furuya-2024-mu", "castin-2025-alpha", "castin-2025-zeta"]
    assert names("castin-2025-zeta") == ["castin-2025-zeta"]
    assert names("*-mu", "castin-2025-zeta") == ["furuya-2024-mu", "castin-2025-zeta"]
    assert names("second") == ["castin-2025-alpha", "castin-2025-zeta"]
    # each pattern must name something, also when another one does
    with pytest.raises(UnknownClaimError, match=r"'secnd'.*second"):
        names("*-mu", "secnd")


@pytest.mark.parametrize(
    ("run", "control", "verdict", "passes"),
    [
        (HOLDS, FAILS, "holds", True),
        (HOLDS, HOLDS, "holds", False),
        (HOLDS, UNSURE, "holds", False),
        (FAILS, FAILS, "violated", False),
        (UNSURE, FAILS, "inconclusive", False),
    ],
)
def test_check_reports_claim_and_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, control: str, verdict: str, passes: bool
) -> None:
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", run, control)})
    result = check("castin-2025-mu")
    assert (result.verdict, result.passes) == (verdict, passes)


def test_a_check_that_names_an_unknown_control_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = HOLDS.replace('"false"', '"flase"')
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", body)})
    with pytest.raises(ClaimDefinitionError, match="flase"):
        check("castin-2025-mu")


def test_result_says_all_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu")})
    result = check("castin-2025-mu", seed=7, preset="full")
    assert result.command == "measureformer check castin-2025-mu --seed 7 --full"
    assert (result.seed, result.preset, result.config) == (7, "full", {"size": 10})
    assert (result.chapter, result.chapter_title) == ("first", "The chapter first")
    assert result.citation.startswith("Castin, Ablin, Carrillo, Peyré (2025).")
    assert result.citation.endswith("Section 3.")
    assert result.versions == versions()
    assert set(versions()) == {"measureformer", "jax", "numpy", "python"}
    assert versions()["jax"] == jax.__version__
    assert 0 <= result.seconds < 60
    assert len(result.fingerprint) == 64


def test_seed_and_preset_reach_the_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", RANDOM, RANDOM)})
    result = check("castin-2025-mu", seed=5, preset="full")
    expected = 10 * float(jax.random.normal(jax.random.key(5)))
    assert result.run.checks[0].value == expected
    # the control sees the same randomness, so that it differs by its falsehood only
    assert result.controls[0].outcome.checks[0].value == expected
    assert check("castin-2025-mu", seed=6, preset="full").run.checks[0].value != expected


FAULTS = {
    "raises": (RAISES, FAILS, ["ValueError in the measurement", "the matrix is singular"]),
    "control raises": (HOLDS, RAISES, ["ValueError in the control 'false'", "the matrix is singular"]),
    "no outcome": ("return 3", FAILS, ["int from the measurement"]),
    "array for a number": (
        "import numpy; return Outcome((Check('x', numpy.zeros(2), high=1.0),))",
        FAILS,
        ["in the measurement", "TypeError"],
    ),
}


@pytest.mark.parametrize(("run", "control", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_fault_in_a_measurement_surfaces_under_the_name_of_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, control: str, words: list[str]
) -> None:
    package = plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", run, control)})
    with pytest.raises(ClaimRunError) as fault:
        check("castin-2025-mu")
    for word in ["castin-2025-mu", *words]:
        assert word in fault.value.got
    assert f"{package}.first.castin_2025_mu" in fault.value.do


def test_source_that_changes_during_the_run_does_not_lend_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = f'Path(__file__).write_text(Path(__file__).read_text() + "# edited"); {HOLDS}'
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", edit)})
    entry = find("castin-2025-mu")
    before = fingerprint_of(entry, seed=0, preset="quick")
    assert check("castin-2025-mu").fingerprint == before
    assert fingerprint_of(entry, seed=0, preset="quick") != before


def test_fault_keeps_the_traceback_of_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, {"first/mu.py": claim_source("castin-2025-mu", RAISES)})
    with pytest.raises(ClaimRunError) as fault:
        check("castin-2025-mu")
    assert isinstance(fault.value.__cause__, ValueError)
    assert "castin_2025_mu.py" in "".join(traceback.format_exception(fault.value.__cause__))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True, "0"])
def test_bad_seeds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plant(tmp_path, monkeypatch, TREE)
    with pytest.raises(OptionError, match="seed"):
        check("castin-2025-zeta", seed=seed)


def test_bad_presets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, TREE)
    with pytest.raises(OptionError, match="'slow'"):
        check("castin-2025-zeta", preset="slow")  # type: ignore[arg-type]


def test_find_returns_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = plant(tmp_path, monkeypatch, TREE)
    assert find("furuya-2024-mu").module == f"{package}.first.furuya_2024_mu"


def test_unknown_claim_is_also_a_key_error() -> None:
    with pytest.raises(KeyError) as refusal:
        mf.check("castin-2042-no-such-claim")
    assert isinstance(refusal.value, MeasureformerError)
