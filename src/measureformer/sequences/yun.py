"""From a function of sequences to the weights of a transformer with two heads of size 1 and four hidden units."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from measureformer.errors import ConstructionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Side
from measureformer.sequences.activation import Activation, power_of_two_below
from measureformer.sequences.codes import CellCodes, bits, cells_of, checked_ramp, checked_size
from measureformer.sequences.construction import Construction
from measureformer.sequences.construction import Decoded as Decoded
from measureformer.sequences.construction import LayerCensus as LayerCensus
from measureformer.sequences.function import SequenceFunction, refuse_not_equivariant
from measureformer.sequences.layers import Bumps, Feed, Shift, Tag


@checked
def compile_yun(
    f: Callable[[np.ndarray], ArrayLike], *, d: int, n: int, delta: Side, positions: bool = False, ramp: float = 1e-3
) -> Construction:
    """Compile f into a transformer that is close to it on sequences of n tokens in the cube [0, 1]^d.

    The network has the values of f at the centres of cells of side `delta`. Sequences with two tokens in one cell are
    sent to 0.

    Arguments:
        f: function from (n, d) to (n, d), or from (batch, n, d) to the same shape; permutation equivariant,
            f(XP) = f(X)P, unless `positions` is true.
        d: dimension of the tokens.
        n: number of tokens.
        delta: side of a cell, 1 over a whole number ≥ 2.
        positions: add positions to the tokens, so that f may depend on their order.
        ramp: width over which ReLUs replace a jump, at most delta/4; rounded down to a power of two, so that
            breakpoints are exact.

    Statement   for f continuous and ε > 0 there is a network with two heads of size 1 and four hidden ReLUs such that
                (∫ ‖f − g‖_p^p)^{1/p} < ε; this is the network of the proof
    Hypotheses  checked: f finite on cells, equivariant on random sequences. assumed: f continuous.
    Proof       quantise: d(1/δ + 1) perceptrons. Contexts: N + 1 layers of attention, N = δ^{−d}, give each token a
                number that determines all tokens. Values: one perceptron for each such number.
    Cost        n·C(N, n) value layers, n·N^n with positions; codes of 2(n+1)·log2 N bits.
    Ref         yun2020, Theorems 2 and 3.

    >>> import numpy as np, measureformer as mf
    >>> f = lambda X: np.sin(6 * X) + X.mean(axis=-2, keepdims=True)
    >>> net = mf.sequences.compile_yun(f, d=1, n=2, delta=1 / 16)
    >>> X = np.array([[0.1], [0.7]])
    >>> float(np.abs(net.run(X) - f(X)).max()) < 0.2
    True
    >>> net.census.attention, net.census.feedforward
    (17, 259)
    """
    d, n, cells = positive_int(d, "d"), positive_int(n, "n"), cells_of(delta)
    grid = CellCodes(d, n, cells, tuple(range(n)) if positions else None)
    checked_size(grid)
    function = SequenceFunction(f, d, n)
    if not positions:
        refuse_not_equivariant(function)
    return assembled(function, grid, selective_shifts(grid), ramp)


def selective_shifts(grid: CellCodes, scale: int | None = None) -> tuple[Shift, ...]:
    """The contextual mapping: a sweep over all ids, then a global shift. `scale` is K unless given.

    Statement   a pair of heads with thresholds l ± δ/2 adds scale·(max − min) to exactly the tokens with id l; after
                l = 0, δ, 2δ, … and one shift by K^{n+1}·max, ids of tokens are different within a context, and
                contexts that are no permutations of each other share none
    Proof       a shifted id is at least K and so beyond the sweep: each token moves once, in the order of ids. The
                largest id determines the context (`CellCodes.unpack` reads its digits), and the shift gives it to all.
    Ref         yun2020, Lemma 6.

    >>> from measureformer.sequences.yun import CellCodes, selective_shifts
    >>> [layer.tag for layer in selective_shifts(CellCodes(1, 2, 4))]
    ['sweep', 'sweep', 'sweep', 'sweep', 'global shift']
    """
    K, u, D = grid.base, grid.u, grid.cells
    scale = K if scale is None else scale
    swept = sorted({offset + i for offset in set(grid.offsets) for i in range(grid.tokens)})
    strong = gain(grid, K)
    pairs = [Shift("sweep", u, 1, (1 - 2 * i, -1 - 2 * i), (scale, -scale), D, strong) for i in swept]
    last = K ** (grid.n + 1)
    return (*pairs, Shift("global shift", u, 1, (0,), (last,), D, gain(grid, last)))


def assembled(function: SequenceFunction, grid: CellCodes, shifts: tuple[Shift, ...], ramp: float) -> Construction:
    """The whole network around given attention layers.

    >>> from measureformer.sequences.yun import CellCodes, SequenceFunction, assembled, selective_shifts
    >>> grid = CellCodes(1, 2, 4)
    >>> net = assembled(SequenceFunction(lambda X: X, 1, 2), grid, selective_shifts(grid), 1e-3)
    >>> net.run([[[0.3], [0.6]]], "hard").tolist()
    [[[0.375], [0.625]]]
    """
    ramp = checked_ramp(ramp, grid)
    cells = grid.enumerate()
    states = grid.placed(cells)
    for layer in shifts:
        states = layer.integer(states)
    values = function((cells + 0.5) / grid.cells)
    flat, written = states.reshape(-1, grid.d), values.reshape(-1, grid.d)
    codes = flat @ grid.u.astype(flat.dtype)
    _refuse_large(codes, written, grid)
    bound = float(np.abs(written).max()) + 2 * ramp
    return Construction(
        function=function,
        grid=grid,
        ramp=ramp,
        bound=bound,
        quantise=_quantiser(grid),
        shifts=shifts,
        clear=_clearing(grid, int(codes.min()), int(codes.max())),
        bumps=Bumps(grid.u, codes, flat, written, grid.cells),
        clamp=tuple(_row("clamp", i, Activation(-1, 0, -bound, 0, 0, bound, -1, 0), grid) for i in range(grid.d)),
    )


def _quantiser(grid: CellCodes) -> tuple[Feed, ...]:
    """For each coordinate: outside of the range to −J, then [k δ, (k+1) δ) to k δ for all k."""
    D, J = grid.cells, float(min(grid.base**grid.n, 1 << 1000))
    end = 1 + max(grid.places or (0,))
    inside = Activation(-1, -J, 0, 0, 0, end, -1, -J)
    cells = [Activation(0, 0, k / D, -1, k / D, (k + 1) / D, 0, 0) for k in range(end * D)]
    return tuple(_row("quantise", i, phi, grid) for i in range(grid.d) for phi in (inside, *cells))


def _clearing(grid: CellCodes, least: int, most: int) -> tuple[Feed, ...]:
    """Tokens whose code is none of a context go below 0, and then to 0."""
    D, far = grid.cells, float(min(grid.outside + 1, 1 << 1000))
    valid = Activation(0, 1, (least - 0.5) / D, 0, 0, (most + 0.5) / D, 0, 1) if grid.exact else _NEVER
    down = Feed("value", grid.u, valid, (np.full(grid.d, -far),))
    return (down, *(_row("value", i, Activation(-1, 0, 0, 0, 0, 1, 0, 0), grid) for i in range(grid.d)))


_NEVER = Activation(0, 0, 0, 0, 0, 1, 0, 0)
"""Stands where floats cannot hold the true breakpoints: then only whole numbers are run."""


def _row(tag: Tag, i: int, activation: Activation, grid: CellCodes) -> Feed:
    unit = np.eye(grid.d)[i]
    return Feed(tag, unit, activation, (unit,))


def gain(grid: CellCodes, scale: int) -> float:
    """A factor of the logits, a power of two, after which softmax shares differ from 0 and 1 by less than rounding.

    Logits of different ids differ by δ²/2 or more, and what is off the maximum is multiplied by scale · range.

    >>> from measureformer.sequences.yun import CellCodes, gain
    >>> gain(CellCodes(1, 2, 4), 1)
    2048.0
    """
    digits = bits(grid.n) + bits(scale) + bits(grid.most) + 60
    return 2 * power_of_two_below(2.0 * grid.cells**2 * digits * math.log(2))


def _refuse_large(codes: np.ndarray, written: np.ndarray, grid: CellCodes) -> None:
    """What is written must not look like a code: a later layer would act on it."""
    largest = float(np.abs(written @ grid.u).max()) * grid.cells
    if largest >= int(codes.min()) - 1:
        raise ConstructionError(
            got=f"f with values up to {np.abs(written).max():.3g}, as large as a context id",
            need=f"|u·f| below {(int(codes.min()) - 1) / grid.cells:.3g}, u = (1, 1/delta, …)",
            do="Divide f by a constant, or take a smaller delta.",
        )
