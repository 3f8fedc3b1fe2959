"""Through which files a call passes: what `docs/architecture.md` says, counted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 8
# in a process of its own, since here every annotated function is wrapped by the checker of shapes
PROGRAM = """
import json, os, sys
import numpy as np
import measureformer as mf

root = os.path.dirname(mf.__file__) + os.sep
X = np.random.default_rng(0).normal(size=(20, 2))
mu, G = mf.Discrete.uniform(X), mf.Attention.head(np.eye(2), np.eye(2), np.eye(2))
G.push(mu), G.push(mu)
entries, push = [], G.push


def listen(frame, event, argument):
    here = frame.f_code.co_filename
    if event != "call" or not here.startswith(root):
        return
    caller = frame.f_back
    # the file of the package from which control came, whatever lies between
    while caller is not None and not caller.f_code.co_filename.startswith(root):
        caller = caller.f_back
    if caller is None or caller.f_code.co_filename != here:
        entries.append(here[len(root):].replace(os.sep, "/"))


sys.setprofile(listen)
push(mu)
sys.setprofile(None)
print(json.dumps(entries))
"""


def test_a_warm_push_enters_few_files_and_each_once() -> None:
    # kills: a call that goes back and forth between files, and a page that no longer says what happens
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    entries = json.loads(done.stdout)
    assert len(set(entries)) == len(entries)
    assert len(entries) <= MOST
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## The call path of")[2].partition("## ")[0]
    assert entries == re.findall(r"^\| `([a-z_/]+\.py)` \|", walk, re.MULTILINE)
