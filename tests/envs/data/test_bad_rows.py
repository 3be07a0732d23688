"""Ten kinds of broken data: each is named by dataset, row, column and what was expected, and costs only itself."""

import asyncio
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.support.data_kit import COLUMNS, list_ids, make_env, make_rows, write_images, write_jsonl
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.data import selection
from viewbox.errors import BadRow, ConfigError
from viewbox.rollouts.play import play_many

BOX_COLUMNS = {**COLUMNS, "box": "box"}


@pytest.fixture
def rows(tmp_path):
    write_images(tmp_path)
    return make_rows()


def make(tmp_path, rows, columns=COLUMNS, **data):
    return make_env(write_jsonl(tmp_path / "t.jsonl", rows), columns, **data)


def play_all(env):
    async def play():
        return [episode async for episode in play_many(env, env.tasks, lambda messages: "yes", concurrency=2)]

    return sorted(asyncio.run(play()), key=lambda episode: episode.info["index"])


def change(rows, number, **values):
    rows[number] = {**rows[number], **values}
    return rows


KNOWN = {
    "a missing image": ({"image": "gone.png"}, "line 3: column 'image' is 'gone.png'; expected: a file in"),
    "null": ({"question": None}, "line 3: column 'question' is null; expected: text"),
    "a duplicated id": ({"id": "t0"}, "line 3: column 'id' is 't0'; expected: another id: line 1 has this one"),
    "a question of 100 kB": ({"question": "w" * 100_000}, "(100,000 characters); expected: text of at most 50,000"),
    "an unknown label": ({"answer": "maybe"}, "line 3: column 'answer' is 'maybe'; expected: one of: yes, no"),
    "a box outside": ({"box": [0.5, 0.5, 1.4, 0.9]}, "column 'box' is [0.5, 0.5, 1.4, 0.9]; expected: a box inside"),
    "a link": ({"image": "https://x.org/a.png"}, "expected: a path on this machine, because nothing is downloaded"),
    "a box of three": ({"box": [0, 0, 1]}, "expected: a box of four numbers"),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_a_row_that_is_known_to_be_bad_is_left_out_and_named(tmp_path, rows, kind, caplog):
    values, said = KNOWN[kind]
    env = make(tmp_path, change(rows, 2, **values), {**BOX_COLUMNS} if "box" in values else COLUMNS)
    if "box" in values:
        boxes = {"unit": "unit"}
        rows = [{"box": [0, 0, 0.5, 0.5], **row} for row in rows]
        env = make(tmp_path, rows, BOX_COLUMNS, boxes=boxes)
    assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
    assert said in str(env.tasks.skipped[2])
    assert len(str(env.tasks.skipped[2])) < 400
    assert caplog.messages == [f"t.jsonl: 1 of 6 rows are left out: {str(env.tasks.skipped[2])[len('t.jsonl: ') :]}"]
    stopped = env.data.model_copy(update={"bad_rows": "stop"}).model_dump()
    with pytest.raises(BadRow, match="line 3"):
        len(type(env)(data=stopped).tasks)


def test_a_line_that_is_no_json_is_left_out_and_named(tmp_path, rows):
    env = make(tmp_path, [*rows[:2], '{"id": "t2", "ima', "", *rows[3:]])
    assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
    assert "line 3: column '(the line)' is" in str(env.tasks.skipped[2])
    assert env.images(env.tasks[2])[0].pixels[0, 0] == 30  # rows after it keep their own images


def test_a_line_of_a_spreadsheet_with_too_few_cells_is_left_out_and_named(tmp_path, rows):
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    lines[3] = "t2,2.png"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    env = make_env(tmp_path / "t.csv")
    assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
    assert "line 4" in str(env.tasks.skipped[2])
    assert "expected: 5 cells, as the header has" in str(env.tasks.skipped[2])


def write_truncated(path):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)).save(buffer, "PNG")
    path.write_bytes(buffer.getvalue()[:1000])


def write_huge(path):
    import struct
    import zlib

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 20_000, 15_000, 8, 6, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))


SHOWN = {
    "a truncated file": (write_truncated, "it is damaged or cut short"),
    "an image of 300 megapixels": (write_huge, "20000x15000 pixels"),
    "a text as the image": (lambda path: path.write_text("no"), "this is not an image that can be opened"),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_an_image_that_cannot_be_shown_ends_its_episode_as_a_fault_that_names_the_row(tmp_path, rows, kind):
    write, said = SHOWN[kind]
    write(tmp_path / "2.png")
    env = make(tmp_path, rows)
    episodes = play_all(env)
    assert [episode.end_reason for episode in episodes] == ["answered"] * 2 + ["error"] + ["answered"] * 3
    problem = episodes[2].info["error"]
    assert "t.jsonl: line 3: column 'image' is '2.png'; expected: an image that can be opened" in problem
    assert said in problem
    assert episodes[2].is_fault
    assert episodes[2].explain_missing_score() is not None  # training leaves its group out


def test_an_image_that_cannot_be_shown_ends_the_run_if_bad_rows_are_to_stop_it(tmp_path, rows):
    write_truncated(tmp_path / "2.png")
    with pytest.raises(BadRow, match="line 3"):
        play_all(make(tmp_path, rows, bad_rows="stop"))


def test_a_path_out_of_the_folder_is_not_followed(tmp_path, rows):
    (tmp_path / "inside").mkdir()
    write_images(tmp_path / "inside")
    env = make(tmp_path, change(rows, 2, image="../2.png"), images=str(tmp_path / "inside"))
    assert "leads out of the task's folder" in play_all(env)[2].info["error"]


def test_an_image_of_16_bits_is_no_bad_row_and_keeps_its_depth(tmp_path, rows):
    Image.fromarray(np.linspace(0, 40_000, 64, dtype=np.uint16).reshape(8, 8)).save(tmp_path / "2.png")
    env = make(tmp_path, rows)
    assert env.images(env.tasks[2])[0].pixels.max() == 40_000
    assert play_all(env)[2].end_reason == "answered"


def test_a_box_in_pixels_is_checked_against_its_image_when_the_task_is_opened(tmp_path, rows):
    rows = [{**row, "box": [0, 0, 15, 10]} for row in rows]
    env = make(tmp_path, change(rows, 2, box=[0, 0, 31, 10]), BOX_COLUMNS)
    assert env.tasks[0].reference["box"] == (0.0, 0.0, 0.5, 0.5)
    episodes = play_all(env)
    assert [episode.end_reason for episode in episodes].count("error") == 1
    assert "expected: a box inside the image of 30x20 pixels, as xyxy" in episodes[2].info["error"]


def test_bad_rows_of_a_large_dataset_are_found_when_they_are_played(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(selection, "MAX_CHECKED", 3)
    env = make(tmp_path, change(rows, 2, answer="maybe"))
    assert len(env.tasks) == 6
    episodes = play_all(env)
    assert [episode.end_reason for episode in episodes].count("error") == 1
    assert "line 3: column 'answer' is 'maybe'" in episodes[2].info["error"]
    stopping = make(tmp_path, rows, bad_rows="stop")
    with pytest.raises(BadRow, match="maybe"):
        stopping.tasks[2]


def test_a_dataset_of_bad_rows_only_is_refused(tmp_path, rows):
    with pytest.raises(ConfigError, match="6 of 6 rows are left out"):
        len(make(tmp_path, [{**row, "answer": "maybe"} for row in rows]).tasks)


def test_a_limit_counts_good_rows(tmp_path, rows):
    assert list_ids(make(tmp_path, change(rows, 1, answer="maybe"), limit=3)) == ["t0", "t2", "t3"]


def test_null_as_the_bytes_of_an_image_ends_its_episode_as_a_fault_that_names_the_row(tmp_path, rows):
    content = [{"bytes": (tmp_path / row["image"]).read_bytes(), "path": None} for row in rows]
    content[2], content[3] = None, {"bytes": None, "path": None}
    table = pa.Table.from_pylist([{**row, "image": image} for row, image in zip(rows, content, strict=True)])
    parquet.write_table(table, tmp_path / "t.parquet")
    episodes = play_all(make_env(tmp_path / "t.parquet"))
    assert [episode.end_reason for episode in episodes] == ["answered"] * 2 + ["error"] * 2 + ["answered"] * 2
    assert "t.parquet: row 2: column 'image' is null; expected: an image" in episodes[2].info["error"]
    assert "t.parquet: row 3: column 'image' is" in episodes[3].info["error"]


def make_pairs(tmp_path, pairs):
    rows = [{**row, "image": pair} for row, pair in zip(make_rows(), pairs, strict=False)]
    return make(tmp_path, rows)


def test_one_of_two_images_that_cannot_be_shown_costs_its_row_and_is_named(tmp_path, rows):
    write_truncated(tmp_path / "5.png")
    env = make_pairs(tmp_path, [["0.png", "1.png"], ["2.png", "5.png"], ["5.png", "3.png"]])
    first, *others = play_all(env)
    assert (first.end_reason, len(first.turns[0].images)) == ("answered", 2)
    for number, episode in enumerate(others, 2):
        assert (episode.end_reason, episode.scores) == ("error", None)
        assert f"line {number}: column 'image' is '5.png'; expected: an image that" in episode.info["error"]


def test_an_image_that_a_row_names_twice_is_two_images_of_the_task(tmp_path, rows):
    env = make_pairs(tmp_path, [["4.png", "4.png", "1.png"]])
    state = env.reset(env.tasks[0], seed=0)
    shades = [image.open().getpixel((0, 0)) for image in state.messages[1].images]
    assert [shade if isinstance(shade, int) else shade[0] for shade in shades] == [40, 40, 10]
    assert "There are 3 images: image_1 to image_3." in state.messages[1].text
    opened = '<tool_call>{"name": "open_image", "arguments": {"image": "image_2"}}</tool_call>'
    [result] = env.play(env.tasks[0], ScriptedPolicy([opened, "yes"])).turns[2].tool_results
    assert (result.facts["image"], result.facts["images"]) == ("image_2", 3)


def write_nested(path, rows, depth, *, is_text):
    """A Parquet file in whose third row a cell holds a list (as JSON text) or an object, nested so deep."""
    kind, cell, good = pa.string(), "[" * depth + "]" * depth, "[0, 0, 1, 1]"
    if not is_text:
        cell, good = "x", None
        for _ in range(depth):
            kind, cell = pa.struct([("a", kind)]), {"a": cell}
    cells = pa.array([cell if number == 2 else good for number in range(len(rows))], kind)
    images = [{"bytes": (path.parent / row["image"]).read_bytes(), "path": row["image"]} for row in rows]
    table = pa.Table.from_pylist([{**row, "image": image} for row, image in zip(rows, images, strict=True)])
    parquet.write_table(table.append_column("cell", cells), path)
    return path


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("depth", "is_text"), [(500, True), (70, False)])
def test_a_deep_cell_of_a_parquet_file_costs_its_row_only(tmp_path, rows, depth, is_text, streaming):
    path = write_nested(tmp_path / "t.parquet", rows, depth, is_text=is_text)
    field = {"box": "cell"} if is_text else {"metadata": {"cell": "cell"}}
    env = make_env(path, {**COLUMNS, **field}, streaming=streaming, boxes={"unit": "unit"})
    assert list_ids(env) == ["t0", "t1", "t3", "t4", "t5"]
    assert "row 2: column" in str(env.tasks.skipped[2])
    assert "expected: at most 64 lists and objects inside each other" in str(env.tasks.skipped[2])
    assert [episode.end_reason for episode in play_all(env)] == ["answered"] * 5


@pytest.mark.parametrize("streaming", [False, True])
def test_a_type_that_parquet_does_not_read_for_its_depth_is_a_file_that_cannot_be_read(tmp_path, rows, streaming):
    path = write_nested(tmp_path / "t.parquet", rows, 500, is_text=False)
    with pytest.raises(ConfigError, match=r"data\.source: t\.parquet: not a Parquet file that can be read: .*deep"):
        _ = make_env(path, streaming=streaming).tasks
