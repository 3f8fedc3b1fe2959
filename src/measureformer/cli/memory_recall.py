"""The work of `measureformer memory`: store, damage, recall and write pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from measureformer.errors import OptionError, OutputError, need
from measureformer.memory.images import masked, noisy, read_images
from measureformer.memory.recall import GENERATIONS, Generation, Recall, draw_recall, recall
from measureformer.storage.files import write_atomically

SHOWN = 12
"""Queries on the sheet."""
SIZE = re.compile(r"([1-9][0-9]{0,4})[x×]([1-9][0-9]{0,4})")


class Damage(NamedTuple):
    """What is done to the queries."""

    mask: float | None
    noise: float | None
    seed: int


def run(
    paths: Sequence[Path],
    query: Sequence[Path],
    damage: Damage,
    *,
    generation: str,
    beta: float | None,
    size: str | None,
    out: Path,
) -> Iterator[str]:
    """Store, damage, recall, write; yields what to tell the user, line by line."""
    wanted: list[Generation] = [name for name in GENERATIONS if generation in (name, "all")]
    if not wanted:
        raise OptionError(
            got=f"--generation {generation}", need="modern, dense, classical or all", do="Leave it out for modern."
        )
    pixels = _size(size)
    stored = read_images(paths, size=pixels)
    asked = read_images(query, size=pixels) if query else stored
    queries = _damaged(np.asarray(asked.values, np.float64), damage, default=0.5 if not query else 0.0)
    yield f"stored {len(stored.names)} pictures of {stored.values.shape[2]} × {stored.values.shape[1]} pixels"
    names = _distinct(asked.names)
    files = {name: out / f"{name}.png" for name in names}
    _keep_inputs([*paths, *query], files.values())
    recalls = {str(name): recall(stored.values, queries, generation=name, beta=beta) for name in wanted}
    for name, found in recalls.items():
        yield from _told(name, found, names, stored.names)
    # the newest generation is what is written
    last = recalls[wanted[-1]]
    for name, values in zip(names, last.values, strict=True):
        write_atomically(files[name], _png(values))
    first = slice(SHOWN)
    shown = {name: _part(found, first) for name, found in recalls.items()}
    sheet = out / "recall.svg"
    pictures = stored.values[first] if not query else stored.values[last.nearest[first]]
    write_atomically(sheet, draw_recall(pictures, queries[first], shown))
    yield f"The sheet is {sheet}, and the pictures are beside it."


def _size(size: str | None) -> tuple[int, int] | None:
    if size is None:
        return None
    found = SIZE.fullmatch(size.strip().lower())
    if found is None:
        raise OptionError(got=f"--size {size[:40]}", need="WIDTHxHEIGHT in pixels", do="Write it as 32x32.")
    return int(found[1]), int(found[2])


def _damaged(values: np.ndarray, damage: Damage, *, default: float) -> np.ndarray:
    mask = (default if damage.noise is None else 0.0) if damage.mask is None else damage.mask
    if damage.noise is not None:
        import jax

        values = noisy(values, jax.random.key(damage.seed), damage.noise)
    return masked(values, mask)


def _told(generation: str, found: Recall, names: Sequence[str], stored: Sequence[str]) -> Iterator[str]:
    if found.beta is not None:
        yield f"{generation}: beta {found.beta:.3g}"
    for name, i, error, steps in zip(names, found.nearest, found.errors, found.steps, strict=True):
        what = stored[i] if error < 0.05 else f"nothing that is stored, closest to {stored[i]}"
        yield f"{generation}: {name} is {what}; {steps} update{'s' if steps != 1 else ''}, {error:.2g} off per pixel"


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of files that do not collide: the second `cat` is `cat-2`; `recall` belongs to the sheet in any case."""
    found: list[str] = []
    for name in names:
        count, new = 1, name
        while new in found:
            count += 1
            new = f"{name}-{count}"
        found.append(new)
    return found


def _keep_inputs(inputs: Sequence[Path], outputs: Iterable[Path]) -> None:
    """Refuse to write over a picture that was read."""
    read = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in read or path.parent.resolve() in read:
            raise OutputError(
                got=f"{path}, which would be written over a picture or among those that were read",
                need="a folder of its own",
                do="Choose another folder with --out.",
            )


def _part(found: Recall, rows: slice) -> Recall:
    return Recall(
        found.values[rows],
        found.first[rows],
        found.nearest[rows],
        found.errors[rows],
        found.steps[rows],
        found.converged[rows],
        found.beta,
    )


def _png(values: np.ndarray) -> bytes:
    need("PIL", "atlas")
    from PIL import Image

    stream = BytesIO()
    grey = np.clip((values + 1) * 127.5 + 0.5, 0, 255).astype(np.uint8)
    Image.fromarray(grey).save(stream, format="PNG")
    return stream.getvalue()
