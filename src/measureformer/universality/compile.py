"""`compile`: from a polynomial in blocks to the weights of a transformer, with a certified error bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from measureformer.errors import DimensionMismatchError, OptionError, ToleranceError
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import owned, positive_int
from measureformer.numerics.checked import checked
from measureformer.universality.algebra import AbstractExpression, Expression
from measureformer.universality.compiled import Compiled, Layers, blank, stacked
from measureformer.universality.perceptron import Perceptron, Places
from measureformer.universality.program import SLACK, Interval, Program, block_ranges, programmed
from measureformer.universality.rounding import rounding

MEMORY = 1 << 28
"""Bytes of weights in hidden layers beyond which compilation is refused."""


@checked
def compile(
    expression: AbstractExpression,
    domain: AbstractDomain,
    *,
    activation: Literal["relu", "quadratic"] = "relu",
    tol: float = 1e-3,
    cells: int | None = None,
) -> Compiled:
    """Compile an expression into an ordinary transformer: softmax attention and perceptrons, with skips.

    Tokens (x ∈ R^d; y, p, z ∈ R^e) have dimension d + 3e, where e is the number of components, and each layer has e
    heads; neither depends on the accuracy or on the number of tokens. In each layer, each component reads one block by
    attention into z and multiplies p by it; after the last factor of a monomial it adds p to y.

    The error bound holds in floating-point arithmetic, in the model of `measureformer.universality.rounding`, for all
    measures of at most 2^20 atoms in the domain and all points in it. With relu, points outside are refused; a
    quadratic network accepts them, with rounding errors that nothing bounds.

    Arguments:
        expression: a polynomial in blocks, from `Block` and arithmetic.
        domain: compact set that holds the tokens and the queries.
        activation: "relu" computes products approximately; "quadratic", t ↦ t², computes them exactly.
        tol: bound on the error ("relu" only); one that rounding errors alone exceed is refused.
        cells: cells of the piecewise linear products; by default the fewest with `error_bound` ≤ tol.

    Statement   sup |T[mu](x) − e(mu, x)| ≤ error_bound over measures with atoms in the domain and x in it, with token
                dimension d + 3e, e heads, and as many layers as the longest component has factors
    Hypotheses  checked: points in the domain (relu).
    Cost        at most e (2·cells + 4) hidden units in a layer.
    Ref         furuya2024.

    >>> import measureformer as mf
    >>> mean = mf.universality.Block(None, None, 0.0, None, [1.0])
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> net = mf.universality.compile((x - mean) ** 2, mf.Box([-1.0], [1.0]), tol=1e-2)
    >>> mu = mf.Discrete.uniform([[-1.0], [0.5]])
    >>> abs(float(net(mu, [1.0])[0]) - 1.25**2) <= net.error_bound <= 1e-2
    True
    >>> net.census.token_dim, net.census.heads, net.census.layers
    (4, 1, 6)
    """
    whole = expression.polynomial()
    if domain.dim != whole.dim:
        raise DimensionMismatchError(
            got=f"an expression on R^{whole.dim} and a domain in R^{domain.dim}",
            need="one dimension",
            do="The domain holds the tokens, and the queries.",
        )
    if not 0 < tol < math.inf:
        raise OptionError(got=f"tol = {tol!r}", need="a positive number", do="Leave it out for 1e-3.")
    ranges = block_ranges(whole, domain)
    if activation == "quadratic":
        chosen = None
    else:
        chosen = _fewest(whole, ranges, domain, tol) if cells is None else positive_int(cells, "cells")
        _refuse_wide(whole, chosen, f"tol = {tol:g}" if cells is None else f"cells = {cells}")
    return _built(whole, _certified(whole, ranges, domain, chosen), domain, chosen)


def _certified(expression: Expression, ranges: list[Interval], domain: AbstractDomain, cells: int | None) -> Program:
    """The program with bounds that count rounding errors, too."""
    program = programmed(expression, ranges, cells)
    rounded = rounding(program, expression.factors, domain, cells)
    return program._replace(bounds=(1 + SLACK) * program.bounds + rounded)


def _fewest(expression: Expression, ranges: list[Interval], domain: AbstractDomain, tol: float) -> int:
    """The smallest number of cells whose bound is at most tol."""

    def products(cells: int) -> float:
        return float(np.linalg.norm(programmed(expression, ranges, cells).bounds))

    def certified(cells: int) -> float:
        return float(np.linalg.norm(_certified(expression, ranges, domain, cells).bounds))

    high = 1
    while products(high) > tol:
        high *= 2
    cells = _between(products, tol, high // 2, high)
    _refuse_wide(expression, cells, f"tol = {tol:g}")
    # there the errors of the products are a quarter of those that tol allows
    if not certified(2 * cells) <= tol:
        raise ToleranceError(
            got=f"tol = {tol:g}, and rounding errors of up to {certified(2 * cells):.2g}",
            need="a tolerance above the bound for rounding errors in double precision",
            do="Allow a larger tol, or scale the domain and the blocks to size 1.",
        )
    return _between(certified, tol, cells - 1, 2 * cells)


def _between(bound: Callable[[int], float], tol: float, low: int, high: int) -> int:
    """Cells with a bound of at most tol, where one less is not enough; low is not enough, and high is."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) <= tol else (middle, high)
    return high


def _refuse_wide(expression: Expression, cells: int, asked: str) -> None:
    dim, components = expression.dim, expression.coefficients.shape[1]
    depth = max(sum(len(blocks) for _, blocks in expression.terms(h)) for h in range(components))
    width = components * (2 * cells + 4)
    size = 8 * depth * width * (2 * (dim + 3 * components) + 1)
    if size > MEMORY:
        raise ToleranceError(
            got=f"{asked}, for which a layer needs {width} hidden units, and all {depth} of them {size >> 20} MiB",
            need=f"at most {MEMORY >> 20} MiB",
            do='Allow a larger tol (the width falls like its root), a smaller domain, or activation="quadratic".',
        )


def _built(expression: Expression, program: Program, domain: AbstractDomain, cells: int | None) -> Compiled:
    dim, components = expression.dim, len(program.steps)
    places = Places(dim, components)
    factors = expression.factors.rows(slice(None))
    layers: list[Layers] = []
    for number in range(program.depth):
        Q, K, V, W = blank(dim, components)[:4]
        K[:, np.arange(dim), np.arange(dim)] = 1.0
        perceptron = Perceptron(places, cells)
        for h, steps in enumerate(program.steps):
            if number >= len(steps):
                continue
            step, z = steps[number], places.z(h)
            # z is 1 at every token when a layer begins: it carries the constants of the block
            Q[h, :, :dim], Q[h, :, z] = factors.A[step.block], factors.b[step.block]
            V[h, 0, :dim], V[h, 0, z] = factors.v[step.block], factors.c[step.block]
            W[h, z, 0] = 1.0
            perceptron.add(h, step, factors.u[step.block])
        layers.append(Layers(Q, K, V, W, *perceptron.weights))
    embed = np.zeros((places.size, dim + 1))
    embed[:dim, :dim] = np.eye(dim)
    embed[dim + components :, -1] = 1.0
    readout = np.zeros((components, places.size + 1))
    readout[:, dim : dim + components] = np.eye(components)
    readout[:, -1] = program.constants
    return Compiled(
        layers=Layers(*map(owned, stacked(layers, blank(dim, components)))),
        embed=owned(embed),
        readout=owned(readout),
        bounds=program.bounds,
        domain=domain,
        widths=tuple(len(layer.b1) for layer in layers),
        cells=cells,
        story=_story(program),
    )


def _story(program: Program) -> tuple[str, ...]:
    lines: list[str] = []
    for layer in range(program.depth):
        parts: list[str] = []
        for h, steps in enumerate(program.steps):
            if layer >= len(steps):
                parts.append(f"component {h} is done")
                continue
            step = steps[layer]
            read = f"head {h} reads γ{step.block} into z{h}"
            product = f"γ{step.block}" if step.first else f"p{h}·γ{step.block}"
            summed = f"y{h} ← y{h} {step.weight:+.4g}·{product}, p{h} ← 1"
            done = summed if step.last else f"p{h} ← {product}"
            parts.append(f"{read}; {done} (monomial {step.term}, factor {step.place} of {step.length})")
        lines.append("\n".join(parts))
    return tuple(lines)
