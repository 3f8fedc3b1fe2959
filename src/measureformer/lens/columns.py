"""What the lens measures of a layer and of its heads: one function for each number, found in one table.

A new column is a function of a `Look` with the decorator `column`: it then appears in the JSON, the table and the
report. Numbers of a layer are floats, those of heads arrays (h,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.attention import coverage
from measureformer.attention.coverage import Coverage
from measureformer.clustering import clusters
from measureformer.lens.families.base import Heads
from measureformer.lens.measure_laws import cosine
from measureformer.lens.separation import separation
from measureformer.lens.trace import Step
from measureformer.maps import Causal
from measureformer.maps.call import measured
from measureformer.measures import Discrete
from measureformer.memory.heads import LIMITS
from measureformer.numerics.arrays import on_device
from measureformer.regularity import local_lipschitz
from measureformer.transport import wasserstein

TOLERANCE = 1e-2
"""Relative residual of Lipschitz constants from below, whose error is of its square: another text changes them more."""
CHORD = 0.5
"""Tokens are in one cluster if steps of this length on the sphere of directions lead from one to the other."""
EXACT = 1024
"""Tokens up to which distances between clouds are computed exactly."""
HELD = 0.9


@dataclass
class Look:
    """A layer on a text, with what several columns share."""

    step: Step

    @property
    def heads(self) -> Heads:
        return self.step.block.heads

    @cached_property
    def seen(self) -> Any:
        return self.step.seen

    @cached_property
    def spread(self) -> Spread:
        """How attention is spread over the tokens, and how far it is from its Gaussian closure."""
        return measured(self.heads, _spread, self.seen.masked() if self.step.block.causal else self.seen)

    def masked(self, G: Any) -> Any:
        return Causal(G) if self.step.block.causal else G

    @cached_property
    def layer(self) -> Any:
        return local_lipschitz(self.step.block.map, self.step.before, tol=TOLERANCE)

    @cached_property
    def attention(self) -> Any:
        # not `self.heads`, whose copies of shared keys and values cost products
        return local_lipschitz(self.masked(self.step.block.attention.inner), self.seen, tol=TOLERANCE)

    @cached_property
    def each_head(self) -> list[Any]:
        found = (reduced(one_head(self.heads, h), self.seen) for h in range(self.heads.Q.shape[0]))
        return [local_lipschitz(self.masked(G), mu, tol=TOLERANCE) for G, mu in found]

    @property
    def head_lower(self) -> np.ndarray:
        return np.array([found.lower for found in self.each_head])

    @property
    def head_upper(self) -> np.ndarray:
        return np.array([found.upper for found in self.each_head])

    @cached_property
    def small(self) -> Small:
        return Small.of(self.heads)

    @cached_property
    def points(self) -> np.ndarray:
        """Tokens with mass after the layer."""
        return _massive(self.step.after)

    @cached_property
    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the covariance of the tokens after the layer, the largest first."""
        return np.linalg.svd(self.points - self.points.mean(axis=0), compute_uv=False) ** 2 / len(self.points)

    @cached_property
    def times(self) -> Any:
        return np.asarray(self.seen.times) if self.step.block.causal else None

    @cached_property
    def held(self) -> Coverage:
        """How few tokens, and how small a part of the mass that a token sees, hold 90 % of its attention."""
        heads, times = self.step.heads, None if self.times is None else (self.times,) * 2
        return coverage(heads.q, heads.k, np.asarray(self.seen.log_weights), times=times, share=HELD)

    @property
    def needed(self) -> np.ndarray:
        """That part of the mass in the median of the tokens, (h,)."""
        return np.median(self.held.mass, axis=1)


def _massive(mu: Any) -> np.ndarray:
    return np.asarray(mu.points)[np.asarray(mu.log_weights) > -math.inf].astype(np.float64)


def one_head(G: Heads, h: int) -> Heads:
    """Head h alone, without the bias that belongs to all of them."""
    names = "Q", "K", "V", "W", "q_bias", "k_bias", "v_bias"
    parts = [np.asarray(getattr(G, name))[h : h + 1] for name in names]
    bias = np.zeros(G.bias.shape, G.bias.dtype)
    return eqx.tree_at(lambda g: [getattr(g, name) for name in (*names, "bias")], G, [*parts, bias])


def reduced(G: Heads, mu: Any) -> tuple[Heads, Any]:
    """A head and a measure in the few coordinates that it sees, with the same local Lipschitz constant.

    Tokens enter through Qx, Kx and Vx alone: displacements orthogonal to the rows of all three change nothing. What
    comes out lies in the span of the columns of W. Orthonormal coordinates of both spaces keep all norms.
    """
    rows = np.concatenate([np.asarray(part, np.float64)[0] for part in (G.Q, G.K, G.V)])
    if rows.shape[0] >= rows.shape[1]:
        return G, mu
    basis = np.linalg.qr(rows.T)[0]
    dtype = np.asarray(G.Q).dtype
    parts = [(np.asarray(part, np.float64) @ basis).astype(dtype) for part in (G.Q, G.K, G.V)]
    out = np.asarray(np.linalg.qr(np.asarray(G.W, np.float64)[0], mode="r"), dtype)
    head = eqx.tree_at(lambda g: [g.Q, g.K, g.V, g.W, g.bias], G, [*parts, out[None], np.zeros(len(out), dtype)])
    return head, mu.with_points(on_device((np.asarray(mu.points, np.float64) @ basis).astype(mu.points.dtype)))


class Spread(eqx.Module):
    """Numbers of every head, averaged over the tokens."""

    entropy: Float[Array, "*h"]
    first: Float[Array, "*h"]
    own: Float[Array, "*h"]
    closure: Float[Array, "*h"]


def _spread(G: Any, mu: Any) -> Spread:
    times: Any = getattr(mu, "times", None)
    q, k, v = G.project_at(mu, mu.points, times) if G.needs_time else G.project(mu, mu.points)
    massive = mu.log_weights > -jnp.inf
    share = jnp.where(massive, 1.0, 0.0).astype(q.dtype) / jnp.sum(massive).astype(q.dtype)
    visible = jnp.ones((mu.n, mu.n), bool) if mu.visible(times) is None else times[None, :] <= times[:, None]

    def one(head: tuple[Array, Array, Array]) -> Spread:
        q, k, v = head
        scores = jnp.where(visible, q @ k.T + mu.log_weights[None, :], -jnp.inf)
        p = jax.nn.softmax(scores, axis=1)
        entropy = -jnp.sum(p * jnp.log(jnp.where(p > 0, p, 1)), axis=1)
        # Gaussian closure: the tokens that a query sees are replaced by a Gaussian with their mean and covariance
        base = jnp.where(visible, jnp.exp(mu.log_weights)[None, :], 0)
        base = base / jnp.sum(base, axis=1, keepdims=True)
        mean_v, mean_k, logits = base @ v, base @ k, q @ k.T
        tilt = logits - jnp.sum(q * mean_k, axis=1)[:, None]
        closure = mean_v + (base * tilt) @ v - jnp.sum(base * tilt, axis=1)[:, None] * mean_v
        out = p @ v
        error, size = (jnp.sum(share * jnp.sum(a * a, axis=1)) for a in (out - closure, out - mean_v))
        entropy, first, own = (jnp.sum(share * a) for a in (entropy, p[:, 0], jnp.diagonal(p)))
        return Spread(entropy, first, own, jnp.sqrt(error / jnp.where(size > 0, size, 1)))

    return jax.lax.map(one, (q, k, v))


@dataclass(frozen=True)
class Small:
    """Products of the weights of each head, reduced to the dimension of the head."""

    vo_top: np.ndarray
    """Largest and least real part of the eigenvalues of VO that are not zero, (h,)."""
    vo_bottom: np.ndarray
    vo_sign: np.ndarray
    a_sign: np.ndarray
    a_symmetric: np.ndarray

    @staticmethod
    def of(G: Heads) -> Small:
        Q, K, V, W = (np.asarray(a, np.float64) for a in (G.Q, G.K, G.V, G.W))
        # W V has the eigenvalues of V W, and K'Q those of Q K'
        vw, qk = V @ W, float(G.scale) * Q @ K.swapaxes(1, 2)
        squares = float(G.scale) ** 2 * np.einsum("hij,hij->h", K @ K.swapaxes(1, 2), Q @ Q.swapaxes(1, 2))
        traced, real = np.einsum("hij,hji->h", qk, qk), np.real(np.linalg.eigvals(vw))
        return Small(
            real.max(axis=1),
            real.min(axis=1),
            _trace(vw) / _nuclear(W, V),
            _trace(qk) / (float(G.scale) * _nuclear(K.swapaxes(1, 2), Q)),
            (squares + traced) / (2 * squares),
        )


def _trace(stack: np.ndarray) -> np.ndarray:
    return np.trace(stack, axis1=1, axis2=2)


def _nuclear(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sum of the singular values of left·right, from the triangular factors of both."""
    first, second = (np.asarray(np.linalg.qr(part, mode="r")) for part in (left, right.swapaxes(1, 2)))
    small = first @ second.swapaxes(1, 2)
    total = np.linalg.svd(small, compute_uv=False).sum(axis=1)
    return np.where(total > 0, total, 1)


@dataclass(frozen=True)
class Column:
    """A number that the lens measures."""

    name: str
    title: str
    about: str
    of: Callable[[Look], Any]
    per_head: bool = False
    costly: bool = False
    """Whether it takes most of the time: left out by `lipschitz=False`."""


COLUMNS: dict[str, Column] = {}


def column(name: str, title: str, about: str, *, per_head: bool = False, costly: bool = False) -> Callable[[Any], Any]:
    """Register a function of a `Look` as a column.

    Arguments:
        name: key in `COLUMNS`, the JSON and the report.
        title: heading of the column.
        about: what it measures, in a sentence.
        per_head: whether the function returns a number for each head, (h,), instead of one for the layer.
        costly: whether it takes most of the time; `lipschitz=False` leaves it out.
    """

    def add(of: Callable[[Look], Any]) -> Callable[[Look], Any]:
        COLUMNS[name] = Column(name, title, about, of, per_head, costly)
        return of

    return add


@column("radius", "radius", "Largest norm of a token after the layer.")
def _radius(look: Look) -> float:
    return float(look.step.after.radius())


@column("size", "root mean square norm", "Root of the mean squared norm of the tokens after the layer.")
def _size(look: Look) -> float:
    return float(np.sqrt((look.points**2).sum(axis=1).mean()))


@column("moved", "displacement", "Root of the mean squared distance by which the layer moves tokens.")
def _moved(look: Look) -> float:
    return float(np.sqrt(((look.points - _massive(look.step.before)) ** 2).sum(axis=1).mean()))


@column("transport", "W_2 displacement", "W_2 between the clouds before and after the layer, tokens exchangeable.")
def _transport(look: Look) -> float:
    before = _massive(look.step.before)
    if len(before) > EXACT:
        return math.nan
    return float(wasserstein(Discrete.uniform(before), Discrete.uniform(look.points)))


@column("rank", "effective rank", "e^entropy of the normalised eigenvalues of the covariance.")
def _rank(look: Look) -> float:
    share = look.spectrum / (look.spectrum.sum() or 1)
    return float(np.exp(-(share * np.log(np.where(share > 0, share, 1))).sum()))


@column("top", "top direction", "Share of the largest eigenvalue in the trace of the covariance.")
def _top(look: Look) -> float:
    return float(look.spectrum[0] / (look.spectrum.sum() or math.nan))


@column("cosine", "mean cosine", "Mean cosine of the angle between two different tokens.")
def _cosine(look: Look) -> float:
    return cosine(look.points)


@column("clusters", "clusters", f"Components of the cloud of directions, for steps of at most {CHORD:g}.")
def _clusters(look: Look) -> float:
    norms = np.linalg.norm(look.points, axis=1, keepdims=True)
    return float(clusters(look.points / np.where(norms > 0, norms, 1), CHORD).count)


@column("k90", "tokens that hold 90 %", "Mean number of tokens that hold 90 % of the attention.", per_head=True)
def _k90(look: Look) -> np.ndarray:
    return look.held.count[:, np.asarray(look.seen.log_weights) > -math.inf].mean(axis=1)


@column("class", "class", "Classes of memories, 1 to 4: needs over 1/2 of the mass, 1/8, 1/32, or less.", per_head=True)
def _class(look: Look) -> np.ndarray:
    # what should be on a limit may be above it by rounding
    return 4.0 - np.sum(look.needed[:, None] > np.array(LIMITS) + 1e-12, axis=1)


@column("share", "size of contribution", "Root mean square of what it adds, relative to the stream.", per_head=True)
def _share(look: Look) -> np.ndarray:
    added = np.asarray(look.step.heads.contributions, np.float64)
    stream = np.sqrt((np.asarray(look.step.before.points, np.float64) ** 2).sum(axis=1).mean())
    return np.sqrt((added**2).sum(axis=2).mean(axis=1)) / max(stream, 1e-300)


@column(
    "separation",
    "margin over the largest",
    "By how much a head separates the tokens it selects, over what the best matrix of this size does (Att-SVM).",
    per_head=True,
    costly=True,
)
def _separation(look: Look) -> np.ndarray:
    heads = look.step.heads
    massive = np.asarray(look.seen.log_weights) > -math.inf
    q, k = (np.asarray(part, np.float64)[:, massive] for part in (heads.q, heads.k))
    times = None if look.times is None else look.times[massive]
    return np.array([separation(*pair, times) for pair in zip(q, k, strict=True)])


# columns that are attributes of a Look: name, title, what it is, attribute
_LIPSCHITZ = (
    ("lower", "Lipschitz, from below", "Local constant of attention in L², attained.", "attention.lower"),
    ("upper", "Lipschitz, certified", "Certified upper bound of the same constant.", "attention.upper"),
    ("layer_lower", "whole layer, from below", "Local constant of the whole layer, attained.", "layer.lower"),
    ("layer_upper", "whole layer, certified", "Certified upper bound of that.", "layer.upper"),
)
_HEADS = (
    ("entropy", "entropy", "Mean entropy of the attention of a token.", "spread.entropy"),
    ("needed", "mass that holds 90 %", "Part of the mass that holds 90 % of the attention, median.", "needed"),
    ("first", "on the first token", "Mean attention on the first token.", "spread.first"),
    ("own", "on itself", "Mean attention of a token on itself.", "spread.own"),
    (
        "closure",
        "Gaussian closure error",
        "Distance to attention on a Gaussian with the same moments, relative to the distance to the mean value.",
        "spread.closure",
    ),
    ("attraction", "attraction", "Trace of VO over its nuclear norm: 1 attractive, −1 repulsive.", "small.vo_sign"),
    ("vo_top", "largest eigenvalue of VO", "The largest real part of an eigenvalue of VO.", "small.vo_top"),
    ("vo_bottom", "least eigenvalue of VO", "The least real part of an eigenvalue of VO.", "small.vo_bottom"),
    ("alignment", "alignment of A", "Trace of A = KᵀQ over its nuclear norm.", "small.a_sign"),
    ("symmetric", "symmetric part of A", "Share of A that is symmetric: 1/2 for a random one.", "small.a_symmetric"),
)
_HEADS_LIPSCHITZ = (
    ("head_lower", "Lipschitz, from below", "Local constant of the head, attained.", "head_lower"),
    ("head_upper", "Lipschitz, certified", "Certified upper bound of it.", "head_upper"),
)
for _rows, _per_head, _costly in ((_LIPSCHITZ, False, True), (_HEADS, True, False), (_HEADS_LIPSCHITZ, True, True)):
    for _name, _title, _about, _attribute in _rows:
        column(_name, _title, _about, per_head=_per_head, costly=_costly)(attrgetter(_attribute))
