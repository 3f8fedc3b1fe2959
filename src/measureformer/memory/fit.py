"""`fit_retrieval`: trained projections of queries and keys with which queries find their patterns."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import attend
from measureformer.errors import DimensionMismatchError, OptionError, ShapeError, TrainingError
from measureformer.maps import Attention
from measureformer.measures import Discrete
from measureformer.memory.search import best_key
from measureformer.numerics.arrays import common_dtype, finite, floats, host, is_traced, positive_int, shaped
from measureformer.numerics.buckets import bucket, pad_rows
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike
from measureformer.training.loop import trained


class RetrievalFit(eqx.Module):
    """A trained head: its `layer`, for queries in the context `mu` of the patterns, and its training `losses`.

    >>> import numpy as np, measureformer as mf
    >>> fit = mf.memory.fit_retrieval(np.eye(3), np.eye(3), [1, 2, 0], steps=200, rate=0.1)
    >>> fit.accuracy(np.eye(3), [1, 2, 0]), bool(fit.losses[-1] < 0.1 * fit.losses[0])
    (1.0, True)
    """

    layer: Attention
    """One head with the trained Q and K, and V = I: its values are averages of patterns."""
    mu: Discrete
    """The patterns."""
    losses: Float[np.ndarray, " s"]
    """Mean of −log(softmax weight of the right pattern) before each step, and after the last."""

    def find(self, queries: ArrayLike) -> np.ndarray:
        """For every query in rows, (m, d), the row of the pattern with the largest weight."""
        rows = np.asarray(host(shaped(floats(queries, "queries"), "queries", "m d")))
        scale, Q, K = (np.asarray(part) for part in (self.layer.scale, self.layer.Q[0], self.layer.K[0]))
        points, log_a = np.asarray(self.mu.points), np.asarray(self.mu.log_weights)
        return best_key((scale * rows @ Q.T).astype(points.dtype), points @ K.T, log_a)[1]

    def accuracy(self, queries: ArrayLike, targets: ArrayLike) -> float:
        """Share of the queries (m, d) that `find` their targets (m,)."""
        return float(np.mean(self.find(queries) == np.asarray(targets)))


@checked
def fit_retrieval(
    patterns: ArrayLike | Discrete,
    queries: ArrayLike,
    targets: ArrayLike,
    *,
    head_dim: int | None = None,
    steps: int = 500,
    rate: float = 0.01,
) -> RetrievalFit:
    """Train Q and K such that query i attends to pattern targets[i]: Adam on −log softmax(⟨Qx_i, Ky_j⟩)_target.

    Arguments:
        patterns: points (n, d), or a `Discrete` measure of them, whose masses count.
        queries: training queries, (m, d).
        targets: for each query the row of its pattern, (m,).
        head_dim: rows of Q and K; d by default.
        steps: steps of Adam.
        rate: learning rate of Adam.

    Training is deterministic: it starts with Q = K, the projection on the principal directions of the patterns divided
    by their radius. Linear memory: the loss is a log-normaliser minus one logit.

    >>> import numpy as np, measureformer as mf
    >>> rng = np.random.default_rng(0)
    >>> patterns = rng.normal(size=(8, 6))
    >>> noise = rng.normal(size=(2, 128, 6)) * [0.1, 0.1, 0.1, 0.1, 0.1, 10.0]      # the last one means nothing
    >>> index = np.arange(128) % 8
    >>> fit = mf.memory.fit_retrieval(patterns, patterns[index] + noise[0], index, rate=0.03)
    >>> fit.accuracy(patterns[index] + noise[1], index) > 0.8
    True
    """
    mu = patterns if isinstance(patterns, Discrete) else Discrete.uniform(patterns)
    rows = np.asarray(host(shaped(floats(queries, "queries"), "queries", "m d")))
    finite(rows, "queries")
    index, d = np.asarray(targets), mu.dim
    if rows.shape[1] != d or 0 in rows.shape:
        raise DimensionMismatchError(
            got=f"queries of shape {rows.shape} and patterns in R^{d}", need=f"(m, {d})", do="One query in each row."
        )
    if index.shape != rows.shape[:1] or not np.issubdtype(index.dtype, np.integer):
        raise ShapeError(
            got=f"targets of shape {index.shape} and dtype {index.dtype} for {len(rows)} queries",
            need="one whole number per query",
            do="Name for every query the row of its pattern.",
        )
    if index.min() < 0 or index.max() >= mu.n or not rate > 0:
        raise OptionError(
            got=f"targets from {index.min()} to {index.max()} and rate = {rate}",
            need=f"targets from 0 to {mu.n - 1} and rate > 0",
            do="Patterns are counted from 0.",
        )
    if (np.asarray(mu.log_weights)[index] == -np.inf).any():
        raise OptionError(got="a target without mass", need="targets with mass", do="No query can attend to it.")
    steps, k = positive_int(steps, "steps"), d if head_dim is None else positive_int(head_dim, "head_dim")
    if k > d:
        raise OptionError(got=f"head_dim = {k}", need=f"at most {d}, the dimension of the patterns", do="Leave it out.")
    dtype = common_dtype(mu, rows)
    directions = np.eye(d) if k == d else np.linalg.eigh(np.asarray(mu.covariance()))[1].T[::-1][:k]
    start = (directions / (float(mu.radius()) or 1.0)).astype(dtype)
    m, padded = len(rows), mu.padded()
    weights = np.zeros(bucket(m), dtype)
    weights[:m] = 1 / m
    loss = _Loss(padded, pad_rows(rows.astype(dtype), bucket(m)), pad_rows(index, bucket(m)), weights)
    # nothing is drawn: the key is that of the loop
    run = trained((start, start), loss, _Adam(np.asarray(steps), np.asarray(rate, dtype)), jax.random.key(0))
    if run.failed:
        raise TrainingError(
            got=f"a loss that is not finite, after {run.done} steps",
            need="a loss that stays finite",
            do="Use a smaller rate, or rescale the patterns.",
            last=None,
        )
    Q, K = run.weights
    return RetrievalFit(Attention.head(Q, K, np.eye(d, dtype=dtype)), mu, run.losses)


class _Loss(eqx.Module):
    """Mean of −log(softmax weight of the right pattern): one log-normaliser minus one logit for each query."""

    mu: Discrete
    rows: Any
    targets: Any
    weights: Any

    def __call__(self, matrices: tuple[Array, Array], key: Any, step: Any) -> Array:
        q, k = (rows @ matrix.T for rows, matrix in zip((self.rows, self.mu.points), matrices, strict=True))
        log_z = attend(q, k, k[:, :1], self.mu.log_weights).log_normalizer
        right = jnp.sum(q * k[self.targets], axis=1) + self.mu.log_weights[self.targets]
        return jnp.sum(self.weights * (log_z - right))


class _Adam(eqx.Module):
    """Settings of the training; numbers are arguments of the program, so that new ones compile nothing."""

    count: Any
    rate: Any

    @property
    def steps(self) -> Any:
        # a tracer inside the program, where only its type matters
        return self.count if is_traced(self.count) else int(self.count)

    @property
    def tol(self) -> None:
        return

    @property
    def optimizer(self) -> Any:
        import optax

        return optax.adam(self.rate)
