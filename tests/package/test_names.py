"""Names that the package does not have: what it says instead."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import subprocess
import sys

import pytest

import measureformer as mf
from measureformer.atlas.errors import UnknownClaimError, UnknownReferenceError
from measureformer.errors import OptionError
from measureformer.explore.catalogue import find


@pytest.mark.parametrize(
    ("home", "name", "near"),
    [
        ("measureformer", "wasserstien", "wasserstein"),
        ("measureformer", "Gausian", "Gaussian"),
        ("measureformer", "lipschitz", "local_lipschitz"),
        ("measureformer.incontext", "trainlearner", "train_learner"),
        ("measureformer.incontext", "tsaks", "tasks"),
        ("measureformer.clustering", "sphereenergy", "sphere_energy"),
        ("measureformer.lens", "diagnos", "diagnose"),
    ],
)
def test_misspelt_names_are_answered_with_the_nearest(home: str, name: str, near: str) -> None:
    # kills: a hint only where the folder was reached through the package, and not by another import before
    with pytest.raises(
        AttributeError, match=rf"'{home}' has no attribute '{name}'\. Did you mean .*\b{near}\b"
    ) as told:
        getattr(importlib.import_module(home), name)
    assert told.value.name == name


def test_what_is_near_nothing_is_told_where_the_names_are() -> None:
    with pytest.raises(AttributeError, match=r"'zzzz'\. dir\(measureformer\) lists what it has\.$"):
        mf.zzzz  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    # helpers are no answer
    with pytest.raises(AttributeError, match="lists what it has"):
        mf.importlb  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(mf, "__wrapped__")


@pytest.mark.parametrize(
    ("home", "misspelt", "internal"), [("incontext", "saevd", "saved"), ("flows", "schedlue", "schedule")]
)
def test_internal_modules_are_not_suggested(home: str, misspelt: str, internal: str) -> None:
    importlib.import_module(f"measureformer.{home}.{internal}")
    folder = importlib.import_module(f"measureformer.{home}")
    assert inspect.ismodule(getattr(folder, internal))
    with pytest.raises(AttributeError) as told:
        getattr(folder, misspelt)
    assert internal not in str(told.value)


def test_folders_list_their_public_names_and_no_others() -> None:
    names = dir(mf.incontext)
    assert {"train_learner", "tasks", "Task"} <= set(names)
    assert not {"train", "saved", "task", "TYPE_CHECKING", "_suggest_names"} & set(names)
    assert mf.incontext.__all__ == names
    assert dir(mf) == sorted(mf.__all__)


def test_help_begins_with_an_overview() -> None:
    text = inspect.getdoc(mf) or ""
    chapters = [name for name in dir(mf) if inspect.ismodule(getattr(mf, name))]
    assert len(chapters) > 10
    assert [name for name in chapters if name not in text.split()] == []
    assert "mf.flow(" in text
    assert "train_learner" in pydoc.render_doc(mf.incontext)


def test_python_does_not_ask_the_same_again() -> None:
    line = [sys.executable, "-c", "import measureformer as mf; mf.wasserstien"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.stderr.lower().count("did you mean") == 1


def test_claims_references_and_apps_are_answered_too() -> None:
    with pytest.raises(UnknownClaimError, match=r"Did you mean castin-2024-certificate\b"):
        mf.check("castin-2024-certficate")
    with pytest.raises(UnknownReferenceError, match="Did you mean castin2024"):
        mf.cite("castin204")
    with pytest.raises(OptionError, match=r"Did you mean particles\? Leave"):
        find("partcles")
