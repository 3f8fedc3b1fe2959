"""The figures of optimizers.py, from what it has saved: losses, gradients of groups of weights, spectra of the heads.

.venv/bin/python benchmarks/optimizers_figure.py    draws them again
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from compare import RESULTS
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogFormatterMathtext, LogLocator, NullLocator
from optimizers_study import GROUPS, OPTIMIZERS

from measureformer.figures.roles import DASHES, INK, MARKERS, PALETTE
from measureformer.figures.style import style

WIDTH = 7.2
"""Of a page of a paper, in inches."""
LOOKS = {
    name: {"color": color, "marker": marker}
    for name, color, marker in zip(OPTIMIZERS, PALETTE, MARKERS["measured"], strict=True)
}
LEAST: dict[str, Any] = {"color": INK[0], "linestyle": DASHES["theory"][0], "linewidth": 0.9}
FINE = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
LINEAR = 0.5
"""Up to which axes of eigenvalues are linear."""
BORDER: dict[str, Any] = {"edgecolor": INK[3], "linestyle": DASHES["theory"][1], "linewidth": 0.6}
OPEN = "Why Adam? Open."


def drawn(body: dict[str, Any], end: str = "") -> None:
    """Four figures of each problem."""
    with style():
        for name, variants in body["found"].items():
            last = body["about"]["steps"][name]
            figures = {
                "loss": losses(name, variants, last, body["least loss"].get(name)),
                "gradients": gradients(name, variants, last),
                "eigenvalues": eigenvalues(name, variants),
                "values": singular_values(name, variants),
            }
            for what, figure in figures.items():
                figure.savefig(
                    RESULTS / f"optimizers-{name.replace(' ', '-')}-{what}{end}.svg", metadata={"Date": None}
                )


def losses(name: str, variants: dict[str, Any], last: int, least: float | None) -> Figure:
    figure, axes = _grid(2, 2, 5.8, sharex=True, sharey=True)
    for axis, (variant, rows) in zip(axes.flat, variants.items(), strict=True):
        notes: list[str] = []
        for i, (optimizer, look) in enumerate(LOOKS.items()):
            row = rows[optimizer]
            curves = _coarser(np.array(row["loss"], float))
            lasted, x = np.isfinite(curves).all(axis=1), _places(curves, last)
            if row["at the edge"]:
                notes.append(f"{optimizer}: best rate at the edge")
            if not lasted.all():
                notes.append(f"{optimizer}: {(~lasted).sum()} of {lasted.size} seeds blew up")
            axis.plot(x, curves[lasted].T, color=look["color"], linewidth=0.5, alpha=0.45)
            if lasted.any():
                middle = np.median(curves[lasted], axis=0)
                axis.plot(x, middle, linewidth=1.3, markersize=3.8, markevery=(i, 6), zorder=3, **look)
        axis.text(0.02, 0.03, "\n".join(notes), transform=axis.transAxes, fontsize=7)
        axis.set(title=variant)
        if least is not None:
            axis.axhline(least, **LEAST)
    # peaks of single steps would leave no room for the rest
    top = 1.1 * max(seed[0] for rows in variants.values() for row in rows.values() for seed in row["loss"] if seed[0])
    _logarithmic(axes, fine=True)
    axes[0, 0].set_ylim(top=top)
    _label(axes, "steps", "loss")
    handles = [*_optimizers(), *([Line2D([], [], label="least squares", **LEAST)] if least is not None else [])]
    _legend(figure, f"{name}: each optimiser at its best rate, seeds (thin) and their median. {OPEN}", handles)
    return figure


def gradients(name: str, variants: dict[str, Any], last: int) -> Figure:
    figure, axes = _grid(len(variants), len(GROUPS), 6.6, sharex=True, sharey="row")
    for line, (variant, rows) in zip(axes, variants.items(), strict=True):
        for axis, group in zip(line, GROUPS, strict=True):
            for i, (optimizer, look) in enumerate(LOOKS.items()):
                norms = _coarser(np.array(rows[optimizer]["gradients"][group], float))
                axis.plot(_places(norms, last), norms, linewidth=0.9, markersize=2.8, markevery=(i, 6), **look)
        _logarithmic(line)
        _label(line, "", variant)
    for axis, group in zip(axes[0], GROUPS, strict=True):
        axis.set_title(group, loc="center")
    _label(axes, "steps")
    title = f"{name}: norm of the gradient of each group of weights, mean of the seeds that lasted. {OPEN}"
    _legend(figure, title, _optimizers())
    return figure


def eigenvalues(name: str, variants: dict[str, Any]) -> Figure:
    """In the complex plane, the same for all; optimisers are rows here, since the large ones are real."""
    figure, axes = _grid(len(OPTIMIZERS), len(variants), 7.9, sharex=True, sharey=True)
    most = np.zeros(2)
    for axis, kept in _structures(axes.T, variants):
        for which, look in _heads(kept):
            found = kept[which[0]]["eigenvalues of KᵀQ"]
            parts = [np.array(found[part])[which[1:]] for part in ("real", "imaginary")]
            axis.plot(*parts, **{**look, "linestyle": "none"})
            most = np.maximum(most, np.abs(parts).max(axis=1))
    for axis in axes.flat:
        # a few are ten times as large as the rest
        for scale in (axis.set_xscale, axis.set_yscale):
            scale("symlog", linthresh=LINEAR, linscale=0.8)
        for each, reach in zip((axis.xaxis, axis.yaxis), most, strict=True):
            ends = [LINEAR, *[end for end in (1.0, 2.0, 5.0) if end <= 1.2 * reach][-1:]]
            each.set_major_locator(FixedLocator([*(-end for end in ends[::-1]), 0, *ends]))
            each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
            each.set_minor_locator(NullLocator())
        axis.add_patch(Rectangle((-LINEAR, -LINEAR), 2 * LINEAR, 2 * LINEAR, fill=False, **BORDER))
        axis.grid(visible=False)
        axis.set_aspect("equal")
    axes[0, 0].set(
        xlim=(-1.2 * most[0], 1.2 * most[0]), ylim=(-1.25 * max(most[1], LINEAR), 1.25 * max(most[1], LINEAR))
    )
    for axis, variant in zip(axes[0], variants, strict=True):
        axis.set_title(variant.replace(", ", ",\n"), loc="center", fontsize=9.5)
    for axis, optimizer in zip(axes[:, 0], OPTIMIZERS, strict=True):
        axis.set_ylabel(optimizer, fontsize=10)
    _label(axes, "real part")
    figure.supylabel("imaginary part", fontsize=9)
    title = f"{name}: eigenvalues of KᵀQ/√k of all heads, at the best seed; logarithmic outside the squares. {OPEN}"
    _legend(figure, title, _of_heads("none"))
    return figure


def singular_values(name: str, variants: dict[str, Any]) -> Figure:
    figure, axes = _grid(len(variants), len(OPTIMIZERS), 6.0, sharex=True, sharey=True)
    for axis, kept in _structures(axes, variants):
        for which, look in _heads(kept):
            values = np.array(kept[which[0]]["singular values of V"])[which[1:]]
            axis.plot(np.arange(1, len(values) + 1), values, **look)
            axis.set_xticks(np.arange(1, len(values) + 1)[:: max(len(values) // 3, 1)])
    _logarithmic(axes)
    for axis, optimizer in zip(axes[0], OPTIMIZERS, strict=True):
        axis.set_title(optimizer, loc="center")
    for line, variant in zip(axes, variants, strict=True):
        _label(line, "", variant)
    _label(axes, "index")
    figure.supylabel("singular value", fontsize=9)
    _legend(figure, f"{name}: singular values of V of all heads, at the best seed. {OPEN}", _of_heads("-"))
    return figure


def _grid(rows: int, columns: int, height: float, **shared: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns, **shared)


def _structures(axes: Any, variants: dict[str, Any]) -> Any:
    """Each panel of a grid of variants and optimisers, with what training made of the heads."""
    for line, rows in zip(axes, variants.values(), strict=True):
        for axis, optimizer in zip(line, OPTIMIZERS, strict=True):
            row = rows[optimizer]
            if row["structure"] is None:
                axis.text(0.5, 0.5, "blew up", transform=axis.transAxes, ha="center")
            else:
                yield axis, {"before": row["structure before training"], "trained": row["structure"]}


def _heads(kept: dict[str, Any]) -> Any:
    """Of every head its state, layer and number, and its look; what was before training lies below."""
    layers, heads = np.shape(kept["trained"]["norm of KᵀQ"])
    for state in ("before", "trained"):
        for layer in range(layers):
            for head in range(heads):
                yield (state, layer, head), _head_look(state, layer)


def _head_look(state: str, layer: int) -> dict[str, Any]:
    look: dict[str, Any] = {
        "linewidth": 0.8,
        "markersize": 2.8,
        "markeredgewidth": 0.7,
        "marker": MARKERS["measured"][layer],
        "alpha": 0.85,
    }
    if state == "before":
        return look | {"color": INK[3], "marker": "x", "markersize": 2.4, "linewidth": 0.6}
    return look | {"color": PALETTE[layer], "markerfacecolor": "none" if layer else PALETTE[layer]}


def _key(label: str, **look: Any) -> Line2D:
    return Line2D([], [], label=label, **look)


def _of_heads(line: str) -> list[Line2D]:
    trained = [_key(f"layer {i + 1}", **{**_head_look("trained", i), "linestyle": line}) for i in (0, 1)]
    return [*trained, _key("before training", **{**_head_look("before", 0), "linestyle": line})]


def _optimizers() -> list[Line2D]:
    return [_key(name, linewidth=1.1, markersize=4, **look) for name, look in LOOKS.items()]


def _legend(figure: Figure, title: str, handles: list[Line2D]) -> None:
    figure.suptitle(title[0].upper() + title[1:], x=0.01, ha="left", fontsize=10.5)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), columnspacing=1.2)


def _label(axes: Any, x: str, y: str = "") -> None:
    """Along the lower and left edge of a grid, or of one of its rows."""
    axes = np.atleast_2d(axes)
    for axis in axes[-1] if x else ():
        axis.set_xlabel(x, fontsize=9)
    for axis in axes[:, 0] if y else ():
        axis.set_ylabel(y.replace(", ", ",\n"), fontsize=9)


def _logarithmic(axes: Any, *, fine: bool = False) -> None:
    """Numbers at 0.1, 0.3, 1, …, or at more for less than a decade, or at powers of 10 for many."""
    for axis in np.ravel(axes):
        axis.set(yscale="log")
        low, high = axis.get_ylim()
        many = high > 1000 * low
        axis.yaxis.set_major_locator(LogLocator(subs=FINE if fine else (1.0,) if many else (1.0, 3.0), numticks=99))
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_major_formatter(LogFormatterMathtext() if many else plain)
        axis.yaxis.set_minor_locator(NullLocator())


def _places(curves: np.ndarray, last: int) -> np.ndarray:
    """Middles of the steps that each point is the mean of."""
    count = curves.shape[-1]
    return (np.arange(count) + 0.5) * last / count


def _coarser(curves: np.ndarray, by: int = 2) -> np.ndarray:
    """Means of neighbours, along the last axis: small panels."""
    kept = curves[..., : curves.shape[-1] // by * by]
    return kept.reshape(*kept.shape[:-1], -1, by).mean(axis=-1)


if __name__ == "__main__":
    drawn(json.loads((RESULTS / "optimizers.json").read_text(encoding="utf-8")))
