"""`fit_flow`: training an infinitely deep transformer, min_θ Σ_k |T_θ[mu^k](x^k) − y^k|² with θ(t) in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from measureformer.errors import DimensionMismatchError, DtypeError, ShapeError, TrainingError
from measureformer.flows import training as _training
from measureformer.flows.flow_map import FlowMap
from measureformer.flows.training import Depth, FlowLoss, Problem, Stack
from measureformer.flows.velocity import Depthwise
from measureformer.maps.attention import Attention
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.numerics import arrays
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.storage.folder import RunFolder
from measureformer.training.loop import trained
from measureformer.training.optimization import Optimization


class FlowFit(eqx.Module):
    """A trained flow: `velocity` for `mf.flow`, and `map`, the in-context map that was trained.

    >>> import jax, measureformer as mf
    >>> mu = mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.0]])
    >>> fit = mf.flows.fit_flow([mu], [[0.0, 0.0]], [[0.3, 0.2]], heads=1, depth=1, key=jax.random.key(0))
    >>> len(fit.velocity), fit.map(mu, [0.0, 0.0]).round(3).tolist()
    (1, [0.3, 0.2])
    """

    velocity: tuple[Attention, ...]
    """One layer for each piece of the depth."""
    map: FlowMap
    """T: (mu, x) ↦ the final position of x, solved as during training."""
    losses: Float[np.ndarray, " s"]
    """The loss before each step, and after the last."""
    stopped: str = eqx.field(static=True)
    """Why training ended: the "loss" is at most tol, the "gradient" vanished, or all "steps" were taken."""

    @property
    def loss(self) -> float:
        """Mean of |T[mu](x) − y|² over all queries at the end."""
        return float(self.losses[-1])

    @property
    def converged(self) -> bool:
        """Whether training ended before its steps were used up."""
        return self.stopped != "steps"


@checked
def fit_flow(
    contexts: Sequence[Discrete],
    points: Sequence[ArrayLike] | np.ndarray,
    targets: Sequence[ArrayLike] | np.ndarray,
    *,
    heads: int,
    depth: int | Depth,
    key: Key,
    optimization: Optimization | None = None,
    save: PathLike | None = None,
) -> FlowFit:
    """Train softmax heads θ(t), constant on pieces of the depth, whose flow takes points to targets in their contexts.

    Minimises the mean of |T_θ[mu](x) − y|² over all queries; each update uses all data. Initially W = 0 and T is the
    identity, so the first loss is the mean of |x − y|².

    Arguments:
        contexts: the measures mu^k, one for each entry of `points` and `targets`.
        points: points[k] is one query (d,), or several (m, d), in contexts[k].
        targets: targets[k] has the shape of points[k].
        heads: heads of each layer, with square matrices.
        depth: number of pieces, or a `Depth` with solver and steps.
        key: key of the initial heads.
        optimization: the default has rate 0.03 without warm-up and decay, and tol 1e-8.
        save: folder for the state, written about every second. The same call resumes an interrupted training, with the
            same bits as an uninterrupted one; at a constant rate it also continues with more steps.

    Statement   min_θ Σ_k |T_θ[mu^k](x^k) − y^k|²,  T_θ[mu](x) = x(1),  ẋ = v_θ(t)[mu_t](x),  mu_t moved by the same v
    Cost        for each update, a few flows of all contexts, forth and back; memory for a state per piece.
    Ref         barboni2026; furuya2025, equations (13) and (14).

    >>> import jax, measureformer as mf
    >>> mu, nu = mf.Discrete.dirac([1.0, 0.0]), mf.Discrete.uniform([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    >>> data = [mu, nu], [[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, -0.5]]      # one point, two contexts, two targets
    >>> fit = mf.flows.fit_flow(*data, heads=2, depth=2, key=jax.random.key(0))
    >>> fit.converged, float(fit.losses[0]), fit.loss < 1e-8
    (True, 0.25, True)
    """
    if optimization is None:
        optimization = Optimization(rate=0.03, clip=None, warmup=0.0, final=0.0, tol=1e-8)
    depth = depth if isinstance(depth, Depth) else Depth(depth)
    problem = _problem(contexts, points, targets)
    dtype, dim = problem.x.dtype, problem.x.shape[-1]
    start = arrays.cast(_training.resting(key, dim, arrays.positive_int(heads, "heads"), depth.pieces), dtype)
    about = _about(problem, start, (optimization, depth))
    with RunFolder.of(save, about, [*problem, *start]) as folder:
        run = trained(start, FlowLoss(problem, depth), optimization, arrays.prng_key(key), folder=folder)
    layers = _layers(run.good)
    if run.failed:
        shown = f"from {run.losses[0]:.3g} to {run.losses[-2]:.3g}" if len(run.losses) > 1 else "none"
        raise TrainingError(
            got=f"a loss that is not finite after {run.done} steps (finite losses before: {shown})",
            need="finite losses",
            do="Scale the data down, or take a smaller rate; `error.last` holds the last layers with a finite loss.",
            last=layers,
        )
    flow_map = FlowMap(Depthwise(layers), depth.schedule, depth.settings)
    return FlowFit(layers, flow_map, run.losses, run.stopped)


def _about(problem: Problem, start: Stack, how: tuple[Optimization, Depth]) -> dict[str, Any]:
    optimization, depth = how
    settings = asdict(optimization)
    if optimization.final == 1 and not optimization.warmup:
        del settings["steps"]  # a constant rate continues with more steps
    about = {"contexts": problem.x.shape[0], "dim": problem.x.shape[2], "heads": start.Q.shape[1], **asdict(depth)}
    return {**about, "training": settings}


def _layers(stack: Stack) -> tuple[Attention, ...]:
    entries = [np.asarray(leaf) for leaf in stack]
    return tuple(
        arrays.cast(Attention(*(leaf[i] for leaf in entries)), entries[0].dtype) for i in range(len(entries[0]))
    )


def _problem(
    contexts: Sequence[Discrete], points: Sequence[ArrayLike] | np.ndarray, targets: Sequence[ArrayLike] | np.ndarray
) -> Problem:
    """Data in arrays of one size, or a refusal."""
    for name, given in (("contexts", contexts), ("points", points), ("targets", targets)):
        if isinstance(given, Discrete) or not hasattr(given, "__len__"):
            raise DtypeError(
                got=f"{name} of type {type(given).__name__}",
                need="a sequence with an entry for each context",
                do="For one context pass lists of length 1: [mu], [x], [y].",
            )
    counts = len(contexts), len(points), len(targets)
    if 0 in counts or len(set(counts)) > 1:
        raise ShapeError(
            got=f"{counts[0]} contexts, {counts[1]} points and {counts[2]} targets",
            need="the same number of each, and at least one",
            do="points[k] and targets[k] are one query (d,), or several (m, d), in contexts[k].",
        )
    for k, mu in enumerate(contexts):
        if not isinstance(mu, Discrete):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DtypeError(
                got=f"contexts[{k}] of type {type(mu).__name__}",
                need="a Discrete measure",
                do="Wrap tokens: mf.Discrete.uniform(tokens); of a continuous measure take mu.sample(key, n).",
            )
    concrete((list(contexts), list(points), list(targets)), "fit_flow")
    queries = [_queries(points[k], f"points[{k}]") for k in range(counts[0])]
    answers = [_queries(targets[k], f"targets[{k}]") for k in range(counts[0])]
    for k, (mu, x, y) in enumerate(zip(contexts, queries, answers, strict=True)):
        arrays.finite(mu.points, f"contexts[{k}]")
        if {x.shape[1], y.shape[1], mu.dim} != {contexts[0].dim}:
            raise DimensionMismatchError(
                got=f"a context in R^{mu.dim} with points in R^{x.shape[1]} and targets in R^{y.shape[1]} at k = {k}"
                + (f", after contexts in R^{contexts[0].dim}" if mu.dim != contexts[0].dim else ""),
                need="one dimension: a flow stays in its space",
                do="Append coordinates, zeros say, to what has fewer.",
            )
        if len(x) != len(y):
            raise ShapeError(
                got=f"{len(x)} points and {len(y)} targets at k = {k}",
                need="a target for each point",
                do="Give points[k] and targets[k] the same shape.",
            )
    return _stacked(contexts, queries, answers)


def _queries(given: ArrayLike, name: str) -> np.ndarray:
    rows = arrays.floats(given, name)
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ShapeError(
            got=f"{name} of shape {rows.shape}", need="(d,) or (m, d), not empty", do="One query is one row."
        )
    arrays.finite(rows, name)
    return np.atleast_2d(np.asarray(rows))


def _stacked(contexts: Sequence[Discrete], queries: list[np.ndarray], answers: list[np.ndarray]) -> Problem:
    n, m = _size(max(mu.n for mu in contexts)), _size(max(map(len, queries)))
    shares = [np.pad(np.ones(len(x)), (0, m - len(x))) for x in queries]
    total = sum(map(len, queries))
    problem = Problem(
        points=np.stack([pad_rows(mu.points, n) for mu in contexts]),
        log_weights=np.stack([pad_log_weights(mu.log_weights, n) for mu in contexts]),
        x=np.stack([pad_rows(x, m) for x in queries]),
        y=np.stack([pad_rows(y, m) for y in answers]),
        shares=np.stack(shares) / total,
    )
    dtype = arrays.common_dtype([(mu.points, x, y) for mu, x, y in zip(contexts, queries, answers, strict=True)])
    return arrays.cast(problem, dtype)


def _size(n: int) -> int:
    """Buckets, with the powers of 2 below: the same program runs thousands of times."""
    return min(bucket(n), 1 << (n - 1).bit_length())
