"""`measureformer archive`: an atlas as one zip file with metadata, versions and check sums.

Packing the same atlas again with the same packages gives the same bytes: entries are sorted and carry no dates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from measureformer import __version__
from measureformer.errors import OptionError, SavedRunError

if TYPE_CHECKING:
    from measureformer.atlas.result import Result

README = """{title}

{description}

Open atlas/index.html in a browser. To check the files: sha256sum -c SHA256SUMS
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
    from hashlib import sha256
    from io import BytesIO
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

    from measureformer.atlas.references import bibliography
    from measureformer.atlas.registry import versions
    from measureformer.atlas.result import Result
    from measureformer.storage.files import write_atomically

    if out.resolve().is_relative_to(folder.resolve()):
        raise OptionError(got=f"{out}, which lies in {folder}", need="a file elsewhere", do="Name another --out.")
    held = _contents(folder)
    stored = [data for name, data in held.items() if PurePosixPath(name).match("atlas/results/*.json")]
    if not stored:
        raise _no_atlas(f"the folder {folder} without results")
    # bytes that are not UTF-8 become surrogates, which no result may hold
    results = [Result.from_json(data.decode(errors="surrogateescape")) for data in stored]
    held |= {name: text.encode() for name, text in _metadata(results, author or []).items()}
    held["refs.bib"] = bibliography().encode()
    held["SHA256SUMS"] = "".join(f"{sha256(held[name]).hexdigest()}  {name}\n" for name in sorted(held)).encode()
    with ZipFile(stream := BytesIO(), "w") as packed:
        for name in sorted(held):
            entry = ZipInfo(name)  # dated 1980
            entry.external_attr, entry.create_system = 0o644 << 16, 3  # the same on every machine
            packed.writestr(entry, held[name], ZIP_DEFLATED)
    write_atomically(out, stream.getvalue(), do="Choose another file with --out, or make room.")
    typer.echo(f"{out}: {len(held)} files, {len(stream.getvalue()) / 1e6:.1f} MB, {len(results)} claims.")
    if others := sum(result.versions != versions() for result in results):
        typer.echo(f"{others} of them were measured with other versions than those installed; rerun them.", err=True)


def _no_atlas(got: str) -> SavedRunError:
    return SavedRunError(got=got, need="the folder of an atlas", do="Make one with: measureformer atlas --out FOLDER")


def _contents(folder: Path) -> dict[str, bytes]:
    """The files of an atlas, without hidden ones, which interrupted writes leave behind."""
    if not folder.is_dir():
        raise _no_atlas(f"no folder {folder}")
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*"))}
    found = [path for path, name in names.items() if not any(part.startswith(".") for part in name.parts)]
    if links := [path for path in found if path.is_symlink()]:
        # its target may be any file, and the archive is going to be published
        raise _no_atlas(f"{links[0]}, a link to somewhere else,")
    return {f"atlas/{names[path].as_posix()}": path.read_bytes() for path in found if path.is_file()}


def _metadata(results: Sequence[Result], authors: Sequence[str]) -> dict[str, str]:
    """Texts about the archive, by file name."""
    import json

    from measureformer.atlas.words import status
    from measureformer.pages.words import one_line

    names = list(map(one_line, authors)) or ["The measureformer developers"]
    if not all(names):
        raise OptionError(got="an author without a name", need="'Family, Given' or the name of a group", do="Name one.")
    verdicts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(map(status, results)).items()))
    title = f"An atlas of the mathematics of transformers, measured by measureformer {__version__}"
    about = (
        "Statements of the mathematics of transformers, each run together with controls that the same checks must "
        f"reject: {len(results)} claims. Verdicts: {verdicts}."
    )
    common = {"title": title, "version": __version__, "license": "Apache-2.0"}
    creators = [{"name": name} for name in names]
    zenodo = common | {"upload_type": "dataset", "description": about, "creators": creators}
    message = "If you use these results, please cite them, and the papers they are about."
    cited = {"cff-version": "1.2.0", "type": "dataset", "message": message, "authors": list(map(_person, names))}
    return {
        ".zenodo.json": json.dumps(zenodo, indent=2, ensure_ascii=False),
        "CITATION.cff": json.dumps(common | cited, indent=2, ensure_ascii=False),  # JSON is YAML
        "README.txt": README.format(title=title, description=about),
        "environment.txt": "".join(f"{name}=={version}\n" for name, version in sorted(installed().items())),
    }


def _person(name: str) -> dict[str, str]:
    family, _, given = (part.strip() for part in name.partition(","))
    return {"family-names": family, "given-names": given} if family and given else {"name": name}


def installed() -> dict[str, str]:
    """Versions of this package and of all that an atlas needs, by name.

    >>> sorted({"measureformer", "jax", "numpy", "pytest"} & installed().keys())
    ['jax', 'measureformer', 'numpy']
    """
    import re
    from contextlib import suppress
    from importlib import metadata

    found, waiting = dict[str, str](), ["measureformer"]
    while waiting:
        # what is not there is for another system
        with suppress(metadata.PackageNotFoundError):
            package = metadata.distribution(waiting.pop())
            name = re.sub(r"[-_.]+", "-", package.name).lower()
            for line in () if name in found else package.requires or ():
                extra = re.search(r"extra == ['\"]([\w-]+)", line)
                if not extra or (name == "measureformer" and extra[1] in ("cli", "atlas")):
                    waiting += re.findall(r"^[\w.-]+", line)
            found[name] = package.version
    return found
