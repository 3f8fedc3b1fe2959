"""Why Adam? The same small models by six optimisers, each at its own best rate: tables and figures, no conclusion.

Two problems, linear functions in context and the next character of Python's documentation; four variants, with and
without LayerNorm, and with each branch scaled by 1/√(2·layers). What is written is the loss against steps of every
optimiser at its best rate over seeds, the gradient norms of groups of weights, and the structure of KᵀQ and V. Where
the best rate is at the edge of those tried, others beyond it are tried; if it stays at the edge, it is marked.

It takes a quarter of an hour on one core, is saved after every optimiser, and goes on from there when it is run again.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import jax
import numpy as np
from compare import CONSOLE, RESULTS, machine

from measureformer import text
from measureformer.files import write_atomically
from measureformer.incontext import Architecture, Corpus, Training, compare_optimizers, tasks
from measureformer.incontext.optimizers import GROUPS, OPTIMIZERS

FAST = "--fast" in sys.argv
END = "-fast" if FAST else ""
SEEDS = 1 if FAST else 3
PROBLEMS = {"in context": 800, "text": 300}
"""Name ↦ steps."""
LAYERS = 2
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
    return 20 if FAST else PROBLEMS[problem]


def problem(name: str) -> Any:
    if name == "in context":
        return tasks.linear(1)
    written = text.documentation()[:300_000]
    letters = text.Characters.of(written)
    return Corpus(letters.encode(written), letters.size, context=32)


def studied(name: str, variant: str, optimizer: str) -> dict[str, Any]:
    """One optimiser, all rates and seeds."""
    training = Training(steps=steps(name), batch=32 if name == "in context" else 8)

    def compared(rates: np.ndarray) -> Any:
        return compare_optimizers(
            problem(name),
            jax.random.key(0),
            architecture=Architecture(width=16, layers=LAYERS, heads=2, **VARIANTS[variant]),
            training=training,
            rates=rates,
            seeds=SEEDS,
            names=[optimizer],
        )

    found = compared(OPTIMIZERS[optimizer].rates)
    for _ in range(SHIFTS):
        if found.at_edge(optimizer):
            tried = found.rates[optimizer]
            # the best of these becomes the middle of the next
            found = compared(tried * (tried[found.best(optimizer)] / tried[len(tried) // 2]))
    best, every = found.best(optimizer), max(training.steps // SHOWN, 1)
    losses, norms = found.losses[optimizer][best], found.gradients[optimizer][best]
    norms = _binned(norms, every).mean(axis=0)
    heads = found.structures.get(optimizer)
    return {
        "rates": found.rates[optimizer].tolist(),
        "rate": float(found.rates[optimizer][best]),
        "at the edge": found.at_edge(optimizer),
        "final loss, every rate": [_short(row) for row in found.final(optimizer)],
        "final loss": _short(found.final(optimizer)[best]),
        "loss": [_short(row) for row in _binned(losses, every)],
        "gradients": {g: _short(norms[:, i]) for i, g in enumerate(GROUPS)},
        "structure": None if heads is None else _structure(heads),
    }


def _structure(heads: Any) -> dict[str, Any]:
    """Of every layer and head, of the seed with the least loss."""
    return {
        "symmetric share of KᵀQ": (heads.symmetric**2 / (heads.symmetric**2 + heads.antisymmetric**2)).tolist(),
        "norm of KᵀQ": np.sqrt(heads.symmetric**2 + heads.antisymmetric**2).tolist(),
        "stable rank of KᵀQ": heads.stable_rank.tolist(),
        "largest real part of an eigenvalue of KᵀQ": heads.eigenvalues.real.max(axis=2).tolist(),
        "least real part": heads.eigenvalues.real.min(axis=2).tolist(),
        "stable rank of V": heads.value_rank.tolist(),
        "singular values of V": [[_short(head[:16]) for head in layer] for layer in heads.value_singular],
    }


def _binned(values: np.ndarray, every: int) -> np.ndarray:
    """Means over steps between two points of a curve (axis 1), so that curves can be told apart."""
    kept = values.shape[1] // every
    return values[:, : every * kept].reshape(len(values), kept, every, *values.shape[2:]).mean(axis=2)


def _short(values: Any) -> list[float | None]:
    """Four digits; None for what blew up, since JSON has no infinity."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def drawn(found: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    for name in PROBLEMS:
        for what in ("loss", "gradients"):
            figure = Figure(figsize=(11, 7.5), layout="constrained")
            axes = figure.subplots(2, 2, sharey=True)
            for axis, variant in zip(axes.flat, VARIANTS, strict=True):
                (_losses if what == "loss" else _gradients)(axis, found[name][variant], steps(name))
                axis.set(title=variant, yscale="log")
            for axis in axes[:, 0]:
                axis.set_ylabel("loss" if what == "loss" else "norm of the gradient")
            for axis in axes[1]:
                axis.set_xlabel("steps")
            shown = "six optimisers at their best rates, mean and range of seeds"
            shown = shown if what == "loss" else "gradients of groups of weights, Adam (lines) and SGD (dotted)"
            figure.suptitle(f"{name}: {shown}. Why Adam? Open.")
            figure.savefig(RESULTS / f"optimizers-{name.replace(' ', '-')}-{what}{END}.svg")


def _losses(axis: Any, rows: dict[str, Any], last: int) -> None:
    for name, row in ((name, rows[name]) for name in OPTIMIZERS):
        losses = np.array(row["loss"], float)
        lasted = np.isfinite(losses).all(axis=1)
        lost, losses = len(losses) - int(lasted.sum()), losses[lasted]
        places = (np.arange(losses.shape[1]) + 0.5) * last / losses.shape[1]
        mark = (" ⚠ edge" if row["at the edge"] else "") + (f", {lost} blew up" if lost else "")
        (line,) = axis.plot(places, losses.mean(axis=0), label=f"{name}, rate {row['rate']:.2g}{mark}")
        axis.fill_between(places, losses.min(axis=0), losses.max(axis=0), color=line.get_color(), alpha=0.15, lw=0)
    # peaks of single steps would leave no room for the rest
    axis.set_ylim(top=1.5 * max(max(seed[:1]) for row in rows.values() for seed in row["loss"]))
    axis.legend(fontsize=7)


def _gradients(axis: Any, rows: dict[str, Any], last: int) -> None:
    for i, group in enumerate(GROUPS):
        for name, style in (("Adam", "-"), ("SGD", ":")):
            norms = np.array(rows[name]["gradients"][group], float)
            places = (np.arange(len(norms)) + 0.5) * last / len(norms)
            axis.plot(places, norms, style, color=f"C{i}", label=group if style == "-" else None)
    axis.legend(fontsize=7)


def table(found: dict[str, Any]) -> str:
    lines = [
        "# Why Adam? Open.",
        "",
        "Final losses (means over the last tenth of steps) at the best rate of each optimiser, every seed; and what",
        "the trained heads of the best seed are: the share of |KᵀQ|² that is symmetric, its stable rank, that of V.",
        "An edge means that the best rate is the first or last of those tried. Nothing is concluded here.",
    ]
    for name, variants in found.items():
        for variant, rows in variants.items():
            lines += [
                "",
                f"## {name}, {variant}",
                "",
                "| optimiser | rate | final losses | symmetric | rank KᵀQ | rank V |",
            ]
            lines += ["|---|---|---|---|---|---|"]
            for optimizer, row in ((name, rows[name]) for name in OPTIMIZERS):
                rate = f"{row['rate']:.2g}" + (" (edge)" if row["at the edge"] else "")
                kept = ("symmetric share of KᵀQ", "stable rank of KᵀQ", "stable rank of V")
                means = " | ".join(f"{np.mean(row['structure'][key]):.2f}" if row["structure"] else "–" for key in kept)
                finals = ", ".join("blew up" if loss is None else str(loss) for loss in row["final loss"])
                lines.append(f"| {optimizer} | {rate} | {finals} | {means} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"optimizers{END}.json"
    about = {"seeds": SEEDS, "steps": {name: steps(name) for name in PROBLEMS}}
    body = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if body.get("about") != about:
        body = {"about": about, "machine": machine({}), "found": {}}
    for name in PROBLEMS:
        for variant in VARIANTS:
            rows = body["found"].setdefault(name, {}).setdefault(variant, {})
            for optimizer in [one for one in OPTIMIZERS if one not in rows]:
                rows[optimizer] = studied(name, variant, optimizer)
                write_atomically(file, json.dumps(body, ensure_ascii=False).encode(), do="Make room.")
                finals = ", ".join(map(str, rows[optimizer]["final loss"]))
                CONSOLE.print(f"{name}, {variant}: {optimizer} at {rows[optimizer]['rate']:.2g}: {finals}")
    (RESULTS / f"optimizers{END}.md").write_text(table(body["found"]), encoding="utf-8")
    drawn(body["found"])


if __name__ == "__main__":
    main()
