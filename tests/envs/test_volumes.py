"""`grounding` on volumes: boxes that NumPy finds in a marked volume, on every plane, however the file keeps it."""

import itertools
import json
import shutil
from typing import ClassVar

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

import viewbox
from tests.support.data_kit import write_jsonl
from tests.support.odd_images import series
from tests.support.tables import each
from viewbox.core.answers import check_answer
from viewbox.envs.data import DataEnv, TaskField
from viewbox.errors import BadRow, ConfigError
from viewbox.rewards import IoUReward

SHAPE, STEPS = (60, 50, 40), (3.0, 2.0, 1.0)  # z to the head, y to the back, x to the left; millimeters
MARK = (slice(41, 52), slice(30, 45), slice(6, 12))
PLANES = ("axial", "coronal", "sagittal")
FLAT = {"id": "id", "image": "image", "question": "q", "boxes": "boxes"}
OWN_COLUMNS = FLAT | {"slice": "slice"}
COLUMNS = OWN_COLUMNS | {"plane": "plane"}
LEVEL_COLUMNS = {"id": "id", "image": "image", "question": "q", "bbox": "boxes", "level": "slice"}


def draw():
    voxels = np.full(SHAPE, 20, np.int16)
    voxels[MARK] = 200
    return voxels


def cut(voxels, plane, number):
    """A slice as radiologists see it: the head up, the face to the left, the patient's right on the left."""
    if plane == "axial":
        return voxels[number]
    return np.flipud(voxels[:, number] if plane == "coronal" else voxels[:, :, number])


def bound(marked):
    """The corners of what is marked: where it begins along x, y (and z), and where it ends."""
    axes = np.nonzero(marked)[::-1]
    return [*(int(axis.min()) for axis in axes), *(int(axis.max()) + 1 for axis in axes)]


def bound_in_fractions(marked):
    return np.divide(bound(marked), [*marked.shape[::-1]] * 2)


def find_box(plane, number):
    return bound(cut(draw(), plane, number) == 200)


NUMBERS = {"axial": 45, "coronal": 33, "sagittal": 9}
FRACTIONS = {  # of the slice, by hand from `SHAPE` and `MARK`
    "axial": (6 / 40, 30 / 50, 12 / 40, 45 / 50),
    "coronal": (6 / 40, 8 / 60, 12 / 40, 19 / 60),
    "sagittal": (30 / 50, 8 / 60, 45 / 50, 19 / 60),
}


def write_nifti(path, codes="xyz", tilt=0.0, **header):
    """The volume with its axes in this order; a capital: that axis runs the other way."""
    z, y, x = STEPS
    affine = np.diag([-x, -y, z, 1.0])
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]]
    order = np.array([[codes.lower().index(axis), -1 if axis.upper() in codes else 1] for axis in "xyz"], float)
    stored = nib.orientations.apply_orientation(draw().transpose(2, 1, 0), order)
    affine = turn @ affine @ nib.orientations.inv_ornt_aff(order, SHAPE[::-1])
    image = nib.Nifti1Image(stored, affine)
    for name, code in header.items():
        getattr(image, f"set_{name}")(affine, code)
    nib.save(image, path)


def write_dicom(folder, plane, reverse=False):
    """A series of slices in a plane, the files in either order."""
    z, y, x = STEPS
    rows, spacing, step = {
        "axial": ([1, 0, 0, 0, 1, 0], (y, x), (0, 0, z)),
        "coronal": ([1, 0, 0, 0, 0, -1], (z, x), (0, y, 0)),
        "sagittal": ([0, 1, 0, 0, 0, -1], (z, y), (x, 0, 0)),
    }[plane]
    slices = [cut(draw(), plane, number) for number in range(SHAPE[PLANES.index(plane)])]
    slices, step = (slices[::-1], np.negative(step)) if reverse else (slices, step)
    series(folder, slices, step=step, rows=rows, spacing=spacing)


def make_rows(image="v.nii.gz"):
    places = ({"plane": plane, "slice": at, "boxes": find_box(plane, at)} for plane, at in NUMBERS.items())
    return [{"id": place["plane"], "image": image, "q": f"Where? ({place['plane']})", **place} for place in places]


def make(tmp_path, rows, columns=COLUMNS, boxes=None, cls=None, **settings):
    data = {"source": str(write_jsonl(tmp_path / "rows.jsonl", rows)), "columns": columns, "bad_rows": "stop"}
    data |= {"boxes": boxes} if boxes else {}
    given = {"tools": ["select_slice", "open_image", "zoom"], **settings}
    return viewbox.make("grounding", data=data, **given) if cls is None else cls(data=data, **given)


def score(env, task, answer):
    return env.play(task, lambda messages: json.dumps(answer | {"continue": False})).scores.total


def check_gold(env):
    for task in env.tasks:
        plane, box = task.reference["plane"], list(FRACTIONS[task.reference["plane"]])
        assert task.reference["boxes"] == (pytest.approx(box),)
        source = env.images(task)[task.reference.get("image_number", 0)]
        shown = source.volume.get_slice(task.reference["slice"], plane).pixels
        assert bound_in_fractions(shown > shown.min())[:2] == pytest.approx(box[:2])
        right = {name: task.reference[name] for name in env.place.values()} | {"boxes": [box]}
        assert score(env, task, right) == pytest.approx(1)
        other = PLANES[PLANES.index(plane) - 1]
        for wrong in ({"slice": task.reference["slice"] + 1}, {"plane": other}, {"slice": None}, {"plane": None}):
            assert score(env, task, right | wrong) == 0
        assert env.play(task, lambda messages, task=task: env.write_answer(task)).scores.total > 0.98


KEPT = [{"codes": "XYZ"}, {"codes": "yZX"}, {"qform": 1, "sform": 0}, {"tilt": 0.2}]
KEPT += [{"plane": "axial", "reverse": True}, {"plane": "coronal", "reverse": True}, {"plane": "sagittal"}]


@pytest.mark.slow
@each("kept", KEPT)
def test_boxes_in_pixels_are_those_of_their_own_slice_of_a_volume_however_it_is_kept(tmp_path, kept):
    image = "series" if "plane" in kept else "v.nii.gz"
    (write_dicom if "plane" in kept else write_nifti)(tmp_path / image, **kept)
    check_gold(make(tmp_path, make_rows(image)))
    for coordinates in ("pixel", "per_mille"):
        env = make(tmp_path, make_rows(image), coordinates=coordinates)
        for task in env.tasks:
            answer = env.read_answer(env.write_answer(task), task)
            assert answer["boxes"] == [pytest.approx(FRACTIONS[task.id], abs=1e-2)]


@each("unit, image", [("pixel", "v.nii.gz"), ("unit", "scan.bin")])  # the name says that it is one; only its content
def test_a_family_that_asks_for_no_slice_says_what_can_be_done_with_boxes_on_volumes(tmp_path, unit, image):
    write_nifti(tmp_path / "v.nii.gz")
    shutil.copy(tmp_path / "v.nii.gz", tmp_path / "scan.bin")
    rows = [{"id": "a", "image": image, "report": "r", "boxes": [[0, 0, 1, 1]]}]
    columns = {"id": "id", "image": "image", "report": "report"}

    def report(**columns):
        data = {"source": str(write_jsonl(tmp_path / "r.jsonl", rows)), "columns": columns, "bad_rows": "stop"}
        return viewbox.make("report", data={**data, "boxes": {"unit": unit}})

    with pytest.raises(BadRow) as caught:
        report(**columns, boxes="boxes").tasks[0]
    for said in ("expected: no box on a volume", "leave out data.columns.boxes", "`grounding`"):
        assert said in str(caught.value)
    assert report(**columns).tasks[0].reference == {"report": "r"}  # the first way out
    asked = {"id": "id", "image": "image", "label": "report", "boxes": "boxes", "slice": {"value": 2}}
    assert len(make(tmp_path, rows, asked, {"unit": unit}).tasks[0].reference["boxes"]) == 1  # and the second


def test_a_box_may_lie_on_the_second_image_and_several_slices_may_count(tmp_path):
    write_nifti(tmp_path / "v.nii.gz")
    Image.new("L", (30, 20)).save(tmp_path / "flat.png")
    rows = [row | {"image": ["flat.png", "v.nii.gz"], "at": 1} for row in make_rows()]
    env = make(tmp_path, rows, COLUMNS | {"image_number": "at"})
    check_gold(env)
    gold = json.loads(env.write_answer(env.tasks[0]))
    assert score(env, env.tasks[0], gold | {"image_number": 0, "plane": None, "slice": None}) == 0
    env = make(tmp_path, [make_rows()[0] | {"slice": [43, 47]}])
    gold = json.loads(env.write_answer(env.tasks[0]))
    assert [score(env, env.tasks[0], gold | {"slice": at}) for at in (42, 43, 47, 48)] == [0, 1, 1, 0]
    assert isinstance(gold["slice"], int)


def test_a_single_picture_has_no_slice_and_may_be_the_second(tmp_path):
    for name, size in (("a.png", (30, 20)), ("b.png", (100, 40))):
        Image.new("L", size).save(tmp_path / name)
    rows = [{"id": "t", "image": ["a.png", "b.png"], "q": "?", "boxes": [50, 10, 100, 30], "at": 1}]
    env = make(tmp_path, rows, FLAT | {"image_number": "at"})
    assert env.tasks[0].reference["boxes"] == ((0.5, 0.25, 1, 0.75),)
    boxes = [[0.5, 0.25, 1, 0.75]]
    assert [score(env, env.tasks[0], {"image_number": number, "boxes": boxes}) for number in (1, 0)] == [1, 0]


@each("image, unit, box", [
    ("v.nii.gz", "pixel", [6, 30, 12, 45]), ("series", "unit", [0.1, 0.2, 0.3, 0.4]),
    ("v.nii.gz", "per_mille", [100, 200, 300, 400]),
])  # fmt: skip
def test_a_box_on_a_volume_without_a_slice_is_refused_with_the_columns_to_map(tmp_path, image, unit, box):
    write_dicom(tmp_path / image, "axial") if image == "series" else write_nifti(tmp_path / image)
    row = make_rows(image)[0] | {"boxes": box}
    for columns, more in ((FLAT, {}), (COLUMNS, {"slice": None})):
        with pytest.raises(BadRow, match=r"map data\.columns\.plane and data\.columns\.slice"):
            _ = make(tmp_path, [row | more], columns, {"unit": unit}).tasks


WRONG = {
    "'plane' is 'corronal'; expected: one of: axial, coronal, sagittal": {"plane": "corronal"},
    "slice = 60; allowed: 0 to 59": {"slice": 60}, "'slice' is -1; expected: a whole number from 0": {"slice": -1},
    "'slice' is 4.5; expected: a whole number from 0": {"slice": 4.5},
    "a box inside the image of 40x50 pixels": {"boxes": [6, 30, 12, 51]},
}  # fmt: skip


def test_a_place_that_does_not_exist_is_a_bad_row(tmp_path):
    write_nifti(tmp_path / "v.nii.gz")
    for said, wrong in WRONG.items():
        with pytest.raises(BadRow, match=said):
            _ = make(tmp_path, [make_rows()[0] | wrong]).tasks[0]


@each("labels", [False, True])
def test_boxes_of_volumes_are_read_shown_and_scored(tmp_path, labels):
    write_nifti(tmp_path / "v.nii.gz")
    box = [6, 30, 41, 12, 45, 52]  # corners in voxels (x, y, z): NumPy's slices of `MARK`, the other way round
    rows = [{"id": "t", "image": "v.nii.gz", "q": "Where?", "boxes": [box], "labels": ["a"]}]
    env = make(tmp_path, rows, FLAT | ({"labels": "labels"} if labels else {}), {"format": "xyzxyz"})
    task = env.tasks[0]
    gold = task.reference["boxes"][0]["box"] if labels else task.reference["boxes"][0]
    assert gold == pytest.approx((6 / 40, 30 / 50, 41 / 60, 12 / 40, 45 / 50, 52 / 60))

    def answer(numbers):
        return {"boxes": [{"label": "a", "box": numbers} if labels else numbers]}

    right = [6 / 40, 30 / 50, 41, 12 / 40, 45 / 50, 51]  # the model names the first and the last slice
    assert json.loads(env.write_answer(task))["boxes"] == answer(right)["boxes"]
    assert score(env, task, answer(right)) == pytest.approx(1)
    assert score(env, task, answer([*right[:5], 46])) == pytest.approx(6 / 11)
    assert "[x1, y1, z1, x2, y2, z2]" in env.build_system_prompt(task)
    assert "boxes[0]" in check_answer(env, answer([0, 0, 9, 1, 1, 60]), task)[1]


def test_a_box_of_a_volume_has_no_slice_and_is_refused_by_a_family_that_asks_for_none(tmp_path):
    write_nifti(tmp_path / "v.nii.gz")
    with pytest.raises(ConfigError, match=r"data\.columns\.plane: boxes of format xyzxyz lie on no single slice"):
        _ = make(tmp_path, make_rows(), boxes={"format": "xyzxyz"}).tasks
    rows = [{"image": "v.nii.gz", "report": "r", "boxes": [[0, 0, 0, 1, 1, 1]]}]
    columns = {"image": "image", "report": "report", "boxes": "boxes"}
    data = {"source": str(write_jsonl(tmp_path / "r.jsonl", rows)), "columns": columns, "boxes": {"format": "xyzxyz"}}
    with pytest.raises(ConfigError, match=r"data\.boxes\.format: report asks for no box of a volume"):
        _ = viewbox.make("report", data=data).tasks


class Own(DataEnv):
    """An author's family, with names of its own."""

    name, boxes = "own", ("bbox",)
    parts: ClassVar = {"bbox": {"type": "array"}, "cut": {"type": "string"}, "level": {"type": "integer"}}
    answer: ClassVar = {"type": "object", "properties": parts}
    place: ClassVar = {"plane": "cut", "slice": "level"}
    fields: ClassVar = {"question": TaskField("prompt", "text"), "bbox": TaskField("reference", "box")}
    fields |= {"cut": TaskField("reference", "text"), "level": TaskField("reference", "number")}
    reward = IoUReward("bbox", places=["cut", "level"])


def test_an_own_family_that_declares_a_place_reads_boxes_there(tmp_path):
    write_nifti(tmp_path / "v.nii.gz")
    env = make(tmp_path, make_rows(), LEVEL_COLUMNS | {"cut": "plane"}, cls=Own)
    for task in env.tasks:
        assert task.reference["bbox"] == pytest.approx(FRACTIONS[task.id])
        assert score(env, task, {"bbox": FRACTIONS[task.id], "cut": task.id, "level": NUMBERS[task.id]}) == 1


# ---- boxes in the array of the file

STORED = (slice(3, 7), slice(11, 20), slice(2, 5))  # i, j and k of the mark in the array
SIDES = (20, 30, 12)
ORIENTATIONS = [*itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3))]


def write_stored(path, order=(0, 1, 2), signs=(1, 1, 1)):
    """The mark in an array whose axes run along these axes of the patient (RAS), forwards or backwards."""
    stored = np.zeros(SIDES, np.int16)
    stored[STORED] = 100
    affine = np.zeros((4, 4))
    affine[3, 3] = 1
    for axis, (side, sign) in enumerate(zip(order, signs, strict=True)):
        affine[side, axis] = sign * (1 + axis)
    nib.save(nib.Nifti1Image(stored, affine), path)


def make_voxels(tmp_path, count, form=(), columns=OWN_COLUMNS, **row):
    box = [part.start for part in STORED[:2]] + [part.stop for part in STORED[:2]]
    rows = [{"id": str(n), "image": f"{n}.nii", "q": "?", "slice": [2, 4], "boxes": [box], **row} for n in range(count)]
    return make(tmp_path, rows, columns, {"frame": "voxel", **dict(form)})


def test_boxes_of_the_files_array_are_found_where_they_are_shown_in_all_48_orientations(tmp_path):
    for number, (order, signs) in enumerate(ORIENTATIONS):
        write_stored(tmp_path / f"{number}.nii", order, signs)
    env, planes = make_voxels(tmp_path, 48), []
    for task, (order, signs) in zip(env.tasks, ORIENTATIONS, strict=True):
        volume, gold = env.images(task)[0].volume, task.reference
        planes.append(gold["plane"])
        assert gold["plane"] == ("sagittal", "coronal", "axial")[order[2]]
        for number in range(volume.count_slices(gold["plane"])):
            pixels = volume.get_slice(number, gold["plane"]).pixels
            assert pixels.any() == (gold["slice"][0] <= number <= gold["slice"][1])
            if pixels.any():
                assert gold["boxes"][0] == pytest.approx(bound_in_fractions(pixels)), (order, signs)
        assert env.play(task, lambda messages, task=task: env.write_answer(task)).scores.total > 0.98
    assert {plane: planes.count(plane) for plane in PLANES} == dict.fromkeys(PLANES, 16)
    box = [part.start for part in STORED] + [part.stop for part in STORED]
    env = make_voxels(tmp_path, 48, {"format": "xyzxyz"}, FLAT, boxes=[box])
    for task in env.tasks:
        assert task.reference["boxes"][0] == pytest.approx(bound_in_fractions(env.images(task)[0].volume.voxels))


@each("unit, format_, box", [
    ("pixel", "xywh", [3, 11, 4, 9]), ("unit", "xyxy", [3 / 20, 11 / 30, 7 / 20, 20 / 30]),
    ("per_mille", "xyxy", [150, 1100 / 3, 350, 2000 / 3]), ("unit", "xywh", [3 / 20, 11 / 30, 4 / 20, 9 / 30]),
])  # fmt: skip
def test_the_files_array_is_counted_in_every_unit(tmp_path, unit, format_, box):
    write_stored(tmp_path / "0.nii", (1, 2, 0), (-1, 1, 1))
    right = make_voxels(tmp_path, 1).tasks[0].reference
    given = make_voxels(tmp_path, 1, {"unit": unit, "format": format_}, boxes=[box]).tasks[0].reference
    assert given["boxes"][0] == pytest.approx(right["boxes"][0])
    assert (given["plane"], given["slice"]) == (right["plane"], right["slice"])


def test_a_voxel_box_by_hand(tmp_path):
    """The array as nibabel writes it with an affine of 1: i to the right and j to the front of the patient, k up. Shown
    from the left side of the picture, the patient's right, and from the front: both run the other way."""
    write_stored(tmp_path / "0.nii")
    task = make_voxels(tmp_path, 1, slice=3).tasks[0]
    assert task.reference["boxes"][0] == pytest.approx((13 / 20, 10 / 30, 17 / 20, 19 / 30))
    assert (task.reference["plane"], task.reference["slice"]) == ("axial", 3)
    write_stored(tmp_path / "0.nii", signs=(1, 1, -1))
    for at, turned in ((3, 12 - 1 - 3), ([2, 4], (7, 9))):
        assert make_voxels(tmp_path, 1, slice=at).tasks[0].reference["slice"] == turned
    write_stored(tmp_path / "0.nii", (1, 2, 0), (1, 1, -1))  # without boxes the slice is turned, too
    task = make_voxels(tmp_path, 1, boxes=[]).tasks[0]
    assert task.reference == {"boxes": (), "plane": "sagittal", "slice": (2, 4)}  # k runs to the left, as shown


@pytest.mark.slow
@each("plane, reverse", itertools.product(PLANES, [False, True]))
def test_the_array_of_a_series_has_columns_rows_and_slices_by_position(tmp_path, plane, reverse):
    write_dicom(tmp_path / "0.nii", plane, reverse)
    number = NUMBERS[plane]
    stored = SHAPE[2] - 1 - number if plane == "sagittal" else number  # rows x columns points to the patient's right
    env = make_voxels(tmp_path, 1, boxes=find_box(plane, number), slice=stored)
    gold, volume = env.tasks[0].reference, env.images(env.tasks[0])[0].volume
    pixels = volume.get_slice(gold["slice"], plane).pixels
    assert gold["plane"] == plane
    assert gold["boxes"][0] == pytest.approx(bound_in_fractions(pixels > pixels.min()))


def refuse_voxels(tmp_path, said, error=BadRow, **row):
    with pytest.raises(error, match=said):
        _ = make_voxels(tmp_path, 1, **row).tasks[0]


def test_what_is_not_in_the_files_array_is_a_bad_row_and_its_slices_have_one_plane(tmp_path):
    write_stored(tmp_path / "0.nii", (1, 2, 0))
    refuse_voxels(tmp_path, "'slice' is 12; expected: a slice along the third axis of the file, 0 to 11", slice=12)
    refuse_voxels(tmp_path, r"'slice' is \[9, 12\]", slice=[9, 12])
    refuse_voxels(tmp_path, "a box inside the image of 20x30 pixels", boxes=[3, 11, 21, 20])
    refuse_voxels(tmp_path, r"one pixel, .* .perhaps data.boxes.unit: unit.", boxes=[0.1, 0.2, 0.3, 0.4])
    refuse_voxels(tmp_path, "whose slice of the volume is named: map data.columns.slice", slice=None)
    cube, parts = {"columns": FLAT, "form": {"format": "xyzxyz"}}, [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]
    said = r"sides of at least one voxel, as xyzxyz in pixel .perhaps data.boxes.unit: unit."
    refuse_voxels(tmp_path, said, boxes=parts, **cube)
    row = {"id": "0", "image": "0.nii", "q": "?", "boxes": [[1, 1, 1, 9, 9, 1.5]]}
    with pytest.raises(BadRow, match="sides of at least one voxel"):  # not turned, and flat along z
        _ = make(tmp_path, [row], FLAT, {"format": "xyzxyz"}).tasks[0]
    said = r"data\.columns\.plane: with boxes.frame = voxel, it is the plane of the file's third axis; leave it out"
    refuse_voxels(tmp_path, said, ConfigError, columns=COLUMNS, plane="axial")
    Image.new("L", (20, 30)).save(tmp_path / "a.png")
    for row in ({}, {"boxes": []}, {"columns": FLAT}):
        refuse_voxels(tmp_path, "expected: a volume, for boxes.frame = voxel", image="a.png", **row)


class Level(Own):
    """It names no plane: that of the first picture."""

    name = "level"
    place: ClassVar = {"slice": "level"}
    fields: ClassVar = {name: field for name, field in Own.fields.items() if name != "cut"}
    reward = IoUReward("bbox", places=["level"])


def test_a_family_that_names_no_plane_takes_the_files_slices_if_they_are_shown_first(tmp_path):
    row = {"id": "0", "image": "0.nii", "q": "?", "boxes": [3, 11, 7, 20], "slice": 3.0}
    write_stored(tmp_path / "0.nii", signs=(1, 1, -1))
    assert make(tmp_path, [row], LEVEL_COLUMNS, {"frame": "voxel"}, Level).tasks[0].reference["level"] == 8
    write_stored(tmp_path / "0.nii", (1, 2, 0))
    with pytest.raises(BadRow, match="a slice of the plane shown first"):
        _ = make(tmp_path, [row], LEVEL_COLUMNS, {"frame": "voxel"}, Level).tasks[0]
