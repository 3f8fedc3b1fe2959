"""A function drawn by hand, compiled into a transformer in two ways, and how far the network is from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import measureformer as mf
from measureformer.errors import OptionError, ShapeError
from measureformer.figures.figure import Figure, Series

Of = Literal["token", "mean"]
GRID = (np.arange(400) + 0.5) / 400
CELLS = (4, 8, 16, 32)
OTHER = 0.98
"""Where the second token is, in figures and in errors."""


@dataclass(frozen=True)
class Network:
    """A compiled network: its values on `GRID`, those of the target, and its size in words."""

    of: Of
    target: np.ndarray
    values: np.ndarray
    apart: np.ndarray
    """Where the two tokens are told apart: not in one cell."""
    size: tuple[tuple[str, Any], ...]

    @property
    def error(self) -> float:
        """The largest error on `GRID` where tokens are told apart."""
        return float(np.abs(self.values - self.target)[self.apart].max())

    @property
    def mean_error(self) -> float:
        """The root of the mean square error on the whole of `GRID`, as in the theorem."""
        return float(np.sqrt(np.mean((self.values - self.target) ** 2)))


def interpolated(points: Any) -> Any:
    """The function on [0, 1] through points with increasing x, without overshoots.

    >>> float(interpolated([[0.0, 0.0], [0.5, 1.0], [1.0, 0.0]])(0.5))
    1.0
    """
    from scipy.interpolate import PchipInterpolator

    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2 or not (np.diff(points[:, 0]) > 0).all():
        raise ShapeError(got=f"points of shape {points.shape}", need="two or more, from left to right", do="Sort them.")
    return PchipInterpolator(points[:, 0], points[:, 1])


def seen(x: Any, of: Of) -> np.ndarray:
    """What the target is a function of, for a first token at x and the second at `OTHER`."""
    return np.asarray(x, float) if of == "token" else (np.asarray(x, float) + OTHER) / 2


def by_cells(g: Any, cells: int, of: Of = "token") -> Network:
    """The network of Yun et al. for two tokens: exact on the centres of cells of side 1/cells.

    >>> net = by_cells(np.sin, 16)
    >>> net.mean_error < 0.2, dict(net.size)["layers of attention"]
    (True, 17)
    """
    f = (lambda X: g(X)) if of == "token" else (lambda X: g(X.mean(axis=-2, keepdims=True)) + 0 * X)
    net = mf.sequences.compile_yun(f, d=1, n=2, delta=1 / cells)
    X = np.stack([GRID, np.full(len(GRID), OTHER)], axis=1)[:, :, None]
    census = net.census
    size = (
        ("layers of attention", census.attention),
        ("layers of perceptrons", census.feedforward),
        ("bits of a context id", net.bits_required()),
    )
    apart = np.floor(GRID * cells) != np.floor(OTHER * cells)
    return Network(of, g(seen(GRID, of)), net.run(X)[:, 0, 0], apart, size)


def by_products(g: Any, degree: int, cells: int, of: Of = "token") -> Network:
    """A polynomial in one block, the token or the mean of the context, as a transformer with ReLUs on so many cells.

    >>> net = by_products(np.sin, 3, 32)
    >>> net.error < 0.01, dict(net.size)["heads"]
    (True, 1)
    """
    if not 1 <= degree <= 8:
        raise OptionError(got=f"degree = {degree}", need="from 1 to 8", do="Each degree adds a layer of products.")
    block = mf.universality.Block(None, None, 0.0, *(([1.0], None) if of == "token" else (None, [1.0])))
    # around the middle, powers are small: ranges of products, and with them errors, stay so
    powers = np.polynomial.chebyshev.Chebyshev.fit(GRID, g(GRID), degree, domain=[0, 1])
    whole = powers.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1])
    shifted = np.polynomial.Polynomial(whole.coef)(np.polynomial.Polynomial([0.5, 1.0])).coef
    centred = block - 0.5
    power, expression = centred, float(shifted[0]) + 0.0 * block
    for k, coefficient in enumerate(shifted[1:]):
        # each power from the one before: all of them anew would be most of the time between two moves
        power = power * centred if k else power
        expression = expression + float(coefficient) * power
    net = mf.universality.compile(expression, mf.Box([0.0], [1.0]), cells=cells)
    census = net.census
    size = (
        ("layers", census.layers),
        ("heads", census.heads),
        ("hidden units", max(census.widths, default=0)),
        ("parameters", census.parameters),
        ("proven error", net.error_bound),
    )
    pairs = np.stack([GRID, np.full(len(GRID), OTHER)], axis=1)[:, :, None]
    return Network(of, g(seen(GRID, of)), weights_run(net, pairs, GRID[:, None])[:, 0], GRID >= 0, size)


def weights_run(net: Any, points: Any, queries: Any) -> np.ndarray:
    """A compiled network from its weights alone, in NumPy: tokens `points` (b, n, d), one question (b, d) each.

    Another width or depth compiles nothing here, as it would in JAX. The question is a token without mass.
    """
    layers = [np.asarray(leaf) for leaf in net.layers]
    embed, readout = np.asarray(net.embed), np.asarray(net.readout)
    tokens = np.concatenate([np.asarray(points, float), np.asarray(queries, float)[:, None]], axis=1)
    s = tokens @ embed[:, :-1].T + embed[:, -1]
    for Q, K, V, W, W1, b1, W2, b2 in zip(*layers, strict=True):
        q, k, v = (np.einsum("hkd,bnd->bhnk", M, s) for M in (Q, K, V))
        logits = q @ k.swapaxes(2, 3)
        logits[..., -1] = -np.inf
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        s = s + np.einsum("bhne,hoe->bno", p / p.sum(axis=-1, keepdims=True) @ v, W)
        hidden = s @ W1.T + b1
        s = s + (np.maximum(hidden, 0) if net.cells is not None else hidden**2) @ W2.T + b2
    return s[:, -1] @ readout[:, :-1].T + readout[:, -1]


def figure(net: Network) -> Figure:
    """The target and the network."""
    x = "the token" if net.of == "token" else f"the first token; the second is at {OTHER:g}"
    curves = (
        Series("network", GRID, net.values, role="measured"),
        Series("target", GRID, net.target, "dashed", role="theory"),
    )
    return Figure("What the transformer computes", x, "answer", curves)


def refined(g: Any, of: Of) -> dict[int, Network]:
    """The networks of cells for all numbers of cells that the app offers."""
    return {cells: by_cells(g, cells, of) for cells in CELLS}


def error_figure(found: dict[int, Network], chosen: int) -> Figure:
    """Errors of the networks of cells against δ."""
    sides = [1 / cells for cells in found]
    curves = (
        Series(
            "largest error, tokens in different cells", sides, [net.error for net in found.values()], role="measured"
        ),
        Series("mean error", sides, [net.mean_error for net in found.values()], role="measured"),
        Series("δ", sides, sides, "dashed", role="theory"),
        Series(f"now: δ = 1/{chosen}", [1 / chosen], [found[chosen].mean_error], "points", role="measured"),
    )
    return Figure("Error against the side of the cells", "δ", "error", curves, xscale="log", yscale="log")
