"""The laws that every in-context map obeys, checked on a few points: `check_laws`.

A map of the user's is checked by itself when it is first called on concrete arrays, once for each class and structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import LawError, MeasureformerError, ShapeError
from measureformer.maps.base import AbstractInContextMap
from measureformer.maps.causal import Causal
from measureformer.maps.rows import declares_all_rows
from measureformer.measures import AbstractMeasure, Discrete, SpaceTime
from measureformer.measures.atomic import AbstractAtomic
from measureformer.numerics import edge
from measureformer.numerics.arrays import at_once, cast, common_dtype, on_device
from measureformer.numerics.checked import checked

COUNT, DIM, QUERIES = 5, 2, 3
STEP = 1e-4


class _Sample(NamedTuple):
    """A few weighted atoms, none of which is equal to another, and queries beside them."""

    mu: Any
    x: np.ndarray
    t: np.ndarray | None


class _Law(NamedTuple):
    name: str
    said: str
    """What was done to the input."""
    cause: str


_WEIGHTS = "use the weights of the atoms: mu.probabilities() @ values, not a mean over rows, mu.n or a bare softmax"
_LAWS = {
    "splitting": _Law("splitting", "atom 0 is split in two at the same place, 30 % and 70 % of its mass", _WEIGHTS),
    "mass": _Law("mass", "the measure is multiplied by 3", "divide by the mass: mu.probabilities() sum to 1"),
    "order": _Law("order", "the atoms are listed in another order", "use no row numbers: order lives in mu.times"),
    "padding": _Law(
        "padding",
        "an atom of mass 0 is added",
        "add mu.log_weights to the logits, or multiply by the weights; or leave out all_rows",
    ),
    "causality": _Law(
        "causality",
        "the map is masked by Causal instead of being given the restricted measure",
        "mask by mu.visible(t); or leave out all_rows",
    ),
    "derivative": _Law(
        "derivative",
        "its derivative is compared with a difference quotient",
        "check custom derivatives, stop_gradient, and roots and norms at 0",
    ),
}


@checked
def check_laws(G: AbstractInContextMap, mu: AbstractAtomic | None = None) -> dict[str, float]:
    """Check that G is a function of a measure and a point, on a few atoms; a law that fails is refused with numbers.

    The laws: multiplying the measure by a number, splitting an atom, listing the atoms in another order, and adding an
    atom of mass 0 change no value; `Causal(G)` is G on the restricted measure; the derivative is that of the values.
    Agreement on a few points is not a proof. The check that runs by itself leaves out the derivative, and maps that are
    Python.

    Arguments:
        G: the map.
        mu: atoms to use, at most five of them, where random ones would lie outside of the domain of the map.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> max(mf.maps.check_laws(G).values()) < 1e-6
    True
    """
    if mu is None:
        dim = DIM if G.in_dim is None else G.in_dim
        rng = np.random.default_rng(0)
        sample = _sample(G, rng.normal(size=(COUNT, dim)), common_dtype(G))
    else:
        G.check_meets(mu, getattr(mu, "times", None))
        sample = _sample(G, _massive_points(mu), common_dtype(G, mu))
    G.examine(sample.mu, on_device(sample.x), None if sample.t is None else on_device(sample.t))
    return _checked(G, sample, derivative=True)


_LAWFUL: set[Any] = set()


def require_laws(parts: Sequence[AbstractInContextMap], mu: AbstractMeasure) -> None:
    """Check maps of the user's, each class and structure once, near the atoms with which one is called."""
    for G in parts:
        layer = edge.Layer(G)
        key = type(G), layer.key[0], tuple(map(np.shape, layer.arrays))
        if key in _LAWFUL:
            continue
        fits = isinstance(mu, AbstractAtomic) and (G.in_dim is None or G.in_dim == mu.dim)
        points = _massive_points(mu) if fits else np.random.default_rng(0).normal(size=(COUNT, G.in_dim or DIM))
        if G.eager:
            continue  # a black box may be slow, or random
        _checked(G, _sample(G, points, common_dtype(G, mu)), derivative=False)
        _LAWFUL.add(key)


def _massive_points(mu: Any) -> np.ndarray:
    return np.asarray(mu.points)[np.asarray(mu.log_weights) > -np.inf]


def _sample(G: AbstractInContextMap, points: np.ndarray, dtype: Any) -> _Sample:
    """Up to five different atoms of these, completed by points between and around them."""
    rng = np.random.default_rng(1)
    atoms = np.unique(np.asarray(points, np.float64)[: 20 * COUNT], axis=0)
    atoms = atoms[rng.permutation(len(atoms))[:COUNT]]
    size = np.abs(atoms - atoms.mean(0)).max() or 0.1 * max(1.0, float(np.abs(atoms).max()))
    while len(atoms) < COUNT:
        atoms = np.concatenate([atoms, atoms[:1] + 0.5 * size * rng.uniform(-1, 1, (1, atoms.shape[1]))])
    shares = rng.dirichlet(np.ones(COUNT), QUERIES)
    x, weights = (shares @ atoms).astype(dtype), rng.uniform(0.5, 1.5, COUNT).astype(dtype)
    weights /= weights.sum()
    atoms = atoms.astype(dtype)
    if not G.needs_time:
        return _Sample(Discrete.weighted(atoms, weights), x, None)
    times = ((1 + rng.permutation(COUNT)) / COUNT).astype(dtype)
    return _Sample(SpaceTime.weighted(atoms, times, weights), x, np.array([0.4, 0.6, 1.0], dtype))


def _checked(G: AbstractInContextMap, sample: _Sample, *, derivative: bool) -> dict[str, float]:
    mu, x, t = sample
    program = jax.jit(lambda arrays, mu, x, t: _rebuilt(G, arrays).evaluate(mu, x, t))
    arrays = _arrays(G, x.dtype)

    def at(mu: Any, masked: bool = False) -> np.ndarray:
        return np.asarray(at_once(program, arrays, mu.masked() if masked else mu, x, t))

    value = at(mu)
    _require_rows(G, value, x)
    if not np.isfinite(value).all():
        return {}  # outside of its domain nothing can be said
    log_weights = np.asarray(mu.log_weights)
    split = np.append(log_weights + np.r_[np.log(0.3), np.zeros(COUNT - 1)], log_weights[0] + np.log(0.7))
    doubled, last = np.append(np.arange(COUNT), 0), np.r_[COUNT - 1, np.arange(COUNT - 1)]
    changed = {
        "splitting": lambda: at(_with(mu.rows(doubled), split)),
        "mass": lambda: at(_with(mu, log_weights + np.log(3))),
        "order": lambda: at(mu.rows(last)),
    }
    found = {name: _compare(G, _LAWS[name], mu, value, run()) for name, run in changed.items()}
    points = np.asarray(mu.points)
    centre = points.mean(axis=0)
    # beyond the others in every coordinate, on both sides
    for corner in (points.max(axis=0), points.min(axis=0)):
        far = np.concatenate([points, [1.5 * corner - 0.5 * centre]])
        more = _with(mu.rows(doubled), np.append(log_weights, -np.inf)).with_points(on_device(far))
        found["padding"] = max(found.get("padding", 0.0), _compare(G, _LAWS["padding"], mu, value, at(more)))
    if declares_all_rows(type(G)):
        found |= _causality(G, sample)
    if derivative:
        found["derivative"] = _derivative(G, sample, program, arrays)
    return found


def _arrays(G: AbstractInContextMap, dtype: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(cast(G, dtype)) if isinstance(leaf, (jax.Array, np.ndarray))]


def _rebuilt(G: AbstractInContextMap, arrays: Sequence[Any]) -> AbstractInContextMap:
    leaves, structure = jax.tree.flatten(G)
    given = iter(arrays)
    return jax.tree.unflatten(
        structure, [next(given) if isinstance(leaf, (jax.Array, np.ndarray)) else leaf for leaf in leaves]
    )


def _with(mu: Any, log_weights: np.ndarray) -> Any:
    return mu.with_log_weights(on_device(log_weights.astype(mu.log_weights.dtype)))


def _require_rows(G: AbstractInContextMap, value: np.ndarray, x: np.ndarray) -> None:
    wanted = len(x), G.out_dim(x.shape[1])
    if value.shape != wanted:
        raise ShapeError(
            got=f"values of shape {value.shape} from {type(G).__name__}.evaluate for queries of shape {x.shape}",
            need=f"{wanted}: one row for each query",
            do="Return (m, e), and define out_dim(dim) if e is not the dimension of the tokens.",
        )


def _compare(G: AbstractInContextMap, law: _Law, mu: Any, before: np.ndarray, after: np.ndarray) -> float:
    """The largest difference, relative to the values; refused if it is more than rounding."""
    size = max(float(np.abs(before).max()), 1e-6 * float(np.abs(np.asarray(mu.points)).max()), 1e-300)
    gap = np.abs(after - before) / size
    gap = np.where(np.isfinite(gap), gap, np.inf)
    worst = float(gap.max())
    tolerance = float(np.finfo(before.dtype).eps) ** 0.5
    if law.name == "derivative":
        tolerance = 1e-3 if before.dtype == np.float64 else 0.1
    if worst > tolerance:
        i = np.unravel_index(int(gap.argmax()), gap.shape)
        raise LawError(
            got=f"{type(G).__name__}, whose value at query {i[0]} of {len(before)} is {before[i]:.6g}, and "
            f"{after[i]:.6g} when {law.said} ({mu.n} atoms in R^{mu.dim}: the law of {law.name} fails)",
            need="the same value, because a map is a function of a measure and a point",
            do=f"In evaluate, {law.cause}.",
        )
    return worst


def _causality(G: AbstractInContextMap, sample: _Sample) -> dict[str, float]:
    """Causal(G) against G on what each query sees; nothing for maps that say that they have no causal form."""
    mu, x, _ = sample
    times = np.arange(1, COUNT + 1) / COUNT
    sigma = mu if isinstance(mu, SpaceTime) else SpaceTime(mu.points, on_device(times.astype(x.dtype)), mu.log_weights)
    t = np.array([0.4, 0.6, 1.0], x.dtype)
    try:
        masked = at_once(jax.jit(lambda mu, x, t: Causal(G).evaluate(mu, x, t)), sigma, x, t)
    except MeasureformerError:
        return {}
    seen = [sigma.rows(np.flatnonzero(np.asarray(sigma.times) <= time)) for time in t]
    program = jax.jit(lambda mu, x, t: G.evaluate(mu, x, t))
    alone = [at_once(program, part.padded(COUNT), x[i : i + 1], t[i : i + 1]) for i, part in enumerate(seen)]
    return {"causality": _compare(G, _LAWS["causality"], mu, np.concatenate(alone), np.asarray(masked))}


def _derivative(G: AbstractInContextMap, sample: _Sample, program: Callable[..., Any], arrays: Any) -> float:
    """The derivative along a random displacement of atoms, log-weights and queries."""
    mu, x, t = sample
    rng = np.random.default_rng(2)
    size = float(np.abs(np.asarray(mu.points)).max())
    moves = [size * rng.normal(size=np.shape(a)) for a in (mu.points, x)] + [rng.normal(size=mu.n)]

    def along(step: Any) -> Any:
        moved = mu.with_points(mu.points + step * moves[0].astype(x.dtype))
        moved = moved.with_log_weights(mu.log_weights + step * moves[2].astype(x.dtype))
        return program(arrays, moved, x + step * moves[1].astype(x.dtype), t)

    h = STEP if x.dtype == np.float64 else 100 * STEP
    zero, one = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
    slope = np.asarray(at_once(jax.jit(lambda: jax.jvp(along, (zero,), (one,))[1])))
    ends = [np.asarray(at_once(jax.jit(along), np.asarray(s * h, x.dtype))) for s in (1, -1)]
    return _compare(G, _LAWS["derivative"], mu, slope, (ends[0] - ends[1]) / (2 * h))
