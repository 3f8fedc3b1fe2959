"""Build the wheel and the sdist into dist/, install each into a new environment outside of the repository, and use it.

Takes some minutes: both environments are made from nothing, with the extra "atlas" and the versions of
constraints.txt.
`python tools/_install.py whl` tries the wheel only, `gz` the sdist.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
# what a new user does first; each line must end well
TRIED = (
    ["-m", "measureformer"],
    ["-m", "measureformer", "version"],
    ["-m", "measureformer", "explore", "--list"],
    ["-m", "measureformer", "check", "castin-2025-gaussian-tilt"],
    ["-m", "measureformer", "atlas", "--quick", "--only", "castin-2025-gaussian-tilt"],
    ["-m", "measureformer", "archive"],
    ["-c", "import measureformer as mf; print(mf.cite('castin2025'), mf.Discrete.uniform([[0.0], [1.0]]).mean())"],
    ["-c", "import measureformer as mf; print(mf.lens.load())"],
)


def main() -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", "dist"], cwd=ROOT, check=True)
    version = metadata.version("measureformer")
    for kind in sys.argv[1:] or ("whl", "gz"):
        (package,) = (ROOT / "dist").glob(f"measureformer-{version}*.{kind}")
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "env" / "bin" / "python"
            subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
            install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), f"{package}[atlas]"], check=True)
            # nothing of this repository is to be found by accident
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            for line in TRIED:
                subprocess.run([str(python), *line], cwd=folder, env=clean, check=True, stdout=subprocess.DEVNULL)
        print(f"{package.name} installs and works")


if __name__ == "__main__":
    main()
