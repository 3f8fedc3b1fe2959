"""The core without extras, in a virtual environment that has nothing else: it works, and the rest names its extra.

The environment holds links to the files of the core's dependencies, taken from the one in which the tests run: it is as
strict as an installation, and takes a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = (
    "typer",
    "rich",
    "matplotlib",
    "joblib",
    "cvxpy",
    "sklearn",
    "PIL",
    "mpmath",
    "tokenizers",
    "gguf",
)
EXTRAS += ("marimo", "anywidget", "distributed", "pytest", "torch")

WORKS = """
import pathlib, sys, tempfile
import numpy as np
import jax
import measureformer as mf

key = jax.random.key(0)
mu = mf.Discrete.uniform(np.random.default_rng(0).normal(size=(6, 2)))
G = mf.Attention.head(np.eye(2), np.eye(2), np.eye(2))
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[1]))
x = mf.universality.Block(None, None, 0.0, [1.0], None)

assert G.push(mu).n == 6
saved = mf.flow(G - mf.Identity(), mu, [0.0, 0.5], save=folder / "flow")
np.testing.assert_array_equal(saved.points, mf.flows.load_flow(folder / "flow").points)
assert mf.wasserstein(mu, G.push(mu)) > 0
assert mf.local_lipschitz(G, mu).upper > 0
np.testing.assert_allclose(mf.recover(G.push)(mu, mu.points), G.push(mu).points, atol=1e-6)
net = mf.universality.compile(x * x, mf.Box([0.0], [1.0]))
net.save(folder / "square.safetensors")
assert mf.universality.load_compiled(folder / "square.safetensors").error_bound == net.error_bound
assert mf.implicit_bias.random_problems("random", key).svm().feasible
assert mf.sweep(abs, [-1, 2]) == [1, 2]
assert mf.lens.load().tokenizer is not None
assert mf.check("castin-2025-gaussian-tilt").passes
"""

REFUSED: dict[str, tuple[str, str]] = {
    "figure": (
        "atlas",
        "mf.save_figure(mf.Figure('t', 'x', 'y', mf.Series('s', [0], [0], role='measured')), folder / 'f.svg')",
    ),
    "processes": ("atlas", "mf.sweep(abs, [-1, 2], pool=mf.Pool(jobs=2))"),
    "cluster": ("dask", "mf.sweep(abs, [-1, 2], pool=mf.Pool(scheduler='tcp://127.0.0.1:8786'))"),
    "nuclear norm": ("atlas", "mf.implicit_bias.random_problems('random', key).svm(norm='nuclear')"),
    "digits": ("atlas", "mf.memory.digits()"),
    "picture": ("atlas", "mf.memory.images.read_images([picture])"),
    "sheet": ("atlas", "draw_recall(images, images, {})"),
    "learner": ("atlas", "mf.incontext.baselines.lasso()"),
    "many digits": ("atlas", "mf.sequences.log_boltz_gap([1.0], [2.0])"),
    "claim": ("atlas", "mf.check('tarzanagh-2023-rank')"),
    "byte pairs": ("lens", "mf.text.Tokenizer.byte_pairs('roses are red')"),
    "quantised weights": ("lens", "mf.lens.load(model)"),
    "apps": ("explore", "server.serve(None, host='127.0.0.1', port=0, ready=print, browser=False)"),
}

REFUSALS = """
import json, pathlib, struct, sys, tempfile
import numpy as np
import jax
import measureformer as mf
from measureformer.explore import server
from measureformer.memory.recall import draw_recall

key = jax.random.key(0)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[1]))
picture, model = folder / "picture.png", folder / "model.gguf"
picture.write_bytes(b"any")
images = np.zeros((1, 2, 2))
# one tensor of 32 numbers in blocks of 8 bits
entry = struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 32, 8, 0)
model.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry + bytes(64))
said = {}
for name, line in json.loads(sys.argv[2]).items():
    try:
        eval(line)
        said[name] = "nothing was refused"
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""

IMPORTS = """
import importlib, json, pkgutil
import measureformer
missing = {}
for module in pkgutil.walk_packages(measureformer.__path__, "measureformer."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        missing[module.name] = error.name
print(json.dumps(missing))
"""


def core() -> set[str]:
    """The dependencies that pyproject.toml declares without extras, and what those require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: set[str] = set()
    waiting = [Requirement(one) for one in project["dependencies"]]
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in found:
            found.add(name)
            further = map(Requirement, metadata.requires(name) or [])
            waiting += [one for one in further if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the core alone."""
    home = tmp_path_factory.mktemp("core") / "env"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    for name in core():
        package = metadata.distribution(name)
        for file in package.files or ():
            if ".." not in file.parts:
                link = site.joinpath(*file.parts)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(package.locate_file(file))))
    (site / "measureformer").symlink_to(ROOT / "src" / "measureformer")
    return home / "bin" / "python"


def ran(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -P keeps the working directory off the path; settings of JAX are kept
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(python), "-P", *arguments],
        cwd=python.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def printed(python: Path, *arguments: str) -> dict[str, Any]:
    done = ran(python, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_environment_holds_nothing_else(python: Path) -> None:
    program = f"import importlib.util as u, json; print(json.dumps([n for n in {EXTRAS} if u.find_spec(n)]))"
    assert printed(python, "-c", program) == []


@pytest.mark.slow
def test_the_core_works_without_extras(python: Path, tmp_path: Path) -> None:
    done = ran(python, "-W", "error", "-c", WORKS, str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_needs_an_extra_names_it(python: Path, tmp_path: Path) -> None:
    lines = {name: line for name, (_, line) in REFUSED.items()}
    said = printed(python, "-c", REFUSALS, str(tmp_path), json.dumps(lines))
    for name, (extra, _) in REFUSED.items():
        kind = "ClaimNotRunError" if name == "claim" else "DependencyError"
        assert said[name].startswith(f"{kind}: got no library "), name
        assert f'Install it with pip install "measureformer[{extra}]"' in said[name], name


@pytest.mark.slow
def test_the_command_without_its_extra_is_one_sentence(python: Path) -> None:
    for arguments in ((), ("check", "castin-2025-gaussian-tilt"), ("--help",)):
        done = ran(python, "-m", "measureformer", *arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert 'pip install "measureformer[cli]"' in done.stderr


@pytest.mark.slow
def test_every_module_but_commands_apps_and_the_canvas_can_be_imported(python: Path) -> None:
    missing = printed(python, "-c", IMPORTS)
    assert missing
    assert all(
        (name.startswith("measureformer.explore.") and library in ("anywidget", "marimo"))
        or (name.startswith("measureformer.cli.") and library == "typer")
        # a subclass of Matplotlib's figure, which what draws imports when it is called
        or (name, library) == ("measureformer.figures.canvas", "matplotlib")
        for name, library in missing.items()
    ), missing


def test_every_extra_that_a_refusal_names_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {extra for extra, _ in REFUSED.values()} | {"cli", "all"} <= project["optional-dependencies"].keys()
    everything = Requirement(project["optional-dependencies"]["all"][0])
    assert everything.extras == {"cli", "atlas", "lens", "explore", "dask"}
