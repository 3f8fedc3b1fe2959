"""Apps of the explorer, end to end: from the event in the browser to the new picture, through the server and back.

    make bench                                     all of it
    .venv/bin/python benchmarks/explore.py --fast  a few interactions each, to try it

Every app is opened in chromium without a window, with 200 points where it has so many. Then a point is dragged, one
step of the mouse at a time, or a slider is moved, one key at a time. The clock is that of the browser: it begins with
the time stamp of the event and ends after the frame in which numbers, figures and curves changed for the last time.
What is compiled when an app is opened, or its points are added, has been compiled by then.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from compare import CONSOLE, Number, machine, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import Tabs, browsing, served

FAST = "--fast" in sys.argv
WARM, TIMED = (2, 5) if FAST else (5, 30)
LIMIT = 200.0
"""Milliseconds that nobody notices."""
LONGEST = 30_000
"""Milliseconds after which an act without an answer is a mistake of this program."""
POINTS = 200

# what follows from the widgets: numbers, figures, and curves between the points, whose own marks move at once
WATCH = """() => {
    const SETTLED = 300;
    const inside = (root) => [...root.querySelectorAll("*")].flatMap((e) => e.shadowRoot ? [e.shadowRoot] : []);
    const roots = () => [document, ...inside(document)];
    const shown = () => roots().flatMap((root) => [
        ...root.querySelectorAll(".mf-table, .mf-plot, .mf-refusal, img, .mf-points svg > g[clip-path]"),
    ]).map((part) => part.outerHTML).join("");
    window.mfArm = (kind) => {
        const state = { before: shown(), start: null, end: null, changes: 0, over: false };
        let touched = false;
        window.mfState = state;
        window.addEventListener(kind, (event) => { state.start ??= event.timeStamp; }, { capture: true, once: true });
        // looking at everything in every frame would be most of what is measured
        const observer = new MutationObserver(() => { touched = true; });
        const all = { subtree: true, childList: true, characterData: true, attributes: true };
        roots().forEach((root) => observer.observe(root, all));
        const look = () => {
            if (touched) {
                touched = false;
                const now = shown();
                if (now !== state.before) {
                    state.before = now;
                    state.changes += 1;
                    // after the frame that this change is painted in
                    setTimeout(() => { state.end = performance.now(); });
                }
            }
            state.over = state.end !== null && performance.now() - state.end > SETTLED;
            if (state.over) observer.disconnect();
            else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
    };
}"""


@dataclass(frozen=True)
class Moves:
    """What a hand does in an app: how it is made ready, and then one act after the other."""

    app: str
    words: str
    event: str
    acts: Callable[[Any], Iterator[Callable[[], Any]]]
    ready: Callable[[Any], Any] = lambda page: None


def dragged(page: Any) -> Iterator[Callable[[], Any]]:
    """Take the first point, and carry it about: steps of a few pixels on a small circle."""
    box = page.locator('.point[data-index="0"] .mark').bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for i in count(1):
        angle = 2.399963 * i
        yield lambda a=angle: page.mouse.move(x + 12 * math.cos(a), y + 12 * math.sin(a))


def slid(label: str) -> Callable[[Any], Iterator[Callable[[], Any]]]:
    """Move the slider of that label key by key, and back from its ends."""

    def acts(page: Any) -> Iterator[Callable[[], Any]]:
        slider, key = _slider(page, label), "ArrowRight"
        while True:
            now, low, high = (float(slider.get_attribute(f"aria-value{name}")) for name in ("now", "min", "max"))
            key = "ArrowLeft" if now == high else "ArrowRight" if now == low else key
            yield lambda key=key: slider.press(key)

    return acts


def _slider(page: Any, label: str) -> Any:
    return page.locator("marimo-slider").filter(has_text=label).get_by_role("slider")


def many_particles(page: Any) -> None:
    _slider(page, "tokens at first").press("End")
    page.wait_for_function(
        f"() => [...document.querySelectorAll('.mf-table td')].some((cell) => cell.innerText === '{POINTS}')"
    )


def many_examples(page: Any) -> None:
    add = page.get_by_role("button", name="add a point")
    while page.locator(".point").count() < POINTS:
        add.click()


def full_drawing(page: Any) -> None:
    """Draw until no dot is left."""
    page.get_by_role("button", name="clear").click()
    box = page.locator(".mf-points svg").bounding_box()
    x, y, side = box["x"], box["y"], min(box["width"], box["height"])
    page.mouse.move(x + 0.3 * side, y + 0.2 * side)
    page.mouse.down()
    for i in range(4 * POINTS):
        share = i / (4 * POINTS)
        page.mouse.move(x + side * (0.3 + 0.4 * share), y + side * (0.5 + 0.3 * math.sin(40 * share)))
    page.mouse.up()


MOVES = (
    Moves("particles", f"{POINTS} tokens, one dragged", "pointermove", dragged, many_particles),
    Moves("particles", f"{POINTS} tokens, β moved", "keydown", slid("β"), many_particles),
    Moves("gaussian", "mean dragged", "pointermove", dragged),
    Moves("gaussian", "time moved", "keydown", slid("time")),
    Moves("counterexample", "δ moved", "keydown", slid("δ")),
    Moves("compile", "function dragged", "pointermove", dragged),
    Moves("compile", "cells moved", "keydown", slid("cells")),
    Moves("memory", f"{POINTS} dots, β moved", "keydown", slid("β"), full_drawing),
    Moves("svm", "token dragged", "pointermove", dragged),
    Moves("svm", "steps moved", "keydown", slid("steps")),
    Moves("incontext", f"{POINTS} examples, one dragged", "pointermove", dragged, many_examples),
    Moves("incontext", f"{POINTS} examples, rate moved", "keydown", slid("rate"), many_examples),
    Moves("lens", "layer moved", "keydown", slid("after layer")),
)


def measured(tabs: Tabs, moves: Moves) -> list[float]:
    """Milliseconds of each act, the first ones left out."""
    page = tabs.show(moves.app)
    page.wait_for_load_state("networkidle")
    moves.ready(page)
    page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    found: list[float] = []
    acts = moves.acts(page)
    for _ in range(WARM + TIMED):
        act = next(acts)
        page.evaluate("(kind) => window.mfArm(kind)", moves.event)
        act()
        page.wait_for_function("() => window.mfState.over", timeout=LONGEST, polling=50)
        found.append(page.evaluate("() => window.mfState.end - window.mfState.start"))
    page.mouse.up()
    return found[WARM:]


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("benchmarks/explore.py needs Debian's chromium: apt-get install chromium")
    chosen = [moves for moves in MOVES if moves.app in sys.argv[1:]] or list(MOVES)
    numbers: list[Number] = []
    with tempfile.TemporaryDirectory() as home, served(Path(home)) as explorer, browsing(chromium, explorer) as tabs:
        for moves in chosen:
            with CONSOLE.status(f"{moves.app}, {moves.words}"):
                each = measured(tabs, moves)
            middle, slow = statistics.median(each), statistics.quantiles(each, n=10)[-1]
            CONSOLE.print(f"{moves.app}, {moves.words}: {middle:.0f} ms, 9 of 10 within {slow:.0f} ms")
            numbers.append(Number(f"{moves.app}, {moves.words}: median of {len(each)}", middle, LIMIT, "ms"))
            numbers.append(Number(f"{moves.app}, {moves.words}: nine of ten within", slow, LIMIT, "ms"))
        assert not tabs.complaints, tabs.complaints
    name = "explore-fast" if FAST or len(chosen) < len(MOVES) else "explore"
    write(name, [], numbers, {**machine({}), "busy": f"load {os.getloadavg()[0]:.1f}"})


if __name__ == "__main__":
    main()
