"""`compile_sparse`: selective shifts follow a chain of connections, then maxima spread the code to all tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from measureformer.errors import ConstructionError
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Side
from measureformer.sequences import yun
from measureformer.sequences.codes import CellCodes, cells_of, checked_size
from measureformer.sequences.construction import Construction
from measureformer.sequences.function import SequenceFunction
from measureformer.sequences.layers import Shift
from measureformer.sequences.sparse.conditions import Conditions, check_pattern
from measureformer.sequences.sparse.patterns import Pattern, as_pattern


@checked
def compile_sparse(
    f: Callable[[np.ndarray], ArrayLike], pattern: Pattern, *, d: int, delta: Side, ramp: float = 1e-3
) -> Construction:
    """Compile f into a transformer with this mask that is close to it on sequences of tokens in the cube [0, 1]^d.

    Arguments:
        f: function from (n, d) to (n, d), or from (batch, n, d) to the same shape; may depend on the order of tokens.
        pattern: booleans (n, n) or (p, n, n), [k, j]: query k sees token j; must satisfy the three conditions of
            `check_pattern`.
        d: dimension of the tokens.
        delta: side of a cell, 1 over a whole number ≥ 2.
        ramp: width over which ReLUs replace a jump, at most delta/4; rounded down to a power of two.

    Statement   along the chain γ, with places so that γ(2) < γ(3) < … < γ(n) < γ(1): L_2 = l_2 + K(l_1 − l_2),
                L_i = l_i + K(L_{i−1} − l_i); then s layers x_k ← x_k + C·max over the tokens that k sees
    Proof       when γ(i) is shifted, it is the smallest id that it sees, since it sees itself and only those before it
                on the chain have moved, beyond all ids; and the largest one is L_{i−1}, which it sees by the choice of
                the chain. L_n determines all tokens, is the largest of all, and after s maxima leads every code.
    Cost        p(n−1)N + s layers of attention and n·N^n value layers.
    Ref         yun2020b, Theorem 1.

    >>> import measureformer as mf
    >>> star = mf.sequences.sparse_pattern("star", 3)
    >>> net = mf.sequences.compile_sparse(lambda X: X[::-1], star, d=1, delta=1 / 4)
    >>> net.run([[0.1], [0.4], [0.9]]).tolist(), net.census.attention, net.bits_required()
    ([[0.875], [0.375], [0.125]], 9, 24)
    """
    seen = as_pattern(pattern)
    found = check_pattern(seen)
    if found.universal != "yes":
        raise ConstructionError(
            got=f"a pattern that does not satisfy the conditions:\n{found}",
            need="self-loops, a chain and reach, which the construction uses",
            do="mf.sequences.suggest_pattern(pattern) adds what is missing.",
        )
    chain, n = found.chain.path, found.n
    assert chain is not None  # universal is "yes"
    places = np.zeros(n, int)
    places[list(chain)] = [n - 1, *range(n - 1)]
    grid = CellCodes(positive_int(d, "d"), n, cells_of(delta), tuple(places.tolist()), found.reach.steps)
    checked_size(grid)
    return yun.assembled(SequenceFunction(f, grid.d, n), grid, _shifts(grid, seen, found), ramp)


def _shifts(grid: CellCodes, seen: np.ndarray, found: Conditions) -> tuple[Shift, ...]:
    chain, steps = found.chain.path, found.reach.steps
    assert chain is not None
    assert steps is not None
    p, K, D = len(seen), grid.base, grid.cells
    gain = yun.gain(grid, K)
    layers: list[Shift] = []
    for before, token in itertools.pairwise(chain):
        on = int(seen[:, token, before].argmax())
        for i in range(grid.offsets[token], grid.offsets[token] + grid.tokens):
            # layers take the patterns in turn: those that do not show the one before are idle
            scales = [K if l == on else 0 for l in range(p)]  # noqa: E741
            layers += [
                Shift("sweep", grid.u, 1, (1 - 2 * i, -1 - 2 * i), (s, -s), D, gain, seen[l])
                for l, s in enumerate(scales)  # noqa: E741
            ]
    gain = yun.gain(grid, grid.spread)
    spread = [Shift("global shift", grid.u, 0, (2,), (grid.spread,), D, gain, seen[t % p]) for t in range(steps)]
    return (*layers, *spread)
