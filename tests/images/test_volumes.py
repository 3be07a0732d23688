"""Volumes: the right slice, the right way round, whatever order the file keeps its voxels in."""

import gzip
import io
import itertools

import nibabel as nib
import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file

from tests.support.odd_images import HOUNSFIELD, dicom
from tests.support.tables import each
from viewbox.core.answers import is_same_image
from viewbox.errors import ImageError
from viewbox.images import limits
from viewbox.images.files import dicom_series, formats, open_image, paths
from viewbox.images.source import AXES, Source, Volume
from viewbox.images.view import View
from viewbox.tools import call_stateful

# a body of 6 x 8 x 10 voxels, one bright at each end: value → (x to the right, y to the front, z to the head)
MARKS = {10: (5, 4, 5), 20: (0, 4, 5), 30: (3, 7, 5), 40: (3, 0, 5), 50: (3, 4, 9), 60: (3, 4, 0)}
RIGHT, LEFT, FRONT, BACK, HEAD, FEET = MARKS
SIZES = (1.0, 2.0, 3.0)
BODY = np.zeros((6, 8, 10), np.int16)
for value, place_in_body in MARKS.items():
    BODY[place_in_body] = value


def nifti(voxels=BODY, affine=None, kind=nib.Nifti1Image, **fields):
    """The bytes of a file, with fields of its header set as they are, right or wrong."""
    content = kind(voxels, np.diag([*SIZES, 1]) if affine is None else affine).to_bytes()
    header = kind.header_class.from_fileobj(io.BytesIO(content), check=False)
    for name, value in fields.items():
        header[name] = value
    return header.binaryblock + content[len(header.binaryblock) :]


def stored_otherwise(order, signs):
    """The same body with its axes in another order and direction, and the affine that says so."""
    turn = np.column_stack([order, signs])
    affine = np.diag([*SIZES, 1]) @ nib.orientations.inv_ornt_aff(turn, BODY.shape)
    return nib.orientations.apply_orientation(BODY, turn), affine


def place(source, *values):
    """(row, column) of each value in a slice."""
    return [tuple(np.argwhere(source.pixels == value)[0].tolist()) for value in values]


def assert_is_the_body(volume):
    assert place(volume.get_slice(5), RIGHT, LEFT, FRONT, BACK) == [(3, 0), (3, 5), (0, 2), (7, 2)]  # from the feet
    assert place(volume.get_slice(3, "coronal"), HEAD, FEET, RIGHT, LEFT) == [(0, 2), (9, 2), (4, 0), (4, 5)]
    assert place(volume.get_slice(2, "sagittal"), FRONT, BACK, HEAD, FEET) == [(4, 0), (4, 7), (0, 3), (9, 3)]
    assert [volume.get_spacing(plane) for plane in AXES] == [(1, 2), (1, 3), (2, 3)]
    assert np.isin(volume.voxels, list(MARKS)).sum() == len(MARKS)  # each once


# ---- NIfTI
def test_a_volume_is_shown_upright_however_it_is_stored_packed_or_tilted_and_opens_at_its_middle():
    for signs in itertools.product((1, -1), repeat=3):
        for order in itertools.permutations(range(3)):
            assert_is_the_body(open_image(nifti(*stored_otherwise(order, signs))).volume)
    for pack, kind in itertools.product((bytes, gzip.compress), (nib.Nifti1Image, nib.Nifti2Image)):
        assert_is_the_body(open_image(pack(nifti(kind=kind))).volume)
    source = open_image(nifti())
    assert (source.volume.plane, source.volume.index, source.volume.count_slices()) == ("axial", 5, 10)
    assert np.array_equal(source.pixels, source.volume.get_slice(5).pixels)
    affine = np.diag([*SIZES, 1])
    affine[:3, :3] = nib.eulerangles.euler2mat(0.2, 0.1, 0.1) @ affine[:3, :3]
    assert_is_the_body(open_image(nifti(affine=affine)).volume)


HEADERS = [  # fields, and what they say of the source
    ({"scl_slope": 2, "scl_inter": -1000}, {"display": (-1000, 60 * 2 - 1000), "spacing": (1, 2)}),
    ({"cal_min": 5, "cal_max": 25}, {"display": (5, 25)}),
    ({"xyzt_units": 1}, {"spacing": pytest.approx((1000, 2000))}),
    ({"xyzt_units": 3}, {"spacing": pytest.approx((0.001, 0.002))}),
]


@each("fields, facts", HEADERS)
def test_scale_range_and_unit_of_the_header_count(fields, facts):
    source = open_image(nifti(**fields))
    assert source.pixels.dtype == np.int16
    assert {name: getattr(source, name) for name in facts} == facts


def many(count, step=0):
    return nifti(np.stack([BODY + step * time for time in range(count)], axis=3))


def test_every_time_point_is_upright_and_told_and_shown_by_the_tools():
    for signs, order in zip(itertools.product((1, -1), repeat=3), itertools.cycle(itertools.permutations(range(3)))):
        voxels, affine = stored_otherwise(order, signs)
        volume = open_image(nifti(np.stack([voxels * 0, voxels, voxels * 2], axis=3), affine)).volume
        assert (volume.count_times(), volume.time) == (3, 0)
        assert_is_the_body(volume.at_time(1))
        assert np.array_equal(volume.at_time(2).get_slice(5).pixels, 2 * volume.at_time(1).get_slice(5).pixels)
    series = View.of(open_image(many(3, 1)))
    facts = call_stateful("list_slices", series, {})[1].facts
    assert (facts["time_points"], facts["shown"]) == (3, "axial 5, time 0")
    later, result = call_stateful("select_slice", series, {"index": 5, "time": 2})
    assert later.source.pixels.min() == 2
    assert (result.facts["time"], result.facts["time_points"]) == (2, 3)
    stays, _ = call_stateful("select_slice", later, {"index": 4, "plane": "coronal"})
    assert (stays.source.volume.time, stays.source.pixels.min()) == (2, 2)
    volume, other = (open_image(many(2)).volume for _ in range(2))
    first, later, elsewhere = (View.of(stack.get_slice(3)) for stack in (volume, volume.at_time(1), other))
    assert is_same_image(first, later)
    assert not is_same_image(first, elsewhere)
    assert not is_same_image(first, View.of(volume.get_slice(3, "coronal")))


def test_a_volume_beyond_a_limit_is_refused_from_its_header_and_no_more_is_inflated_than_it_says(monkeypatch):
    content = nifti(dim=[3, 2000, 2000, 2000, 1, 1, 1, 1])
    for packed in (content, gzip.compress(content, mtime=0)):
        with pytest.raises(ImageError, match=r"2000x2000x2000 voxels need 14\.9 GiB"):
            open_image(packed)
    content, read, taken = gzip.compress(nifti() + bytes(10**7)), gzip.GzipFile.read, []
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: taken.append(size) or read(self, size))
    formats.read_source(io.BytesIO(content), lambda size: None)
    assert 0 <= max(taken) < 3000
    assert -1 not in taken
    monkeypatch.setattr(limits, "MAX_TIMES", 2 * 4 * BODY.size)
    facts = call_stateful("list_slices", View.of(open_image(many(5))), {})[1].facts
    assert (facts["time_points"], facts["time_points_not_read"]) == (2, 3)


BROKEN = [
    nifti()[:-1], gzip.compress(nifti(), mtime=0)[:-50], nifti(np.zeros((2, 2, 2), np.complex64)),
    nifti(np.zeros((2, 2, 2), [("R", "u1"), ("G", "u1"), ("B", "u1")])), nifti(dim=[3, -2, 2, 2, 1, 1, 1, 1]),
    nifti(magic=b"ni1"), nifti(srow_x=[0, 0, 0, 0]),
]  # fmt: skip


@each("content", BROKEN)
def test_a_volume_that_cannot_be_shown_is_an_image_error(content):
    with pytest.raises(ImageError):
        open_image(content)


# ---- DICOM series
CORONAL = ((1, 0, 0), (0, 0, -1))


def write_series(folder, axes=((1, 0, 0), (0, 1, 0)), count=6, step=3.0, series=None, **changes):
    """Slices whose number is in their pixels, written in a shuffled order; `changes` are made to number 3.

    `series` is the SeriesNumber, and the last part of the SeriesInstanceUID.
    """
    fixed = {**HOUNSFIELD, "PixelSpacing": [2.0, 1.0], "ImageOrientationPatient": [*axes[0], *axes[1]]}
    fixed |= {} if series is None else {"SeriesNumber": series, "SeriesInstanceUID": f"1.2.{series}"}
    for number in np.random.default_rng(1).permutation(count):
        place = {"ImagePositionPatient": (np.cross(*axes) * step * number).tolist()}
        path, values = folder / f"{series or ''}{(number * 7) % 10}.dcm", np.full((8, 5), 1024 + number, np.int16)
        dicom(path, values, **{**fixed, **place, **(changes if number == 3 else {})})
    return folder


def read_numbers(volume, count, plane=None):
    return [volume.get_slice(i, plane or volume.plane).limits for i in range(count)] == [(i, i) for i in range(count)]


def test_one_series_is_sorted_by_its_places_and_every_slice_has_its_own_scale(tmp_path):
    source = open_image(write_series(tmp_path))
    assert read_numbers(source.volume, 6)
    assert (source.unit, source.volume.spacing, source.volume.index) == ("HU", (3, 2, 1), 3)
    volume = open_image(write_series(tmp_path, RescaleIntercept="-1000", RescaleSlope="1")).volume
    assert [volume.get_slice(i).limits for i in (2, 3)] == [(2, 2), (27, 27)]


@each("axes, plane, lowest", [
    (((1, 0, 0), (0, 1, 0)), "axial", 0), (((1, 0, 0), (0, -1, 0)), "axial", 5), (CORONAL, "coronal", 0),
    (((0, 1, 0), (0, 0, -1)), "sagittal", 5),
])  # fmt: skip
def test_a_series_opens_in_its_own_plane_and_counts_as_the_patient_lies(tmp_path, axes, plane, lowest):
    source = open_image(write_series(tmp_path, axes))
    assert (source.volume.plane, source.spacing) == (plane, (1, 2))
    assert source.volume.get_slice(0, plane).limits == (lowest, lowest)


LEFT_OUT = "one is missing; 1 file is left out: "


@each("changes, reason", [
    ({"Rows": 4, "Columns": 10}, LEFT_OUT + "10x4 pixels of 1x2 mm, axial$"),
    ({"PixelSpacing": [1.0, 1.0]}, LEFT_OUT + "5x8 pixels of 1x1 mm, axial$"),
    ({"SeriesInstanceUID": "1.2.3"}, "2 series"), ({"RescaleType": "US"}, "2 units"),
    ({"ImageOrientationPatient": [0, 1, 0, 1, 0, 0]}, LEFT_OUT + ".* axial$"),
    ({"ImageOrientationPatient": [0, 0, -1, 1, 0, 0]}, LEFT_OUT + ".* coronal$"),
    ({"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]}, "left out: .* without a place in the patient$"),
    ({"ImagePositionPatient": [0, 0, 6]}, r"at the same place, such as '\d\.dcm' and '\d\.dcm': "),
    ({"ImagePositionPatient": None}, LEFT_OUT + ".* without a place in the patient$"),
    ({"NumberOfFrames": 2, "PixelData": ("OW", bytes(160))}, LEFT_OUT + ".* 2 frames$"),
    ({"PixelData": ("OW", bytes(70))}, r"file '1\.dcm': it is cut short: 70 of 80 bytes"),
])  # fmt: skip
def test_slices_that_are_not_one_even_stack_are_refused_in_words(tmp_path, changes, reason):
    with pytest.raises(ImageError, match=reason):
        open_image(write_series(tmp_path, **changes))


def write_times(folder, times=(1, 2, 10), **elements):
    """A series with several time points, each 100 HU above the one before; `elements` name their numbers."""
    for number, time in enumerate(times):
        for file in write_series(folder / f"{time}", series=5).glob("*.dcm"):
            dataset = pydicom.dcmread(file)
            dataset.PixelData = (dataset.pixel_array + 100 * number).astype(np.int16).tobytes()
            for keyword, value in elements.items():
                setattr(dataset, keyword, value(time))
            dataset.save_as(folder / f"{time}-{file.name}")
            file.unlink()
    return folder


@each("keyword", ["TemporalPositionIdentifier", "AcquisitionNumber"])
def test_the_time_points_of_a_series_are_told_apart_and_no_more_are_read_than_fit(tmp_path, keyword):
    folder = write_times(tmp_path, **{keyword: int})
    volume = open_image(folder).volume
    assert (volume.count_times(), volume.count_slices(), volume.spacing, volume.time) == (3, 6, (3, 2, 1), 0)
    found = [[volume.at_time(time).get_slice(i).limits[0] for i in range(6)] for time in range(3)]
    assert found == [[100 * time + i for i in range(6)] for time in range(3)]
    with pytest.MonkeyPatch.context() as patch, paths.open_descriptor(folder) as descriptor:
        patch.setattr(limits, "MAX_TIMES", 2 * 6 * 8 * 5 * 4)
        volume = dicom_series.read(descriptor, lambda size: None).volume
    assert (volume.count_times(), volume.unread_times) == (2, 1)


def test_stacks_at_one_place_that_nothing_tells_apart_and_a_time_that_lacks_a_slice_are_refused(tmp_path):
    told = "nothing numbers them as time points .* choose one as PATH#stack=NUMBER: 1 .6 slices"
    words = f"up to 3 slices lie at the same place, .*: these are several stacks; .*{told}"
    for elements in ({}, {"AcquisitionNumber": lambda time: 1}, {"AcquisitionNumber": lambda time: None}):
        with pytest.raises(ImageError, match=words):
            open_image(write_times(tmp_path, **elements))
    folder = write_times(tmp_path, TemporalPositionIdentifier=int)
    next(folder.glob("10-*.dcm")).unlink()
    with pytest.raises(ImageError, match=r"1 .6 slices: .*Identifier 1.; .*3 .5 slices: .*Identifier 10\)"):
        open_image(folder)


def refuse(where, words):
    with pytest.raises(ImageError, match=words) as caught:
        open_image(where)
    return str(caught.value)


def test_one_of_several_series_is_chosen_by_number_or_uid_and_without_a_choice_they_are_listed(tmp_path):
    write_series(tmp_path, series=2)
    write_series(tmp_path, CORONAL, count=4, series=30)
    write_series(tmp_path, count=5, series=4, ImagePositionPatient=None)  # broken
    for series, count, plane in (("2", 6, "axial"), ("30", 4, "coronal"), ("1.2.30", 4, "coronal")):
        volume = open_image(f"{tmp_path}#series={series}").volume
        assert (volume.count_slices(plane), volume.plane) == (count, plane)
        assert read_numbers(volume, count)
        inside = open_image(f"{tmp_path.name}#series={series}", tmp_path.parent)
        assert inside.volume.count_slices(plane) == count
    listed = r"choose one as PATH#series=NUMBER .*: 2 \(6 slices\), 4 \(5 slices\), 30 \(4 slices\)$"
    refuse(tmp_path, f"the folder holds 3 series; {listed}")
    refuse(f"{tmp_path}#series=3", f"the folder does not hold that series; {listed}")
    refuse(f"{tmp_path}#series=4", "without a place in the patient")  # it matters only if it is chosen
    file = get_testdata_file("CT_small.dcm", download=False)
    refuse(f"{file}#series=1", "chooses among the series of a folder, but this is a file")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "holds no DICOM slices")


def test_no_message_about_series_quotes_a_uid_and_a_number_that_two_have_is_not_enough(tmp_path):
    write_series(tmp_path, series=2)
    write_series(tmp_path, series=3, SeriesInstanceUID="1.2.840.9", SeriesNumber=None)
    for wanted in ("", "#series=7", "#series=1.2.999"):
        assert "1.2." not in refuse(f"{tmp_path}{wanted}", r"without a number \(1 slices\)")
    write_series(tmp_path, series=2, SeriesInstanceUID="1.2.99")
    refuse(f"{tmp_path}#series=2", "2 series of the folder have that number; choose by SeriesInstanceUID")
    assert open_image(f"{tmp_path}#series=1.2.99").volume.count_slices() == 1


# ---- slices and tools
def test_slices_share_the_array_and_the_unit_of_their_volume():
    volume = Volume(np.zeros((4, 5, 6), np.uint8), (0, 255))
    assert np.shares_memory(volume.get_slice(2).pixels, volume.voxels)
    assert volume.get_slice(1, "coronal").volume.voxels is volume.voxels
    source = Source.of(open_image(nifti()), unit="HU")
    assert source.volume.get_slice(0, "coronal").unit == source.unit == "HU"


def view():
    return View.of(open_image(nifti()), max_pixels=10_000)


def frames():
    return View.of(Volume(np.zeros((3, 20, 30), np.uint8), (0, 255), planes=False).get_slice(0))


def single():
    return View.of(np.zeros((9, 9), np.uint8))


def test_select_slice_shows_the_slice_and_undo_brings_earlier_changes_back():
    after, _ = call_stateful("select_slice", view(), {"index": 2, "plane": "sagittal"})
    assert np.array_equal(after.source.pixels, open_image(nifti()).volume.get_slice(2, "sagittal").pixels)
    before = view().zoom(2).rotate()
    after, _ = call_stateful("select_slice", before, {"index": 4})
    assert after.window == (0, 0, 1, 1)
    assert after.undo() is before


FACTS = [
    (view, "list_slices", {}, {"axial": 10, "axial_mm_apart": 3.0, "coronal": 8, "coronal_mm_apart": 2.0, "sagittal": 6,
                               "sagittal_mm_apart": 1.0, "shown": "axial 5"}),
    (view, "select_slice", {"index": 2, "plane": "sagittal"},  # 8 x 10 voxels of 2 x 3 mm, to scale
     {"plane": "sagittal", "index": 2, "slices": 6, "size": (8, 15), "shows": (0, 0, 1, 1)}),
    (frames, "list_slices", {}, {"frames": 3, "shown": "frame 0"}),
    (frames, "select_slice", {"index": 2}, {"index": 2, "slices": 3, "size": (30, 20), "shows": (0, 0, 1, 1)}),
]  # fmt: skip


@each("make, tool, arguments, facts", FACTS)
def test_a_tool_tells_how_many_slices_there_are_which_is_shown_and_how_far_apart_they_are(make, tool, arguments, facts):
    before = make()
    after, result = call_stateful(tool, before, arguments)
    assert dict(result.facts) == facts
    assert after.source.volume.index == arguments.get("index", before.source.volume.index)
    assert (result.image is None) == (tool == "list_slices")


SINGLE = "this image is a single picture, not a volume"
NOT_THERE = [
    (view, {"index": 10}, "axial slice 10; allowed: 0 to 9"), (view, {"index": -1}, "axial slice -1; allowed: 0 to 9"),
    (view, {"index": 8, "plane": "coronal"}, "coronal slice 8; allowed: 0 to 7"),
    (view, {"index": 0, "plane": "oblique"}, 'allowed: "axial", "coronal", "sagittal"'),
    (view, {}, 'argument "index" is missing'), (single, {"index": 0}, f"select_slice: {SINGLE}"),
    (frames, {"index": 0, "plane": "coronal"}, "unknown plane 'coronal'; allowed: axial"),
    (lambda: View.of(open_image(many(3))), {"index": 0, "time": 3}, "select_slice: time point 3; allowed: 0 to 2"),
    (lambda: View.of(open_image(many(1))), {"index": 0, "time": 3}, "time point 3; allowed: 0; there is one time"),
    (single, None, f"list_slices: {SINGLE}"),
]  # fmt: skip


@each("make, arguments, words", NOT_THERE)
def test_what_is_not_there_is_told_what_is(make, arguments, words):
    before = make()
    after, result = call_stateful("list_slices" if arguments is None else "select_slice", before, arguments or {})
    assert after is before
    assert words in result.error
