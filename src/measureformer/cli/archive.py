"""`measureformer archive`: an atlas as one zip file with metadata, versions and check sums.

The same atlas, packed twice with the same packages, gives the same bytes: entries are sorted and carry no dates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

ABOUT = """Statements of the mathematics of transformers, each run together with controls that the same checks must \
reject: {claims} claims of {chapters} chapters, {presets} preset. Verdicts: {verdicts}."""

README = """{title}

{about}

atlas/            pages and results: open atlas/index.html in a browser
CITATION.cff      how to cite this archive; .zenodo.json holds the same for Zenodo
environment.txt   versions of the packages that were installed when it was packed
refs.bib          the papers that the claims cite
SHA256SUMS        check sums of all files: sha256sum -c SHA256SUMS

To measure it again: pip install -r environment.txt && measureformer atlas
"""


def archive(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the atlas.")] = Path("atlas"),
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("atlas.zip"),
    author: Annotated[
        list[str] | None, typer.Option(help="Who ran it, as 'Family, Given' or a group; may be repeated.")
    ] = None,
) -> None:
    """Pack an atlas for Zenodo or a similar archive: pages, results, metadata, citation, versions and check sums."""
    import hashlib
    import zipfile
    from importlib.resources import files
    from io import BytesIO

    from measureformer.atlas.registry import versions
    from measureformer.atlas.result import Result
    from measureformer.errors import OptionError
    from measureformer.storage.files import write_atomically

    if out.resolve().is_relative_to(folder.resolve()):
        raise OptionError(got=f"{out}, which lies in {folder}", need="a file elsewhere", do="Name another --out.")
    held = {f"atlas/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in _files(folder)}
    stored = [data for name, data in held.items() if re.fullmatch(r"atlas/results/[^/]+\.json", name)]
    if not stored:
        raise _no_atlas(f"the folder {folder} without results")
    try:
        results = [Result.from_json(data.decode()) for data in stored]
    except UnicodeDecodeError:
        raise _no_atlas(f"the folder {folder} with a result that is not text") from None
    held |= {name: text.encode() for name, text in _metadata(results, author or []).items()}
    held["environment.txt"] = "".join(f"{name}=={version}\n" for name, version in sorted(installed().items())).encode()
    held["refs.bib"] = files("measureformer.atlas").joinpath("refs.bib").read_bytes()
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(held.items())]
    held["SHA256SUMS"] = "".join(sums).encode()
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, data in sorted(held.items()):
            entry = zipfile.ZipInfo(name)  # dated 1980
            entry.external_attr, entry.create_system = 0o644 << 16, 3  # the same on every machine
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED)
    write_atomically(out, stream.getvalue(), do="Choose another file with --out, or make room.")
    typer.echo(f"{out}: {len(held)} files, {len(stream.getvalue()) / 1e6:.1f} MB, {len(results)} claims.")
    if others := sum(result.versions != versions() for result in results):
        typer.echo(
            f"{others} of them were measured with other versions than those in environment.txt; rerun them.", err=True
        )


def _no_atlas(got: str) -> Exception:
    from measureformer.errors import SavedRunError

    return SavedRunError(got=got, need="the folder of an atlas", do="Make one with: measureformer atlas --out FOLDER")


def _files(folder: Path) -> list[Path]:
    """The files of an atlas, without hidden ones, which are remains of interrupted writes."""
    if not folder.is_dir():
        raise _no_atlas(f"no folder {folder}")
    found = [path for path in sorted(folder.rglob("*")) if "/." not in f"/{path.relative_to(folder).as_posix()}"]
    if links := [path for path in found if path.is_symlink()]:
        # the target may be anything, and the archive is going to be published
        raise _no_atlas(f"{links[0]}, a link to somewhere else,")
    return [path for path in found if path.is_file()]


def _metadata(results: Sequence[Any], authors: Sequence[str]) -> dict[str, str]:
    """README, citation and description by file name."""
    import html
    import json
    from collections import Counter

    from measureformer import __version__
    from measureformer.atlas.words import STATUSES, status
    from measureformer.errors import OptionError
    from measureformer.pages.words import one_line

    developers = "The measureformer developers"
    names = [one_line(name).strip() for name in authors] or [developers]
    if not all(names):
        raise OptionError(got="an author without a name", need="'Family, Given' or the name of a group", do="Name one.")
    made_by = sorted({one_line(result.versions.get("measureformer", "of unknown version")) for result in results})
    title = f"An atlas of the mathematics of transformers, measured by measureformer {', '.join(made_by)}"
    counts = Counter(status(result) for result in results)
    about = ABOUT.format(
        claims=len(results),
        chapters=len({result.chapter for result in results}),
        presets=" and ".join(sorted({one_line(result.preset) for result in results})),
        verdicts=", ".join(f"{counts[kind]} {kind}" for kind in STATUSES if counts[kind]),
    )
    parts = [[part.strip() for part in name.partition(",")] for name in names]
    people = [
        {"family-names": part[0], "given-names": part[2]} if all(part) else {"name": name}
        for name, part in zip(names, parts, strict=True)
    ]
    common = {"title": title, "version": __version__, "license": "Apache-2.0"}
    zenodo = common | {
        "upload_type": "dataset",
        "description": f"<p>{html.escape(about)}</p>",
        "creators": [{"name": name} for name in names],
        "keywords": ["transformers", "attention", "optimal transport", "mean-field limit", "reproducibility"],
    }
    software = {"type": "software", "title": "measureformer", "version": __version__, "authors": [{"name": developers}]}
    citation = common | {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them, and the papers they are about.",
        "type": "dataset",
        "authors": people,
        "references": [software],
    }
    texts = {".zenodo.json": zenodo, "CITATION.cff": citation}  # JSON is YAML
    written = {name: json.dumps(text, indent=2, ensure_ascii=False) + "\n" for name, text in texts.items()}
    return written | {"README.txt": README.format(title=title, about=about)}


def installed() -> dict[str, str]:
    """Versions of this package and of all that an atlas needs, by name.

    >>> sorted({"measureformer", "jax", "numpy", "pytest"} & installed().keys())
    ['jax', 'measureformer', 'numpy']
    """
    from importlib import metadata

    found, waiting = dict[str, str](), ["measureformer"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # what other machines need
        if name not in found:
            found[name] = one.version
            lines = [line for line in one.requires or [] if not re.search(r"extra\b(?! == .(cli|atlas)\b)", line)]
            waiting += [
                re.split(r"[^\w.-]", line)[0] for line in lines if name == "measureformer" or "extra" not in line
            ]
    return found
