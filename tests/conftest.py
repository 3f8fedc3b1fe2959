"""What all tests share: checked shapes, Hypothesis profiles, and a table of where the time goes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

_HERE = Path(__file__).parent
_SLOWEST = 10
_MAPS = 25_000
# the other chapters have many small programs to compile, or processes to start: `make quick` leaves them out
_QUICK_CHAPTERS = {"attention", "cli", "figures", "package", "pages", "tools"}

# From here on every annotated function of the chapters checks its arguments and its result, shapes included. Folders
# without arrays are left to pyright, which is strict there. The hook works on modules as they are loaded, so nothing in
# this file may import the package.
_NO_ARRAYS = {"atlas", "cli", "explore", "figures", "pages", "parallel", "storage", "__pycache__"}
_FOLDERS = {path.name for path in (_HERE.parent / "src" / "measureformer").iterdir() if path.is_dir()}
_CHECKED = [*sorted(_FOLDERS - _NO_ARRAYS), "parallel.mesh", "parallel.workers"]
install_import_hook([f"measureformer.{name}" for name in _CHECKED], "checked.function")

# compilation makes the first example of a test slow, so no deadline; in continuous integration the same examples always
settings.register_profile("local", deadline=None, max_examples=30)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# a shell that runs the tests in the background has SIGINT ignored, and so would all processes that tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# tracing makes many objects that live on: looking through them all the time would be a tenth of the time of the tests
gc.set_threshold(200_000, 50, 100)

# Truths hold for any machine code, and compilation is most of the time of the tests, also in the processes that they
# start: nothing is optimised, and by XLA's older emitters, which are faster then. Where machine code is what a test is
# about, it asks for `optimised`. A jaxlib that does not know the flag would refuse to run.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
_OLD_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
if version("jaxlib").startswith("0.10.") and _OLD_EMITTERS not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_OLD_EMITTERS}".strip()

_seconds: dict[str, float] = defaultdict(float)


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """Programs as users get them, up to the emitters."""
    import jax

    # no program may come from, or go to, other tests
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def room_for_programs() -> Iterator[None]:
    """Each program takes a few memory maps, of which Linux gives a process 65 530: too many of them end it."""
    yield
    maps, jax = Path("/proc/self/maps"), sys.modules.get("jax")
    if jax is not None and maps.exists() and maps.read_bytes().count(b"\n") > _MAPS:
        jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _chapter(item.nodeid) not in _QUICK_CHAPTERS:
            item.add_marker(pytest.mark.slow)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # setup, call and teardown are reported one by one
    _seconds[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _seconds:
        return
    chapters: dict[str, list[float]] = defaultdict(list)
    for test, seconds in _seconds.items():
        chapters[_chapter(test)].append(seconds)
    terminalreporter.section("seconds per chapter")
    for chapter, times in sorted(chapters.items()):
        terminalreporter.write_line(f"{sum(times):8.1f}  {chapter}  ({len(times)} tests)")
    terminalreporter.section(f"{_SLOWEST} slowest tests")
    for test, seconds in sorted(_seconds.items(), key=lambda item: -item[1])[:_SLOWEST]:
        terminalreporter.write_line(f"{seconds:8.1f}  {test}")


def _chapter(test: str) -> str:
    """The first folder below tests/; tests directly in it are the chapter `general`."""
    parts = Path(test.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 and parts[0] == _HERE.name else "general"
