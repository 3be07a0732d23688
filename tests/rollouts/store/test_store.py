"""Episodes on disk: what goes in comes out, whatever happens to the process that wrote it."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image

from tests.support.saved_episodes import without_uris, written
from tests.support.tables import each
from viewbox import EpisodeWriter, ImageRef, StoreError, load
from viewbox.records import Episode, EpisodeTokens, RunConfig, Scores, Task, ToolCall, ToolResult, Turn


def picture(seed=0, mode="RGB", size=(7, 5)):
    length = len(Image.new(mode, size).tobytes())
    raw = np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()
    image = Image.frombytes(mode, size, raw)
    if mode == "P":
        image.putpalette([255, 0, 0, 0, 255, 0])
    return image


def episode(name="t0", seed=0):
    scan, view = ImageRef.of(picture(seed, "L")), ImageRef.of(picture(seed + 1000))
    call = ToolCall("call_0", "zoom", {"factor": 2.0})
    result = ToolResult("zoom", "zoomed in", image=view, facts={"size": [7, 5], "factor": 2.0}, call_id="call_0")
    turns = (Turn("user", "where?", images=(scan,)), Turn("assistant", "let me look", tool_calls=(call,)),
        Turn("tool_result", tool_results=(result,)), Turn("assistant", '{"label": "left"}'))  # fmt: skip
    return Episode(
        Task(name, (scan,), {"question": "where?\u2028\n"}, {"label": "left"}), turns, {"label": "left"},
        terminated=True, flags=frozenset({"salvaged"}), scores=Scores(0.5, {"exact": 0.5, "iou": None}), confidence=0.1,
        run_config=RunConfig("tiny", 0.7, seed=3, versions={"viewbox": "0"}),
        tokens=EpisodeTokens((1, 2, 151655), (4, 5, 6), (1, 0, 1), (-0.1, 0.0, -1 / 3), (scan, view), 1)
    )  # fmt: skip


def stored_images(path):
    return [file for file in (path / "images").rglob("*") if file.is_file()]


def test_episodes_come_back_as_they_were_in_order_and_one_at_a_time(tmp_path):
    stream = iter(load(written(tmp_path, *(episode(f"t{n}") for n in range(5)))))
    first = next(stream)
    assert without_uris(first.to_json()) == without_uris(episode().to_json())
    assert first.tokens is None
    assert [item.task.id for item in stream] == ["t1", "t2", "t3", "t4"]


def test_tokens_come_back_exactly_also_of_a_store_that_was_loaded_stored_again_and_moved(tmp_path):
    written(tmp_path / "again", *load(written(tmp_path / "first", episode()), tokens=True)).rename(tmp_path / "moved")
    (back,) = load(tmp_path / "moved", tokens=True)
    assert without_uris(back.to_json()) == without_uris(episode().to_json())
    assert replace(back.tokens, images=()) == replace(episode().tokens, images=())
    assert [ref.hash for ref in back.tokens.images] == [ref.hash for ref in episode().tokens.images]
    assert back.tokens.images[1].open().tobytes() == picture(1000).tobytes()
    assert back.task.images[0].open().tobytes() == picture(0, "L").tobytes()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=False, max_value=0) | st.floats(width=32, allow_nan=False), max_size=20))
def test_any_log_probs_come_back_bit_for_bit(tmp_path_factory, logprobs):
    many = (1,) * len(logprobs)
    item = Episode(Task("t"), tokens=EpisodeTokens((), many, many, tuple(logprobs)))
    (back,) = load(written(tmp_path_factory.mktemp("store"), item), tokens=True)
    assert [math.copysign(1, x) for x in back.tokens.logprobs] == [math.copysign(1, x) for x in logprobs]
    assert back.tokens == item.tokens


@each("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "I;16B"])
def test_pixels_of_every_mode_come_back_identical(tmp_path, mode):
    ref = ImageRef.of(picture(1, mode))
    (back,) = load(written(tmp_path, Episode(Task("t", (ref,)))))
    again = back.task.images[0]
    assert ImageRef.of(again.open()).hash == again.hash == ref.hash
    assert again.open().convert("RGB").tobytes() == ref.open().convert("RGB").tobytes()


def test_an_episode_that_no_file_holds_is_refused_by_name_and_adds_no_line_and_numpy_numbers_are_numbers(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        with pytest.raises(StoreError, match=r"'t'.*HSV"):
            writer.append(Episode(Task("t", (ImageRef.of(picture(1, "HSV")),))))
        with pytest.raises(StoreError, match=r"task 'bad' was not stored"):
            writer.append(Episode(Task("bad"), info={"mean": float("nan")}))
        writer.append(Episode(Task("good"), info={"mean": np.float64(0.1), "bins": np.arange(3)}))
    (back,) = load(tmp_path)
    assert (back.task.id, back.info) == ("good", {"mean": 0.1, "bins": (0, 1, 2)})


def test_the_same_pixels_are_stored_once_and_without_what_their_file_said_beside_them(tmp_path):
    written(tmp_path / "two", episode("a"), episode("b"))
    assert len(stored_images(tmp_path / "two")) == 2
    image = picture()
    image.info |= {"PatientName": b"Doe", "icc_profile": b"Doe"}
    written(tmp_path / "one", Episode(Task("t", (ImageRef.of(image),))))
    (file,) = stored_images(tmp_path / "one")
    assert Image.open(file).info == {}


def test_pixels_at_a_path_are_stored_too_and_the_path_is_not_and_changed_ones_are_refused(tmp_path):
    source = tmp_path / "scan.png"
    picture().save(source)
    first, second = (Episode(Task("t", (replace(ImageRef.of(picture(), uri=str(source)), pixels=None),))) for _ in "12")
    (back,) = load(written(tmp_path / "store", first), tokens=True)
    picture(1).save(source)
    assert back.task.images[0].open().tobytes() == picture().tobytes()
    assert back.tokens is None
    assert str(tmp_path) not in (tmp_path / "store" / "episodes.jsonl").read_text()
    with pytest.raises(StoreError, match="no longer match its hash"):
        written(tmp_path / "other", second)


def test_threads_share_a_writer_a_later_session_adds_to_it_and_a_closed_one_refuses(tmp_path):
    with EpisodeWriter(tmp_path) as writer, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: writer.append(episode(f"t{n}", seed=n % 3)), range(40)))
    assert writer.count == 40
    assert {item.task.id for item in load(tmp_path, tokens=True)} == {f"t{n}" for n in range(40)}
    with pytest.raises(StoreError, match="closed"):
        writer.append(episode())
    with EpisodeWriter(tmp_path) as writer:
        assert writer.count == 40
        writer.append(episode("b"))
        assert writer.count == 41
    assert [item.task.id for item in load(tmp_path)][-1] == "b"


@each("end", [lambda text: text + text[:100], lambda text: text.rstrip("\n")])
def test_a_torn_last_line_is_passed_over_and_one_that_lacks_its_newline_is_kept_also_by_the_next_writer(tmp_path, end):
    lines = written(tmp_path / "run", episode("a")) / "episodes.jsonl"
    lines.write_text(end(lines.read_text()))
    assert [item.task.id for item in load(tmp_path / "run")] == ["a"]
    written(tmp_path / "run", episode("b"))
    assert [item.task.id for item in load(tmp_path / "run")] == ["a", "b"]


def test_a_torn_line_of_a_killed_writer_costs_no_episode_of_one_that_lives(tmp_path):
    write = os.write
    with EpisodeWriter(tmp_path) as writer:
        writer.append(episode("a"))
        with (tmp_path / "episodes.jsonl").open("ab") as killed:
            killed.write(b'{"task":{"id":"torn"')
        writer.append(episode("b"))
        full = mock.patch("os.write", lambda fd, data: write(fd, data[:9]) if fd == writer._fd else write(fd, data))
        with full, pytest.raises(StoreError, match="only 9 of"):
            writer.append(episode("c"))
        writer.append(episode("d"))
    found = load(tmp_path, errors="skip")
    assert [item.task.id for item in found] == ["a", "b", "d"]
    assert list(found.unreadable) == [2]


@each("held, torn", [(2, 50), (1, 0), (0, 0), (0, 9)])
def test_a_finished_run_that_was_cut_is_named_and_one_in_progress_is_not(tmp_path, held, torn):
    path = written(tmp_path / "episodes", *map(episode, "abc")) / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:held], lines[held][:torn]]))
    assert len([*load(tmp_path)]) == held
    (tmp_path / "summary.json").write_text('{"episodes": 3}')
    found = load(tmp_path, errors="skip")
    assert len([*found]) == held
    assert (found.skipped, list(found.unreadable)) == (3 - held, [held + 1])
    with pytest.raises(StoreError, match=f"line {held + 1}: cut off: summary.json counts 3 episodes, {held} are here"):
        list(load(tmp_path))


def test_drafts_of_a_killed_process_are_cleared_away_and_what_is_no_store_is_named(tmp_path):
    (image, *_) = stored_images(written(tmp_path, episode()))
    drafts = [tmp_path / "images" / "0.tmp", image.with_name("1.tmp")]
    for draft in drafts:
        draft.write_bytes(b"half")
    EpisodeWriter(tmp_path).close()
    assert not any(draft.exists() for draft in drafts)
    assert image.exists()
    with pytest.raises(StoreError, match=f"{tmp_path}/images: .*episodes.jsonl"):  # no episodes
        load(tmp_path / "images")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        EpisodeWriter(tmp_path / "file")
