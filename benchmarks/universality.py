"""Approximation by transformers, measured: targets, smoothness, scalar and vector-valued blocks, fitted and trained.

All seeds are kept, none is picked. What is in results/universality.json is not computed again, unless it was found with
another search: then all of it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
from compare import CONSOLE, RESULTS, machine
from universality_study import error_curve, graded

import measureformer as mf
from measureformer.figures.draw import draw, to_svg
from measureformer.figures.figure import Figure, Series
from measureformer.storage.files import write_atomically
from measureformer.training.architecture import Architecture
from measureformer.universality import Search, fit, fit_map, train_functional
from measureformer.universality.corollary import map_errors
from measureformer.universality.lessons import CLIMBS, LARGE, LESSONS, POOL, SHARE, STEPS
from measureformer.universality.targets import distance_to_uniform, kernel_regression, smooth_quantile, softmin_distance

LINE, WIDE, PLANE = mf.Box([0.0], [1.0]), mf.Box([-1.0], [1.0]), mf.Box([-1.0, -1.0], [1.0, 1.0])
SEEDS, OF_TARGETS = range(3), range(110, 115)
"""Seeds of the studies, and of the targets. The constants of the fit were chosen on others, all below 100."""
FILE = RESULTS / "universality.json"
GRADES = {"Lipschitz": 1, "C¹": 2, "C²": 3, "analytic": None}
SMALL = Search(contexts=300, rounds=1)


def vlasov(head: Any, time: float = 0.5) -> Any:
    """The in-context map of ẋ = softmax attention, at a time."""
    velocity = mf.Attention.head(*head)
    start = mf.Discrete.dirac(np.zeros(velocity.in_dim))
    return mf.flow(velocity, start, [0.0, time], solver="rk4", steps=4).map(time)


def pushed(velocity: Any, time: float = 0.5) -> Callable[[mf.Discrete], Any]:
    return lambda mu: mf.flow(velocity, mu, [0.0, time], solver="rk4", steps=4).measures[-1]


UNIT = ([[1.0]], [[1.0]], [[1.0]])
TURN = ([[1.0, 0.4], [-0.3, 0.8]], [[1.0, 0.0], [0.0, 1.0]], [[0.7, -0.5], [0.5, 0.7]])
TARGETS = {
    "mean": (mf.universality.mean(1), LINE),
    "variance": (mf.universality.variance(1), LINE),
    "smooth quantile": (smooth_quantile(0.3, 0.2), LINE),
    "W_1 to the uniform law": (distance_to_uniform(), LINE),
    "soft distance": (softmin_distance(1, 0.5), LINE),
    "kernel regression": (kernel_regression(1.0), PLANE),
    "Vlasov": (vlasov(UNIT), WIDE),
}
MAPS = {
    "Vlasov": (mf.Attention.head(*UNIT), WIDE),
    "Cucker–Smale": (mf.flows.CuckerSmale(1.0, 1.0, 0.5), PLANE),
}


def targets(name: str, seed: int) -> Any:
    """Largest held-out errors over the size of the target, by the number of terms."""
    target, domain = TARGETS[name]
    found = fit(target, domain, jax.random.key(seed), tol=1e-9)
    growth = float(np.diff(found.training_errors).max(initial=0.0))
    rows = {str(row.terms): row.held_out / found.scale for row in found.rows}
    return {"rows": rows, "searched": found.worst / found.scale, "growth of the training error": growth}


def smoothness(name: str, seeds: int) -> Any:
    return _curve(graded(GRADES[name]), LINE, seeds)


def blocks(name: str, seeds: int) -> Any:
    """A vector-valued target, with vector-valued blocks or with a network for each component."""
    return _curve(vlasov(TURN), PLANE, seeds, separately=name == "scalar")


def _curve(target: Any, domain: Any, seeds: int, **options: Any) -> Any:
    keys = [jax.random.key(seed) for seed in range(seeds)]
    curve = error_curve(target, domain, keys, search=SMALL, **options)
    return {
        "parameters": curve.parameters.tolist(),
        "errors": curve.errors.tolist(),
        "slopes": curve.slopes.tolist(),
        "interval": curve.interval,
    }


def trained(name: str, seed: int) -> Any:
    target, domain = TARGETS[name]
    out: list[tuple[int, float]] = []
    for size in (4, 8, 16):
        net = Architecture(width=size, layers=2, hidden=2 * size, norm="none")
        steps = mf.Optimization(steps=1500, rate=0.005)
        found = train_functional(
            target, domain, jax.random.key(seed), architecture=net, optimization=steps, search=SMALL
        )
        out.append((found.parameters, found.held_out / found.scale))
    return out


def compiled(name: str, seed: int) -> Any:
    target, domain = TARGETS[name]
    out: list[tuple[int, float]] = []
    for terms in (3, 10, 30, 100, 300):
        search = Search(terms=terms, contexts=SMALL.contexts, rounds=1)
        found = fit(target, domain, jax.random.key(seed), tol=1e-9, search=search)
        net = found.compile(activation="quadratic")
        out.append((net.census.parameters, found.rows[-1].held_out / found.scale))
    return out


def corollary(name: str, seed: int) -> Any:
    """Largest W_1 error over the largest displacement, on ten times the atoms: fitted and compiled, and trained."""
    velocity, domain = MAPS[name]
    f, key = pushed(velocity), jax.random.key(seed)
    search = Search(contexts=200, rounds=2, terms=200, blocks=300, candidates=1500)
    net = Architecture(width=16, layers=2, hidden=32, norm="none")
    found = train_functional(mf.recover(f), domain, key, architecture=net, search=search)
    return {
        "compiled": fit_map(f, domain, key, tol=1e-4, search=search).held_out.relative_error,
        "trained": map_errors(found.transformer, f, domain, key, atoms=10 * search.atoms).relative_error,
    }


def jobs() -> list[tuple[str, Callable[[], Any]]]:
    listed: list[tuple[str, Callable[[], Any]]] = []

    def add(part: Callable[[str, int], Any], name: str, number: int) -> None:
        listed.append((f"{part.__name__}/{name}/{number}", lambda: part(name, number)))

    for seed in OF_TARGETS:
        for name in TARGETS:
            add(targets, name, seed)
    for name in GRADES:
        add(smoothness, name, len(SEEDS))
    for name in ("vector", "scalar"):
        add(blocks, name, len(SEEDS))
    for seed in SEEDS:
        for part in (trained, compiled):
            add(part, "soft distance", seed)
        for name in MAPS:
            add(corollary, name, seed)
    return listed


def report(data: dict[str, Any]) -> str:
    lines = [
        "# universality",
        "",
        "## Largest errors on measures not seen, over the size of the target",
        "",
        "By the number of terms; every seed. The last column includes what an adversary found. Constants of the fit "
        "were chosen on other seeds, and not changed after these had been seen.",
        "",
        "| target | seed | 10 | 100 | all terms | searched |",
        "|---|---|---|---|---|---|",
    ]
    for key, found in _of(data, targets):
        rows = found["rows"]
        shown = [f"{rows[k]:.1e}" if k in rows else "–" for k in ("10", "100")]
        last = list(rows)[-1]
        name, seed = key
        lines.append(f"| {name} | {seed} | {' | '.join(shown)} | {rows[last]:.1e} ({last}) | {found['searched']:.1e} |")
    lines += ["", "## Slopes of log error against log parameters", "", "Measured: no theorem is known.", ""]
    lines += ["| target | mean slope, 95 % interval | seeds |", "|---|---|---|"]
    for part in (smoothness, blocks):
        for (name, _), found in _of(data, part):
            low, high = found["interval"]
            label = name if part is smoothness else f"Vlasov on the plane, {name} blocks"
            seeds = ", ".join(f"{slope:.2f}" for slope in found["slopes"])
            lines.append(f"| {label} | {np.mean(found['slopes']):.2f} in [{low:.2f}, {high:.2f}] | {seeds} |")
    lines += ["", "## Compiled and trained: soft distance", "", "| way | seed | parameters: error |", "|---|---|---|"]
    for part in (compiled, trained):
        for (_, seed), found in _of(data, part):
            shown = ", ".join(f"{count}: {error:.1e}" for count, error in found)
            lines.append(f"| {part.__name__} | {seed} | {shown} |")
    lines += ["", "## Maps between measures: W_1 error over displacement, on ten times the atoms", ""]
    lines += ["| map | seed | compiled | trained |", "|---|---|---|---|"]
    for (name, seed), found in _of(data, corollary):
        lines.append(f"| {name} | {seed} | {found['compiled']:.3f} | {found['trained']:.3f} |")
    about = ", ".join(f"{key} {value}" for key, value in machine({}).items())
    return "\n".join([*lines, "", about, ""])


def _of(data: dict[str, Any], part: Callable[..., Any]) -> list[tuple[tuple[str, str], Any]]:
    keys = [key.split("/") for key in data]
    return [((name, number), data[f"{kind}/{name}/{number}"]) for kind, name, number in keys if kind == part.__name__]


def figures(data: dict[str, Any]) -> dict[str, Figure]:
    """Geometric means over the seeds."""

    def mean(numbers: Any) -> tuple[float, ...]:
        return tuple(np.exp(np.log(numbers).mean(axis=0)).tolist())

    smooth = [
        Series(name, mean(f["parameters"]), mean(f["errors"]), role="measured")
        for (name, _), f in _of(data, smoothness)
    ]
    ways: list[Series] = []
    for part in (compiled, trained):
        pairs = np.array([found for _, found in _of(data, part)])
        ways.append(Series(part.__name__, mean(pairs[..., 0]), mean(pairs[..., 1]), role="measured"))
    axes: dict[str, Any] = {"xscale": "log", "yscale": "log"}
    return {
        "universality": Figure(
            "By smoothness of the target", "parameters of the compiled network", "largest error", tuple(smooth), **axes
        ),
        "universality-ways": Figure(
            "Soft distance to the cloud", "parameters", "largest error / size of the target", tuple(ways), **axes
        ),
    }


def main() -> None:
    RESULTS.mkdir(exist_ok=True)
    about = {
        **asdict(Search()),
        "LARGE": LARGE,
        "POOL": POOL,
        "LESSONS": LESSONS,
        "CLIMBS": CLIMBS,
        "STEPS": STEPS,
        "SHARE": SHARE,
    }
    body = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if body.get("about") != about:
        body = {"about": about, "found": {}}
    data: dict[str, Any] = body["found"]
    for name, job in jobs():
        if name not in data:
            with CONSOLE.status(name):
                data[name] = job()
            assert not any(map(math.isnan, jax.tree.leaves(data[name])))
            text = json.dumps(body, indent=1, ensure_ascii=False) + "\n"
            write_atomically(FILE, text.encode(), do="Make room.")
            CONSOLE.print(name)
    (RESULTS / "universality.md").write_text(report(data), encoding="utf-8")
    for name, figure in figures(data).items():
        (RESULTS / f"{name}.svg").write_bytes(to_svg(draw(figure)))


if __name__ == "__main__":
    main()
