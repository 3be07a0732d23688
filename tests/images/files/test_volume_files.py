"""MetaImage and NRRD: where the values are, what may be read for them, and what is refused by name.

What the elements of a header mean for a picture are rows of `tests/images/test_files_mean.py`.
"""

import gzip
import io
import os
import time
import zlib

import numpy as np
import pytest

from tests.support.image_files import GRAY, RANDOM, damage, open_damaged, saved
from tests.support.odd_images import meta_image, nrrd
from viewbox.errors import ImageError
from viewbox.images.files import open_image
from viewbox.images.files.paths import Inflater
from viewbox.images.files.volume_files import get_data_name, read_header

VOXELS = RANDOM.integers(-500, 500, (4, 5, 6)).astype(np.int16)


def holds_the_voxels(path, folder=None):
    """Whether a volume has the voxels as they are, but for the axes that are turned to the patient's."""
    return np.array_equal(open_image(path, folder).volume.voxels, VOXELS)


def refuse(words, *where):
    with pytest.raises(ImageError, match=words) as caught:
        open_image(*where)
    return str(caught.value)


def test_values_may_stand_behind_bytes_that_are_skipped_or_at_the_end(tmp_path):
    for skip in [7, -1]:
        meta = meta_image(tmp_path / "a.mhd", VOXELS, data="a.raw", HeaderSize=skip)
        near = nrrd(tmp_path / "a.nhdr", VOXELS, data="b.raw", byte_skip=skip)
        for name in ["a.raw", "b.raw"]:
            (tmp_path / name).write_bytes(b"\1" * 7 + VOXELS.tobytes())
        assert holds_the_voxels(meta)
        assert holds_the_voxels(near)
    whole = nrrd(tmp_path / "a.nrrd", VOXELS, byte_skip=7)
    whole.write_bytes(whole.read_bytes().replace(VOXELS.tobytes(), b"\1" * 7 + VOXELS.tobytes()))
    assert holds_the_voxels(whole)


def test_a_second_file_is_read_in_the_folder_of_the_header_alone(tmp_path):
    task, inside = tmp_path / "task", tmp_path / "task" / "scans"
    inside.mkdir(parents=True)
    (tmp_path / "secret.raw").write_bytes(VOXELS.tobytes())
    data = inside / "values.raw"
    for write, name in [(meta_image, "a.mhd"), (nrrd, "a.nhdr")]:
        write(inside / name, VOXELS, data=data.name)
        assert holds_the_voxels(f"scans/{name}", task)
        for replace in (lambda: data.symlink_to(tmp_path / "secret.raw"), lambda: os.mkfifo(data)):
            data.unlink()
            replace()
            refuse("not in the folder of the header", f"scans/{name}", task)
        data.unlink()
        leads, several = "leads out of the folder", "several files"
        for place, words in [
            ("../../secret.raw", leads), (str(tmp_path / "secret.raw"), leads), ("..", leads), ("sub\\a.raw", leads),
            ("LIST", several), ("values%03d.raw 1 4 1", several),
        ]:  # fmt: skip
            other = inside / f"other{name}"
            other.write_bytes((inside / name).read_bytes().replace(b"values.raw", place.encode()))
            refuse(words, other)


def test_a_header_that_lacks_its_folder_and_a_picture_of_that_name_say_so(tmp_path):
    header = meta_image(tmp_path / "b.mhd", VOXELS, data="a.raw").read_bytes()
    (tmp_path / "a.txt").write_bytes(header)
    for where in [header, tmp_path / "a.txt"]:
        refuse(r"in a second file; allowed: a \.mhd or \.nhdr file in", where)
    (tmp_path / "a.mhd").write_bytes(saved(GRAY, "PNG"))
    assert np.array_equal(open_image(tmp_path / "a.mhd").pixels, GRAY)
    (tmp_path / "folder.mhd").mkdir()
    refuse("no DICOM", tmp_path / "folder.mhd")
    refuse("#series=", f"{tmp_path / 'b.mhd'}#series=2")


def test_missing_bytes_and_damage_are_named_and_no_more_is_inflated_than_is_asked_for(tmp_path):
    for file in (meta_image(tmp_path / "a.mha", VOXELS), nrrd(tmp_path / "a.nrrd", VOXELS)):
        whole = file.read_bytes()
        refuse("cut short: 200 of 240 bytes", whole[:-40])
        refuse("more bytes of pixels than the sizes and the type", whole + b"\0\0")
        for end in (b"\n", b"\r\n"):  # as an editor leaves it
            assert open_image(whole + end).pixels.tolist() == open_image(whole).pixels.tolist()
    for packed in [zlib.compress(bytes(2**24)), gzip.compress(bytes(2**24))]:
        inflater = Inflater(io.BytesIO(packed))
        assert len(inflater.read(1000)) == 1000
        assert len(inflater.inflate.unconsumed_tail) > 0
    bomb = nrrd(tmp_path / "b.nrrd", VOXELS, encoding="gzip").read_bytes()
    refuse("more bytes of pixels", bomb.replace(gzip.compress(VOXELS.tobytes()), gzip.compress(bytes(2**26))))
    refuse("GiB; allowed", meta_image(tmp_path / "b.mha", VOXELS, DimSize="100000 100000 100"))
    files = [meta_image(tmp_path / "a.mha", VOXELS, packed=True).read_bytes(), whole, bomb]
    for seed in range(90):
        assert open_damaged(damage(files[seed % 3], seed, [200]))


def test_a_header_of_spaces_takes_no_time():
    for line in (b"data file: a" + b" " * 60000 + b"x", b"space directions: " + b"(" * 60000):
        start = time.process_time()
        read_header(io.BytesIO(b"NRRD0004\n" + line + b"\n\n"))
        get_data_name(b"NRRD0004\n" + line + b"\n\n")
        with pytest.raises(ImageError):
            open_image(b"NRRD0004\ntype: uchar\ndimension: 3\nsizes: 1 1 1\nspace: lps\n" + line + b"\n\n\0")
        assert time.process_time() - start < 1


META = [  # fields, and what is named
    ({"ElementNumberOfChannels": 3}, "ElementNumberOfChannels"), ({"BinaryData": "False"}, "BinaryData"),
    ({"ElementType": "MET_LONG"}, "ElementType"), ({"NDims": 5}, "NDims"), ({"DimSize": "6 5"}, "DimSize"),
    ({"DimSize": "6 5 x"}, "DimSize"), ({"DimSize": "6 5 -4"}, "DimSize"), ({"Offset": "1"}, "Offset"),
    ({"TransformMatrix": "1 0 0 0 1 0"}, "TransformMatrix"),
    ({"TransformMatrix": "0 0 0 0 1 0 0 0 1"}, "TransformMatrix"), ({"ElementSpacing": "1 nan 1"}, "ElementSpacing"),
    ({"ElementSpacing": "1 0 1"}, "TransformMatrix, ElementSpacing"),
]  # fmt: skip
NEARLY = [
    ({"encoding": "hex"}, "encoding"), ({"type": "block"}, "type"), ({"endian": None}, "endian"),
    ({"line_skip": 2}, "line skip"), ({"kinds": "vector domain domain"}, "kinds"),
    *(({"space_directions": wrong}, "space directions") for wrong in
      ("none (0,1,0) (0,0,1)", "(0,1,0) (0,0,1)", "(1,0) (0,1) (0,0)", "(1,0,0) (1,0,0) (0,0,1)")),
    ({"space_units": '"cm" "cm" "cm"'}, "space units"), ({"space_origin": "(1,2)"}, "space origin"),
]  # fmt: skip


def test_what_is_not_read_is_named_and_not_called_damaged(tmp_path):
    for write, name, rows in ((meta_image, "a.mha", META), (nrrd, "a.nrrd", NEARLY)):
        for fields, named in rows:
            assert "damaged" not in refuse(named, write(tmp_path / name, VOXELS, **fields))


def test_a_fourth_axis_is_time_and_a_picture_has_two(tmp_path):
    moving = np.stack([VOXELS, VOXELS + 1])
    four = {"TransformMatrix": "1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "Offset": "0 0 0 0", "ElementSpacing": "1 1 1 1"}
    near = {"space_directions": "(1,0,0) (0,1,0) (0,0,1) none", "kinds": "domain domain domain list"}
    for file in (meta_image(tmp_path / "a.mha", moving, **four), nrrd(tmp_path / "a.nrrd", moving, **near)):
        source = open_image(file)
        assert np.array_equal(source.volume.times, moving)
        assert source.notes == ("the fourth axis is shown as time points",)
    flat = open_image(nrrd(tmp_path / "b.nrrd", VOXELS[0], space=None, space_directions=None, space_origin=None))
    assert np.array_equal(flat.pixels, VOXELS[0])
    assert (flat.volume, flat.spacing) == (None, None)
