"""Three conditions for the universality of a pattern of sparse attention, with certificates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from measureformer.numerics.checked import checked
from measureformer.sequences.sparse.chain import csgraph, hamiltonian_path, path_cover
from measureformer.sequences.sparse.patterns import Pattern, as_pattern

Answer = Literal["yes", "no", "unknown"]
SHOWN = 5


@dataclass(frozen=True)
class SelfLoops:
    """Whether every query sees its own token, in every pattern."""

    holds: bool
    missing: tuple[tuple[int, int], ...]
    """(pattern, token) of all that do not."""


@dataclass(frozen=True)
class Chain:
    """Whether there is an order γ of all tokens in which each sees the one before it, in some pattern."""

    holds: Answer
    path: tuple[int, ...] | None
    """The certificate: γ(1), …, γ(n)."""
    obstruction: str
    """Why there is none."""


@dataclass(frozen=True)
class Reach:
    """Whether after finitely many layers every token has seen every other, and after how many."""

    holds: Answer
    steps: int | None
    """The least such number of layers."""
    unreachable: tuple[int, int] | None
    """(k, j): token k never depends on token j, however many layers, skips included."""


@dataclass(frozen=True)
class Conditions:
    """What `check_pattern` found. `universal` is "yes" if all three conditions hold, "no" if `unreachable` is a pair.

    >>> import measureformer as mf
    >>> found = mf.sequences.check_pattern(mf.sequences.sparse_pattern("causal", 8))
    >>> found.universal, found.self_loops.holds, found.chain.holds, found.reach.unreachable
    ('no', True, 'yes', (0, 7))
    """

    n: int
    patterns: int
    connections: tuple[int, ...]
    """Of each pattern."""
    self_loops: SelfLoops
    chain: Chain
    reach: Reach

    @property
    def universal(self) -> Answer:
        if self.reach.unreachable is not None:
            return "no"
        met = self.self_loops.holds and self.chain.holds == "yes" and self.reach.holds == "yes"
        return "yes" if met else "unknown"

    def __str__(self) -> str:
        loops = "yes" if self.self_loops.holds else f"no, e.g. (pattern, token) {self.self_loops.missing[:SHOWN]}"
        path = self.chain.path
        chain = self.chain.holds if path is None else f"yes, {_short(path)}"
        if self.chain.obstruction:
            chain += f": {self.chain.obstruction}"
        reach = self.reach.holds if self.reach.steps is None else f"yes, after {self.reach.steps} layers"
        if self.reach.unreachable is not None:
            reach += ": token {} never hears of token {}".format(*self.reach.unreachable)
        return "\n".join(
            [
                f"{self.patterns} pattern{'s' if self.patterns > 1 else ''} on {self.n} tokens, connections "
                + " + ".join(map(str, self.connections)),
                f"every query sees itself: {loops}",
                f"a chain through all tokens: {chain}",
                f"all tokens hear of all: {reach}",
                f"universal: {self.universal}",
            ]
        )


@checked
def check_pattern(pattern: Pattern, *, n: int | None = None, seconds: float = 2.0) -> Conditions:
    """Check whether transformers with this mask approximate all continuous functions of n tokens.

    Positions are trained. The conditions are sufficient, not necessary. A token that never hears of another refutes
    universality.

    Arguments:
        pattern: booleans (n, n), [k, j]: query k sees token j; or (p, n, n), p patterns that layers take in turn; or a
            function of k and j.
        n: number of tokens; required if `pattern` is a function.
        seconds: time limit of the search for a chain.

    Statement   if every query sees itself, if there is an order of the tokens in which each sees the one before, and if
                after finitely many layers all have seen all, then such transformers are dense
    Cost        O(connections · n / 64) for each layer until all have seen all; a chain may take up to `seconds`.
    Ref         yun2020b, Theorem 1.

    >>> import measureformer as mf
    >>> found = mf.sequences.check_pattern(lambda k, j: abs(k - j) <= 2, n=64)
    >>> found.universal, found.reach.steps, found.connections
    ('yes', 32, (314,))
    >>> print(mf.sequences.check_pattern([[True, False], [True, True]]))
    1 pattern on 2 tokens, connections 3
    every query sees itself: yes
    a chain through all tokens: yes, 0 → 1
    all tokens hear of all: no: token 0 never hears of token 1
    universal: no
    """
    seen = as_pattern(pattern, n)
    p, size = seen.shape[:2]
    missing = np.argwhere(~np.diagonal(seen, axis1=1, axis2=2))
    union = _union(seen)
    # a step of the chain goes from the token that is seen to the one that sees it
    found = hamiltonian_path(union.T, seconds)
    answer: Answer = "yes" if found.path is not None else "no" if found.obstruction else "unknown"
    return Conditions(
        n=size,
        patterns=p,
        connections=tuple(int(count) for count in seen.sum(axis=(1, 2))),
        self_loops=SelfLoops(not len(missing), tuple((int(a), int(b)) for a, b in missing)),
        chain=Chain(answer, found.path, found.obstruction),
        reach=_reach(seen, union),
    )


def _reach(seen: np.ndarray, union: np.ndarray) -> Reach:
    unreachable = _unreachable(union)
    if unreachable is not None:
        return Reach("no", None, unreachable)
    p, n = len(seen), len(union)
    if (~seen.any(axis=2)).any():
        # a query that sees nothing forgets everything in that layer
        return Reach("no" if p == 1 else "unknown", None, None)
    rows = [_rows(pattern) for pattern in seen]
    known, full = _words(seen[0]), _words(np.ones((n, n), bool))
    # with self-loops sets only grow, so n periods are enough; without, they may come back to where they were
    met: set[bytes] = set()
    for t in range(1, 2 * n * p + 2):
        if np.array_equal(known, full):
            return Reach("yes", t, None)
        if t % p == 0:
            state = known.tobytes()
            if state in met:
                return Reach("no", None, None)
            met.add(state)
        columns, starts = rows[t % p]
        known = np.bitwise_or.reduceat(known[columns], starts, axis=0)
    return Reach("unknown", None, None)


def _union(seen: np.ndarray) -> np.ndarray:
    return np.logical_or.reduce(seen, axis=0)


def _words(sets: np.ndarray) -> np.ndarray:
    """Rows of booleans as rows of 64-bit words."""
    packed = np.packbits(sets, axis=1)
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)


def _rows(pattern: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that are seen, query after query, and where each query begins."""
    queries, tokens = np.nonzero(pattern)
    return tokens, np.searchsorted(queries, np.arange(len(pattern)))


def _unreachable(union: np.ndarray) -> tuple[int, int] | None:
    """A pair (k, j) such that no path of connections leads from k to j, or None."""
    if csgraph.connected_components(csr_array(union), directed=True, connection="strong")[0] == 1:
        return None
    # the component that sees only itself has such a pair; it is the one that reaches the fewest
    for k in range(len(union)):
        reached: np.ndarray = csgraph.breadth_first_order(csr_array(union), k, directed=True, return_predecessors=False)
        if len(reached) < len(union):
            return k, int(np.setdiff1d(np.arange(len(union)), reached).max())
    raise AssertionError("several strong components, yet every token reaches all")


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A pattern that satisfies the conditions, and the connections added for it.

    >>> import measureformer as mf
    >>> mf.sequences.suggest_pattern(mf.sequences.sparse_pattern("causal", 8)).added
    ((0, 0, 7),)
    """

    pattern: np.ndarray
    """(p, n, n)"""
    added: tuple[tuple[int, int, int], ...]
    """(pattern, query, token) of all new connections."""
    conditions: Conditions


@checked
def suggest_pattern(pattern: Pattern, *, n: int | None = None, seconds: float = 2.0) -> Suggestion:
    """Add few connections to a pattern so that it satisfies the conditions of `check_pattern`.

    Missing self-loops are added, and paths that cover all tokens are joined to a chain. If some token still never hears
    of another, one connection closes the chain to a circle. The number of additions is small, not minimal: finding the
    fewest is as hard as finding a chain.

    Arguments:
        pattern: booleans (n, n) or (p, n, n), or a function of k and j, as for `check_pattern`.
        n: number of tokens; required if `pattern` is a function.
        seconds: time limit of each search for a chain.

    Ref         yun2020b.

    >>> import numpy as np, measureformer as mf
    >>> found = mf.sequences.suggest_pattern(mf.sequences.sparse_pattern("block-diagonal", 16))
    >>> len(found.added), found.conditions.universal
    (4, 'yes')
    """
    seen = as_pattern(pattern, n).copy()
    size = seen.shape[1]
    before = seen.copy()
    seen[:, np.arange(size), np.arange(size)] = True
    found = hamiltonian_path(_union(seen).T, seconds)
    path = found.path
    if path is None:
        path = tuple(i for piece in path_cover(_union(seen).T) for i in piece)
        for first, second in itertools.pairwise(path):
            if not seen[:, second, first].any():
                seen[0, second, first] = True
    if _unreachable(_union(seen)) is not None:
        seen[0, path[0], path[-1]] = True
    added = tuple((int(a), int(b), int(c)) for a, b, c in np.argwhere(seen & ~before))
    return Suggestion(seen, added, check_pattern(seen, seconds=seconds))


def _short(path: tuple[int, ...]) -> str:
    if len(path) <= 2 * SHOWN:
        return " → ".join(map(str, path))
    return " → ".join([*map(str, path[:SHOWN]), "…", *map(str, path[-2:])])
