"""Make an environment with the lowest, or the newest, versions that pyproject.toml allows.

`python tools/_bounds.py lowest` makes .venv-lowest, in which each dependency has the version after its `>=`, and
`newest` makes .venv-newest, in which pip chooses. The tools of the tests are those of constraints.txt in both. An
environment whose pyproject.toml has not changed since is kept.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

EXTRAS = ("cli", "atlas", "lens", "explore")
TOOLS = ("pytest", "pytest-xdist", "pytest-benchmark", "hypothesis", "beartype", "packaging", "hatchling", "pyyaml")
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")


def lowest(project: dict[str, Any]) -> list[str]:
    """The dependencies and those of the extras, each at its lower bound; one without a bound is refused.

    >>> lowest({"dependencies": ["numpy>=2.0"], "optional-dependencies": {"explore": ["marimo>=0.25"]}})
    ['numpy==2.0', 'marimo==0.25']
    """
    extras = project["optional-dependencies"]
    wanted = dict.fromkeys([*project["dependencies"], *(one for extra in EXTRAS for one in extras.get(extra, ()))])
    # an extra that names another one brings what that one declares
    wanted = [one for one in wanted if not one.startswith("measureformer[")]
    found = [REQUIREMENT.fullmatch(one) for one in wanted]
    if None in found:
        sys.exit(f"tools/_bounds.py: {wanted[found.index(None)]!r} is not of the form name>=version")
    return [f"{match[1]}=={match[2]}" for match in found if match]


def make(root: Path, which: str) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    folder, stamp = root / f".venv-{which}", hashlib.sha256(text.encode()).hexdigest()
    if (folder / "made").is_file() and (folder / "made").read_text() == stamp:
        return
    print(f"measureformer: setting up {folder.name}, about two minutes and 1.0 GB", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pins = dict(line.split("==") for line in (root / "constraints.txt").read_text().splitlines() if "==" in line)
    asked = [f"{name}=={pins[name]}" for name in TOOLS]
    asked += lowest(tomllib.loads(text)["project"]) if which == "lowest" else []
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    done = subprocess.run([*command, "-e", f".[{','.join(EXTRAS)}]", *asked], cwd=root, check=False)
    if done.returncode:
        sys.exit("tools/_bounds.py: these versions do not go together; pip's message is above")
    (folder / "made").write_text(stamp)


if __name__ == "__main__":
    if sys.argv[1:] not in (["lowest"], ["newest"]):
        sys.exit(__doc__)
    make(Path(__file__).parent.parent, sys.argv[1])
