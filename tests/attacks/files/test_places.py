"""Files that are no files, that change while they are read, and folders of them."""

import io
import os
import socket
import stat
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from tests.attacks.files import makers
from viewbox.errors import ImageError
from viewbox.images.files import open_image, open_picture, paths

GOOD = makers.saved(makers.COLOR, "PNG")


def write_series(folder, count=4):
    for number in range(count):
        position = {"ImagePositionPatient": [0, 0, 5 * number], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}
        (folder / f"{number}.dcm").write_bytes(makers.dicom("CT_small.dcm", **position))


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    write_series(folder)
    return folder


def test_a_device_is_refused():
    for path in ["/dev/zero", "/dev/null", "/dev/tty", "/dev/full", "/proc/self/mem"]:
        with pytest.raises(ImageError):
            open_image(path)


def test_a_socket_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.png"))
        with pytest.raises(ImageError, match="not a regular file"):
            open_image(tmp_path / "s.png")


def test_a_file_of_3_gigabytes_is_refused(tmp_path):
    with open(tmp_path / "large.png", "wb") as file:
        file.write(GOOD)
        file.truncate(3 * 2**30)
    with pytest.raises(ImageError, match=r"the file has 3\.0 GiB; allowed: 2\.0 GiB"):
        open_image(tmp_path / "large.png")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_takes_the_place_of_a_checked_file_is_not_opened(kind, tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(GOOD)
    (tmp_path / "secret.png").write_bytes(GOOD)
    open_checked = paths.open_descriptor

    @contextmanager
    def open_changed(checked):
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "secret.png")
        with open_checked(checked) as descriptor:
            yield descriptor

    monkeypatch.setattr(paths, "open_descriptor", open_changed)
    with pytest.raises(ImageError, match="not a regular file" if kind == "pipe" else "cannot be read"):
        open_image(path)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "npy", "DICOM"])
def test_a_file_that_shrinks_while_it_is_read_is_an_error(kind, tmp_path, monkeypatch):
    array = np.zeros((3000, 3000), np.uint8)
    path = tmp_path / "a"
    if kind == "npy":
        np.save(path.open("wb"), array)
    elif kind == "DICOM":
        path.write_bytes(makers.raw_dicom(rows=1000, columns=1000))
    else:
        Image.fromarray(array).save(path, kind)
    half = path.stat().st_size // 2
    open_checked = paths.open_descriptor

    @contextmanager
    def open_changed(checked):
        with open_checked(checked) as descriptor:
            os.truncate(path, half)
            yield descriptor

    monkeypatch.setattr(paths, "open_descriptor", open_changed)
    with pytest.raises(ImageError):
        open_image(path)


@pytest.mark.parametrize("beside", ["pipe", "link", "folder", "socket", "device link", "loop", "empty", "noise"])
def test_what_lies_beside_a_series_does_not_matter(beside, series, tmp_path):
    other = series / "0000"
    (tmp_path / "secret.dcm").write_bytes(makers.dicom("MR_small.dcm"))
    if beside == "pipe":
        os.mkfifo(other)
    elif beside == "link":
        other.symlink_to(tmp_path / "secret.dcm")
    elif beside == "folder":
        other.mkdir()
        write_series(other)
    elif beside == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(other))
    elif beside == "device link":
        other.symlink_to("/dev/zero")
    elif beside == "loop":
        other.symlink_to(other)
    else:
        other.write_bytes(b"" if beside == "empty" else os.urandom(5000))
    assert open_image(series).volume.count_slices() == 4


def test_a_hostile_file_of_another_series_is_an_error(series):
    (series / "9.dcm").write_bytes(dict(makers.make_dicom())["JPEG 2000 box of 0"])
    with pytest.raises(ImageError, match=r"image 'series': "):
        open_image(series)


@pytest.mark.parametrize("hostile", ["deflated zeros", "tiny elements by the million", "size 65535x65535"])
def test_a_hostile_file_in_a_series_is_left_out_and_named(hostile, series):
    (series / "9.dcm").write_bytes(dict(makers.make_dicom())[hostile])
    source = open_image(series)
    assert source.volume.count_slices() == 4
    [note] = source.notes
    assert note.startswith("1 file is left out: ")


@pytest.mark.parametrize(
    "change",
    [
        {"ImagePositionPatient": [0, 0, "1e308"]}, {"ImageOrientationPatient": [0] * 6}, {"ImagePositionPatient": None},
        {"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]}, {"Rows": 1}, {"NumberOfFrames": 2}, {"SamplesPerPixel": 3},
    ],
)  # fmt: skip
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
    assert open_image(content).size == (8, 8)
    assert open_picture(content).size == (8, 8)


def test_a_webp_of_any_size_opens():
    for side, lossless in [(1, True), (1, False), (1024, True), (1024, False), (5000, True)]:
        file = io.BytesIO()
        Image.new("RGB", (side, side), (9, 9, 9)).save(file, "WEBP", lossless=lossless)
        assert open_image(file.getvalue()).size == (side, side)
