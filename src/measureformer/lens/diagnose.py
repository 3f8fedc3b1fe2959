"""`diagnose`: a model on a text, in numbers with error bars, layer by layer and head by head."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from measureformer import __version__
from measureformer.errors import OptionError, did_you_mean
from measureformer.lens.columns import COLUMNS, Look
from measureformer.lens.families import Table
from measureformer.lens.measure_laws import iterated, laws
from measureformer.lens.model import Model
from measureformer.lens.parity import deviation
from measureformer.lens.sentences import sentences
from measureformer.lens.sweep import Exponent, Sweep, sweep
from measureformer.lens.text import tokenizer_file
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, PathLike
from measureformer.parallel.progress import bar
from measureformer.storage.fingerprint import fingerprint
from measureformer.storage.folder import RunFolder

SCHEMA = 3
REPLACED = 4
"""Tokens that are replaced, one at a time, to see how far the others move."""
EIGENVALUES = 32
"""Largest ones of each covariance that are kept."""

SHORTEST_SWEEP = 32
"""Tokens from which on there are enough lengths to fit an exponent."""

Numbers = dict[str, float | None]
Keeper = Callable[[str, Callable[[], Any]], Any]
"""Gives the part of a name, measured if it is not on disk yet."""


@dataclass(frozen=True)
class Diagnosis:
    """What `mf.lens.diagnose` measured of a model on a text: plain numbers, or None."""

    model: str
    family: str
    depth: int
    dim: int
    head_count: int
    tokens: int
    causal: bool
    layers: list[Numbers]
    """For each layer the columns of layers, by name."""
    heads: list[list[Numbers]]
    """For each layer and head the columns of heads."""
    sensitivity: list[Numbers]
    """For each layer: how much farther apart two clouds are, whose texts differ in one token, than at the entry."""
    sweep: dict[str, Any] | None
    """Local constants against the length of the context, with fitted exponents; None if left out."""
    seconds: float
    parity: float | None = None
    """Largest difference of the hidden states to those of the reference, where it is installed."""
    no_reference: str = ""
    """Why there is no such number, in words."""
    spectra: list[list[float]] = field(default_factory=list[list[float]])
    """For each layer the largest eigenvalues of the covariance of the cloud."""
    laws: dict[str, float] = field(default_factory=dict[str, float])
    """Relative change of the answer when the context is repeated, and when it is reordered: 0 for maps on measures."""
    iterated: list[float] = field(default_factory=list[float])
    """For tied layers: mean cosine of two tokens after 0, 1, 2, … layers, beyond the depth of the model."""
    control: dict[str, Any] = field(default_factory=dict[str, Any])
    """The same "layers" and "heads", without Lipschitz constants, of the model with shuffled weights."""
    version: str = __version__

    def column(self, name: str, *, control: bool = False) -> np.ndarray:
        """A column of layers (depth,), or of heads (depth, heads).

        Arguments:
            name: its name; the file says what each one is, under `columns`.
            control: take it from the model with shuffled weights.
        """
        if name not in COLUMNS:
            raise OptionError(
                got=f"the column {name!r}",
                need=f"one of {', '.join(sorted(COLUMNS))}",
                do=did_you_mean(name, COLUMNS) or "Choose one of these, or register your own.",
            )
        layers, heads = self.layers, self.heads
        if control:
            layers, heads = self.control.get("layers", []), self.control.get("heads", [])
        if COLUMNS[name].per_head:
            return np.array([[_number(head.get(name)) for head in layer] for layer in heads])
        return np.array([_number(layer.get(name)) for layer in layers])

    def exponents(self, of: Literal["exponents", "sampling_exponents"] = "exponents") -> dict[int, Exponent]:
        """Fitted exponents in the number of tokens, by layer.

        Arguments:
            of: "exponents" of the local constant of attention, or "sampling_exponents" of errors of drawn contexts.
        """
        if self.sweep is None:
            return {}
        return {int(i): Exponent(*(_number(v) for v in fit.values())) for i, fit in self.sweep[of].items()}

    def sentences(self) -> list[str]:
        """What was found, in a few sentences."""
        return sentences(self)

    def to_json(self) -> str:
        body = {"schema": SCHEMA, "columns": {c.name: c.about for c in COLUMNS.values()}, **asdict(self)}
        return json.dumps(_plain(body), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    """JSON has no infinities: they become None, like what was not measured."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(entry) for entry in cast(Any, value)]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value


@checked
def diagnose(
    model: Model,
    text: str | ArrayLike | Table,
    *,
    lipschitz: bool = True,
    sweeps: bool = True,
    save: PathLike | None = None,
    progress: bool = True,
) -> Diagnosis:
    """Measure a model on a text: every registered column, the effect of a token, growth with the context.

    Arguments:
        model: the model.
        text: a string, or token numbers (n,); for a model of tables, a `Table`.
        lipschitz: whether to compute the Lipschitz constants of layers and heads, which take most of the time.
        sweeps: whether to compute those at other context lengths.
        save: folder that keeps finished layers; the same call resumes from them.
        progress: whether to show a progress bar on a terminal.

    >>> import jax, measureformer as mf
    >>> model = mf.lens.untrained(jax.random.key(0), dim=4, depth=1, heads=2, vocabulary=7)
    >>> found = mf.lens.diagnose(model, [1, 2, 3, 4, 5], lipschitz=False, sweeps=False)
    >>> found.column("entropy").shape, found.tokens
    ((1, 2), 5)
    """
    started = time.perf_counter()
    given: Any = text if isinstance(text, Table) else model.tokens(text)
    depth, table = model.anatomy.depth, isinstance(given, Table)
    about = {} if save is None else identity(model, given, lipschitz=lipschitz, sweeps=sweeps)
    with RunFolder.of(save, about) as folder, bar("lens", 2 * depth + 4, shown=progress) as show:
        kept = partial(_kept, folder)
        rows = _rows(model, given, kept, show, lipschitz=lipschitz)
        # weights of the control are read and forgotten: two models at once may be more than the memory holds
        mixed = Model(model.shuffled().checkpoint, model.family, keep=False)
        control = _rows(mixed, given, kept, show, lipschitz=False, name="control")
        show(2 * depth, "one token replaced")
        sensitivity = [] if table else kept("sensitivity", lambda: _sensitivity(model, given))
        show(2 * depth + 1, "context repeated")
        changes = kept("laws", lambda: laws(model, given)) if table or len(given) > 1 else {}
        show(2 * depth + 2, "context of other lengths")
        long = not table and sweeps and len(given) >= SHORTEST_SWEEP
        grown = kept("sweep", lambda: _plain(_grown(sweep(model, given)))) if long else None
        show(2 * depth + 3, "reference")
        deep = iterated(model, given)
        seconds = time.perf_counter() - started
        apart = "" if isinstance(given, Table) else deviation(model, given)
    return Diagnosis(
        model=model.checkpoint.source,
        family=model.family.name,
        depth=depth,
        dim=model.anatomy.dim,
        head_count=model.anatomy.heads,
        tokens=len(given.X) if isinstance(given, Table) else len(given),
        causal=model.anatomy.causal,
        layers=[row["layer"] for row in rows],
        heads=[row["heads"] for row in rows],
        spectra=[row["spectrum"] for row in rows],
        sensitivity=sensitivity,
        laws=changes,
        iterated=deep,
        control={"layers": [row["layer"] for row in control], "heads": [row["heads"] for row in control]},
        sweep=grown,
        seconds=seconds,
        parity=apart if isinstance(apart, float) else None,
        no_reference=apart if isinstance(apart, str) else "",
    )


def _rows(
    model: Model, given: Any, kept: Keeper, show: Callable[[int, str], None], *, lipschitz: bool, name: str = "layer"
) -> list[dict[str, Any]]:
    """What is measured of each layer, from the folder where it is there."""
    rows: list[dict[str, Any]] = []
    depth = model.anatomy.depth
    done, what = (0, "") if name == "layer" else (depth, " of the control")
    show(done, f"text embedded{what}")
    for step in model.steps(given):
        show(done + step.index, f"layer {step.index + 1} of {depth}{what}")
        measure = lambda step=step: _measured(Look(step), lipschitz)  # noqa: E731
        rows.append(kept(f"{name}-{step.index:03}", measure))
    return rows


def _measured(look: Look, lipschitz: bool) -> dict[str, Any]:
    wanted = [column for column in COLUMNS.values() if lipschitz or not column.costly]
    layer = {column.name: float(column.of(look)) for column in wanted if not column.per_head}
    found = {column.name: np.asarray(column.of(look), float) for column in wanted if column.per_head}
    count = look.heads.Q.shape[0]
    heads = [{name: float(values[h]) for name, values in found.items()} for h in range(count)]
    return _plain({"layer": layer, "heads": heads, "spectrum": look.spectrum[:EIGENVALUES]})


def _sensitivity(model: Model, ids: np.ndarray) -> list[Numbers]:
    """|X' − X|/|X'_0 − X_0| at every layer, for texts in which one token is exchanged for another one of the text."""
    base = [np.asarray(mu.points, np.float64) for mu in _stream(model, ids)]
    places = sorted({round(i * (len(ids) - 1) / REPLACED) for i in range(REPLACED)})
    gains: list[np.ndarray] = []
    for place in places:
        others = np.flatnonzero(ids != ids[place])
        if len(others) == 0:
            continue
        changed = ids.copy()
        changed[place] = ids[others[(place * 7) % len(others)]]
        moved = zip(_stream(model, changed), base, strict=True)
        far = [np.linalg.norm(np.asarray(mu.points, np.float64) - at) for mu, at in moved]
        gains.append(np.array(far[1:]) / far[0])
    if not gains:
        return []
    columns = {"mean": np.mean(gains, axis=0), "least": np.min(gains, axis=0), "most": np.max(gains, axis=0)}
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(model.anatomy.depth)]


def _stream(model: Model, ids: np.ndarray) -> Any:
    measure = model.embed(ids)
    yield measure
    for i in range(model.anatomy.depth):
        first, second = model.layers.block(i).halves
        measure = second.push(first.push(measure))
        yield measure


def _grown(found: Sweep) -> dict[str, Any]:
    fits = {"exponents": found.exponent, "sampling_exponents": found.sampling_exponent}
    return {**asdict(found), **{k: {i: asdict(fit(i)) for i in found.layers} for k, fit in fits.items()}}


def _kept(folder: RunFolder | None, name: str, measure: Callable[[], Any]) -> Any:
    """A part of the run, from its folder where it is there."""
    return measure() if folder is None else folder.part(name, measure)


def identity(model: Model, given: np.ndarray | Table, **options: bool) -> dict[str, Any]:
    """What decides the numbers of a diagnosis, large things by their fingerprints.

    Arguments:
        model: the model; all bytes of its weights count.
        given: token numbers, or a table.
        options: those of `diagnose`.
    """
    return {
        "version": __version__,
        "columns": fingerprint(sorted(COLUMNS)),
        "family": model.family.name,
        "config": fingerprint(str(sorted(model.config.items(), key=str))),
        "weights": model.checkpoint.fingerprint,
        "tokenizer": fingerprint(tokenizer_file(model.checkpoint)),
        "text": fingerprint(given),
        **options,
    }
