"""How rows become tasks. A broken one is named by dataset, row, column and what was expected, and costs itself."""

import asyncio
import struct
import sys
import zlib
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.support.data_kit import COLUMNS, Questions, list_ids, make_env, make_rows, refuse, write_images, write_jsonl
from tests.support.image_files import saved
from tests.support.tables import each
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.data import selection
from viewbox.envs.data.columns import ColumnMap
from viewbox.errors import BadRow, ConfigError
from viewbox.rollouts.play import play_many


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path)
    return tmp_path


def make(folder, rows, columns=(), **data):
    return make_env(write_jsonl(folder / "t.jsonl", rows), {**COLUMNS, **dict(columns)}, **data)


def break_row(**values):
    """Six rows, of which the third is another."""
    rows = make_rows()
    return [*rows[:2], rows[2] | values, *rows[3:]]


def play_all(env):
    async def play():
        return [episode async for episode in play_many(env, env.tasks, lambda messages: "yes", concurrency=2)]

    return sorted(asyncio.run(play()), key=lambda episode: episode.info["index"])


def test_a_field_is_a_path_a_constant_a_template_or_a_list_of_these():
    row = {"a": {"b": [{"c": 1}, {"c": 2}]}, "d.e": {"f.g": 3}, "x": 1, "y": "two"}
    specs = [("a.b.1.c", 2), ("a.b.*.c", [1, 2]), ("a.b.*", [{"c": 1}, {"c": 2}]), ("d.e.f.g", 3), ("a.b.7.c", None)]
    specs += [("a.x", None), ({"value": 7}, 7), ({"template": "{{ x }} and {{ y }}"}, "1 and two")]
    specs += [(["x", {"value": 0}, "y"], [1, 0, "two"])]
    rows = SimpleNamespace(name="d", columns=tuple(row), list_columns=lambda: tuple(row))
    assert [ColumnMap({"x": spec}, rows).read("x", row) for spec, _ in specs] == [value for _, value in specs]


MAPPINGS = {
    "data.columns.answer: t.jsonl: unknown column 'anser'; allowed: answer, id, image, level, question "
    "(did you mean 'answer'?)": {"answer": "anser"},
    "questions needs image, answer; t.jsonl has the columns id, image": {"image": None, "answer": None},
    "unknown field of questions 'qestion'": {"qestion": "id"},
    "unknown column 'quest'": {"question": {"template": "{{ quest }}"}},
    "data.columns.question.template: line 1": {"question": {"template": "{{ question"}},
    "allowed: a column, {value: constant}": {"question": {"templat": "x"}},
    "template fails: ZeroDivisionError": {"question": {"template": "{{ question }}{{ 1 // 0 }}"}},  # costs each row
}


@each("said, wrong", MAPPINGS.items())
def test_a_mapping_that_cannot_be_used_says_why(folder, said, wrong):
    columns = {name: column for name, column in (COLUMNS | wrong).items() if column is not None}
    refuse(said, write_jsonl(folder / "t.jsonl", make_rows()), columns)


def test_metadata_maps_names_to_columns_and_a_class_without_data_has_no_tasks(folder):
    assert make(folder, make_rows(), {"metadata": {"hard": "level"}}).tasks[2].metadata == {"hard": 0.2, "row": 2}
    with pytest.raises(ConfigError, match=r"data\.source: is missing"):
        len(Questions().tasks)


@each("boxes, box", [
    ({"format": "xywh", "unit": "pixel"}, [3, 2, 6, 4]), ({"format": "xyxy", "unit": "unit"}, [0.1, 0.1, 0.3, 0.3]),
    ({"format": "xyxy", "unit": "per_mille"}, "[100, 100, 300, 300]"),
])  # fmt: skip
def test_boxes_are_stored_as_fractions_of_the_image(folder, boxes, box):
    env = make(folder, [{**row, "box": box} for row in make_rows()], {"box": "box"}, boxes=boxes)
    assert env.tasks[0].reference["box"] == pytest.approx((0.1, 0.1, 0.3, 0.3))


SMALL = [  # on pictures of 30 x 20 pixels; given, its form, what is said of it (None: it is taken)
    ([0.3, 0.2, 0.4, 0.4], {}, "sides of at least one pixel, as xyxy in pixel (perhaps data.boxes.unit: unit)"),
    ([0.3, 0.2, 0.1, 0.2], {"format": "xywh"}, "as xywh in pixel (perhaps data.boxes.unit: unit)"),
    ([0, 0, 1, 0.5], {}, "as xyxy in pixel (perhaps data.boxes.unit: unit)"),
    ([3.2, 4, 3.9, 8], {}, "a box with sides of at least one pixel, as xyxy in pixel"),
    ([29.9, 4, 30.1, 8], {}, "a box with sides of at least one pixel, as xyxy in pixel"),  # 0.1 pixel of it is inside
    ([0, 0, 1, 1], {}, None), ([3.3, 4.4, 1, 1], {"format": "xywh"}, None), ([29, 19, 30, 20], {}, None),
    ([0.3, 0.2, 0.4, 0.4], {"unit": "per_mille"}, "as xyxy in per_mille (perhaps data.boxes.unit: unit)"),
    ([0.3, 0.2, 0.1, 0.2], {"unit": "per_mille", "format": "xywh"}, "(perhaps data.boxes.unit: unit)"),
    ([0, 0, 1, 1], {"unit": "per_mille"}, "as xyxy in per_mille (perhaps data.boxes.unit: unit)"),
    ([0.668899, 0.708168, 1e-6, 0.000992], {"unit": "unit", "format": "xywh"}, "at least one pixel, as xywh in unit"),
    ([0, 0, 2, 2], {"unit": "per_mille"}, None),
    ([0.5, 0.5, 0.5001, 0.6], {"unit": "unit"}, None),  # the picture is not opened for that
    ([3, 4, 20, 10], {"unit": "unit"}, "a box inside 0 to 1, as xyxy (perhaps data.boxes.unit: per_mille or pixel)"),
    ([3, 4, 1200, 10], {"unit": "unit"}, "a box inside 0 to 1, as xyxy (perhaps data.boxes.unit: pixel)"),
    ([3, 4, 1200, 10], {"unit": "per_mille"}, "a box inside 0 to 1000, as xyxy (perhaps data.boxes.unit: pixel)"),
    ([300, 400, 500, 600], {}, "image of 30x20 pixels, as xyxy (perhaps data.boxes.unit: per_mille)"),
    ([300, 400, 1500, 600], {}, "a box inside the image of 30x20 pixels, as xyxy"),
    ([-3, 4, 5, 6], {}, "a box inside the image of 30x20 pixels, as xyxy"),
]  # fmt: skip


@each("box, form, said", SMALL)
def test_a_box_below_a_pixel_or_outside_is_a_bad_row_that_names_the_unit_that_fits(folder, box, form, said):
    source = write_jsonl(folder / "t.jsonl", [{**row, "box": box} for row in make_rows()])
    if "unit" in form and said is not None:  # of fractions and thousandths it is known before any image is opened
        return refuse(said, source, COLUMNS | {"box": "box"}, boxes=form)
    found = make_env(source, COLUMNS | {"box": "box"}, boxes=form).tasks[0].metadata.get("bad_row")
    assert (found or "").endswith(said or "")
    assert (found is None) == (said is None)


def test_a_box_counts_in_the_picture_that_exif_has_turned(folder):
    """Stored 40 x 20 and to be turned to the right: columns 4 to 12 of rows 2 to 8 are rows 4 to 12 from the right."""
    stored = np.zeros((20, 40), np.uint8)
    stored[2:8, 4:12] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is the right side, the first column the top (TIFF 6.0)
    Image.fromarray(stored).save(folder / "0.png", exif=exif)
    env = make(folder, [{**make_rows()[0], "box": [12, 4, 18, 12]}], {"box": "box"})
    pixels = np.asarray(env.images(env.tasks[0])[0].pixels)
    assert pixels.shape[:2] == (40, 20)
    assert (pixels[4:12, 12:18] == 255).all()
    assert (pixels == 255).sum() == 8 * 6
    assert env.tasks[0].reference["box"] == pytest.approx((0.6, 0.1, 0.9, 0.3))
    outside = make(folder, [{**make_rows()[0], "box": [25, 4, 35, 12]}], {"box": "box"}).tasks[0]  # as it is stored
    assert "a box inside the image of 20x40 pixels" in outside.metadata["bad_row"]


GOOD, DEEP = {"box": [0, 0, 0.5, 0.5]}, "[" * 500 + "]" * 500
KNOWN = (
    ({"image": "gone.png"}, "line 2: column 'image' is 'gone.png'; expected: a file in"),
    ({"image": "https://x.org/a.png"}, "expected: a path on this machine, because nothing is downloaded"),
    ({"image": 7}, "expected: a path, or the bytes of an image"),
    ({"question": None}, "column 'question' is null; expected: text"),
    ({"question": "w" * 100_000}, "(100,000 characters); expected: text of at most 50,000"),
    ({"question": " "}, "column 'question' is ' '; expected: text"),
    ({"question": "\u200b"}, "expected: text that is not blank"),
    ({"id": "t0"}, "column 'id' is 't0'; expected: another id: line 1 has this one"),
    ({"answer": "maybe"}, "column 'answer' is 'maybe'; expected: one of: yes, no"),
    ({"box": [0.5, 0.5, 1.4, 0.9]}, "column 'box' is [0.5, 0.5, 1.4, 0.9]; expected: a box inside"),
    ({"box": [0.5, 0.5, 0.5, 0.9]}, "expected: a box with positive sides"),
    ({"box": [0, 0, 1]}, "expected: a box of four numbers"),
    ({"box": DEEP}, "expected: at most 64 lists and objects inside each other"),
    ('{"id": "t2", "ima', "the line is"),
)


def test_rows_that_are_known_to_be_bad_are_left_out_and_named(folder, caplog):
    first, *others = make_rows(len(KNOWN) + 2)
    broken = [bad if isinstance(bad, str) else row | GOOD | {"image": "1.png"} | bad
              for row, (bad, _) in zip(others, KNOWN, strict=False)]  # fmt: skip
    rows = [first | GOOD, *broken, "", others[-1] | GOOD | {"image": "3.png"}]
    env = make(folder, rows, {"box": "box"}, boxes={"unit": "unit"})
    assert list_ids(env) == ["t0", others[-1]["id"]]
    assert env.images(env.tasks[1])[0].pixels[0, 0] == 30  # rows after a broken line keep their own images
    for error, (_, said) in zip(env.tasks.skipped.values(), KNOWN, strict=True):
        assert said in str(error)
        assert len(str(error)) < 400
    [message] = caplog.messages
    reasons = "; ".join(str(error).removeprefix("t.jsonl: ") for error in list(env.tasks.skipped.values())[:3])
    count = len(KNOWN)
    assert message == f"t.jsonl: {count} of {count + 2} rows are left out: {reasons}; and {count - 3} more"
    with pytest.raises(BadRow, match="line 2"):
        len(Questions(data=env.data.model_copy(update={"bad_rows": "stop"}).model_dump()).tasks)


def test_a_line_of_a_spreadsheet_with_too_few_cells_is_left_out_and_bad_rows_only_are_refused(folder):
    rows = make_rows()
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    lines[3] = "t2,2.png"
    (folder / "t.csv").write_text("\n".join(lines))
    env = make_env(folder / "t.csv")
    assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
    assert all(said in str(env.tasks.skipped[2]) for said in ("line 4", "expected: 5 cells, as the header has"))
    with pytest.raises(ConfigError, match="6 of 6 rows are left out"):
        len(make(folder, [{**row, "answer": "maybe"} for row in make_rows()]).tasks)
    assert list_ids(make(folder, break_row(answer="maybe"), limit=3)) == ["t0", "t1", "t3"]  # of good rows


def test_bad_rows_of_a_large_dataset_are_found_when_they_are_played(folder, monkeypatch):
    monkeypatch.setattr(selection, "MAX_CHECKED", 3)
    env = make(folder, break_row(answer="maybe"))
    assert len(env.tasks) == 6
    episodes = play_all(env)
    assert [episode.end_reason for episode in episodes].count("error") == 1
    assert "line 3: column 'answer' is 'maybe'" in episodes[2].info["error"]
    with pytest.raises(BadRow, match="maybe"):
        make(folder, break_row(answer="maybe"), bad_rows="stop").tasks[2]


def write_nested(folder, depth, *, is_text):
    """A Parquet file in whose third row a cell holds a list (as JSON text) or an object, nested so deep."""
    kind, cell, good = pa.string(), "[" * depth + "]" * depth, "[0, 0, 1, 1]"
    if not is_text:
        cell, good = "x", None
        for _ in range(depth):
            kind, cell = pa.struct([("a", kind)]), {"a": cell}
    cells = pa.array([cell if number == 2 else good for number in range(6)], kind)
    rows = [row | {"image": {"bytes": (folder / row["image"]).read_bytes()}} for row in make_rows()]
    parquet.write_table(pa.Table.from_pylist(rows).append_column("cell", cells), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.slow
@each("streaming", [False, True])
def test_a_deep_cell_of_a_parquet_file_costs_its_row_and_a_deep_type_the_file(folder, streaming):
    for depth, is_text in ((500, True), (70, False)):
        field = {"box": "cell"} if is_text else {"metadata": {"cell": "cell"}}
        path = write_nested(folder, depth, is_text=is_text)
        env = make_env(path, {**COLUMNS, **field}, streaming=streaming, boxes={"unit": "unit"})
        assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
        said = "row 2: column", "expected: at most 64 lists and objects inside each other"
        assert all(part in str(env.tasks.skipped[2]) for part in said)
    path = write_nested(folder, 500, is_text=False)
    with pytest.raises(ConfigError, match=r"data\.source: t\.parquet: not a Parquet file that can be read: .*deep"):
        _ = make_env(path, streaming=streaming).tasks


def write_truncated(path):
    path.write_bytes(saved(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8), "PNG")[:1000])


def write_huge(path):
    content = bytearray(saved(Image.new("RGBA", (1, 1)), "PNG"))
    content[16:24] = struct.pack(">II", 20_000, 15_000)  # its width and height
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)


def test_what_cannot_be_shown_ends_its_episode_as_a_fault_that_names_the_row(folder):
    inside = folder / "inside"
    write_images(inside)
    write_truncated(inside / "1.png")
    write_huge(inside / "2.png")
    (inside / "3.png").write_text("no")
    rows = [row | {"box": [0, 0, 15, 10]} for row in make_rows(6)]
    rows[4]["image"], rows[5]["box"] = "../4.png", [0, 0, 31, 10]
    problems = ("damaged or cut short", "20000x15000 pixels", "not an image that can be opened")
    problems += ("leads out of the task's folder", "expected: a box inside the image of 30x20 pixels, as xyxy")
    columns = {"metadata": {"box": "box"}}
    plain = play_all(make(folder, rows[:5], columns, images=str(inside)))
    boxed = play_all(make(folder, [rows[0], rows[5]], {"box": "box"}, images=str(inside)))
    assert [episode.end_reason for episode in (*plain, *boxed)] == ["answered", *["error"] * 4, "answered", "error"]
    for number, (episode, said) in enumerate(zip((*plain[1:], boxed[1]), problems, strict=True), 2):
        assert said in episode.info["error"]
        assert f"t.jsonl: line {2 if number == 6 else number}: column" in episode.info["error"]
        assert episode.is_fault
        assert episode.explain_missing_score() is not None  # training leaves its group out
    with pytest.raises(BadRow, match="line 2"):
        play_all(make(folder, rows[:2], images=str(inside), bad_rows="stop"))


def test_null_as_the_bytes_of_an_image_ends_its_episode_as_a_fault_that_names_the_row(folder):
    content = [{"bytes": (folder / row["image"]).read_bytes(), "path": None} for row in make_rows()]
    content[2], content[3] = None, {"bytes": None, "path": None}
    table = pa.Table.from_pylist([{**row, "image": image} for row, image in zip(make_rows(), content, strict=True)])
    parquet.write_table(table, folder / "t.parquet")
    episodes = play_all(make_env(folder / "t.parquet"))
    assert [episode.end_reason for episode in episodes] == ["answered"] * 2 + ["error"] * 2 + ["answered"] * 2
    assert "t.parquet: row 2: column 'image' is null; expected: an image" in episodes[2].info["error"]
    assert "t.parquet: row 3: column 'image' is" in episodes[3].info["error"]


def test_each_of_several_images_is_one_and_one_that_cannot_be_shown_costs_the_row(folder):
    write_truncated(folder / "5.png")
    pairs = [["4.png", "4.png", "1.png"], ["2.png", "5.png"], ["5.png", "3.png"]]
    env = make(folder, [row | {"image": pair} for row, pair in zip(make_rows(3), pairs, strict=True)])
    state = env.reset(env.tasks[0], seed=0)
    shades = [image.open().getpixel((0, 0)) for image in state.messages[1].images]
    assert [shade if isinstance(shade, int) else shade[0] for shade in shades] == [40, 40, 10]
    assert "There are 3 images: image_1 to image_3." in state.messages[1].text
    opened = '<tool_call>{"name": "open_image", "arguments": {"image": "image_2"}}</tool_call>'
    [result] = env.play(env.tasks[0], ScriptedPolicy([opened, "yes"])).turns[2].tool_results
    assert (result.facts["image"], result.facts["images"]) == ("image_2", 3)
    for number, episode in enumerate(play_all(env)[1:], 2):
        assert (episode.end_reason, episode.scores) == ("error", None)
        assert f"line {number}: column 'image' is '5.png'; expected: an image that" in episode.info["error"]


def test_a_family_that_ends_the_process_while_it_reads_a_row_costs_that_row(folder):
    class Leaving(Questions):
        def read_row(self, row):
            task = super().read_row(row)
            if task.prompt["question"] == "Is 1 odd?":
                sys.exit(3)
            return task

    env = Leaving(data={"source": str(write_jsonl(folder / "t.jsonl", make_rows())), "columns": COLUMNS})
    assert "t1" not in [task.id for task in env.tasks]
    assert "SystemExit: 3" in str(env.tasks.skipped[1])
