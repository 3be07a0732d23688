"""Files that are no files, that change while they are read, and folders of them."""

import os
import socket
import stat
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.attacks.files import makers
from tests.support.forged_runs import HOSTILE
from tests.support.image_files import npy
from tests.support.tables import each
from viewbox.errors import ImageError
from viewbox.images.files import open_image, open_picture, paths

GOOD = makers.saved(makers.COLOR, "PNG")


def write_series(folder):
    folder.mkdir()
    for number in range(4):
        position = {"ImagePositionPatient": [0, 0, 5 * number], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}
        (folder / f"{number}.dcm").write_bytes(makers.dicom("CT_small.dcm", **position))


@pytest.fixture
def series(tmp_path):
    write_series(tmp_path / "series")
    return tmp_path / "series"


@each("path", ["/dev/zero", "/dev/null", "/dev/tty", "/dev/full", "/proc/self/mem", "{}/s.png", "{}/large.png"])
def test_a_device_a_socket_and_a_file_of_3_gigabytes_are_refused(tmp_path, path):
    with socket.socket(socket.AF_UNIX) as server, open(tmp_path / "large.png", "wb") as file:
        server.bind(str(tmp_path / "s.png"))
        file.write(GOOD)
        file.truncate(3 * 2**30)
        words = r"the file has 3\.0 GiB; allowed: 2\.0 GiB" if "large" in path else "not a regular file"
        with pytest.raises(ImageError, match=words if "png" in path else "image "):
            open_image(path.format(tmp_path))


@contextmanager
def meddle(before=lambda: None, after=lambda: None):
    """Something happens between the check of a path and its opening, or between that and its reading."""
    open_checked = paths.open_descriptor

    @contextmanager
    def open_changed(checked):
        before()
        with open_checked(checked) as descriptor:
            after()
            yield descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "open_descriptor", open_changed)
        yield


@each("kind", ["pipe", "link"])
def test_what_takes_the_place_of_a_checked_file_is_not_opened(kind, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(GOOD)
    (tmp_path / "secret.png").write_bytes(GOOD)

    def change():
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "secret.png")

    said = "not a regular file" if kind == "pipe" else "cannot be read"
    with meddle(change), pytest.raises(ImageError, match=said):
        open_image(path)


@each("kind", ["PNG", "TIFF", "npy", "DICOM"])
def test_a_file_that_shrinks_while_it_is_read_is_an_error(kind, tmp_path):
    array, path = np.zeros((3000, 3000), np.uint8), tmp_path / "a"
    contents = {"npy": lambda: npy(array), "DICOM": lambda: makers.raw_dicom(rows=1000, columns=1000)}
    path.write_bytes(contents.get(kind, lambda: makers.saved(array, kind))())
    half = path.stat().st_size // 2
    with meddle(after=lambda: os.truncate(path, half)), pytest.raises(ImageError):
        open_image(path)


def bind(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@each("put", {
    **HOSTILE, "a socket": bind, "a series": write_series, "noise": lambda path: path.write_bytes(os.urandom(5000)),
    "a link to another slice": lambda path: path.symlink_to(path.parents[1] / "secret.dcm"), "nothing": Path.touch,
})  # fmt: skip
def test_what_lies_beside_a_series_does_not_matter(put, tmp_path):
    folder = tmp_path / "series"
    write_series(folder)
    (tmp_path / "secret.dcm").write_bytes(makers.dicom("MR_small.dcm"))
    put(folder / "0000")
    assert open_image(folder).volume.count_slices() == 4


def test_a_hostile_file_of_another_series_is_an_error(series):
    (series / "9.dcm").write_bytes(makers.make_files("DICOM")["JPEG 2000 box of 0"])
    with pytest.raises(ImageError, match=r"image 'series': "):
        open_image(series)


@pytest.mark.parametrize("hostile", ["deflated zeros", "size 65535x65535"])
def test_a_hostile_file_in_a_series_is_left_out_and_named(hostile, series):
    (series / "9.dcm").write_bytes(makers.make_files("DICOM")[hostile])
    source = open_image(series)
    assert source.volume.count_slices() == 4
    (note,) = source.notes
    assert note.startswith("1 file is left out: ")


@pytest.mark.parametrize("change", [
    {"ImagePositionPatient": [0, 0, "1e308"]}, {"ImageOrientationPatient": [0] * 6}, {"ImagePositionPatient": None},
    {"Rows": 1}, {"NumberOfFrames": 2},
])  # fmt: skip
def test_a_slice_of_another_kind_in_a_series_is_an_error(change, series):
    (series / "2.dcm").write_bytes(makers.dicom("CT_small.dcm", **{"ImagePositionPatient": [0, 0, 10], **change}))
    with pytest.raises(ImageError):
        open_image(series)


def test_a_folder_without_permission_is_an_error(series):
    series.chmod(0)
    try:
        if os.access(series, os.R_OK):
            pytest.skip("this user may read everything")
        with pytest.raises(ImageError):
            open_image(series)
    finally:
        series.chmod(stat.S_IRWXU)


def test_a_dicom_file_that_begins_like_a_tiff_is_dicom_both_ways():
    content = b"II*\0" + makers.raw_dicom()[4:]
    assert open_image(content).size == open_picture(content).size == (8, 8)


@each("side, lossless", [(1, True), (1, False), (1024, True), (1024, False)])
def test_a_webp_of_any_size_opens(side, lossless):
    content = makers.saved(Image.new("RGB", (side, side), (9, 9, 9)), "WEBP", lossless=lossless)
    assert open_image(content).size == (side, side)
