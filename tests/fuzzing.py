"""Mutated files for everything that reads files: good ones are made, damaged from a seed, and read again.

A case ends well if the file is refused with one of the library's errors, or read and every number that comes of it is
finite. Everything else is a fault: a raw exception, a panic, a silent NaN, more than two seconds, more memory than four
times the files.
"""

from __future__ import annotations

import json
import re
import resource
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import measureformer as mf
from lens_reference import as_gguf, stored
from lens_reference import folder as model_folder
from measureformer.atlas.atlas import Atlas, Missing, read_atlas
from measureformer.atlas.index import index
from measureformer.atlas.result import Result
from measureformer.atlas.survey import FILE, arrange
from measureformer.errors import MeasureformerError
from measureformer.memory.images import FORMATS, MOST_PIXELS, pictures, read_images
from measureformer.storage.folder import RunFolder
from measureformer.storage.safetensors import read_safetensors, to_safetensors
from measureformer.text.saved import TextModel, save_text
from planting import a_result

KEY = jax.random.key(0)
SECONDS = 2.0
"""Of the processor: seconds of the clock count the other processes too."""
TIMES = 4
"""Memory over the size of the files."""
ADDRESSES = 16 << 30
FLOOR = 32 << 20
"""Bytes that the interpreter and its allocators may take besides, whatever the files are."""
PER_PIXEL = 24
"""Bytes of memory for each pixel of a picture: its file may be a thousand times smaller than what it shows."""


ENTRIES = list(index().values())
SURVEY = f"""
[{ENTRIES[0].chapter}]
introduction = '''One paragraph.

Another.'''
[{ENTRIES[0].chapter}.claims.{ENTRIES[0].name}]
open = "is it sharp?"
[{ENTRIES[0].chapter}.claims."{ENTRIES[1].name}"]
builds_on = ["{ENTRIES[0].name}"]
"""
FIELD, SPREAD = mf.Linear([[0.0, 1.0], [-1.0, 0.0]]), mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.5]])
TIMES_OF_FLOW = [0.0, 0.5, 1.0]
SMALL, FEW = mf.Architecture(width=8, layers=1, heads=1), mf.Optimization(steps=2, batch=2)


class Loader(NamedTuple):
    """Something that reads files."""

    make: Callable[[Path], None]
    """Write good files into an empty folder."""
    load: Callable[[Path], Any]
    """Read them; what comes back is a tree of arrays in which nothing may be NaN."""
    damaged: tuple[str, ...] = ("*",)
    """Patterns of the files that are damaged."""
    cheap: bool = True
    """Whether ten thousand cases take seconds."""
    same: bool = False
    """Whether what is read must be what was written, to the last bit."""
    extra: int = 0
    """Bytes of memory that are allowed besides."""


def _put(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _tensors(folder: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {"a": rng.normal(size=(3, 4)).astype(np.float32), "b.c": rng.normal(size=5).astype(np.float16)}
    _put(folder / "x.safetensors", to_safetensors({**tensors, "n": np.arange(6), "e": np.zeros((0, 2))}, {"k": "v"}))


def _weights(folder: Path) -> Any:
    """All weights of a checkpoint as the lens reads them."""
    checkpoint = mf.lens.checkpoint.open_checkpoint(folder)
    return [checkpoint.tensor(name) for name in checkpoint.names]


def _shards(folder: Path) -> None:
    halves: dict[str, dict[str, np.ndarray]] = {"one.safetensors": {}, "two.safetensors": {}}
    for i, (name, array) in enumerate(stored("gpt2").weights.items()):
        halves[list(halves)[i % 2]][name] = array
    for file, tensors in halves.items():
        _put(folder / file, to_safetensors(tensors))
    places = {name: file for file, tensors in halves.items() for name in tensors}
    _put(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": places}))
    _put(folder / "config.json", json.dumps(stored("gpt2").config))


def _model(folder: Path) -> Any:
    """A model, its vectors of three tokens, and the parts of its first layer; nothing is compiled."""
    model = mf.lens.load(next(folder.glob("*.gguf"), folder))
    if model.anatomy.reads == "text":
        model.tokens([1, 2, 3])
    return [jax.tree.leaves(part) for part in (model.layers.block(0), model.anatomy.entry(), model.anatomy.exit())]


def _tokenizer(folder: Path) -> Any:
    tokenizer = mf.lens.load(folder).tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode("w1 w2, or not; ünïcode 語 w3")
    tokenizer.words(ids)
    tokenizer.decode(ids)
    return tokenizer.size


def _pairs(folder: Path) -> None:
    model_folder(folder, "gpt2")
    _put(folder / "tokenizer.json", mf.text.Tokenizer.byte_pairs("w1 w2 to be or not to be " * 9, size=280).description)


def _gguf(folder: Path) -> None:
    words = [f"w{i}" for i in range(36)] + ["w", "1", "2", "Ġ"]
    as_gguf(folder / "tiny.gguf", stored("llama"), words=words, merges=["w 1", "w 2"])


def _gguf_text(folder: Path) -> Any:
    model = mf.lens.load(folder / "tiny.gguf")
    return model.tokenized("w1 w2")


def _results(folder: Path) -> None:
    _put(folder / "result.json", a_result().to_json())


def _atlas(folder: Path) -> None:
    entries = ENTRIES[:3]
    made = Atlas.of([], [Missing(entry.name, "raised", "it failed") for entry in entries], arrange(entries, ""))
    _put(folder / "atlas.json", made.to_json())


def _flow(folder: Path) -> Any:
    return mf.flow(FIELD, SPREAD, TIMES_OF_FLOW, save=folder)


def _learning(folder: Path) -> Any:
    model = mf.incontext.InContextModel.random(KEY, 1, SMALL, points=3)
    task = mf.incontext.tasks.linear(1)
    return mf.incontext.train_learner(task, model, KEY, points=3, optimization=FEW, save=folder).model


def _text(folder: Path) -> None:
    net = mf.incontext.LanguageModel.random(KEY, SMALL, vocabulary=3, context=4)
    save_text(TextModel(net, mf.text.Tokenizer.characters("abc")), folder)


def _text_model(folder: Path) -> Any:
    found = mf.text.load_text(folder)
    return found.model, found.tokenizer.encode("abc")


def _compiled(folder: Path) -> None:
    x = mf.universality.Block(None, None, 0.0, [1.0], None)
    mf.universality.compile(x * x, mf.Box([0.0], [1.0])).save(folder / "net.safetensors")


def _parts(folder: Path) -> Any:
    with RunFolder.of(folder, {"seed": 1}) as run:
        assert run is not None
        found = run.array("two", (2, 2))
        if found is None:
            run.write_array("two", np.eye(2))
        return run.array("two", (2, 2)), run.part("one", lambda: {"value": [1.5, None]})


def _lens_report(folder: Path) -> Any:
    model = mf.lens.untrained(KEY, dim=4, depth=1, heads=2, vocabulary=7)
    return mf.lens.diagnose(model, [1, 2, 3], lipschitz=False, sweeps=False, save=folder).layers


def _phases(folder: Path) -> Any:
    few = mf.clustering.Ensemble(n=4, batches=4)
    return mf.clustering.phase_diagram(KEY, [1.0], [0.0, 1.0], ensemble=few, save=folder)


def _pictures(folder: Path) -> None:
    from PIL import Image

    drawn = ((pictures()[5] + 1) * 127.5).astype(np.uint8)
    colours = Image.fromarray(np.stack([drawn, drawn.T, 255 - drawn, np.maximum(drawn, 90)], axis=-1))
    for kind in FORMATS:
        picture = colours if kind in ("PNG", "WEBP", "TIFF") else colours.convert("RGB")
        options: dict[str, Any] = {"compression": "tiff_lzw"} if kind == "TIFF" else {}
        picture.save(folder / f"x.{kind.lower()}", kind, **options)


def _seen(folder: Path) -> Any:
    """Each picture by itself: that one is damaged must not hide another."""
    found: list[Any] = []
    refusals: list[MeasureformerError] = []
    for path in sorted(folder.iterdir()):
        try:
            found.append(read_images(path).values)
        except MeasureformerError as refusal:
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
    return found


LOADERS: dict[str, Loader] = {
    "safetensors": Loader(_tensors, lambda folder: read_safetensors(folder / "x.safetensors")[0] and None),
    "GGUF": Loader(_gguf, _model),
    "tokenizer in GGUF": Loader(_gguf, _gguf_text),
    "weights in shards": Loader(_shards, _weights, ("*.index.json", "one.safetensors")),
    "tokenizer of words": Loader(lambda folder: model_folder(folder, "gpt2") and None, _tokenizer, ("tokenizer.json",)),
    "tokenizer of byte pairs": Loader(_pairs, _tokenizer, ("tokenizer.json",)),
    "result": Loader(_results, lambda folder: _stored(folder) and None),
    "atlas": Loader(_atlas, lambda folder: read_atlas(folder) and None),
    "survey": Loader(
        lambda folder: _put(folder / FILE, SURVEY),
        lambda folder: arrange(ENTRIES[:3], (folder / FILE).read_text("utf-8", "replace")) and None,
    ),
    "saved flow": Loader(_flow, lambda folder: mf.flows.load_flow(folder).points, same=True),
    "trained model": Loader(_learning, mf.incontext.load_learner, ("model.*",), same=True),
    "trained text model": Loader(_text, _text_model),
    "compiled network": Loader(
        _compiled, lambda folder: mf.universality.load_compiled(folder / "net.safetensors"), same=True
    ),
    "parts of a run": Loader(_parts, _parts, same=True),
    "pictures": Loader(_pictures, _seen, extra=len(FORMATS) * PER_PIXEL * MOST_PIXELS),
    **{
        f"model, {name}": Loader(
            lambda folder, name=name: model_folder(folder, name) and None, _model, ("config.json", "model.safetensors")
        )
        for name in ("gpt2", "roberta", "albert", "llama3", "mistral", "tabpfn")
    },
    "resumed flow": Loader(_flow, lambda folder: _flow(folder).points, same=True, cheap=False),
    "resumed training": Loader(_learning, _learning, ("problem.json", "state.*"), same=True, cheap=False),
    "resumed lens report": Loader(_lens_report, _lens_report, same=True, cheap=False),
    "resumed phase diagram": Loader(_phases, _phases, same=True, cheap=False),
}


def _stored(folder: Path) -> Result:
    return Result.from_json((folder / "result.json").read_text("utf-8", "replace"))


NUMBERS = (b"-1", b"0", b"1", b"2147483648", b"9223372036854775808", b"1e308", b"-1e999", b"NaN", b"1" + b"0" * 400)
VALUES = (b"null", b"true", b'""', b"[]", b"{}", b'"\\ud800"', b'"' + b"x" * 300 + b'"', b"[" * 2000, b"[[1]]")
SIZES = tuple(struct.pack("<Q", n) for n in (0, 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1))
TEXT = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null')


def mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with up to three kinds of damage; half of the time near the beginning, where headers are."""
    data = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        size = len(data)
        reach = max(1, min(size, 512) if rng.random() < 0.5 else size)
        at, length = int(rng.integers(reach)), int(rng.integers(1, 33))
        kind = rng.integers(9)
        if kind == 0:
            data[at : at + 1] = rng.bytes(1)
        elif kind == 1:
            data[at : at + length] = bytes([int(rng.choice([0, 255]))]) * length
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = rng.bytes(length)
        elif kind == 4:
            data[at : at + 8] = SIZES[rng.integers(len(SIZES))]
        elif kind == 5 and rng.random() < 0.4:
            del data[at:]
        elif kind == 6:
            other = int(rng.integers(reach))
            data[at : at + length] = data[other : other + length]
        elif words := list(TEXT.finditer(data[:20_000])):
            word = words[rng.integers(len(words))]
            choices = NUMBERS if word[0][:1] in b"-0123456789" and rng.random() < 0.7 else NUMBERS + VALUES
            data[word.start() : word.end()] = choices[rng.integers(len(choices))]
    return bytes(data)


class Bench:
    """Good files of one loader, and what its cases do with damaged copies of them in `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.loader, self.folder = name, LOADERS[name], folder
        folder.mkdir(parents=True)
        self.loader.make(folder)
        self.good = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.targets = sorted({path.name for one in self.loader.damaged for path in folder.glob(one)})
        self.truth = _bits(self.loader.load(folder)) if self.loader.same else None
        if (end := self.outcome()) != "accepted":
            raise AssertionError(f"good files of {name}: {end}")

    def damage(self, seed: int) -> None:
        """Write the files of a case: one of them is damaged."""
        rng = np.random.default_rng([list(LOADERS).index(self.name), seed])
        target = self.targets[rng.integers(len(self.targets))]
        for path in self.folder.iterdir():
            if path.name not in self.good:
                path.unlink()
        for name, raw in self.good.items():
            path = self.folder / name
            if name == target:
                # not over the old one, whose pages may still be mapped
                path.unlink(missing_ok=True)
                path.write_bytes(mutated(raw, rng))
            elif not path.exists() or path.read_bytes() != raw:
                path.write_bytes(raw)

    def outcome(self) -> str:
        """How reading ends: refused, accepted, or a fault."""
        most = TIMES * sum(path.stat().st_size for path in self.folder.iterdir()) + FLOOR + self.loader.extra
        started, before = time.process_time(), _reset_peak()
        try:
            found = self.loader.load(self.folder)
            same = self.truth is None or _bits(found) == self.truth
            end = "fault: other numbers" if not same else "accepted" if _finite(found) else "fault: a silent NaN"
        except MeasureformerError:
            end = "refused"
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of Rust is no Exception
            end = f"fault: {type(error).__name__}: {str(error)[:200]}"
        if (seconds := time.process_time() - started) > SECONDS:
            end = f"fault: {seconds:.1f} s"
        if (grown := _peak() - before) > most:
            end = f"fault: {grown >> 20} MB of memory"
        return end

    def case(self, seed: int) -> str:
        self.damage(seed)
        return self.outcome()


def limited() -> None:
    """Bound the memory that this process may ask for: sizes of 2⁶³ must be refused before."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def _finite(found: Any) -> bool:
    leaves: Sequence[Any] = jax.tree.leaves(found)
    return all(bool(np.isfinite(leaf).all()) for leaf in map(np.asarray, leaves) if leaf.dtype.kind in "fc")


def _bits(found: Any) -> list[Any]:
    return [leaf.tobytes() for leaf in map(np.asarray, jax.tree.leaves(found))]


def _reset_peak() -> int:
    """Bytes in memory now; what `_peak` says counts from here on."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 1 << 62
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))
