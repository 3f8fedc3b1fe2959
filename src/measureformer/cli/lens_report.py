"""What `measureformer lens` does: models and texts in, diagnoses and a report out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measureformer.errors import TextError
from measureformer.lens import diagnose, load
from measureformer.lens.diagnose import Diagnosis, identity
from measureformer.lens.figures import PANELS, figures, table
from measureformer.lens.model import Model
from measureformer.lens.page import Part, write_lens_report
from measureformer.parallel.progress import bar
from measureformer.storage.files import write_atomically
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.lock import only_writer
from measureformer.text.corpus import read_text

TEXTS = (".txt", ".md", ".rst", ".text")
TOPICS = ("assert", "class", "comparisons", "context-managers", "exceptions")


@dataclass(frozen=True)
class Request:
    """The arguments of the command."""

    path: Path | None
    text: Path | None
    tokens: int
    against: Path | None
    out: Path | None
    quick: bool


def run_lens(request: Request) -> tuple[list[Diagnosis], Path]:
    """One diagnosis, or two to compare, and the page about them."""
    with bar("lens", 2) as show:
        show(0, "opening the model")
        model, text = load(request.path), _text(request.text)
        pairs = [(model, text)]
        if request.against is not None:
            show(1, f"opening {request.against.name}")
            another_text = request.against.suffix in TEXTS
            pairs.append((model, read_text(request.against)) if another_text else (load(request.against), text))
    tokenized = [(model, _tokens(request, model, text)) for model, text in pairs]
    out = _folder(request, tokenized) if request.out is None else request.out
    with only_writer(out, do="Choose another folder with --out, or make room."):
        found = [
            diagnose(model, ids, lipschitz=not request.quick, save=out / f"run-{i}")
            for i, (model, ids) in enumerate(tokenized)
        ]
        # the numbers first: the page is made from them, and nothing unfinished is ever shown
        write_atomically(out / "lens.json", ("[" + ",".join(one.to_json() for one in found) + "]").encode())
        with bar("lens", 1) as show:
            show(0, "drawing the report")
            return found, _page(out, found)


def _folder(request: Request, tokenized: list[tuple[Model, np.ndarray]]) -> Path:
    """One of its own for each model, text and setting, and the same one when the command is repeated."""
    mark = fingerprint([identity(model, ids, lipschitz=not request.quick, sweeps=True) for model, ids in tokenized])
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", tokenized[0][0].checkpoint.source).strip("-.")
    return Path("lens") / f"{name or 'model'}-{mark[:8]}"


def _page(out: Path, found: list[Diagnosis]) -> Path:
    names = " against ".join(f"{one.family} {one.model}" for one in found)
    facts: list[str] = []
    for one in found:
        mask = "causal, " if one.causal else ""
        sizes = f"{one.depth} layers, dimension {one.dim}, {one.head_count} heads"
        facts.append(f"{one.model}: {sizes}, {mask}on {one.tokens} tokens; {one.seconds:.0f} s.")
        facts += one.sentences()
    parts = [Part(f"{one.model}, layer by layer", *table(one)) for one in found]
    return write_lens_report(
        out, title=f"Lens on {names}", facts=facts, figures=figures(*found), panels=PANELS, parts=parts
    )


def _tokens(request: Request, model: Model, text: str) -> np.ndarray:
    if model.anatomy.reads != "text":
        raise TextError(
            got=f"{model.family.name}, which reads tables",
            need="a model of texts",
            do="In Python: mf.lens.diagnose(model, mf.lens.Table(X, y, queries)).",
        )
    most = min(request.tokens, model.anatomy.limit or request.tokens)
    # a text may be longer than the context: what is used is said in the report
    return model.tokenized(text)[:most]


def _text(path: Path | None) -> str:
    """The text of the file, or one that every Python brings along."""
    if path is not None:
        return read_text(path)
    from pydoc_data.topics import topics

    return " ".join(" ".join(topics[name].split()) for name in TOPICS if name in topics)
