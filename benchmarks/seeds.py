"""How often each claim passes: the quick preset on fresh seeds, with 95 % confidence intervals.

A seed counts if the claim holds and every control is rejected. Results are kept in `atlas/seeds`, so that you can
interrupt the run and resume it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from measureformer.atlas.registry import select
from measureformer.atlas.result import Result
from measureformer.atlas.run import Settings, run_atlas
from measureformer.atlas.words import failures

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "seeds.md"


def page(results: list[Result]) -> str:
    """The table, claims that pass least often first, and what failed."""
    rated = [(result.rate, result) for result in results if result.rate is not None]
    rated.sort(key=lambda pair: (pair[0][0], pair[1].claim))
    perfect = sum(rate[0] == 1 for rate, _ in rated)
    lines = [
        "# How often claims pass",
        "",
        "The quick preset of every claim on fresh seeds, written by `benchmarks/seeds.py`. A seed counts if the claim",
        "holds and every control is rejected. The interval is Wilson's for 95 %.",
        "",
        f"{len(rated)} claims, of which {perfect} pass on every fresh seed.",
        "",
        "| claim | pass | rate | 95 % interval |",
        "|---|---:|---:|---|",
    ]
    for (share, low, high), result in rated:
        passed = sum(trial.passes for trial in result.trials)
        lines.append(f"| {result.claim} | {passed} of {len(result.trials)} | {share:.2f} | {low:.2f} to {high:.2f} |")
    bad = [f"- {result.claim}, {line}" for _, result in rated for line in failures(result)]
    return "\n".join([*lines, *(["", "What failed:", "", *bad] if bad else [])]) + "\n"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--seeds", type=int, default=20)
    reader.add_argument("--seed", type=int, default=0, help="fresh seeds begin at this one plus 1000")
    reader.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    reader.add_argument("--only", nargs="*", default=[], help="claims, globs or chapters")
    asked = reader.parse_args()
    settings = Settings(Path("atlas") / "seeds", "quick", asked.seed, asked.jobs, seeds=asked.seeds)
    done = run_atlas(
        select(asked.only), settings, lambda event: print(f"[{event.done}/{event.total}]", event.outcome.claim)
    )
    RESULT.write_text(page(list(done.results)), encoding="utf-8")
    print(RESULT)


if __name__ == "__main__":
    main()
