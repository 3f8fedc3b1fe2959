"""`phase_diagram`: how many tokens are together, over the inverse temperature and the depth, from random starts."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from measureformer.errors import OptionError
from measureformer.flows.schedule import checked_times
from measureformer.numerics import lapack
from measureformer.numerics.arrays import finite, floats, host, positive_int, prng_key, scalar, shaped
from measureformer.numerics.checked import check_fields, checked
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.parallel.pool import Pool
from measureformer.parallel.progress import bar
from measureformer.storage.folder import RunFolder

SYSTEMS = 2880
"""Systems of tokens per compiled call: few enough to stay in the cache."""
QUANTITIES = ("together", "groups", "single")


@dataclass(frozen=True)
class Ensemble:
    """Many systems of n tokens, all independent and uniform on the unit sphere of R^dim; see `phase_diagram`.

    Arguments:
        n: tokens in each system, at least 2.
        dim: dimension of the space, at least 2; dim > n costs as much as dim = n, since n tokens span n dimensions.
        batches: random starts, each followed for every inverse temperature.
        delta: two tokens are together if their cosine is above 1 − delta.
        step: largest step of the Runge–Kutta method of order 4, at most 1.

    >>> import measureformer as mf
    >>> mf.clustering.Ensemble(dim=8).batches
    2048
    """

    n: int = 32
    dim: int = 2
    batches: int = 2048
    delta: float = 1e-3
    step: float = 0.25

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("n", "dim", "batches"):
            positive_int(getattr(self, name), name)
        if self.n < 2 or self.dim < 2 or not 0 < self.delta < 1 or not 0 < self.step <= 1:
            raise OptionError(
                got=f"n = {self.n}, dim = {self.dim}, delta = {self.delta:g}, step = {self.step:g}",
                need="n ≥ 2, dim ≥ 2, 0 < delta < 1 and 0 < step ≤ 1",
                do="mf.clustering.Ensemble() has the defaults.",
            )


class PhaseDiagram(eqx.Module):
    """Averages over the starts, (β, t); see `phase_diagram`."""

    betas: np.ndarray
    times: np.ndarray
    ensemble: Ensemble = eqx.field(static=True)
    together: np.ndarray
    """Share of the pairs of tokens whose cosine is above 1 − δ."""
    together_error: np.ndarray
    """Standard error of that average over the starts."""
    groups: np.ndarray
    """Σ_i 1/(number of tokens together with i): the number of clusters where every cluster is all together."""
    single: np.ndarray
    """Share of the starts with a single cluster."""

    def boundary(self, level: float = 0.5) -> np.ndarray:
        """For each β, when the share of pairs first reaches the level, interpolated between times; ∞ if never.

        Arguments:
            level: share of pairs in [0, 1].

        >>> import numpy as np, measureformer as mf
        >>> from measureformer.clustering.phase import PhaseDiagram
        >>> share = np.array([[0.0, 0.4, 0.8]])
        >>> rest = dict(together_error=0 * share, groups=share, single=share, ensemble=mf.clustering.Ensemble())
        >>> PhaseDiagram(np.ones(1), np.arange(3.0), together=share, **rest).boundary(0.6).tolist()
        [1.5]
        """
        level = float(scalar(level, "level"))
        after = np.argmax(self.together >= level, axis=1)
        before, row = np.maximum(after - 1, 0), np.arange(len(after))
        low, high = self.together[row, before], self.together[row, after]
        share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1), 1.0)
        crossed = self.times[before] + np.clip(share, 0, 1) * (self.times[after] - self.times[before])
        return np.where(self.together.max(axis=1) >= level, crossed, np.inf)


@checked
def phase_diagram(
    key: Key,
    betas: ArrayLike,
    times: ArrayLike,
    *,
    ensemble: Ensemble | None = None,
    save: PathLike | None = None,
    pool: Pool | None = None,
) -> PhaseDiagram:
    """How many tokens are together at (β, t), averaged over random starts on the sphere.

    The flow is that of `mf.Tangent` of one head with Q = βI and K = V = I. Many small systems move in one compiled
    program, in float32 and in equal steps between the times.

    Arguments:
        key: key of the starts, which are the same for all β.
        betas: inverse temperatures ≥ 0, (b,).
        times: increasing times, (t,); tokens start at the first.
        ensemble: size and number of the systems, and the step of the solver.
        save: folder for finished parts, each written atomically; the same call resumes from them.
        pool: computes parts in parallel, in processes or on a cluster; by default one after the other.

    Statement   x_i' = Proj_{x_i}(Σ_j e^{β⟨x_i,x_j⟩} x_j / Σ_j e^{β⟨x_i,x_j⟩}), x_i(0) independent, uniform;
                returned: averages over the starts of #{i ≠ j: ⟨x_i,x_j⟩ > 1 − δ}/(n(n−1)), …
    Cost        four attentions of n × n for each step of each system; a new n, dim or number of betas compiles.
    Ref         geshkovski2023.

    >>> import jax, measureformer as mf
    >>> few = mf.clustering.Ensemble(n=8, dim=3, batches=16)
    >>> found = mf.clustering.phase_diagram(jax.random.key(0), [1.0, 4.0], [0.0, 2.0, 40.0], ensemble=few)
    >>> found.together[:, 0].tolist(), bool(found.together[0, 2] > 0.9)
    ([0.0, 0.0], True)
    """
    seed, times, ensemble = jax.random.key_data(prng_key(key)), checked_times(times), ensemble or Ensemble()
    betas = np.asarray(host(shaped(floats(betas, "betas"), "betas", "b")), np.float64)
    finite(betas, "betas")
    if len(betas) == 0 or (betas < 0).any():
        raise OptionError(got=f"betas {betas}", need="at least one, all ≥ 0", do="Try np.linspace(0.1, 9, 90).")
    sweep = _Sweep(np.asarray(seed), betas, times, ensemble)
    with RunFolder.of(save, sweep.about()) as folder, bar("phase diagram", sweep.count) as show:
        parts = {} if folder is None else _saved_parts(folder, sweep)
        missing = [i for i in range(sweep.count) if i not in parts]
        # in processes, not in threads: two programs in threads of XLA can deadlock
        with closing((pool or Pool()).values(sweep.part, missing)) as sums:
            for i, value in sums:
                parts[missing[i]] = value
                if folder is not None:
                    folder.write_array(_name(missing[i]), value)
                show(len(parts), f"{len(parts)} of {sweep.count} parts")
    return _averages(sweep, sum((parts[i] for i in range(1, sweep.count)), parts[0]))


def _name(part: int) -> str:
    return f"part-{part:05d}"


def _saved_parts(folder: RunFolder, sweep: _Sweep) -> dict[int, np.ndarray]:
    """Finished parts by their numbers; what is damaged is computed again."""
    shape = (len(QUANTITIES) + 1, len(sweep.betas), len(sweep.times))
    found = ((i, folder.array(_name(i), shape)) for i in range(sweep.count))
    return {i: part for i, part in found if part is not None and np.isfinite(part).all()}


def _averages(sweep: _Sweep, total: np.ndarray) -> PhaseDiagram:
    """`total` holds sums (quantity, β, t) over the starts; its last row is the sum of squares of the first quantity."""
    starts = sweep.ensemble.batches
    mean = total / starts
    variance = np.maximum(mean[-1] - mean[0] ** 2, 0)
    error = np.sqrt(variance / max(starts - 1, 1))
    return PhaseDiagram(sweep.betas, sweep.times, sweep.ensemble, mean[0], error, mean[1], mean[2])


@dataclass(frozen=True)
class _Sweep:
    key: np.ndarray
    betas: np.ndarray
    times: np.ndarray
    ensemble: Ensemble

    @property
    def size(self) -> int:
        """Starts in a part."""
        return min(self.ensemble.batches, max(1, SYSTEMS // len(self.betas)))

    @property
    def count(self) -> int:
        return -(-self.ensemble.batches // self.size)

    def part(self, i: int) -> np.ndarray:
        """Sums (quantity, β, t) over the starts of part number i."""
        gaps = np.diff(self.times)
        counts = np.ceil(gaps / self.ensemble.step - 1e-9).astype(np.int32)
        steps = (gaps / counts).astype(np.float32)
        first = np.asarray(i * self.size, np.int32)
        settings = (self.size, self.ensemble.n, self.ensemble.dim)
        bound = np.float32(1 - self.ensemble.delta)
        found = _part(self.key, first, self.betas.astype(np.float32), counts, steps, bound, settings)
        values = np.asarray(found, np.float64)
        # the last part is padded to the size of the others
        values = values[..., : self.ensemble.batches - i * self.size]
        return np.concatenate([values, values[:1] ** 2]).sum(axis=-1)

    def about(self) -> dict[str, Any]:
        lists = {name: getattr(self, name).tolist() for name in ("key", "betas", "times")}
        return {**lists, **asdict(self.ensemble), "systems": SYSTEMS}


@eqx.filter_jit
def _part(key: Any, first: Any, betas: Any, counts: Any, steps: Any, bound: Any, settings: Any) -> Any:
    """The quantities (quantity, β, t, start) for starts number first, first + 1, …"""
    size, n, dim = settings
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.wrap_key_data(key), i))(first + jnp.arange(size))
    X = jax.vmap(lambda k: _start(k, n, dim))(keys)
    X = jnp.broadcast_to(X, (len(betas), *X.shape)).reshape(-1, *X.shape[1:])
    scale = jnp.repeat(betas, size)[:, None, None]

    def interval(X: Any, piece: Any) -> Any:
        count, h = piece
        X = jax.lax.fori_loop(0, count, lambda _, X: _rk4(X, scale, h), X)
        return X, _seen(X, bound)

    _, later = jax.lax.scan(interval, X, (counts, steps))
    seen = jnp.concatenate([_seen(X, bound)[None], later])
    return seen.reshape(len(seen), 3, len(betas), size).transpose(1, 2, 0, 3)


def _start(key: Any, n: int, dim: int) -> Any:
    """n tokens, independent and uniform on the sphere, in coordinates of their span: at most n of them."""
    X = jax.random.normal(key, (n, dim), jnp.float32)
    if dim > n:
        X = lapack.qr(X.T)[1].T
    return X / jnp.linalg.norm(X, axis=1, keepdims=True)


def _drift(X: Any, scale: Any) -> Any:
    weights = jnp.exp(scale * (X @ X.mT) - scale)
    seen = (weights @ X) / jnp.sum(weights, axis=2, keepdims=True)
    return seen - jnp.sum(seen * X, axis=2, keepdims=True) * X


def _rk4(X: Any, scale: Any, h: Any) -> Any:
    unit = lambda Y: Y / jnp.sqrt(jnp.sum(Y * Y, axis=2, keepdims=True))  # noqa: E731
    a = _drift(X, scale)
    b = _drift(X + 0.5 * h * a, scale)
    c = _drift(X + 0.5 * h * b, scale)
    d = _drift(X + h * c, scale)
    return unit(X + h / 6 * (a + 2 * b + 2 * c + d))


def _seen(X: Any, bound: Any) -> Any:
    """For each system: the share of pairs that are together, the number of groups, whether there is one."""
    n = X.shape[1]
    near = jnp.sum((X @ X.mT > bound) | jnp.eye(n, dtype=bool), axis=2).astype(X.dtype)
    pairs = (jnp.sum(near, axis=1) - n) / (n * (n - 1))
    return jnp.stack([pairs, jnp.sum(1 / near, axis=1), (jnp.min(near, axis=1) == n).astype(X.dtype)])


@checked
def geshkovski23_phase_curve(n: int, beta: ArrayLike, delta: ArrayLike) -> float:
    """When n tokens that start orthogonal have cosine 1 − δ: the phase transition in high dimension.

    Arguments:
        n: number of tokens, at least 2.
        beta: inverse temperature.
        delta: δ in (0, 1).

    Statement   T = ∫_0^{1−δ} (e^{β(1−γ)}+n−1) / (2(1−γ)((n−1)γ+1)) dγ, by the equation of `equiangular`; for tokens
                uniform on the sphere of R^d, cosines follow γ(t) as d → ∞
    Ref         geshkovski2023.

    >>> import measureformer as mf
    >>> round(mf.clustering.geshkovski23_phase_curve(32, 0.0, 1e-3), 5)
    5.18626
    """
    from scipy.integrate import quad

    n, slope, delta = positive_int(n, "n"), float(scalar(beta, "beta")), float(scalar(delta, "delta"))
    if n < 2 or not 0 < delta < 1:
        raise OptionError(got=f"n = {n}, delta = {delta:g}", need="n ≥ 2 and 0 < delta < 1", do="Try delta = 1e-3.")
    if slope > 700:
        raise OptionError(
            got=f"beta = {slope:g}", need="beta ≤ 700: beyond, e^beta overflows", do="Take a smaller beta."
        )

    def rate(u: float) -> float:
        # u = −log(1 − γ), in which the integrand is smooth and bounded
        gap = math.exp(-u)
        return (math.exp(slope * gap) + n - 1) / (2 * ((n - 1) * (1 - gap) + 1))

    return float(quad(rate, 0, -math.log(delta), epsabs=0, epsrel=1e-11, limit=500)[0])
