"""The fingerprint changes with what a claim depends on, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from measureformer.atlas.errors import ClaimDefinitionError
from measureformer.atlas.fingerprint import source_fingerprint, sources
from measureformer.atlas.registry import find, fingerprint_of, load, select
from planting import claim_source, plant

# the claim reaches every `used_` module in another way, and no `unused_` one
TREE = {
    "claims/chapter/mu.py": """
from ..helpers import used_by_two_dots
from . import _used_by_one_dot
from {root}.used_package import anything
import {root}.used_by_plain_import as plain
def run():
    from {root}.inner import used_in_function
    if TYPE_CHECKING:
        from {root} import unused_but_for_types
""",
    "claims/chapter/_used_by_one_dot.py": "from {root}.used_at_second_hand import x",
    "claims/chapter/nu.py": "unused = 1",
    "claims/helpers/used_by_two_dots.py": "",
    "used_package/__init__.py": "from .used_by_init import anything",
    "used_package/used_by_init.py": "anything = 1",
    "used_package/unused_sibling.py": "",
    "used_by_plain_import.py": "",
    "used_at_second_hand.py": "import {root}.used_at_third_hand as x",
    "used_at_third_hand.py": "from {root}.used_at_second_hand import y",
    "inner/used_in_function.py": "",
    "unused_but_for_types.py": "",
    "unused.py": "",
    "explore/unused_app.py": "",
    "cli.py": "unused = 1",
}
PARENTS = ["__init__.py", "claims/__init__.py", "claims/chapter/__init__.py", "inner/__init__.py"]
USED = [name for name in TREE if "used" in name and "unused" not in name] + ["claims/chapter/mu.py", *PARENTS]
UNUSED = [name for name in TREE if name not in USED]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = plant(tmp_path, monkeypatch, TREE)
    for path in (tmp_path / name).rglob("*.py"):
        path.write_text(path.read_text().replace("{root}", name))
    return name


def print_of(root: str) -> str:
    return source_fingerprint(f"{root}.claims.chapter.mu", {"seed": 0})


@pytest.mark.parametrize("name", sorted(USED))
def test_changes_with_every_module_that_is_used(tmp_path: Path, root: str, name: str) -> None:
    before = print_of(root)
    with (tmp_path / root / name).open("a") as stream:
        stream.write("\nchanged = 1\n")
    assert print_of(root) != before


@pytest.mark.parametrize("name", sorted(UNUSED))
def test_stays_with_every_module_that_is_not_used(tmp_path: Path, root: str, name: str) -> None:
    before = print_of(root)
    with (tmp_path / root / name).open("a") as stream:
        stream.write("\nchanged = 1\n")
    assert print_of(root) == before


@pytest.mark.parametrize(
    "line", ["import {root}", "import {root} as mf", "from {root} import Lazy", "import {root}.inner"]
)
def test_import_of_the_top_package_counts_as_import_of_all_of_it(tmp_path: Path, root: str, line: str) -> None:
    with (tmp_path / root / "claims/chapter/mu.py").open("a") as stream:
        stream.write("\n" + line.format(root=root) + "\n")
    found = {name.removeprefix(f"{root}.") for name in sources(f"{root}.claims.chapter.mu")}
    assert {"unused", "used_package.unused_sibling", "inner.used_in_function"} <= found
    # but neither what reads results only nor the other claims
    assert not {"cli", "explore.unused_app", "claims.chapter.nu"} & found


def test_version_of_the_top_package_is_no_import_of_all_of_it(tmp_path: Path, root: str) -> None:
    with (tmp_path / root / "claims/chapter/mu.py").open("a") as stream:
        stream.write(f"\nfrom {root} import __version__\n")
    assert f"{root}.unused" not in sources(f"{root}.claims.chapter.mu")


def test_moves_with_the_name_of_a_module(tmp_path: Path, root: str) -> None:
    # kills: hashes joined without order, so that two files could change places
    folder = tmp_path / root
    (folder / "used_by_plain_import.py").write_text("x = 1")
    (folder / "inner/used_in_function.py").write_text("x = 2")
    before = print_of(root)
    (folder / "used_by_plain_import.py").write_text("x = 2")
    (folder / "inner/used_in_function.py").write_text("x = 1")
    assert print_of(root) != before


def test_claims_outside_depend_on_this_package_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = plant(tmp_path, monkeypatch, {"chapter/mu.py": claim_source("castin-2025-mu")})
    found = sources(f"{package}.chapter.castin_2025_mu")
    assert {"measureformer.atlas.claim", "measureformer.atlas.result", "measureformer.errors"} <= set(found)
    assert not {"measureformer.cli", "measureformer.atlas.report", "measureformer.atlas.run"} & set(found)


def test_changes_with_configuration_seed_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        tmp_path,
        monkeypatch,
        {"chapter/mu.py": claim_source("castin-2025-mu"), "chapter/nu.py": claim_source("castin-2025-nu")},
    )
    entry = find("castin-2025-mu")
    prints = [
        fingerprint_of(entry, seed=0, preset="quick"),
        fingerprint_of(entry, seed=1, preset="quick"),
        fingerprint_of(entry, seed=0, preset="full"),
        fingerprint_of(find("castin-2025-nu"), seed=0, preset="quick"),
    ]
    again = fingerprint_of(entry, seed=0, preset="quick")
    for known in ({"jax": "1", "numpy": "1"}, {"jax": "2", "numpy": "1"}, {"jax": "1", "numpy": "2"}):
        with monkeypatch.context() as patch:
            patch.setattr("measureformer.atlas.registry.metadata.version", known.__getitem__)
            prints.append(fingerprint_of(entry, seed=0, preset="quick"))
    assert len(set(prints)) == len(prints)
    assert again == prints[0]


def test_every_claim_of_the_package_has_its_own() -> None:
    entries = [load(listed) for listed in select([])]
    assert len({fingerprint_of(entry, seed=0, preset="quick") for entry in entries}) == len(entries)


def test_module_without_source_is_refused() -> None:
    with pytest.raises(ClaimDefinitionError, match="without a source file"):
        sources("measureformer.no.such.module")
    with pytest.raises(ClaimDefinitionError, match="no package"):
        sources("json_no_such_package.claim")
