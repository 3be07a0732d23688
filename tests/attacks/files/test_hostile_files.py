"""Where images may come from, and what hostile files cost: an error in words that names the file."""

import base64
import gzip
import io
import os
from functools import cache

import numpy as np
import pytest
from PIL import Image

from tests.attacks.files import makers
from tests.attacks.files.makers import png
from tests.fuzz import images as fuzz
from tests.support.image_files import COLOR, DEEP, GRAY, npy, same, saved
from tests.support.tables import each
from viewbox.errors import ImageError
from viewbox.images import limits
from viewbox.images.files import formats, open_image, pool
from viewbox.images.source import Source


# ---- where from
def test_a_data_url_and_bytes_open_like_the_file():
    content = saved(DEEP, "PNG")
    assert same(open_image("data:image/png;base64," + base64.b64encode(content).decode()), DEEP)
    assert same(open_image(content), DEEP)


def test_a_data_url_that_holds_no_image_or_is_too_long_is_refused(monkeypatch):
    for url in ["data:image/png;base64", "data:image/png,abc", "data:;base64,@@@", "data:;base64,"]:
        with pytest.raises(ImageError, match=r"image \(data URL\)"):
            open_image(url)
    monkeypatch.setattr("viewbox.images.limits.MAX_URL", 100)
    with pytest.raises(ImageError, match="allowed: 100"):
        open_image("data:;base64," + "A" * 200)


@pytest.fixture
def folder(tmp_path):
    """A task's folder with a picture, links, a pipe and an empty file in it, and a secret beside it."""
    folder = tmp_path / "task"
    folder.mkdir()
    for path in (folder / "a.png", tmp_path / "secret.png"):
        path.write_bytes(saved(GRAY, "PNG"))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "up").symlink_to(tmp_path)
    (folder / "circle").symlink_to(folder / "circle")
    os.mkfifo(folder / "pipe.png")
    (folder / "empty.png").write_bytes(b"")
    return folder


OUT = "out of the task's folder"


@each("path, words", [
    *((path, "image ") for path in ("../secret.png", "sub/../../secret.png", "{}/../secret.png", "../task/a.png", "~")),
    *((path, "image ") for path in ("none.png", "a\0.png", "x" * 5000, "", "https://localhost/a.png", "circle")),
    ("{}/../secret.png", OUT), ("link.png", OUT), ("up/secret.png", OUT), ("pipe.png", "not a regular file"),
    ("empty.png", r"image 'empty\.png': the file is empty"),
])  # fmt: skip
def test_a_path_out_of_the_folder_or_to_nothing_is_refused_without_the_name_of_the_folder(folder, path, words):
    with pytest.raises(ImageError, match=words) as caught:
        open_image(path.format(folder), folder)
    assert "{" in path or str(folder) not in str(caught.value)


# ---- hostile files
def test_a_decompression_bomb_is_refused_from_its_header(monkeypatch):
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    for content in [png(100_000, 100_000), png(20_000, 20_000, color=2), png(2**31 - 1, 2**31 - 1)]:
        with pytest.raises(ImageError, match=r"need .* GiB; allowed: 1\.0 GiB"):
            formats.read_source(io.BytesIO(content), lambda size: pytest.fail("decoded"))
        with pytest.raises(ImageError, match=r"need .* GiB; allowed: 1\.0 GiB"):
            open_image(content)


def test_a_large_image_within_the_limit_opens_whatever_pillow_thinks(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert same(formats.read_source(io.BytesIO(saved(GRAY, "PNG")), lambda size: None), GRAY)


def test_an_image_of_several_strips_is_copied_whole(monkeypatch):
    monkeypatch.setattr("viewbox.images.pixels.STRIP", 40)
    assert same(Source.of(Image.fromarray(COLOR)), COLOR)


def test_a_jpeg_of_endless_scans_is_refused():
    with pytest.raises(ImageError, match="scans takes too long"):
        open_image(makers.make_files("JPEG")["3000 scans"])


def test_an_animation_of_too_many_bytes_is_refused_from_its_header(monkeypatch):
    content = saved(Image.new("L", (100, 100)), "GIF", save_all=True, append_images=[Image.new("L", (100, 100), 9)] * 1)
    monkeypatch.setattr("viewbox.images.limits.MAX_BYTES", 50_000)
    with pytest.raises(ImageError, match="2 frames of 100x100 pixels"):
        open_image(content)


@each("content, words", [
    (npy(np.zeros((2, 2))).replace(b"(2, 2), }      ", b"(99999, 99999)}"), "99999x99999 pixels need"),
    (gzip.compress(bytes(10**6)), "does not hold a NIfTI volume"), (saved(COLOR, "PNG")[:60], "image "),
])  # fmt: skip
def test_an_error_names_the_reason_and_carries_nothing_of_the_decoder_along(content, words):
    with pytest.raises(ImageError, match=words) as caught:
        open_image(content)
    assert caught.value.__cause__ is caught.value.__context__ is None


# ---- every crafted file of every format is an image or an error in words, within its limits; so is every damaged one
SLOW = {  # more than a second of work, which the limit on processor time ends
    "DICOM: JPEG 2000 box of 0 over two fragments",
    "DICOM: frame groups by the thousand",
    "DICOM: unknown sequence of thousands",
}
FINE = {  # crafted files that are images after all
    *("PNG: no end", "PNG: header grows later", "PNG: texts by the thousand", "JPEG: comments by the thousand"),
    *("npy: much behind", "TIFF: next directory is itself"),
}


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setattr(limits, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(limits, "WAIT", 60)  # on a busy machine, a second of the processor may take many


@cache
def check_all(kind):
    """What is said of each crafted file of a format; nothing of those that are images."""
    return {f"{kind}: {name}": fuzz.check_file(content) or "" for name, content in makers.make_files(kind).items()}


@pytest.mark.parametrize("kind", makers.MAKERS)
def test_every_crafted_file_is_an_image_or_an_error_in_words(kind, short_limit):
    found = check_all(kind)
    assert not {name for name, said in found.items() if "crashed" in said or "no answer" in said}
    assert {name for name, said in found.items() if "processor time" in said} <= SLOW
    assert not {name for name, said in found.items() if said and not said.startswith("image (")}
    assert {name for name in FINE & found.keys() if found[name]} == set()


def test_a_damaged_file_is_an_image_or_an_error_in_words(short_limit):
    for seed in range(100):  # `make fuzz` makes many more
        assert "crashed" not in (fuzz.check_file(fuzz.make_file(seed)) or ""), seed


def test_the_reason_is_named(short_limit):
    for name, said in [
        *((f"JPEG 2000 {name}", "a JPEG 2000 box of 0 bytes") for name in (
            "box of 0", "second box of 0", "box of 0 in the second frame")),
        ("JPEG 2000 box of 0 over two fragments", "more than 1 s of processor time"),
        ("deflated zeros", "first element is of group 0"),
        ("deflated zeros after the pixels", "inflates to more than the 8.0 MiB that its header and pixels need"),
        ("deflated padding after the pixels", "inflates to more than the 8.0 MiB"),
        ("deflated pixels that are too many", "inflates to more than the 8.0 MiB"),
        ("tiny elements by the million", "more than 20000 DICOM elements"), ("-1 frames", "nothing to show"),
        ("tiny elements after the pixels", "more than 20000 DICOM elements"),
    ]:  # fmt: skip
        assert said in check_all("DICOM")[f"DICOM: {name}"]


def test_files_that_are_refused_leave_the_worker_as_it_is(short_limit):
    fuzz.check_file(makers.raw_dicom())
    (before,) = {worker.process.pid for worker in pool._pool._idle[-1:]}
    for content in (makers.png(40_000, 40_000), makers.npy("[" * 4000), b"nothing", makers.raw_dicom(frames=-1)):
        assert fuzz.check_file(content)
    assert pool._pool._idle[-1].process.pid == before
