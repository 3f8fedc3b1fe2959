"""What flows need is loaded when a flow is run."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, measureformer as mf
assert "jax" not in sys.modules
mf.flows
mf.flow
print("diffrax" in sys.modules, "scipy.spatial" in sys.modules)
"""


def test_the_names_alone_load_no_solver() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False False"
