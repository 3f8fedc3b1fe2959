"""Pictures as patterns: ten bundled drawings, scikit-learn's digits, and the user's own files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float

from measureformer.errors import DtypeError, ImageError, OptionError, ShapeError, need
from measureformer.numerics.arrays import finite, floats, host
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import ArrayLike, Key, PathLike
from measureformer.parallel.progress import bar
from measureformer.storage.files import require_file

MOST_PIXELS = 1 << 24
"""Pixels of one picture: 4096 × 4096."""
MOST_NUMBERS = 1 << 28
"""Numbers in all pictures together, 1 GB in float32."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SIZE = 24

Side = Literal["bottom", "top", "left", "right"]


def pictures() -> Float[np.ndarray, "n 24 24"]:
    """Ten small pictures drawn by formulas, black (−1) on white (1); most pixels are white, so they are correlated.

    >>> pictures().shape
    (10, 24, 24)
    """
    y, x = np.mgrid[1 : -1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    drawn = [
        radius < 0.6,
        (radius < 0.75) & (radius > 0.45),
        np.maximum(abs(x), abs(y)) < 0.6,
        np.minimum(abs(x), abs(y)) < 0.18,
        abs(abs(x) - abs(y)) < 0.2,
        (y > -0.6) & (y < 0.8 - 1.6 * abs(x)),
        radius < 0.45 + 0.3 * np.cos(5 * (angle - np.pi / 2)),
        (x**2 + y**2 - 0.45) ** 3 < 1.6 * x**2 * y**3,
        ((abs(y) < 0.18) & (x < 0.3)) | ((x >= 0.2) & (abs(y) < 0.8 - x)),
        (radius < 0.8) & (np.hypot(x - 0.35, y) > 0.7),
    ]
    return np.where(np.stack(drawn), -1.0, 1.0)


def digits() -> tuple[Float[np.ndarray, "n 8 8"], np.ndarray]:
    """The 1797 handwritten digits of scikit-learn as pictures with values in [−1, 1], and their labels.

    >>> import measureformer as mf
    >>> images, labels = mf.memory.digits()
    >>> images.shape, labels[:3].tolist()
    ((1797, 8, 8), [0, 1, 2])
    """
    need("sklearn", "atlas")
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    return data.images / 8 - 1, data.target


@checked
def masked(images: ArrayLike, share: float = 0.5, *, side: Side = "bottom") -> Float[np.ndarray, "*n h w"]:
    """Set the rows or columns at one side of pictures to 0, which means unknown.

    Arguments:
        images: pictures, (…, h, w).
        share: share of the rows or columns that become unknown.
        side: "bottom", "top", "left" or "right".

    >>> import numpy as np, measureformer as mf
    >>> mf.memory.masked(np.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    images = checked_pictures(images)
    _check_share(share)
    axis = -2 if side in ("bottom", "top") else -1
    length = images.shape[axis]
    hidden = round(share * length)
    place = np.arange(length)
    gone = place >= length - hidden if side in ("bottom", "right") else place < hidden
    return np.where(gone[:, None] if axis == -2 else gone, 0.0, images)


@checked
def noisy(images: ArrayLike, key: Key, share: float = 0.2) -> Float[np.ndarray, "*n h w"]:
    """Replace random pixels of pictures by their negatives.

    Arguments:
        images: pictures, (…, h, w).
        key: randomness of the choice of pixels.
        share: share of the pixels of each picture.

    >>> import jax, numpy as np, measureformer as mf
    >>> float(mf.memory.noisy(np.ones((10, 10)), jax.random.key(0), 0.2).sum())
    60.0
    """
    images = checked_pictures(images)
    _check_share(share)
    flat = images.reshape(-1, images.shape[-2] * images.shape[-1])
    ranks = np.argsort(np.argsort(generator(key).random(flat.shape), axis=1), axis=1)
    return np.where(ranks < round(share * flat.shape[1]), -flat, flat).reshape(images.shape)


def binary(images: ArrayLike) -> Float[np.ndarray, "*n h w"]:
    """Signs of the pixels of pictures (…, h, w), for binary memories; unknown pixels stay 0.

    >>> binary([[0.5, -0.2], [0.0, 1.0]]).tolist()
    [[1.0, -1.0], [0.0, 1.0]]
    """
    return np.sign(checked_pictures(images))


class Images(eqx.Module):
    """Pictures read from files: grey values in [−1, 1], where white is 1, and their names.

    >>> import numpy as np
    >>> Images(np.ones((1, 2, 3)), ("white",)).values.shape
    (1, 2, 3)
    """

    values: Float[np.ndarray, "n h w"]
    names: tuple[str, ...] = eqx.field(static=True)


def read_images(paths: PathLike | Sequence[PathLike], *, size: tuple[int, int] | None = None) -> Images:
    """Read pictures from files in grey: transparent parts become white, and an animation gives its first frame.

    Arguments:
        paths: files, and folders of which all pictures are read.
        size: (width, height) that all pictures are resized to; by default they must have one size.

    >>> import measureformer as mf
    >>> try: read_images([])
    ... except mf.MeasureformerError as refusal: print(refusal.got)
    no pictures
    """
    if size is not None and (len(size) != 2 or min(size) < 1 or size[0] * size[1] > MOST_PIXELS):
        raise OptionError(
            got=f"size = {size}", need=f"(width, height) ≥ 1 with at most {MOST_PIXELS} pixels", do="Write it as 32x32."
        )
    files = _files([paths] if isinstance(paths, (str, os.PathLike)) else list(paths))
    found: list[np.ndarray] = []
    with bar("pictures", len(files)) as show:
        for path in files:
            found.append(_fitting(path, files[0], found, _read(path, size)))
            show(len(found), path.name)
    return Images(np.stack(found), tuple(path.stem for path in files))


def _fitting(path: Path, first: Path, found: Sequence[np.ndarray], values: np.ndarray) -> np.ndarray:
    """The values, if they go together with what was read before."""
    if found and values.shape != found[0].shape:
        (h, w), (height, width) = values.shape, found[0].shape
        raise ImageError(
            got=f"{path} of {w} × {h} pixels after {first} of {width} × {height}",
            need="pictures of one size",
            do="Ask for one: size=(32, 32), or --size 32x32.",
        )
    if (len(found) + 1) * values.size > MOST_NUMBERS:
        raise ImageError(
            got=f"more than {len(found)} pictures of {values.size} pixels",
            need=f"at most {MOST_NUMBERS} pixels in all",
            do="Take fewer, or make them smaller: size=(64, 64), or --size 64x64.",
        )
    return values


def _files(paths: Sequence[PathLike]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if os.path.isdir(path):
            inside = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
            if not inside:
                raise ImageError(
                    got=f"the folder {path} without pictures", need="PNG files, or others", do="Name the files."
                )
            files += inside
        else:
            files.append(path)
    if not files:
        raise ImageError(got="no pictures", need="at least one file", do="Name files, or a folder that holds some.")
    return files


def _read(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    """Grey values in [−1, 1] of one file, as float32."""
    need("PIL", "atlas")
    from PIL import Image, UnidentifiedImageError

    try:
        # Pillow warns about large pictures, and fails on huge ones; the limit here is lower than both
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            require_file(path)
            with Image.open(path, formats=FORMATS) as picture:
                width, height = picture.size
                if width * height > MOST_PIXELS:
                    raise ImageError(
                        got=f"{path} of {width} × {height} pixels",
                        need=f"at most {MOST_PIXELS} pixels in one picture",
                        do="Make it smaller with a program for pictures first.",
                    )
                return _grey(picture, size)
    except FileNotFoundError:
        raise ImageError(got=f"{path}, which does not exist", need="a picture", do="Check the name.") from None
    except Image.DecompressionBombError:
        raise ImageError(
            got=f"{path}, whose header says hundreds of millions of pixels",
            need=f"at most {MOST_PIXELS} pixels in one picture",
            do="Make it smaller with a program for pictures first.",
        ) from None
    except UnidentifiedImageError:
        raise ImageError(
            got=f"{path}, which is no picture", need=f"one of {', '.join(FORMATS)}", do="Convert it to PNG."
        ) from None
    except ImageError:
        raise
    except Exception as error:  # damaged files raise nearly anything inside Pillow
        raise ImageError(
            got=f"{path}, which cannot be read ({type(error).__name__}: {str(error)[:80]})",
            need="a whole picture",
            do="The file may be damaged or protected: save it again as PNG.",
        ) from None


def _grey(picture: Any, size: tuple[int, int] | None) -> np.ndarray:
    from PIL import Image

    if picture.mode.startswith("I") or picture.mode == "F":
        # 16 bits and more: Pillow would cut values off at 255
        values = np.asarray(picture, np.float32)
        top = 65535.0 if picture.mode.startswith("I;16") or values.max(initial=0) > 255 else 255.0
        picture = Image.fromarray(np.clip(values / top * 255, 0, 255).astype(np.uint8))
    layers = picture.convert("RGBA")
    white = Image.new("RGBA", layers.size, "white")
    grey = Image.alpha_composite(white, layers).convert("L")
    grey = grey if size is None else grey.resize(size, Image.Resampling.LANCZOS)
    return np.asarray(grey, np.float32) / 127.5 - 1


def checked_pictures(images: ArrayLike) -> np.ndarray:
    """Finite numbers (…, h, w) as float64, or a refusal."""
    images = np.asarray(host(floats(images, "images")), np.float64)
    if images.ndim < 2 or 0 in images.shape:
        raise ShapeError(got=f"images of shape {images.shape}", need="(…, h, w)", do="Rows and columns come last.")
    finite(images, "images")
    return images


def _check_share(share: Any) -> None:
    if not isinstance(share, (int, float)):
        raise DtypeError(got=f"share = {share!r}", need="a number", do="Pass a share between 0 and 1.")
    if not 0 <= share <= 1:
        raise OptionError(got=f"share = {share}", need="a share between 0 and 1", do="Half is 0.5.")
