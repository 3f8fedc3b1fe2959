"""Why Adam? The same small models by six optimisers, each at its own best rate: tables and figures, no conclusion.

Two problems, linear functions in context and the next character of Python's documentation; four variants, with and
without LayerNorm, and with each branch scaled by 1/√(2·layers). What is written is the loss against steps of every
optimiser at its best rate over seeds, the gradient norms of groups of weights, and the structure of KᵀQ and V: parts,
ranks, eigenvalues, singular values, after training and before. Where the best rate is at the edge of those tried,
others beyond it are tried, and then half and twice the best; if it stays at the edge, it is marked.

It takes a quarter of an hour on one core, is saved after every optimiser, and goes on from there when it is run again;
optimizers_figure.py draws what was saved.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import jax
import numpy as np
from compare import CONSOLE, RESULTS, machine
from optimizers_figure import drawn
from optimizers_study import GROUPS, OPTIMIZERS, Comparison, compare_optimizers

from measureformer import text
from measureformer.incontext import tasks
from measureformer.incontext.language import Corpus
from measureformer.storage.files import write_atomically
from measureformer.text.corpus import documentation
from measureformer.training.architecture import Architecture
from measureformer.training.optimization import Optimization

FAST = "--fast" in sys.argv
END = "-fast" if FAST else ""
SEEDS = 1 if FAST else 3
DIM = 3
STEPS = {"in context": 1600, "text": 600}
BATCH = {"in context": 32, "text": 8}
LAYERS, HEADS, WIDTH = 2, 2, 16
BRANCH = 1 / math.sqrt(2 * LAYERS)
VARIANTS: dict[str, dict[str, Any]] = {
    "LayerNorm": {},
    "LayerNorm, branches scaled": {"branch": BRANCH},
    "no norm": {"norm": "none"},
    "no norm, branches scaled": {"norm": "none", "branch": BRANCH},
}
SHIFTS = 2
"""How often rates beyond the edge are tried."""
SHOWN = 60
"""Points of each curve that are kept."""


def steps(problem: str) -> int:
    return 20 if FAST else STEPS[problem]


def problem(name: str) -> Any:
    if name == "in context":
        return tasks.linear(DIM)
    written = documentation()[:300_000]
    letters = text.Tokenizer.characters(written)
    return Corpus(letters.encode(written), letters.size, context=32)


def studied(name: str, variant: str, optimizer: str) -> dict[str, Any]:
    """One optimiser, all rates and seeds: a factor of 4 apart first, then half and twice the best one."""
    task, optimization = problem(name), Optimization(steps=steps(name), batch=BATCH[name])
    sizes = Architecture(width=WIDTH, layers=LAYERS, heads=HEADS, **VARIANTS[variant])

    def compared(rates: Any) -> Comparison:
        return compare_optimizers(
            task,
            jax.random.key(0),
            architecture=sizes,
            optimization=optimization,
            rates=rates,
            seeds=SEEDS,
            names=[optimizer],
        )

    found = compared(OPTIMIZERS[optimizer].rates)
    for _ in range(SHIFTS):
        if found.at_edge(optimizer):
            found = found.joined(compared(beyond(found, optimizer)))
    rate = found.rates[optimizer][found.best(optimizer)]
    found = found.joined(compared([2 * rate, rate / 2]))
    best, every = found.best(optimizer), max(optimization.steps // SHOWN, 1)
    losses, norms = found.losses[optimizer][best], found.gradients[optimizer][best]
    # where all blew up, there is nothing to draw
    lasted = np.isfinite(losses).all(axis=1) if np.isfinite(losses).all(axis=1).any() else slice(None)
    norms = _binned(norms[lasted], every).mean(axis=0)
    heads = found.structures.get(optimizer)
    return {
        "rates": _short(found.rates[optimizer]),
        "rate": _digits(found.rates[optimizer][best]),
        "at the edge": found.at_edge(optimizer),
        "final loss, every rate": [_short(row) for row in found.final(optimizer)],
        "final loss": _short(found.final(optimizer)[best]),
        "loss": [_short(row) for row in _binned(losses, every)],
        "gradients": {group: _short(norms[:, i]) for i, group in enumerate(GROUPS)},
        "structure": None if heads is None else _structure(heads),
        "structure before training": None if heads is None else _structure(found.before[optimizer]),
    }


def beyond(found: Comparison, optimizer: str) -> Any:
    """Two rates beyond the edge at which the best one is; smaller ones where all blew up."""
    rates, best = found.rates[optimizer], found.best(optimizer)
    up = best == 0 and np.isfinite(np.median(found.final(optimizer)[best]))
    return rates[0] * np.array([16, 4]) if up else rates[-1] / np.array([4, 16])


def _structure(heads: Any) -> dict[str, Any]:
    """Of every layer and head, of the seed with the least loss."""
    lists = lambda values: np.vectorize(_digits, otypes=[float])(values).tolist()  # noqa: E731
    # KᵀQ and WV have this rank at most; what else the solvers return is rounding
    rank = WIDTH // HEADS
    order = np.argsort(-np.abs(heads.eigenvalues), axis=2, kind="stable")[..., :rank]
    eigenvalues = np.take_along_axis(heads.eigenvalues, order, axis=2)
    norm = np.sqrt(heads.symmetric**2 + heads.antisymmetric**2)
    return {
        "symmetric share of KᵀQ": lists(heads.symmetric**2 / norm**2),
        "norm of KᵀQ": lists(norm),
        "stable rank of KᵀQ": lists(heads.stable_rank),
        "eigenvalues of KᵀQ": {"real": lists(np.real(eigenvalues)), "imaginary": lists(np.imag(eigenvalues))},
        "stable rank of V": lists(heads.value_rank),
        "singular values of V": lists(heads.value_singular[..., :rank]),
    }


def _binned(values: np.ndarray, every: int) -> np.ndarray:
    """Means over steps between two points of a curve (axis 1), so that curves can be told apart."""
    kept = values.shape[1] // every
    return values[:, : every * kept].reshape(len(values), kept, every, *values.shape[2:]).mean(axis=2)


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _short(values: Any) -> list[float | None]:
    """Four digits; None for what blew up, since JSON has no infinity."""
    return [_digits(value) if math.isfinite(value) else None for value in values]


def table(found: dict[str, Any]) -> str:
    lines = [
        "# Why Adam? Open.",
        "",
        f"A transformer of {LAYERS} layers, {HEADS} heads, width {WIDTH}, from the same weights and on the same data",
        f"for all. In context: linear functions in R^{DIM} from {2 * DIM + 1} examples, {steps('in context')} steps of",
        f"{BATCH['in context']} prompts; least squares has the loss {least():.4f}. Text: characters of Python's",
        f"documentation, {steps('text')} steps of {BATCH['text']} times 32. Rates are a factor of 4 apart, then half",
        "and twice the best; the best has the least final loss in the median over seeds.",
        "",
        "Final losses (means over the last tenth of steps) at the best rate of each optimiser, every seed; and what",
        "the trained heads of the best seed are, as means over heads: the share of |KᵀQ|² that is symmetric, its",
        "stable rank, that of V; as maxima: the modulus of an eigenvalue of KᵀQ/√k, the norm of V. For comparison, the",
        "same before training, where Adam's best seed began. An edge means that the best rate is the first or last of",
        "those tried. Nothing is concluded here.",
    ]
    for name, variants in found.items():
        for variant, rows in variants.items():
            lines += [
                "",
                f"## {name}, {variant}",
                "",
                "| optimiser | rate | final losses | symmetric | rank KᵀQ | rank V | largest λ | norm of V |",
                "|---|---|---|---|---|---|---|---|",
            ]
            for optimizer, row in ((name, rows[name]) for name in OPTIMIZERS):
                rate = f"{row['rate']:.2g}" + (" (edge)" if row["at the edge"] else "")
                finals = ", ".join("blew up" if loss is None else str(loss) for loss in row["final loss"])
                lines.append(f"| {optimizer} | {rate} | {finals} | {_cells(row['structure'])} |")
            lines.append(f"| before training | – | – | {_cells(rows['Adam']['structure before training'])} |")
    return "\n".join(lines) + "\n"


def _cells(structure: dict[str, Any] | None) -> str:
    if structure is None:
        return " | ".join("–" * 5)
    means = [np.mean(structure[key]) for key in ("symmetric share of KᵀQ", "stable rank of KᵀQ", "stable rank of V")]
    found = structure["eigenvalues of KᵀQ"]
    most = [np.hypot(found["real"], found["imaginary"]).max(), np.max(structure["singular values of V"])]
    return " | ".join(f"{value:.2f}" for value in (*means, *most))


def least() -> float:
    """The loss of least squares in context: 1 − i/d after i < d examples, then 0."""
    return (DIM + 1) / 2 / (2 * DIM + 1)


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"optimizers{END}.json"
    about = {
        "seeds": SEEDS,
        "steps": {name: steps(name) for name in STEPS},
        "batch": BATCH,
        "width, layers, heads": [WIDTH, LAYERS, HEADS],
        "in context": f"linear functions in R^{DIM}, {2 * DIM + 1} examples",
        "rates": "a factor of 4 apart, then half and twice the best",
    }
    body = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if body.get("about") != about:
        body = {"about": about, "machine": machine({}), "least loss": {"in context": _digits(least())}, "found": {}}
    for name in STEPS:
        for variant in VARIANTS:
            rows = body["found"].setdefault(name, {}).setdefault(variant, {})
            for optimizer in [one for one in OPTIMIZERS if one not in rows]:
                rows[optimizer] = studied(name, variant, optimizer)
                write_atomically(file, json.dumps(body, ensure_ascii=False).encode(), do="Make room.")
                finals = ", ".join(map(str, rows[optimizer]["final loss"]))
                CONSOLE.print(f"{name}, {variant}: {optimizer} at {rows[optimizer]['rate']:.2g}: {finals}")
    (RESULTS / f"optimizers{END}.md").write_text(table(body["found"]), encoding="utf-8")
    drawn(body, END)


if __name__ == "__main__":
    main()
