"""An atlas as a zip file with what a reader needs in ten years: who, what, which versions, and check sums.

The same atlas, packed twice with the same packages, gives the same bytes: entries are sorted, and carry no dates.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from io import BytesIO
from pathlib import Path

from measureformer import __version__
from measureformer.atlas.registry import versions
from measureformer.atlas.result import Result
from measureformer.atlas.run import RESULTS
from measureformer.atlas.words import STATUSES, status
from measureformer.errors import OptionError, SavedRunError
from measureformer.pages.words import one_line
from measureformer.storage.files import write_atomically

DEVELOPERS = "The measureformer developers"
LICENSE = "Apache-2.0"
KEYWORDS = ("transformers", "attention", "optimal transport", "mean-field limit", "reproducibility")
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of all entries: that of the packing would make each archive another one."""

README = """\
{title}

{about}

atlas/            the pages and the results: open atlas/index.html in a browser
CITATION.cff      how to cite this archive
.zenodo.json      title, authors and description, in the words of Zenodo
environment.txt   versions of the packages that were installed when it was packed
refs.bib          the papers that the claims name
SHA256SUMS        check sums of all files: sha256sum -c SHA256SUMS

To measure it again:
  pip install -r environment.txt
  measureformer atlas
"""


@dataclass(frozen=True)
class Packed:
    """What was written: `others` are the claims that were measured with other versions than those installed now."""

    path: Path
    files: int
    size: int
    claims: int
    others: int


def write_archive(folder: Path, out: Path, *, authors: Sequence[str] = ()) -> Packed:
    """Pack the atlas in `folder` into the zip file `out`, with its metadata."""
    names = [one_line(name).strip() for name in authors] or [DEVELOPERS]
    if not all(names):
        raise OptionError(got="an author without a name", need="'Family, Given' or the name of a group", do="Name one.")
    if out.resolve().is_relative_to(folder.resolve()):
        raise OptionError(
            got=f"{out}, which lies in {folder}", need="a file elsewhere", do="Name another one with --out."
        )
    pages = _pages(folder)
    stored = [name for name in sorted(pages) if re.fullmatch(rf"{RESULTS}/[^/]+\.json", name)]
    results = [_result(name, pages[name]) for name in stored]
    if not results:
        raise _no_atlas(f"the folder {folder} without results")
    files = {f"atlas/{name}": data for name, data in pages.items()}
    files |= {name: text.encode() for name, text in _papers(results, names).items()}
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    data = _zipped(files | {"SHA256SUMS": sums.encode()})
    write_atomically(out, data, do="Choose another file with --out, or make room.")
    now = versions()
    return Packed(out, len(files) + 1, len(data), len(results), sum(result.versions != now for result in results))


def _no_atlas(got: str) -> SavedRunError:
    return SavedRunError(got=got, need="the folder of an atlas", do="Make one with: measureformer atlas --out FOLDER")


def _pages(folder: Path) -> dict[str, bytes]:
    """The files of the atlas by their names in it. Hidden ones are left out: they are remains of interrupted writes."""
    if not folder.is_dir():
        raise _no_atlas(f"no folder {folder}")
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(part.startswith(".") for part in name.split("/")) or path.is_dir():
            continue
        if path.is_symlink():
            # what it points to may be anything, and this is going to be published
            raise _no_atlas(f"{path}, a link to somewhere else,")
        found[name] = path.read_bytes()
    return found


def _result(name: str, data: bytes) -> Result:
    try:
        return Result.from_json(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise _no_atlas(f"{name}, which is no text,") from None


def _papers(results: Sequence[Result], authors: Sequence[str]) -> dict[str, str]:
    """Everything in the archive that is not the atlas, as text by name."""
    made_by = sorted({one_line(result.versions.get("measureformer", "of unknown version")) for result in results})
    title = f"An atlas of the mathematics of transformers, measured by measureformer {', '.join(made_by)}"
    about = _about(results)
    zenodo = {
        "title": title,
        "upload_type": "dataset",
        "description": f"<p>{html.escape(about)}</p>",
        "creators": [{"name": name} for name in authors],
        "access_right": "open",
        "license": LICENSE,
        "version": __version__,
        "language": "eng",
        "keywords": list(KEYWORDS),
    }
    return {
        ".zenodo.json": json.dumps(zenodo, indent=2, ensure_ascii=False) + "\n",
        "CITATION.cff": _citation(title, authors),
        "README.txt": README.format(title=title, about=about),
        "environment.txt": "".join(f"{name}=={version}\n" for name, version in sorted(installed().items())),
        "refs.bib": resources.files("measureformer.atlas").joinpath("refs.bib").read_text(encoding="utf-8"),
    }


def _about(results: Sequence[Result]) -> str:
    counts = Counter(status(result) for result in results)
    said = ", ".join(f"{counts[kind]} {kind}" for kind in STATUSES if counts[kind])
    presets = " and ".join(sorted({one_line(result.preset) for result in results}))
    chapters = len({result.chapter for result in results})
    return (
        f"Statements of the mathematics of transformers, each run on a computer together with a control that the same "
        f"checks must reject: {len(results)} claims of {chapters} chapters, {presets} preset. Verdicts: {said}. "
        "Each result holds its numbers, its seed, its configuration and its versions."
    )


def _citation(title: str, authors: Sequence[str]) -> str:
    # a JSON string is a YAML string too
    lines = [
        "cff-version: 1.2.0",
        "message: If you use these results, please cite them, and the papers they are about.",
    ]
    lines += [f"title: {json.dumps(title, ensure_ascii=False)}", "type: dataset", "authors:"]
    lines += [line for name in authors for line in _author(name)]
    lines += [f"version: {json.dumps(__version__)}", f"license: {LICENSE}", "keywords:"]
    lines += [f"  - {word}" for word in KEYWORDS]
    lines += [
        "references:",
        "  - type: software",
        "    title: measureformer",
        f"    version: {json.dumps(__version__)}",
    ]
    lines += ["    authors:", f"      - name: {DEVELOPERS}"]
    return "\n".join(lines) + "\n"


def _author(name: str) -> list[str]:
    family, comma, given = (part.strip() for part in name.partition(","))
    if not (comma and family and given):
        return [f"  - name: {json.dumps(name, ensure_ascii=False)}"]
    return [
        f"  - family-names: {json.dumps(family, ensure_ascii=False)}",
        f"    given-names: {json.dumps(given, ensure_ascii=False)}",
    ]


def installed(package: str = "measureformer") -> dict[str, str]:
    """The package, and all that it needs, by name with the version that is installed.

    >>> sorted({"measureformer", "jax", "numpy", "pytest"} & installed().keys())
    ['jax', 'measureformer', 'numpy']
    """
    found: dict[str, str] = {}
    waiting = [package]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # what other machines need
        found[name] = one.version
        needed = [line.partition(";") for line in one.requires or []]
        waiting += [re.split(r"[^\w.-]", line.strip())[0] for line, _, marker in needed if "extra" not in marker]
    return found


def _zipped(files: dict[str, bytes]) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # the same on every machine
            archive.writestr(entry, data)
    return stream.getvalue()
