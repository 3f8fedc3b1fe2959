"""Pictures: what is read and refused, what the three generations recall, and the command."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import fuzzing
import measureformer as mf
from measureformer.cli.app import app
from measureformer.errors import ImageError, OptionError

M = mf.memory


BOMB = zlib.compress(bytes(200 << 20), 1)
"""Less than a megabyte that unpacks to 200 MB."""


def save(path: Path, values: np.ndarray) -> Path:
    Image.fromarray(np.clip((values + 1) * 127.5 + 0.5, 0, 255).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "in"
    inside.mkdir()
    for i, values in enumerate(M.images.pictures()[:4]):
        save(inside / f"{i}.png", values)
    (inside / "notes.txt").write_text("not a picture")
    return inside


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, data: bytes, before: bytes = b"") -> bytes:
    """A PNG whose header may say anything."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", data) + chunk(b"IEND", b"")


class TestReading:
    def test_values_names_and_order(self, folder: Path) -> None:
        found = M.images.read_images(folder)
        assert found.names == ("0", "1", "2", "3")
        np.testing.assert_allclose(found.values, M.images.pictures()[:4], atol=1e-6)

    def test_grey_from_colours_transparency_and_sixteen_bits(self, tmp_path: Path) -> None:
        Image.new("RGB", (2, 1), (255, 0, 0)).save(tmp_path / "red.png")
        Image.new("RGBA", (2, 1), (0, 0, 0, 0)).save(tmp_path / "clear.png")
        Image.fromarray(np.full((1, 2), 65535, np.uint16)).save(tmp_path / "deep.png")
        Image.new("1", (2, 1), 0).save(tmp_path / "bit.png")
        values = {p.stem: float(M.images.read_images(p).values[0, 0, 0]) for p in tmp_path.glob("*.png")}
        assert values == pytest.approx({"red": 76 / 127.5 - 1, "clear": 1.0, "deep": 1.0, "bit": -1.0}, abs=1e-6)

    def test_sizes_are_changed_only_when_asked(self, folder: Path) -> None:
        save(folder / "9.png", np.ones((10, 12)))
        with pytest.raises(ImageError, match=r"12 × 10 pixels after .*0.png of 24 × 24"):
            M.images.read_images(folder)
        assert M.images.read_images(folder, size=(8, 6)).values.shape == (5, 6, 8)

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("text.png", b"hello", "no picture"),
            ("empty.png", b"", "no picture"),
            ("cut.png", png(24, 24, zlib.compress(np.random.default_rng(0).bytes(25 * 24))[:300]), "cannot be read"),
            ("huge.png", png(100_000, 100_000, zlib.compress(b"\0")), "hundreds of millions of pixels"),
            ("large.png", png(5000, 5000, zlib.compress(b"\0")), "5000 × 5000 pixels"),
            ("script.svg", b"<svg/>", "no picture"),
        ],
        ids=["text", "empty", "cut", "huge", "large", "svg"],
    )
    def test_hostile_files_are_refused(self, tmp_path: Path, name: str, content: bytes, words: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=words):
            M.images.read_images(tmp_path / name)

    @pytest.mark.parametrize(
        ("side", "before"),
        [
            (2000, b""),
            (24, chunk(b"zTXt", b"a\0\0" + BOMB)),
            (24, chunk(b"iTXt", b"a\0\1\0\0\0" + BOMB)),
            (24, chunk(b"iCCP", b"a\0\0" + BOMB)),
        ],
        ids=["pixels", "zTXt", "iTXt", "iCCP"],
    )
    def test_a_small_file_takes_no_more_memory_than_its_pixels(self, tmp_path: Path, side: int, before: bytes) -> None:
        # white pixels and texts shrink a thousandfold; kills: a text of 200 MB from a small file
        white = zlib.compress((b"\0" + b"\xff" * side) * side)
        (tmp_path / "x.png").write_bytes(png(side, side, white if not before else BOMB, before))
        if (start := fuzzing._reset_peak()) > 1 << 60:
            pytest.skip("peak memory can be reset and read on Linux only")
        with suppress(ImageError):
            assert M.images.read_images(tmp_path / "x.png").values.shape == (1, side, side)
        assert fuzzing._peak() - start < fuzzing.PER_PIXEL * side**2 + fuzzing.FLOOR

    def test_missing_and_empty(self, tmp_path: Path) -> None:
        with pytest.raises(ImageError, match="does not exist"):
            M.images.read_images(tmp_path / "none.png")
        with pytest.raises(ImageError, match="without pictures"):
            M.images.read_images(tmp_path)
        with pytest.raises(OptionError, match="size"):
            M.images.read_images(tmp_path, size=(0, 3))


class TestDamage:
    @pytest.mark.parametrize(
        ("side", "hidden"), [("bottom", np.s_[2:]), ("top", np.s_[:2]), ("left", np.s_[:, :2]), ("right", np.s_[:, 2:])]
    )
    def test_sides(self, side: Any, hidden: Any) -> None:
        expected = np.ones((3, 4, 4))
        expected[(slice(None), *(hidden if isinstance(hidden, tuple) else (hidden,)))] = 0
        np.testing.assert_array_equal(M.masked(np.ones((3, 4, 4)), 0.5, side=side), expected)

    def test_noise_turns_a_share(self) -> None:
        found = M.noisy(np.ones((3, 10, 10)), jax.random.key(0), 0.3)
        assert (found == -1).sum(axis=(1, 2)).tolist() == [30, 30, 30]
        assert (found[0] != found[1]).any()


class TestRecall:
    def test_three_generations(self) -> None:
        images = M.images.pictures()
        queries = M.masked(images)
        classical, dense, modern = (M.recall(images, queries, generation=g) for g in ("classical", "dense", "modern"))
        assert (np.sign(classical.values) == images).all(axis=(1, 2)).sum() <= 3
        np.testing.assert_array_equal(dense.values, images)
        np.testing.assert_allclose(modern.values, images, atol=0.1)
        assert modern.nearest.tolist() == list(range(10))
        assert modern.beta is not None

    def test_grey_values_survive_and_one_picture_is_enough(self) -> None:
        rng = np.random.default_rng(0)
        images = rng.uniform(-1, 1, (5, 6, 7))
        found = M.recall(images, M.noisy(images, jax.random.key(0), 0.1))
        np.testing.assert_allclose(found.values, images, atol=0.05)
        alone = M.recall(images[:1], M.masked(images[:1]))
        np.testing.assert_allclose(alone.values, images[:1], atol=1e-12)

    def test_refusals(self) -> None:
        images = M.images.pictures()
        with pytest.raises(ImageError, match="shape"):
            M.recall(images, images[:, :5])
        with pytest.raises(OptionError, match="generation"):
            M.recall(images, images, generation="newest")  # pyright: ignore[reportArgumentType]
        with pytest.raises(OptionError, match="beta"):
            M.recall(images, images, beta=-1.0)

    def test_the_sheet_is_the_same_every_time(self) -> None:
        images = M.images.pictures()[:2]
        found = {"modern": M.recall(images, images)}
        assert M.draw_recall(images, images, found) == M.draw_recall(images, images, found)
        assert M.draw_recall(images, images, found, kind="png")[1:4] == b"PNG"


def command(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["memory", *map(str, arguments)], prog_name="measureformer", catch_exceptions=False)


class TestCommand:
    def test_pictures_come_back_from_their_halves(self, folder: Path, tmp_path: Path) -> None:
        out = tmp_path / "out"
        done = command(folder, "--out", out, "--generation", "all")
        assert done.exit_code == 0, done.stderr
        assert "stored 4 pictures of 24 × 24 pixels" in done.stdout
        assert "modern: 2 is 2; " in done.stdout
        assert "classical: 2 is nothing that is stored" in done.stdout
        assert sorted(p.name for p in out.iterdir()) == ["0.png", "1.png", "2.png", "3.png", "recall.svg"]
        for i in range(4):
            back = np.asarray(Image.open(out / f"{i}.png")) / 127.5 - 1
            np.testing.assert_allclose(back, M.images.pictures()[i], atol=0.1)

    def test_a_query_of_ones_own(self, folder: Path, tmp_path: Path) -> None:
        query = save(tmp_path / "sketch.png", 0.4 * M.images.pictures()[3])
        done = command(folder, "--query", query, "--noise", 0.1, "--out", tmp_path / "out")
        assert done.exit_code == 0, done.stderr
        assert "modern: sketch is 3; " in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--size", "big"], "WIDTHxHEIGHT"),
            (["--generation", "third"], "--generation third"),
            (["--mask", "1.5"], "a share between 0 and 1"),
            (["--beta", "-1"], "beta = -1"),
            (["--query", "none.png"], "does not exist"),
        ],
    )
    def test_refusals(self, folder: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
        done = command(folder, "--out", tmp_path / "out", *arguments)
        assert done.exit_code == 2
        assert words in done.stderr
        assert not (tmp_path / "out").exists()

    def test_pictures_that_were_read_are_not_written_over(self, folder: Path) -> None:
        before = (folder / "0.png").read_bytes()
        done = command(folder, "--out", folder)
        assert done.exit_code == 2
        assert "among those that were read" in done.stderr
        assert (folder / "0.png").read_bytes() == before

    def test_different_sizes(self, folder: Path, tmp_path: Path) -> None:
        save(folder / "9.png", np.ones((10, 12)))
        assert "Ask for one" in command(folder, "--out", tmp_path / "out").stderr
        assert command(folder, "--out", tmp_path / "out", "--size", "16x16").exit_code == 0
