"""`memorize`: one softmax head of rank 1, and a look-up of the codes that it computes."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from measureformer.errors import ConstructionError, DimensionMismatchError, DomainError, OptionError, ShapeError
from measureformer.numerics.arrays import finite, floats
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike
from measureformer.sequences.boltzmann.operator import kajitsuka24_log_separation, multiprecision

if TYPE_CHECKING:
    from measureformer.maps.compose import Compose

Mode = Literal["practical", "certified"]
SEED, DIRECTIONS, TEMPERATURES = 2307, 400, 120
LONGEST, DIGITS, PRECISE = 1 << 18, 20_000, 20_000
"""Most codes; most digits; most codes that are computed with many digits."""
ROUNDING = 1e-12
"""A separation below this share of the codes is lost in float64."""


@dataclass(frozen=True, eq=False)
class Memory:
    """A network that maps memorised sequences to their targets: one softmax head of rank 1, then a look-up by bumps.

    The head adds to a token x, along the unit vector v, `reach` times the average of v·y over the tokens y of its
    context with shares softmax(c (v·x)(v·y)). The number v·(the result), its code, then determines token and context.

    >>> import measureformer as mf
    >>> X, Y = [[[1.0], [1.5]], [[1.5], [2.0]]], [[[0.0], [1.0]], [[2.0], [3.0]]]
    >>> net = mf.sequences.memorize(X, Y)
    >>> net.run(X).tolist() == Y, net.run([[[1.5], [1.0]]]).tolist()
    (True, [[[1.0], [0.0]]])
    >>> [int(rank) for rank in net.ranks]
    [1, 1, 1]
    """

    mode: Mode
    v: np.ndarray
    """(d,)"""
    c: float
    reach: float
    """‖W_O W_V‖ = eps/(4 r_max): the head moves no token by more than a quarter of their distance."""
    codes: np.ndarray
    """(m,) increasing; mpmath numbers in the mode "certified"."""
    values: np.ndarray
    """(m, e): the answer to each."""
    n: int
    log_separation: float
    """Decimal logarithm of the least distance of two codes of one token: measured, or computed with enough digits."""
    log_bound: float
    """Decimal logarithm of what the theorem guarantees for these tokens."""
    digits: int
    """Decimal digits in which codes are computed: 16 for float64."""

    @property
    def parameters(self) -> int:
        """Of the head (4 d) and of the look-up, with four hidden units for each code."""
        d, e = len(self.v), self.values.shape[1]
        return 4 * d + 4 * len(self.codes) * (d + 1 + e) + e

    def weights(self) -> dict[str, np.ndarray]:
        """W_Q, W_K, W_V (1, d) and W_O (d, 1), so that W_KᵀW_Q = c v vᵀ."""
        v = self.v[None]
        return {"W_Q": self.c * v, "W_K": v, "W_V": v, "W_O": self.reach * v.T}

    @property
    def ranks(self) -> tuple[int, ...]:
        w = self.weights()
        return tuple(int(np.linalg.matrix_rank(w[name])) for name in ("W_Q", "W_K", "W_V"))

    def code(self, X: ArrayLike) -> np.ndarray:
        """One number for each token (batch, n), in float64.

        Arguments:
            X: sequences (batch, n, d).
        """
        return _codes(np.asarray(floats(X, "X"), float) @ self.v, self.c, self.reach)

    def run(self, X: ArrayLike) -> np.ndarray:
        """Answers (batch, n, e), 0 where nothing was memorised.

        Arguments:
            X: sequences (batch, n, d), or one (n, d).
        """
        X = np.asarray(floats(X, "X"), float)
        if X.ndim not in (2, 3) or X.shape[-2:] != (self.n, len(self.v)):
            raise ShapeError(
                got=f"X of shape {X.shape}",
                need=f"(batch, {self.n}, {len(self.v)}) or one sequence",
                do="Tokens are rows.",
            )
        finite(X, "X")
        codes = self.code(X) if self.mode == "practical" else _precise(X @ self.v, self.c, self.reach, self.digits)
        order = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        before = np.maximum(order - 1, 0)
        nearer = np.abs(self.codes[before] - codes) < np.abs(self.codes[order] - codes)
        place = np.where(nearer, before, order)
        # a plateau, then down to 0 at half the distance to the next code: bumps are disjoint, so one look-up suffices
        far = np.abs(self.codes[place] - codes) / self._width()
        share = np.clip(2 - 2 * far.astype(float), 0, 1)
        return share[..., None] * self.values[place]

    def as_map(self) -> Compose:
        """The network as ordinary maps, MLP ⋄ Residual(Attention); in float64, so only in the mode "practical"."""
        from measureformer.maps import MLP, Attention, Residual

        if self.mode != "practical":
            raise OptionError(
                got='as_map of a memory of mode "certified"', need='mode "practical"', do="Its codes need more digits."
            )
        w, half = self.weights(), self._width()
        knots = (self.codes[:, None] + half * np.array([-1.0, -0.5, 0.5, 1.0])).reshape(-1)
        slopes = (2 / half * np.array([1.0, -1.0, -1.0, 1.0]))[None, :, None] * self.values[:, None, :]
        hidden = np.repeat(self.v[None], len(knots), axis=0)
        lookup = MLP(hidden, -knots, slopes.reshape(len(knots), -1).T, np.zeros(self.values.shape[1]))
        parts: list[Any] = [w[name][None] for name in ("W_Q", "W_K", "W_V", "W_O")]
        head = Attention(*parts)
        return lookup @ Residual(head)

    def _width(self) -> Any:
        return np.diff(self.codes).min() / 2 if len(self.codes) > 1 else 1.0


@checked
def memorize(sequences: ArrayLike, targets: ArrayLike, mode: Mode = "practical") -> Memory:
    """Memorise sequences and targets in one softmax layer and a look-up.

    Without positions the network cannot see the order of tokens, so targets must not depend on it. Directions and
    temperatures are searched with a fixed seed.

    Arguments:
        sequences: (M, n, d); tokens are not 0 and differ within each sequence, but sequences may share them.
        targets: answers to each token, (M, n, e).
        mode: "practical" scans the temperature c for the largest separation in float64; "certified" takes that of the
            lemma, c = (2 ln n + 3)/(g m) for the least gap g and the least size m of v·x, and computes with as many
            digits as it needs.

    Statement   for tokens that are different within each sequence, one softmax head of rank 1 is a contextual mapping;
                one layer of hard attention is not
    Ref         kajitsuka2024, Theorem 2 and Corollary 1.

    >>> import numpy as np, measureformer as mf
    >>> X = np.array([[1.0, 1.5], [1.0, 2.0], [1.5, 2.0]])[:, :, None]
    >>> net = mf.sequences.memorize(X, np.arange(6.0).reshape(3, 2, 1), "certified")
    >>> net.log_separation > net.log_bound, round(10**net.log_separation, 8)
    (True, 4.84e-06)
    """
    X, Y = _checked(sequences, targets, mode)
    vocabulary, ids = np.unique(X.reshape(-1, X.shape[2]), axis=0, return_inverse=True)
    ids = ids.reshape(X.shape[:2])
    if (np.diff(np.sort(ids, axis=1), axis=1) == 0).any():
        bad = int((np.diff(np.sort(ids, axis=1), axis=1) == 0).any(axis=1).argmax())
        raise DomainError(
            got=f"sequence {bad}, in which a token occurs twice",
            need="different tokens within each sequence",
            do="Add positions to the tokens.",
        )
    return remembered(vocabulary, ids, Y, mode)


def remembered(vocabulary: np.ndarray, ids: np.ndarray, Y: np.ndarray, mode: Mode) -> Memory:
    """The memory for contexts (M, n) of tokens, by number; tokens may occur twice in the mode "practical"."""
    n, d = ids.shape[1], vocabulary.shape[1]
    entries, values = _entries(ids, Y)
    if len(entries) > LONGEST:
        raise ConstructionError(
            got=f"{len(entries):,} different (token, context)",
            need=f"at most {LONGEST:,}",
            do="Memorise fewer sequences.",
        )
    v, gap, least = _direction(vocabulary)
    sizes = np.linalg.norm(vocabulary, axis=1)
    apart = _least_distance(vocabulary)
    reach = apart / (4 * float(sizes.max()))
    bound = kajitsuka24_log_separation(max(n, 2), d, len(vocabulary), (float(sizes.min()), float(sizes.max()), apart))
    p = vocabulary @ v
    if mode == "practical":
        c, codes, separation = _scanned(p, entries, reach)
        log_separation, digits = math.log10(separation), 16
    else:
        c = (2 * math.log(max(n, 2)) + 3) / (gap * least)
        digits = 30 + math.ceil(1.2 * 2 * c * float(np.abs(p).max()) ** 2 / math.log(10))
        codes, log_separation = _certified(p, entries, (c, reach, digits))
    order = np.argsort(codes)
    return Memory(mode, v, c, reach, codes[order], values[order], n, log_separation, bound, digits)


def _checked(sequences: ArrayLike, targets: ArrayLike, mode: Mode) -> tuple[np.ndarray, np.ndarray]:
    if mode not in ("practical", "certified"):
        raise OptionError(got=f"mode = {mode!r}", need='"practical" or "certified"', do='Leave it out for "practical".')
    X, Y = (np.asarray(floats(a, name), float) for a, name in ((sequences, "sequences"), (targets, "targets")))
    if X.ndim != 3 or Y.ndim != 3 or X.shape[:2] != Y.shape[:2] or 0 in X.shape or 0 in Y.shape:
        raise DimensionMismatchError(
            got=f"sequences of shape {X.shape} and targets of shape {Y.shape}",
            need="(M, n, d) and (M, n, e)",
            do="One target for each token of each sequence.",
        )
    finite(X, "sequences")
    finite(Y, "targets")
    if (X == 0).all(axis=2).any():
        raise DomainError(
            got="a token that is 0", need="tokens ≠ 0, since logits are products with the token", do="Shift all tokens."
        )
    return X, Y


def _entries(ids: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All different (token, sorted context) as rows (m, 1 + n), and the answer to each."""
    M, n = ids.shape
    contexts = np.repeat(np.sort(ids, axis=1), n, axis=0)
    rows = np.concatenate([ids.reshape(-1, 1), contexts], axis=1)
    entries, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    values = Y.reshape(M * n, -1)
    wrong = (values != values[first][inverse.reshape(-1)]).any(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        raise DomainError(
            got=f"two targets for one token in one context, in sequences {first[inverse.reshape(-1)[i]] // n} "
            f"and {i // n}",
            need="targets that do not depend on the order of tokens",
            do="Add positions to the tokens.",
        )
    return entries, values[first]


def _least_distance(points: np.ndarray) -> float:
    from scipy.spatial import KDTree

    if len(points) == 1:
        return 1.0
    return float(cast("np.ndarray", KDTree(points).query(points, k=2)[0])[:, 1].min())


def _direction(vocabulary: np.ndarray) -> tuple[np.ndarray, float, float]:
    """A unit vector with large (least gap of v·x)·(least |v·x|), and these two."""
    d = vocabulary.shape[1]
    if d == 1:
        v = np.ones((1, 1))
    else:
        base = max(2.0, float(round(len(vocabulary) ** (1 / d))))
        v = np.random.default_rng(SEED).normal(size=(DIRECTIONS, d))
        powers = np.array(range(d))
        v = np.concatenate([v, np.stack([np.power(base, powers), np.power(base, -powers)])])
        v /= np.linalg.norm(v, axis=1, keepdims=True)
    p = vocabulary @ v.T
    gaps = np.diff(np.sort(p, axis=0), axis=0).min(axis=0) if len(p) > 1 else np.ones(p.shape[1])
    least = np.abs(p).min(axis=0)
    best = int((gaps * least).argmax())
    return v[best], float(gaps[best]), float(least[best])


def _codes(p: np.ndarray, c: float, reach: float) -> np.ndarray:
    """v·(x + reach v · average) for projections p (…, n) of sequences."""
    logits = c * p[..., :, None] * p[..., None, :]
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p + reach * (shares * p[..., None, :]).sum(axis=-1) / shares.sum(axis=-1)


def _of_entries(p: np.ndarray, entries: np.ndarray, c: float, reach: float) -> np.ndarray:
    own, seen = p[entries[:, 0]], p[entries[:, 1:]]
    logits = c * own[:, None] * seen
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return own + reach * (shares * seen).sum(axis=1) / shares.sum(axis=1)


def _scanned(p: np.ndarray, entries: np.ndarray, reach: float) -> tuple[float, np.ndarray, float]:
    """The temperature with the largest least distance of codes.

    A small one gives the mean, equal for contexts of equal sums; a large one the extreme token, equal for contexts that
    share it.
    """
    best = 0.0, 0.0, np.zeros(0)
    scale = float(np.abs(p).max()) ** 2
    for c in np.geomspace(1e-2, 40, TEMPERATURES) / scale:
        codes = _of_entries(p, entries, c, reach)
        separation = float(np.diff(np.sort(codes)).min()) if len(codes) > 1 else 1.0
        if separation > best[0]:
            best = separation, float(c), codes
    if best[0] < ROUNDING * float(np.abs(p).max()):
        raise ConstructionError(
            got=f"contexts that are at most {best[0]:.1e} apart after one softmax layer, at any temperature",
            need="a distance that float64 can see",
            do='Use mode="certified", fewer tokens, or a larger delta.',
        )
    return best[1], best[2], best[0]


def _precise(p: np.ndarray, c: float, reach: float, digits: int) -> np.ndarray:
    """Codes of projections (…, n) with many digits, as an array of mpmath numbers."""
    mpmath = multiprecision()
    with mpmath.workdps(digits):
        return np.array(
            [[_one(mpmath, row, own, c, reach) for own in row] for row in p.reshape(-1, p.shape[-1]).tolist()], object
        ).reshape(p.shape)


def _one(mpmath: Any, seen: list[float], own: float, c: float, reach: float) -> Any:
    shares = [mpmath.exp(mpmath.mpf(c) * own * y) for y in seen]
    average = mpmath.fdot(shares, seen) / mpmath.fsum(shares)
    return own + mpmath.mpf(reach) * average


def _certified(p: np.ndarray, entries: np.ndarray, settings: tuple[float, float, int]) -> tuple[np.ndarray, float]:
    mpmath = multiprecision()
    c, reach, digits = settings
    if digits > DIGITS or len(entries) > PRECISE:
        raise ConstructionError(
            got=f"{len(entries):,} codes with {digits:,} digits each",
            need=f"at most {PRECISE:,} codes and {DIGITS:,} digits",
            do='Use mode="practical", or tokens that are further apart.',
        )
    with mpmath.workdps(digits):
        codes = [_one(mpmath, p[row[1:]].tolist(), float(p[row[0]]), c, reach) for row in entries]
        ordered = sorted(codes)
        least = min((b - a for a, b in itertools.pairwise(ordered)), default=mpmath.mpf(1))
        return np.array(codes, object), float(mpmath.log10(least))
