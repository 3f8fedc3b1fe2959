"""Why Adam? The same small learner by six optimisers, each at its own best rate: tables and a figure, no conclusion.

Four variants: with and without LayerNorm, and with each branch scaled by 1/√(2·layers). What is written is the final
loss of every optimiser at its best rate over seeds, the spread of gradient norms between groups of weights, and the
structure of KᵀQ. A best rate at the edge of those tried is marked, since others should then be tried.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import jax
import numpy as np
from compare import CONSOLE, RESULTS, machine

from measureformer.incontext import Architecture, Training, compare_optimizers, tasks
from measureformer.incontext.optimizers import GROUPS

FAST = "--fast" in sys.argv
STEPS, SEEDS = (60, 1) if FAST else (1500, 3)
VARIANTS = {
    "LayerNorm": {"norm": "layer"},
    "LayerNorm, branches scaled": {"norm": "layer", "branch": 1 / math.sqrt(4)},
    "no norm": {"norm": "none"},
    "no norm, branches scaled": {"norm": "none", "branch": 1 / math.sqrt(4)},
}


def studied(variant: dict[str, Any]) -> dict[str, Any]:
    architecture = Architecture(width=32, layers=2, heads=2, **variant)
    training = Training(steps=STEPS, batch=32)
    found = compare_optimizers(
        tasks.linear(3), jax.random.key(0), architecture=architecture, points=7, training=training, seeds=SEEDS
    )
    rows: dict[str, Any] = {}
    for name in found.losses:
        best = found.best(name)
        final, norms = found.final(name)[best], found.gradients[name][best][:, :: max(STEPS // 60, 1)]
        heads = found.structures[name]
        rows[name] = {
            "rate": float(found.rates[name][best]),
            "at the edge": found.at_edge(name),
            "final loss": final.tolist(),
            "loss": np.nanmean(found.losses[name][best], axis=0)[:: max(STEPS // 60, 1)].tolist(),
            "gradients": {g: norms[..., i].mean(axis=0).tolist() for i, g in enumerate(GROUPS)},
            "symmetric share": float((heads.symmetric**2 / (heads.symmetric**2 + heads.antisymmetric**2)).mean()),
            "stable rank of KᵀQ": heads.stable_rank.mean().item(),
            "stable rank of V": heads.value_rank.mean().item(),
        }
    return rows


def drawn(found: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True)
    for axis, (variant, rows) in zip(axes.flat, found.items(), strict=True):
        for name, row in rows.items():
            axis.plot(np.linspace(0, STEPS, len(row["loss"])), row["loss"], label=f"{name} ({row['rate']:.1g})")
        axis.set(title=variant, xlabel="steps", ylabel="loss", yscale="log")
        axis.legend(fontsize=7)
    figure.suptitle("The same learner by six optimisers, each at its best rate. Why Adam? Open.")
    figure.savefig(RESULTS / "optimizers.svg")


def main() -> None:
    found: dict[str, Any] = {}
    for name, variant in VARIANTS.items():
        with CONSOLE.status(name):
            found[name] = studied(variant)
        for optimizer, entry in found[name].items():
            mark = " at the edge" if entry["at the edge"] else ""
            finals = ", ".join(f"{value:.3f}" for value in entry["final loss"])
            CONSOLE.print(f"{name}: {optimizer} at {entry['rate']:.2g}{mark}: {finals}")
    RESULTS.mkdir(exist_ok=True)
    body = {"machine": machine({}), "steps": STEPS, "seeds": SEEDS, "found": found}
    (RESULTS / ("optimizers-fast.json" if FAST else "optimizers.json")).write_text(json.dumps(body, indent=1))
    if not FAST:
        drawn(found)


if __name__ == "__main__":
    main()
