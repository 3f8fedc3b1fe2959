"""Compiled networks as files: safetensors whose names and shapes are those of a plain torch module's state dict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from measureformer.errors import CheckpointError, SavedRunError
from measureformer.measures.domain import AbstractDomain, Ball, Box
from measureformer.numerics.arrays import owned, positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.types import PathLike
from measureformer.storage.files import write_atomically
from measureformer.storage.safetensors import read_sealed, sealed
from measureformer.universality.compiled import Compiled, Layers, blank, stacked

FORMAT = "2"


def write(net: Compiled, path: PathLike) -> None:
    about = {
        "format": FORMAT,
        "activation": net.activation,
        "heads": str(net.readout.shape[0]),
        "cells": json.dumps(net.cells),
        "bounds": json.dumps(np.asarray(net.bounds).tolist()),
        "domain": json.dumps(_described(net.domain)),
        "story": json.dumps(net.story),
    }
    data = sealed(state_dict(net), about)
    write_atomically(Path(path), data, do="Choose another file, or make room.")


def state_dict(net: Compiled) -> dict[str, np.ndarray]:
    """Weights by the names that a torch module with `Linear` layers gives them; matrices are (out, in)."""
    entries: dict[str, np.ndarray] = {}
    for name, matrix in (("embed", net.embed), ("readout", net.readout)):
        whole = np.asarray(matrix)
        entries[f"{name}.weight"], entries[f"{name}.bias"] = whole[:, :-1], whole[:, -1]
    weights = [np.asarray(leaf) for leaf in net.layers]
    for layer, width in enumerate(net.widths):
        Q, K, V, W, W1, b1, W2, b2 = (leaf[layer] for leaf in weights)
        size = Q.shape[-1]
        entries |= {
            f"layers.{layer}.q.weight": Q.reshape(-1, size),
            f"layers.{layer}.k.weight": K.reshape(-1, size),
            f"layers.{layer}.v.weight": V.reshape(-1, size),
            # heads side by side: the output matrix of a torch attention reads them one after the other
            f"layers.{layer}.o.weight": W.transpose(1, 0, 2).reshape(size, -1),
            f"layers.{layer}.up.weight": W1[:width],
            f"layers.{layer}.up.bias": b1[:width],
            f"layers.{layer}.down.weight": W2[:, :width],
            f"layers.{layer}.down.bias": b2,
        }
    return {name: np.ascontiguousarray(entry) for name, entry in entries.items()}


@checked
def load_compiled(path: PathLike) -> Compiled:
    """Load a compiled network, with its error bound, from a file that `net.save(path)` wrote.

    The tensors are the state dict of a torch module with `nn.Linear` layers `embed`, `layers.i.{q, k, v, o, up, down}`
    and `readout`, shown in the documentation. The rest is in the file's metadata.

    Arguments:
        path: the safetensors file.

    >>> import pathlib, tempfile, measureformer as mf
    >>> x = mf.universality.Block(None, None, 0.0, [1.0], None)
    >>> net = mf.universality.compile(x * x, mf.Box([0.0], [1.0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     net.save(pathlib.Path(folder) / "square.safetensors")
    ...     again = mf.universality.load_compiled(pathlib.Path(folder) / "square.safetensors")
    >>> again.error_bound == net.error_bound, again(mf.Discrete.dirac([0.5]), [0.5]).round(2).tolist()
    (True, [0.25])
    """
    path = Path(path)
    try:
        found, about = read_sealed(path)
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    except CheckpointError as error:
        raise _damaged(path, f"cannot be read ({error.got})") from error
    if about.get("format") != FORMAT:
        raise _damaged(path, "is not a network that was compiled here")
    try:
        return _rebuilt(about, found)
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(path, f"is not whole ({type(error).__name__}: {error})") from error


def _rebuilt(about: dict[str, str], found: dict[str, np.ndarray]) -> Compiled:
    components, dim = int(about["heads"]), found["embed.weight"].shape[1]
    like = blank(dim, components)
    size = len(like.b2)
    layers: list[Layers] = []
    for number in range(sum(name.endswith(".q.weight") for name in found)):
        own = {key: found[f"layers.{number}.{key}"] for key in _KEYS}
        Q, K, V = (own[f"{key}.weight"].reshape(components, -1, size) for key in "qkv")
        W = own["o.weight"].reshape(size, components, 1).transpose(1, 0, 2)
        layer = Layers(Q, K, V, W, own["up.weight"], own["up.bias"], own["down.weight"], own["down.bias"])
        width = len(layer.b1)
        wanted = like._replace(W1=np.zeros((width, size)), b1=np.zeros(width), W2=np.zeros((size, width)))
        _same_shapes(layer, wanted)
        layers.append(layer)
    whole = {
        name: np.concatenate([found[f"{name}.weight"], found[f"{name}.bias"][:, None]], axis=1)
        for name in ("embed", "readout")
    }
    bounds, story = np.asarray(json.loads(about["bounds"]), float), tuple(map(str, json.loads(about["story"])))
    shapes = (size, dim + 1), (components, size + 1), (components,), (len(layers),)
    _same_shapes((whole["embed"], whole["readout"], bounds, np.asarray(story)), map(np.zeros, shapes))
    cells = json.loads(about["cells"])
    return Compiled(
        layers=Layers(*map(owned, stacked(layers, like))),
        embed=owned(whole["embed"]),
        readout=owned(whole["readout"]),
        bounds=bounds,
        domain=_domain(json.loads(about["domain"])),
        widths=tuple(len(layer.b1) for layer in layers),
        cells=None if cells is None else positive_int(cells, "cells"),
        story=story,
    )


def _same_shapes(found: Iterable[np.ndarray], wanted: Iterable[np.ndarray]) -> None:
    pairs = [(one.shape, other.shape) for one, other in zip(found, wanted, strict=True)]
    if any(one != other for one, other in pairs):
        raise ValueError(f"sizes that do not fit: {pairs}")


_KEYS = ("q.weight", "k.weight", "v.weight", "o.weight", "up.weight", "up.bias", "down.weight", "down.bias")


def _described(domain: AbstractDomain) -> dict[str, Any]:
    if isinstance(domain, Box):
        return {"low": np.asarray(domain.low).tolist(), "high": np.asarray(domain.high).tolist()}
    if isinstance(domain, Ball):
        return {"center": np.asarray(domain.center).tolist(), "radius": domain.radius}
    raise SavedRunError(
        got=f"a network compiled for a {type(domain).__name__}",
        need="a Box or a Ball",
        do="Compile it for the smallest box that holds the domain.",
    )


def _domain(entries: dict[str, Any]) -> AbstractDomain:
    return Box(entries["low"], entries["high"]) if "low" in entries else Ball(entries["center"], entries["radius"])


def _damaged(path: Path, what: str) -> SavedRunError:
    return SavedRunError(
        got=f"{path}, which {what}", need="a file written by net.save(path)", do="Compile the expression again."
    )
