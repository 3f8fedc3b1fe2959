"""Adversarial cases for everything that carries a certificate, with references in long double.

An attack takes a seed and returns its cases, so that a case can be replayed. Truths are computed from the very numbers
that the library was given, denormals included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import measureformer as mf
from measureformer.attention.grid.planner import plan_of_shape
from measureformer.errors import MeasureformerError


class Case(NamedTuple):
    """One case: its family, and error over bound; NaN counts as a violation, None is a refusal."""

    family: str
    share: float | None

    @property
    def violated(self) -> bool:
        return self.share is not None and not self.share <= 1


Attack = Callable[[int], list[Case]]

FAMILIES = (
    "ordinary",
    "far apart",
    "cancellation",
    "opposite scales",
    "any scales",
    "denormals",
    "denormals times huge",
    "small values",
    "large values",
    "offset values",
    "spread weights",
    "heavy weight",
    "no mass",
    "duplicates",
    "rank one",
    "one point",
    "large logits",
    "zeros",
)


def decades(dtype: Any) -> float:
    """Powers of ten on either side of 1 that the type spans."""
    return 300.0 if dtype == np.float64 else 36.0


def attention_problem(rng: np.random.Generator, family: str, sizes: Any, dtype: Any) -> tuple[np.ndarray, ...]:
    """Queries, keys, values and log-weights of one head; `sizes` are m, n, d, c."""
    m, n, d, c = sizes
    reach, kind = decades(dtype), np.finfo(dtype)
    q, k, v = rng.normal(size=(m, d)), rng.normal(size=(n, d)) / np.sqrt(d), rng.normal(size=(n, c))
    log_weights = rng.normal(size=n)
    match family:
        case "far apart":
            k = k + 10.0 ** rng.uniform(0, 4) * rng.normal(size=d)
        case "cancellation":
            far = 10.0 ** rng.uniform(0, 4)
            q[:, 0], q[:, -1], k[:, 0], k[:, -1] = far, far, far, -far
            v[::2] += 1e4
            v[1::2] -= 1e4
        case "opposite scales":
            power = 10.0 ** rng.uniform(-reach, reach)
            q, k = q * power, k / power
        case "any scales":
            q, k, v = (part * 10.0 ** rng.uniform(-reach, reach / 2, part.shape[1]) for part in (q, k, v))
        case "denormals":
            scale = float(kind.tiny) * 10.0 ** rng.uniform(-6, 3, 3)
            q, v = q * scale[0], v * scale[1]
            k = k * rng.choice([1.0, scale[2]])
        case "denormals times huge":
            q, k = q * float(kind.tiny) * rng.uniform(0.01, 2), k * (float(kind.max) / 10 ** rng.uniform(1, 4))
            if rng.uniform() < 0.5:
                q, k = k[np.arange(m) % n], q[np.arange(n) % m]
        case "small values":
            v = v * 10.0 ** -rng.uniform(reach / 2, reach + 8)
        case "large values":
            v = v * (float(kind.max) / 10 ** rng.uniform(0.5, 6))
        case "offset values":
            v = 1e-6 * v + 10.0 ** rng.uniform(0, reach / 2)
        case "spread weights":
            log_weights = rng.uniform(-690, 690, n)
        case "heavy weight":
            log_weights[rng.integers(n)] += 10.0 ** rng.uniform(0, 3)
        case "no mass":
            log_weights[rng.uniform(size=n) < 0.8] = -np.inf
            log_weights[rng.integers(n)] = 0
            k[log_weights == -np.inf] *= 10.0 ** rng.uniform(0, reach / 2)
        case "duplicates":
            q, k = q[rng.integers(0, m, m)], k[rng.integers(0, max(1, n // 20), n)]
        case "rank one":
            k = k[:, :1] * rng.normal(size=d) * 10.0 ** rng.uniform(-3, 2)
            v = v[:, :1] * rng.normal(size=c)
        case "one point":
            k, v = np.repeat(k[:1], n, 0), np.repeat(v[:1], n, 0)
        case "large logits":
            q = q * 10.0 ** rng.uniform(0, 8)
        case "zeros":
            q, k, v = (part * (rng.uniform(size=part.shape) < 0.3) for part in (q, k, v))
    with np.errstate(over="ignore"):
        parts = tuple(np.asarray(part, dtype) for part in (q, k, v, log_weights))
    return tuple(np.nan_to_num(part, posinf=kind.max, neginf=-np.inf) for part in parts)


def exact_attention(q: Any, k: Any, v: Any, log_weights: Any, visible: Any = True) -> tuple[np.ndarray, np.ndarray]:
    """Attention in long double, for any number of heads."""
    q, k, v, log_weights = (np.asarray(part).astype(np.longdouble) for part in (q, k, v, log_weights))
    logits = np.where(visible, q @ k.swapaxes(-1, -2) + log_weights[..., None, :], -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    p = np.exp(logits - top)
    total = p.sum(axis=-1, keepdims=True)
    return p @ v / total, (top + np.log(total))[..., 0]


def sample(attack: Attack, cases: int) -> Counter[str]:
    """How many of the first cases held and were refused; the first that is violated is named with its seed."""
    found, seed = Counter[str](), 0
    with np.errstate(all="ignore"):
        while found.total() < cases:
            for case in attack(seed):
                assert not case.violated, f"{case.family}, seed {seed}: error over bound {case.share}"
                found["refused" if case.share is None else "held"] += 1
            seed += 1
    return found


def share_of(error: Any, bound: Any) -> float:
    """The worst error over its bound; an error of 0 is within a bound of 0."""
    error, bound = np.asarray(error, np.longdouble), np.asarray(bound, np.longdouble)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(bound > 0, error / np.where(bound > 0, bound, 1), np.where(error > 0, np.inf, 0))
        # of two infinite numbers, of which one may be a power that is too large for long double
        ratio = np.where((bound == np.inf) & (error <= bound), 0, ratio)
    return float(np.max(np.where(np.isnan(error) | np.isnan(bound), np.nan, ratio)))


def attended_share(out: Any, values: np.ndarray, log_z: np.ndarray) -> float:
    got = np.asarray(out.values).astype(np.longdouble)
    error = np.sqrt(np.sum((got - values) ** 2, axis=-1))
    log_error = np.abs(np.asarray(out.log_normalizer).astype(np.longdouble) - log_z)
    return max(share_of(error, out.error_bound), share_of(log_error, out.log_normalizer_error))


SIZES = ((3, 20, 2, 2), (5, 40, 16, 3), (2, 300, 4, 1), (3, 1100, 3, 2), (2, 6, 5000, 2))
"""Queries, keys, dimension, columns; the last but one is several blocks of `SEVERAL`."""
SEVERAL = mf.Streaming(block=(4, 256))


def attend_attack(
    dtype: Any,
    method: Any = "streaming",
    sizes: Any = SIZES,
    *,
    heads: int = 16,
    odds: tuple[float, float] = (0.4, 0.3),
) -> Attack:
    """One of some sizes, which follows from the seed; `odds` of several heads of different families, and of a mask."""

    def attack(seed: int) -> list[Case]:
        rng = np.random.default_rng([seed, 11])
        shape, (many, masked) = sizes[rng.integers(len(sizes))], (rng.uniform(size=2) < odds)
        names = [str(name) for name in rng.choice(FAMILIES, heads if many else 1)]
        each = [attention_problem(rng, name, shape, dtype) for name in names]
        times, visible = None, True
        if masked:
            times = tuple(np.sort(rng.uniform(size=count)).astype(dtype) for count in shape[:2])
            times[1][0] = 0
            visible = times[1][None, :] <= times[0][:, None]
            # the first key is seen by all
            for problem in each:
                problem[3][0] = max(problem[3][0], -690)
        arrays = [np.stack(parts) for parts in zip(*each, strict=True)] if many else each[0]
        chosen = SEVERAL if method == "streaming" and shape[1] > 1000 else method
        try:
            out = mf.attend(*arrays, times=times, method=chosen)
        except MeasureformerError:
            # of several heads any one may be the reason
            return [Case(name, None) for name in names]
        found = []
        for i, (name, problem) in enumerate(zip(names, each, strict=True)):
            own = SimpleNamespace(**{key: np.asarray(part)[i] if many else part for key, part in vars(out).items()})
            found.append(Case(name, attended_share(own, *exact_attention(*problem, visible))))
        return found

    return attack


GRID_SHAPES = {1: [((4,), (12,)), ((1,), (30,))], 2: [((3, 2), (8, 9))], 3: [((2, 1, 2), (6, 6, 6))]}
"""Cells and nodes of the grids: few, so that few programs are compiled."""


def grid_attack(seed: int) -> list[Case]:
    rng = np.random.default_rng([seed, 12])
    d = 1 + seed % 3
    family = str(rng.choice(FAMILIES))
    problem = attention_problem(rng, family, (20, 200, d, 2), np.float64)
    try:
        plan = plan_of_shape(problem[0], problem[1], problem[3], *GRID_SHAPES[d][seed % len(GRID_SHAPES[d])])
        out = mf.attend(*problem, method=mf.Grid(plan=plan))
    except MeasureformerError:
        return [Case(family, None)]
    return [Case(family, attended_share(out, *exact_attention(*problem)))]
