"""What `mf.is_transformer` found about somebody's own map, as a result: JSON, with a control, for the pages."""

from __future__ import annotations

import time
from importlib import metadata

import numpy as np

from measureformer.atlas.references import cite
from measureformer.atlas.result import Check, Control, Outcome, Result
from measureformer.measures import Discrete
from measureformer.numerics.types import Key
from measureformer.structure import is_transformer
from measureformer.structure.black_box import BlackBox
from measureformer.structure.theorem import REPRODUCED, TransformerReport

SPLIT = "split-atoms"


def outcome(found: TransformerReport) -> Outcome:
    """The numbers as checks, in the order of the search; what it did not reach is NaN, and inconclusive."""
    nothing = float("nan")
    ends = [
        nothing if part is None else (part.witness.jump if part.witness else 0.0) / found.scale
        for part in (found.itself, found.derivative)
    ]
    violations = nothing if found.support is None else float(not found.support.holds)
    return Outcome(
        (
            Check("violations of the support", violations, high=0.0, rejected_by=SPLIT),
            # the control stops at the support: it says nothing about what comes before and after
            Check("jump of f, as a share of the image", ends[0], high=0.0, context=True),
            Check("jump of the in-context map, as a share of the image", ends[1], high=0.0, context=True),
            Check("W_1 to the recovered map, held out", found.held_out / found.scale, high=REPRODUCED, context=True),
        )
    )


def result(found: TransformerReport, key: Key, *, name: str = "black-box") -> Result:
    """A `Result` that the report can draw. Its control is f with every atom split in two, a tenth of the image apart.

    >>> import jax, measureformer as mf
    >>> relu, line = mf.MLP([[[1.0]], [[1.0]]], [[0.0], [0.0]]), mf.Box([-1.0], [1.0])
    >>> found = mf.is_transformer(relu.push, line, jax.random.key(0), trials=2)
    >>> result(found, jax.random.key(1), name="relu").passes
    True
    """
    start = time.perf_counter()
    control = is_transformer(_split(found.box, found.scale / 20), found.domain, key, trials=1)
    return Result(
        claim=f"furuya-2025-theorem-on-{name}",
        chapter="structure",
        chapter_title="Which maps between measures are transformers",
        title=f"Is {name} a transformer?",
        kind="observation",
        statement="f(μ) = G(μ,·)♯μ with a continuous in-context map G.",
        hypotheses=("a search for violations, which is evidence and no proof",),
        reference="furuya2025, Theorem 1",
        citation=cite("furuya2025"),
        run=outcome(found),
        controls=(Control(SPLIT, "f, and then every atom split in two.", outcome(control)),),
        seed=0,
        preset="full",
        config={"trials": found.trials, "calls": found.calls, "dim": found.domain.dim},
        versions={package: metadata.version(package) for package in ("jax", "numpy")},
        seconds=time.perf_counter() - start,
        fingerprint="",
        command="mf.is_transformer(f, domain, key)",
    )


def _split(box: BlackBox, step: float) -> BlackBox:
    def f(mu: Discrete) -> Discrete:
        nu = box(mu)
        return 0.5 * nu.push(lambda y: np.asarray(y) - step) + 0.5 * nu.push(lambda y: np.asarray(y) + step)

    return BlackBox.of(f)
