"""Timing of competitors in turns, and tables of ratios as Markdown, JSON and SVG.

Seconds differ from machine to machine and from hour to hour; ratios of medians of interleaved rounds are what is kept.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

RESULTS = Path(__file__).parent / "results"
CONSOLE = Console(stderr=True)


@dataclass(frozen=True)
class Row:
    """One piece of work: what it is, what was measured, which ratio was hoped for.

    A ratio is the competitor's median over ours, so above 1 we are faster, with its least and largest over the rounds.
    """

    work: str
    ours: float
    """Seconds, median of the rounds."""
    ratios: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)

    def reached(self) -> bool:
        return all(self.ratios[name][0] >= bar for name, bar in self.bars.items() if name in self.ratios)


@dataclass(frozen=True)
class Number:
    """A number with an upper limit that is not a ratio against a peer: bytes, forward passes, compilations."""

    what: str
    value: float
    limit: float
    unit: str


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 9,
    warm: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every run in every round; all are warm, and take turns so that a busy moment hits all of them."""
    for run in runs.values():
        for _ in range(warm):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.2)  # the threads of the one before may still be spinning
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def row(
    work: str,
    runs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 9,
    warm: int = 2,
    clock: Callable[[], float] = time.perf_counter,
    bars: Mapping[str, float] | None = None,
) -> Row:
    """Measure "ours" against the others among `runs`; `bars` are the ratios that are asked for."""
    with CONSOLE.status(work):
        seconds = interleaved(runs, rounds=rounds, warm=warm, clock=clock)
    ours = seconds.pop("ours")
    ratios = {}
    for name, theirs in seconds.items():
        each = [b / a for a, b in zip(ours, theirs, strict=True)]
        ratios[name] = (statistics.median(theirs) / statistics.median(ours), min(each), max(each))
    made = Row(work, statistics.median(ours), ratios, dict(bars or {}))
    CONSOLE.print(f"{work}: {made.ours:.3g} s; " + ", ".join(f"{n} {r[0]:.2f}×" for n, r in ratios.items()))
    return made


def machine(threads: Mapping[str, int | str]) -> dict[str, str]:
    """What the numbers depend on."""
    from importlib import metadata

    versions = {}
    for package in ("measureformer", "jax", "torch", "pykeops", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    cores = str(len(os.sched_getaffinity(0)))
    return {
        "processor": platform.machine(),
        "cores": cores,
        **{f"threads of {k}": str(v) for k, v in threads.items()},
        **versions,
    }


def write(
    name: str, rows: Sequence[Row], numbers: Sequence[Number], about: Mapping[str, str], samples: str = ""
) -> None:
    """results/name.md and .json, and .svg if there are ratios to draw; `samples` stand at the end of the page."""
    RESULTS.mkdir(exist_ok=True)
    data = {"about": dict(about), "rows": [asdict(r) for r in rows], "numbers": [asdict(n) for n in numbers]}
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = markdown(name, rows, numbers, about) + (f"\n{samples}" if samples else "")
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    if rows:
        draw(rows, RESULTS / f"{name}.svg")
    CONSOLE.print(f"benchmarks/results/{name}.md")


def markdown(name: str, rows: Sequence[Row], numbers: Sequence[Number], about: Mapping[str, str]) -> str:
    peers = list(dict.fromkeys(peer for r in rows for peer in r.ratios))
    lines = [f"# {name}"]
    if rows:
        lines += [
            "",
            "Competitor's median over ours: above 1 we are faster. In brackets the least and largest of single rounds.",
            "",
            "| work | ours, s | " + " | ".join(peers) + " | aim |",
            "|---|---|" + "---|" * len(peers) + "---|",
        ]
    for r in rows:
        cells = [f"{x[0]:.2f} ({x[1]:.2f}–{x[2]:.2f})" if (x := r.ratios.get(peer)) else "–" for peer in peers]
        aims = ", ".join(f"{peer} ≥ {bar:g}" for peer, bar in r.bars.items() if peer in r.ratios)
        verdict = "" if not aims else (" reached" if r.reached() else " **missed**")
        lines.append(f"| {r.work} | {r.ours:.3g} | " + " | ".join(cells) + f" | {aims}{verdict} |")
    if numbers:
        lines += ["", "| what | measured | at most |", "|---|---|---|"]
        for n in numbers:
            lines.append(
                f"| {n.what} | {n.value:.3g} {n.unit} | {n.limit:g}{'' if n.value <= n.limit else ' **missed**'} |"
            )
    return "\n".join([*lines, "", ", ".join(f"{key} {value}" for key, value in about.items()), ""])


def draw(rows: Sequence[Row], path: Path) -> None:
    """Ratios as points with their range over the rounds, on a logarithmic axis; dashes are the aims."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    from measureformer.figures.roles import MARKERS, PALETTE
    from measureformer.figures.style import style

    with style():
        figure, axes = plt.subplots(figsize=(6.4, 0.5 + 0.42 * len(rows)), layout="constrained")
        peers = list(dict.fromkeys(peer for r in rows for peer in r.ratios))
        for i, peer in enumerate(peers):
            held = [(y, r) for y, r in enumerate(rows) if peer in r.ratios]
            places = [y + 0.16 * (i - (len(peers) - 1) / 2) for y, _ in held]
            middle = [r.ratios[peer][0] for _, r in held]
            spread = [
                [r.ratios[peer][0] - r.ratios[peer][1] for _, r in held],
                [r.ratios[peer][2] - r.ratios[peer][0] for _, r in held],
            ]
            axes.errorbar(
                middle,
                places,
                xerr=[[max(v, 0) for v in side] for side in spread],
                fmt=MARKERS["measured"][i],
                color=PALETTE[i],
                label=peer,
                linewidth=1,
            )
            for y, r in held:
                if peer in r.bars:
                    axes.plot([r.bars[peer]] * 2, [y - 0.3, y + 0.3], color=PALETTE[i], linestyle="--", linewidth=1)
        axes.axvline(1, color="#333333", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yticks(range(len(rows)), [r.work for r in rows])
        axes.invert_yaxis()
        axes.set_xlabel("competitor's time / ours (right of 1: we are faster; dashes: aims)")
        figure.legend(loc="outside upper right", ncols=len(peers))
        figure.savefig(path)
        plt.close(figure)
