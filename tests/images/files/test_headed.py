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
from viewbox.images.files.headed import get_data_name, read_header
from viewbox.images.files.paths import Inflater

VOXELS = RANDOM.integers(-500, 500, (4, 5, 6)).astype(np.int16)


def holds_the_voxels(path, folder=None):
    """Whether a volume has the voxels as they are, but for the axes that are turned to the patient's."""
    return np.array_equal(open_image(path, folder).volume.voxels, VOXELS)


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
    inside = tmp_path / "task" / "scans"
    inside.mkdir(parents=True)
    (tmp_path / "secret.raw").write_bytes(VOXELS.tobytes())
    for write, name in [(meta_image, "a.mhd"), (nrrd, "a.nhdr")]:
        write(inside / name, VOXELS, data="values.raw")
        assert holds_the_voxels(f"scans/{name}", tmp_path / "task")
        (inside / "values.raw").unlink()
        (inside / "values.raw").symlink_to(tmp_path / "secret.raw")
        with pytest.raises(ImageError, match="not in the folder of the header"):
            open_image(f"scans/{name}", tmp_path / "task")
        (inside / "values.raw").unlink()
        os.mkfifo(inside / "values.raw")
        with pytest.raises(ImageError, match="not in the folder of the header"):
            open_image(f"scans/{name}", tmp_path / "task")
        (inside / "values.raw").unlink()
        for place in ["../../secret.raw", str(tmp_path / "secret.raw"), "..", "sub\\a.raw"]:
            header = (inside / name).read_bytes().replace(b"values.raw", place.encode())
            (inside / f"other{name}").write_bytes(header)
            with pytest.raises(ImageError, match="leads out of the folder"):
                open_image(inside / f"other{name}")
        for place in ["LIST", "values%03d.raw 1 4 1"]:
            (inside / f"other{name}").write_bytes((inside / name).read_bytes().replace(b"values.raw", place.encode()))
            with pytest.raises(ImageError, match="several files"):
                open_image(inside / f"other{name}")


def test_a_header_that_lacks_its_folder_and_a_picture_of_that_name_say_so(tmp_path):
    header = meta_image(tmp_path / "a.mhd", VOXELS, data="a.raw").read_bytes()
    (tmp_path / "a.txt").write_bytes(header)
    for where in [header, tmp_path / "a.txt"]:
        with pytest.raises(ImageError, match=r"in a second file; allowed: a \.mhd or \.nhdr file in"):
            open_image(where)
    (tmp_path / "a.mhd").write_bytes(saved(GRAY, "PNG"))
    assert np.array_equal(open_image(tmp_path / "a.mhd").pixels, GRAY)
    (tmp_path / "folder.mhd").mkdir()
    with pytest.raises(ImageError, match="no DICOM"):
        open_image(tmp_path / "folder.mhd")
    meta_image(tmp_path / "b.mhd", VOXELS, data="a.raw")
    with pytest.raises(ImageError, match="#series="):
        open_image(f"{tmp_path / 'b.mhd'}#series=2")


def test_missing_bytes_and_damage_are_named_and_no_more_is_inflated_than_is_asked_for(tmp_path):
    for write, name in [(meta_image, "a.mha"), (nrrd, "a.nrrd")]:
        whole = write(tmp_path / name, VOXELS).read_bytes()
        with pytest.raises(ImageError, match="cut short: 200 of 240 bytes"):
            open_image(whole[:-40])
        with pytest.raises(ImageError, match="more bytes of pixels than the sizes and the type"):
            open_image(whole + b"\0\0")
        for end in (b"\n", b"\r\n"):  # as an editor leaves it
            assert open_image(whole + end).pixels.tolist() == open_image(whole).pixels.tolist()
    for packed in [zlib.compress(bytes(2**24)), gzip.compress(bytes(2**24))]:
        (tmp_path / "a").write_bytes(packed)
        with open(tmp_path / "a", "rb") as file:
            inflater = Inflater(file)
            assert len(inflater.read(1000)) == 1000
            assert len(inflater.inflate.unconsumed_tail) > 0
    bomb = nrrd(tmp_path / "a.nrrd", VOXELS, encoding="gzip")
    bomb.write_bytes(bomb.read_bytes().replace(gzip.compress(VOXELS.tobytes()), gzip.compress(bytes(2**26))))
    with pytest.raises(ImageError, match="more bytes of pixels"):
        open_image(bomb)
    huge = meta_image(tmp_path / "a.mha", VOXELS, DimSize="100000 100000 100")
    with pytest.raises(ImageError, match="GiB; allowed"):
        open_image(huge)
    files = [
        meta_image(tmp_path / "a.mha", VOXELS, packed=True).read_bytes(),
        nrrd(tmp_path / "a.nrrd", VOXELS).read_bytes(),
        nrrd(tmp_path / "b.nrrd", VOXELS, encoding="gzip").read_bytes(),
    ]
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


def assert_refused(path, named):
    with pytest.raises(ImageError, match=named) as caught:
        open_image(path)
    assert "damaged" not in str(caught.value)


def test_what_is_not_read_is_named_and_not_called_damaged(tmp_path):
    for fields, named in [
        ({"ElementNumberOfChannels": 3}, "ElementNumberOfChannels"),
        ({"BinaryData": "False"}, "BinaryData"),
        ({"ElementType": "MET_LONG"}, "ElementType"),
        ({"NDims": 5}, "NDims"),
        ({"DimSize": "6 5"}, "DimSize"),
        ({"DimSize": "6 5 x"}, "DimSize"),
        ({"DimSize": "6 5 -4"}, "DimSize"),
        ({"TransformMatrix": "1 0 0 0 1 0"}, "TransformMatrix"),
        ({"TransformMatrix": "0 0 0 0 1 0 0 0 1"}, "TransformMatrix"),
        ({"ElementSpacing": "1 nan 1"}, "ElementSpacing"),
        ({"ElementSpacing": "1 0 1"}, "TransformMatrix, ElementSpacing"),
        ({"Offset": "1"}, "Offset"),
    ]:
        assert_refused(meta_image(tmp_path / "a.mha", VOXELS, **fields), named)
    for fields, named in [
        ({"encoding": "hex"}, "encoding"),
        ({"type": "block"}, "type"),
        ({"endian": None}, "endian"),
        ({"line_skip": 2}, "line skip"),
        ({"kinds": "vector domain domain"}, "kinds"),
        ({"space_directions": "none (0,1,0) (0,0,1)"}, "space directions"),
        ({"space_directions": "(0,1,0) (0,0,1)"}, "space directions"),
        ({"space_directions": "(1,0) (0,1) (0,0)"}, "space directions"),
        ({"space_directions": "(1,0,0) (1,0,0) (0,0,1)"}, "space directions"),
        ({"space_units": '"cm" "cm" "cm"'}, "space units"),
        ({"space_origin": "(1,2)"}, "space origin"),
    ]:
        assert_refused(nrrd(tmp_path / "a.nrrd", VOXELS, **fields), named)


def test_a_fourth_axis_is_time_and_a_picture_has_two(tmp_path):
    moving = np.stack([VOXELS, VOXELS + 1])
    four = {"TransformMatrix": "1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "Offset": "0 0 0 0", "ElementSpacing": "1 1 1 1"}
    near = {"space_directions": "(1,0,0) (0,1,0) (0,0,1) none", "kinds": "domain domain domain list"}
    for source in [
        open_image(meta_image(tmp_path / "a.mha", moving, **four)),
        open_image(nrrd(tmp_path / "a.nrrd", moving, **near)),
    ]:
        assert np.array_equal(source.volume.times, moving)
        assert source.notes == ("the fourth axis is shown as time points",)
    flat = open_image(nrrd(tmp_path / "b.nrrd", VOXELS[0], space=None, space_directions=None, space_origin=None))
    assert np.array_equal(flat.pixels, VOXELS[0])
    assert (flat.volume, flat.spacing) == (None, None)
