"""Training attention on many random problems: ours against eager PyTorch, one problem at a time; and solving the SVMs.

The loop in PyTorch is the usual one: float64, autograd, the gradient divided by its norm, a plain step. For all
problems it takes minutes, so that in each round only `TIMED` steps of one problem are run, in turns with ours, and
their time is multiplied; all problems have the same shape and cost the same. Ours is timed in full: stacking, the
compiled program, and taking apart into runs. Both see the same numbers, and what they reach is compared.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

import jax
import numpy as np
from compare import CONSOLE, Number, Row, interleaved, machine, write

from measureformer.implicit_bias import Problem, decompose, descend_all, random_problems
from measureformer.implicit_bias.svm import Norm

FAST = "--fast" in sys.argv
PROBLEMS, STEPS, TIMED = (20, 500, 100) if FAST else (100, 2000, 200)
STUDY = 50 if FAST else 500
RATE = 0.1


def torch_loop(problem: Problem, start: np.ndarray, steps: int) -> Any:
    import torch

    torch.set_num_threads(1)  # with more, small matrices are slower
    X, z, y = (torch.from_numpy(np.array(a)) for a in (problem.X, problem.z, problem.y))
    v = torch.from_numpy(np.array(problem.head.matrix[0]))  # type: ignore[attr-defined]

    def run() -> np.ndarray:
        W = torch.from_numpy(start.copy()).requires_grad_()
        for _ in range(steps):
            s = torch.softmax(torch.einsum("ntd,nd->nt", X, z @ W.T), dim=1)
            margin = y * (torch.einsum("nt,ntd->nd", s, X) @ v)
            (slope,) = torch.autograd.grad(torch.nn.functional.softplus(-margin).mean(), W)
            with torch.no_grad():
                W -= RATE * slope / slope.norm()
        return W.detach().numpy()

    return run


def against_torch() -> Row | None:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return None
    problems = random_problems("random", jax.random.key(0), count=PROBLEMS)
    starts = list(np.random.default_rng(0).uniform(-1, 1, (PROBLEMS, *problems[0].shape)) / np.sqrt(10))
    loop = torch_loop(problems[0], starts[0], TIMED)
    mine = descend_all(problems[:1], "ngd", TIMED, starts=starts[:1])[0].W[-1]
    if np.abs(mine - loop()).max() > 1e-8:
        raise SystemExit("ours and PyTorch do not take the same steps")
    runs = {"ours": lambda: descend_all(problems, "ngd", STEPS, starts=starts), "torch": loop}
    with CONSOLE.status("descent"):
        seconds = interleaved(runs, rounds=5)
    ours, theirs = seconds["ours"], [s * PROBLEMS * STEPS / TIMED for s in seconds["torch"]]
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(theirs) / statistics.median(ours), min(each), max(each)
    work = f"{PROBLEMS} problems × {STEPS} normalised steps, n=6, T=8, d=10"
    CONSOLE.print(f"{work}: {statistics.median(ours):.3g} s, {ratio[0]:.0f}×")
    return Row(work, statistics.median(ours), {"eager PyTorch": ratio}, {"eager PyTorch": 50})


def svms() -> list[Number]:
    problems = random_problems("random", jax.random.key(1), count=50)
    tokens = [problem.optimal() for problem in problems]
    numbers = []
    cases: tuple[tuple[Norm, int, float], ...] = (("frobenius", 50, 10.0), ("nuclear", 5, 1000.0))
    for norm, count, limit in cases:
        problems[0].svm(tokens[0], norm)  # imports
        spent = []
        for problem, chosen in zip(problems[:count], tokens, strict=False):
            begin = time.perf_counter()
            problem.svm(chosen, norm)
            spent.append(time.perf_counter() - begin)
        numbers.append(Number(f"SVM, {norm} norm, n=6, T=8, d=10, median", 1e3 * statistics.median(spent), limit, "ms"))
    return numbers


def study() -> Number:
    """Trainings with a head that mixes tokens, and their decompositions; compilation included."""
    begin = time.perf_counter()
    with CONSOLE.status("several tokens"):
        runs = descend_all(random_problems("several", jax.random.key(2), count=STUDY), "ngd", 2001, jax.random.key(3))
        parts = [decompose(run) for run in runs]
    spent = time.perf_counter() - begin
    undecided = sum(not part.decided for part in parts)
    return Number(f"{STUDY} runs with several tokens and their decompositions ({undecided} undecided)", spent, 120, "s")


def main() -> None:
    found = against_torch()
    numbers = [*svms(), study()]
    about = machine({"ours": len(os.sched_getaffinity(0)), "torch": 1})
    write("implicit_bias-fast" if FAST else "implicit_bias", [found] if found else [], numbers, about)


if __name__ == "__main__":
    main()
