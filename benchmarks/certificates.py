"""Everything that carries a certificate against adversarial numbers: cancellation, scales of 10^±300, denormals, …

    make bench                                                   a hundred thousand cases
    .venv/bin/python benchmarks/certificates.py 1000             a thousand cases or a few more, to try it
    .venv/bin/python benchmarks/certificates.py TARGET SEED      one attack again: what it finds from a seed

References are in long double. A violation ends the program with an error, which names target, family and seed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax
import numpy as np
from compare import CONSOLE, RESULTS
from page import write_block
from rich.progress import track

import measureformer as mf
from measureformer.storage.files import write_atomically

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from attacks import Attack, attend_attack, grid_attack
from attacks_learning import compiled_attack, dense_attack, modern_attack, nuclear_attack, polynomial_attack, svm_attack
from attacks_regularity import lipschitz_attack, norm_attack
from attacks_transport import bracket_attack

RING = mf.Sharded(mesh=jax.make_mesh((jax.device_count(),), ("tokens",)))
RING_SIZES = ((4, 20, 2, 2), (6, 300, 16, 3))
MOSTLY = (0.7, 0.3)
"""How often there are several heads, which are many cases in one call, and a mask."""

# cases, of a hundred thousand
TARGETS: dict[str, tuple[Attack, int]] = {
    "attend, float32": (attend_attack(np.float32, heads=48, odds=MOSTLY), 28_000),
    "attend, float64": (attend_attack(np.float64, heads=48, odds=MOSTLY), 28_000),
    "attend in 70,000 dimensions, float32": (attend_attack(np.float32, sizes=((2, 5, 70_000, 1),), heads=4), 400),
    "attend on two devices, float32": (attend_attack(np.float32, RING, RING_SIZES, heads=48, odds=MOSTLY), 1_500),
    "attend on two devices, float64": (attend_attack(np.float64, RING, RING_SIZES, heads=48, odds=MOSTLY), 1_500),
    "attend in windows, float32": (attend_attack(np.float32, heads=48, odds=(0.7, 1), windows=True), 2_000),
    "attend in windows, float64": (attend_attack(np.float64, heads=48, odds=(0.7, 1), windows=True), 2_000),
    "attend on the grid": (grid_attack, 200),
    "normalisations, float32": (norm_attack(np.float32), 12_000),
    "normalisations, float64": (norm_attack(np.float64), 12_000),
    "lower norm of an SVM": (svm_attack, 9_580),
    "lower nuclear norm of an SVM": (nuclear_attack, 300),
    "wasserstein_bracket, float32": (bracket_attack(np.float32), 700),
    "wasserstein_bracket, float64": (bracket_attack(np.float64), 700),
    "fields of a dense memory": (dense_attack, 500),
    "fields of a polynomial memory": (polynomial_attack, 500),
    "retrieval of a modern memory, float32": (modern_attack(np.float32), 150),
    "retrieval of a modern memory, float64": (modern_attack(np.float64), 150),
    "local_lipschitz, float32": (lipschitz_attack(np.float32), 300),
    "local_lipschitz, float64": (lipschitz_attack(np.float64), 300),
    "compiled networks, relu": (compiled_attack("relu"), 50),
    "compiled networks, quadratic": (compiled_attack("quadratic"), 50),
}
ABOUT = """Against long double, without slack. Values at most 1 in the last column mean that the bound held; lower and
upper bounds of numbers that they meet come close to 1. Of heads that are computed together, all count as refused if one
is. What counts as an error of `local_lipschitz` is a value on the wrong side of the constant, or one that converged
elsewhere; that of a memory is a theorem that the exact updates break. Normalisations carry no certificate: what is
tested is that their result is accurate at every scale."""
HEAD = "| target | cases | refused | accepted | violations | worst error over bound |\n|---|---|---|---|---|---|"


def attacked(name: str, count: int) -> tuple[str, int, int, int, int]:
    """A line of the table, and the numbers of cases, violations, refusals and accepted cases."""
    attack, found, worst, seed = TARGETS[name][0], Counter[str](), 0.0, 0
    with CONSOLE.status(name), np.errstate(all="ignore"):
        while found.total() < count:
            for case in attack(seed):
                found["refused" if case.share is None else "violated" if case.violated else "held"] += 1
                if case.violated:
                    CONSOLE.print(f"violated: {name!r}, {case.family}, seed {seed}: error over bound {case.share:.3g}")
                elif case.share is not None:
                    worst = max(worst, case.share)
            seed += 1
    accepted = found["held"] + found["violated"]
    line = f"| {name} | {found.total()} | {found['refused']} | {accepted} | {found['violated']} | {worst:.3g} |"
    return line, found.total(), found["violated"], found["refused"], accepted


def main() -> None:
    if len(sys.argv) > 2:
        CONSOLE.print(TARGETS[sys.argv[1]][0](int(sys.argv[2])))
        return
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else sum(count for _, count in TARGETS.values())
    share = wanted / sum(count for _, count in TARGETS.values())
    rows: list[tuple[str, int, int, int, int]] = []  # a line of the table, then counts
    for name, (_, count) in track(TARGETS.items(), description="targets", console=CONSOLE):
        rows.append(attacked(name, max(1, round(share * count))))
        CONSOLE.print(rows[-1][0])
    total, violations, refused, accepted = np.sum([row[1:] for row in rows], axis=0).tolist()
    table = "\n".join([HEAD, *(row[0] for row in rows), "", f"{total} cases from seed 0 on, {violations} violations."])
    print(table)
    if share >= 1:
        text = f"# certificates\n\n{ABOUT}\n\n{table}\n"
        write_atomically(RESULTS / "certificates.md", text.encode(), do="Choose another folder.")
        figures = f"{total:,} cases: {refused:,} refused, {accepted:,} accepted, {violations} violations."
        write_block("certificates", f"Last full run (`benchmarks/results/certificates.md`): {figures}")
    if violations:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
