"""Pipes, links, devices and forged headers in somebody's run: none hangs, fills memory or leads outside."""

import json
import os
import threading
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from tests.support.forged_runs import HOSTILE, REFERENCE, forge_run, make_line, write_text
from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox.errors import ConfigError, ImageError, StoreError, ViewboxError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store import run_folder
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.tokens import TOKEN
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.utils import files

pytestmark = pytest.mark.timeout(300)
ROWS = np.zeros(4, TOKEN).tobytes()
PLACE = {"file": "t.bin", "offset": 0, "rows": 4, "crc": zlib.crc32(ROWS)}
STORED = {**PLACE, "prompt_length": 1, "prompt_images": 0, "images": []}
SECRET = "top secret"


def write_rows(path):
    path.write_bytes(ROWS)


TOKENS = {
    **HOSTILE,
    "nothing": lambda path: None,
    "empty": write_text(""),
    "too few rows": lambda path: path.write_bytes(b"\0" * 13),
    "half a row": lambda path: path.write_bytes(b"\0" * 46),
    "other rows": lambda path: path.write_bytes(b"\1" * 52),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n(S'id'\ntR."),
    "text": write_text("hello"),
}
STORED_BADLY = {
    "a negative length": {"prompt_length": -1},
    "too long a prompt": {"prompt_length": 5},
    "a length of 30 digits": {"prompt_length": 10**30},
    "a length of text": {"prompt_length": "1"},
    "a length that is null": {"prompt_length": None},
    "lengths": {"prompt_length": [1, 2]},
    "a path": {"file": "../../config.yaml"},
    "an absolute path": {"file": "/etc/hostname"},
    "a file that is a number": {"file": 7},
    "a zero byte": {"file": "a\0"},
    "a long name": {"file": "a" * 5000},
    "no name": {"file": ""},
    "images of text": {"images": "x"},
    "an image without a hash": {"images": [{}]},
    "an image elsewhere": {"images": [{"hash": "../../x", "width": 1, "height": 1, "mode": "L"}]},
    "an image of text": {"images": [{"hash": "a", "width": "x", "height": 1, "mode": "L"}]},
    "images that are not there": {"prompt_images": 5},
    "images below 0": {"prompt_images": -1},
}


def forge_tokens(tmp_path, put, **stored):
    run = forge_run(tmp_path / "gift", [make_line(0), make_line(1, stored_tokens={**STORED, **stored}), make_line(2)])
    (run / "episodes" / "tokens").mkdir()
    put(run / "episodes" / "tokens" / "t.bin")
    return run


# ---------------------------------------------------------------------- tokens
@each("put", TOKENS)
def test_a_token_file_costs_its_episode(tmp_path, put):
    episodes = load(forge_tokens(tmp_path, put), tokens=True, errors="skip")
    assert [episode.task.id for episode in episodes] == ["t0", "t2"]
    assert "its tokens cannot be read" in episodes.unreadable[2]


@each("stored", STORED_BADLY)
def test_so_does_what_its_line_says_about_it(tmp_path, stored):
    episodes = load(forge_tokens(tmp_path, write_rows, **stored), tokens=True, errors="skip")
    assert [episode.task.id for episode in episodes] == ["t0", "t2"]


@each("stored", [7, "x", [1], True])
def test_or_tokens_that_are_no_mapping(tmp_path, stored):
    run = forge_run(tmp_path / "gift", [make_line(0, stored_tokens=stored), make_line(1)])
    assert len(list(load(run, tokens=True, errors="skip"))) == 1
    assert score_run(run).episodes == 2


def test_scoring_opens_no_token_file(tmp_path):
    assert score_run(forge_tokens(tmp_path, os.mkfifo)).episodes == 3


# ---------------------------------------------------------------------- the files of the run
def lock(run):
    with run_folder.lock_folder(run):
        pytest.fail("it would be written")


def resume(run, config=None):
    run_folder.start_rollout(run, config or {"env": {"name": "digits"}}, {"tasks": 1})


ASKED = [  # a file of the run, who asks for it, and the words of the refusal if it is none
    ("episodes/episodes.jsonl", load, "episodes"), ("episodes/episodes.jsonl", score_run, "cannot be read"),
    ("episodes/episodes.jsonl", lambda run: EpisodeWriter(run / "episodes"), "episodes"),
    ("config.yaml", score_run, "config.yaml: cannot be read"), ("config.yaml", resume, ""),
    ("rollout.json", resume, ""), ("episodes/scores/theirs.jsonl", lambda run: list(load(run, scores="theirs")), ""),
    ("episodes/scores/theirs.jsonl", lambda run: score_run(run, name="theirs"), ""),
    *((name, lock, name) for name in ("metrics.jsonl", "checkpoints/checkpoint-5/optimizer.pt", "summary.json",
                                      ".lock")),
]  # fmt: skip


@each("name, ask, words", ASKED)
def test_a_file_that_is_no_regular_one_of_the_run_is_refused(tmp_path, name, ask, words):
    for kind, put in HOSTILE.items():
        if ask is lock and kind in ("a folder", "3 TB"):
            continue
        run = forge_run(tmp_path / kind, config="env: {name: digits}")
        (run / "rollout.json").write_text('{"tasks": 1}')
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).unlink(missing_ok=True)
        put(run / name)
        with pytest.raises((ConfigError, StoreError), match=words):
            ask(run)


@each("put", HOSTILE)
def test_a_page_of_it_is_refused_by_the_command_too(tmp_path, viewbox, put):
    (tmp_path / "gift" / "episodes").mkdir(parents=True)
    put(tmp_path / "gift" / "episodes" / "episodes.jsonl")
    status, _, err = viewbox("view", tmp_path / "gift/episodes", "--out", tmp_path / "a.html")
    assert (status, "cannot be read" in err) == (2, True)


@each("name", ["episodes", "episodes/scores", "episodes/scores/own.jsonl", "episodes/images"])
@each("to", ["a folder outside", "a file outside", "nothing"])
def test_nothing_is_written_through_a_link(tmp_path, viewbox, name, to):
    outside = tmp_path / "outside"
    outside.mkdir()
    forge_run(outside / "run")
    (outside / "file").write_text(SECRET)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    target = {"a folder outside": outside / "run" / "episodes", "a file outside": outside / "file"}.get(
        to, outside / "new"
    )
    run = forge_run(tmp_path / "gift")
    if name == "episodes":
        (run / "episodes").rename(run / "old")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(target)
    viewbox("score", run, "--name", "own")
    viewbox("score", run, "--name", "own", "--replace")
    with pytest.raises(ConfigError, match="leads out"):
        lock(run)
    if name == "episodes/images":
        with pytest.raises(StoreError):
            EpisodeWriter(run / "episodes")
    assert before == {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}


COLUMNS = {
    "not JSON": "{",
    "a list": "[1]",
    "a line of text": '{"line": "1", "crc": 1, "total": 1, "components": {}}',
    "a checksum of text": '{"line": 1, "crc": "x", "total": 1, "components": {}}',
    "no total": '{"line": 1, "crc": 1, "components": {}}',
    "a total that is NaN": '{"line": 1, "crc": 1, "total": NaN, "components": {}}',
    "a total that is too large": '{"line": 1, "crc": 1, "total": 1e999, "components": {}}',
    "a total of text": '{"line": 1, "crc": 1, "total": "x", "components": {}}',
    "components that are a list": '{"line": 1, "crc": 1, "total": 1, "components": [1]}',
    "components that are null": '{"line": 1, "crc": 1, "total": 1, "components": null}',
    "10,000 components": json.dumps(
        {"line": 1, "crc": 1, "total": 1, "components": {str(n): 1 for n in range(10_000)}}
    ),
    "nested": '{"line": 1, "crc": 1, "total": 1, "components": ' + "[" * 5000 + "]" * 5000 + "}",
    "another checksum": '{"line": 1, "crc": 1, "total": 1, "components": {}}',
}


@each("line", COLUMNS)
def test_a_line_of_a_column_that_is_none(tmp_path, line):
    run = forge_run(tmp_path / "gift")
    (run / "episodes" / "scores").mkdir()
    (run / "episodes" / "scores" / "theirs.jsonl").write_text(f"{{}}\n{line}\n")
    with pytest.raises(StoreError, match=r"theirs\.jsonl"):
        list(load(run, scores="theirs"))


@each("name", ["../x", "a/b", "", ".x", "a" * 200, "\x1b[2J", "con\0"])
def test_a_name_of_a_column_is_no_path(tmp_path, name):
    run = forge_run(tmp_path / "gift")
    with pytest.raises(ConfigError):
        load(run, scores=name)
    with pytest.raises(ConfigError):
        score_run(run, name=name)


# ---------------------------------------------------------------------- pictures
GRAY = Image.linear_gradient("L").resize((8, 6))


def forge_picture(tmp_path, put=None, **fields):
    ref = {**ImageRef.of(GRAY).to_dict(), "uri": None, **fields}
    turns = [{"role": "user", "content": "look", "images": [ref]}, {"role": "assistant", "content": "a reply"}]
    run = forge_run(tmp_path / "gift", [make_line(0, turns=turns)])
    path = run / "episodes" / "images" / ref["hash"][:2] / f"{ref['hash']}.png"
    path.parent.mkdir(parents=True)
    GRAY.save(path) if put is None else put(path)
    return run


def save_other(path):
    Image.new("L", (8, 6), 7).save(path)


PICTURES = {
    **HOSTILE,
    "other pixels": save_other,
    "another size": lambda path: GRAY.resize((16, 12)).save(path),
    "another mode": lambda path: GRAY.convert("RGB").save(path),
    "nothing": lambda path: None,
    "text": write_text("x"),
}


@each("put", PICTURES)
def test_a_picture_that_is_not_that_of_its_hash(tmp_path, viewbox, put):
    run = forge_picture(tmp_path, put)
    (episode,) = load(run)
    with pytest.raises(ImageError, match=episode.turns[0].images[0].hash[:12]):
        episode.turns[0].images[0].open()
    status, out, err = viewbox("view", run, "--out", tmp_path / "a.html")
    assert (status, err) == (1, "")
    assert "warning: 1 of 1 pictures are missing or damaged" in out
    assert score_run(run).episodes == 1


@each("fields", [{"width": 9}, {"height": 10**9}, {"mode": "RGB"}, {"uri": "/etc/hostname"}, {"hash": "a" * 64}])
def test_nor_what_its_line_says_about_it(tmp_path, fields):
    run = forge_picture(tmp_path, **fields)
    (episode,) = load(run)
    ref = episode.turns[0].images[0]
    assert str(run) in ref.uri
    if "uri" in fields:
        assert ref.open().size == (8, 6)
    else:
        with pytest.raises(ImageError):
            ref.open()


def test_a_folder_of_pictures_that_is_a_link_is_not_followed(tmp_path):
    run = forge_picture(tmp_path)
    (run / "episodes" / "images").rename(tmp_path / "elsewhere")
    (run / "episodes" / "images").symlink_to(tmp_path / "elsewhere")
    (episode,) = load(run)
    with pytest.raises(ImageError, match="leads out"):
        episode.turns[0].images[0].open()


USER, REPLY, RESULT = (
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": "said"},
    {"role": "tool_result", "tool_results": [{"tool_name": "zoom", "error": "no"}]},
)
TURNS = {
    "none": [],
    "a reply first": [REPLY, USER],
    "only replies": [REPLY] * 5,
    "only results": [RESULT] * 3,
    "a result first": [RESULT, REPLY],
    "a user last": [USER, REPLY, USER, USER],
    "an empty reply": [USER, {"role": "assistant"}],
    "spaces": [USER, {"role": "assistant", "content": "   \n\t "}],
    "10,000 turns": [USER, REPLY] * 5000,
    "a long reply": [USER, {"role": "assistant", "content": "x " * 500_000}],
    "a long word": [USER, {"role": "assistant", "content": "x" * 1_000_000}],
    "escapes": [USER, {"role": "assistant", "content": "\x1b]52;c;x\x07\u202e\ud800\0"}],
    "a long title": [USER, {"role": "user", "content": "y" * 100_000}],
    "many results": [{"role": "tool_result", "tool_results": [{"tool_name": "t" * 100, "error": "e" * 1000}] * 200}],
    "odd calls": [USER, {"role": "assistant", "tool_calls": [{"id": "", "name": "", "arguments": "{" * 1000}] * 100}],
}


@each("turns", TURNS)
def test_any_order_of_turns_can_be_drawn(tmp_path, viewbox, turns):
    run = forge_run(tmp_path / "gift", [make_line(0, turns=turns)])
    status, _, err = viewbox("view", run, "--out", tmp_path / "a.html")
    assert (status, err) == (0, "")
    assert "cannot be shown" not in (tmp_path / "a.html").read_text()


@each(
    "fields",
    [
        {"answer": {"boxes": [[0, 0, 0.5, 0.5]] * 50_000}},
        {"answer": {"label": "x" * 1_000_000}},
        {"task": {"id": "i" * 100_000, "prompt": {"question": ["a"] * 1000}, "reference": REFERENCE}},
        {"task": {"id": "\ud800", "reference": {"a": "\ud800"}}},
        {"scores": {"total": 1, "components": {"\x1b[2J" + "n" * 1000: 0.5}}},
        {"answer": None, "scores": None},
        {"answer": {"bbox": [1e308, -1e308, 1e308, 1e308]}},
    ],
)
def test_any_answer_can_be_drawn(tmp_path, viewbox, fields):
    run = forge_run(tmp_path / "gift", [make_line(0, **{"turns": [USER, REPLY], **fields})])
    assert viewbox("view", run, "--out", tmp_path / "a.html")[0] == 0


# ---------------------------------------------------------------------- resuming in somebody's folder
@each("text", ["{", "[]", "7", "null", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\0"])
def test_a_rollout_is_not_resumed_from_settings_that_are_none(tmp_path, text):
    (tmp_path / "config.yaml").write_text("env: {name: digits}")
    (tmp_path / "rollout.json").write_text(text)
    with pytest.raises(ConfigError):
        resume(tmp_path)
    (tmp_path / "rollout.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(text.replace("\0", "a: \0"))
    with pytest.raises(ConfigError):
        resume(tmp_path)


@each("name", ["config.yaml", "versions.json", ".lock", "episodes/retried.jsonl", "crash.log"])
def test_no_file_of_a_rollout_is_written_through_a_link(tmp_path, name):
    (tmp_path / "mine").write_text(SECRET)
    folder = forge_run(tmp_path / "gift", [make_line(0, end_reason="error")])
    (folder / name).symlink_to(tmp_path / "mine")
    for write in (
        lambda: run_folder.write_config(folder, {"a": 1}),
        lambda: run_folder.move_failed_episodes(folder),
        lambda: run_folder.lock_folder(folder).__enter__(),
    ):
        with suppress(OSError, ViewboxError):
            write()
    assert (tmp_path / "mine").read_text() == SECRET


WRITTEN = {
    "config.yaml": lambda run: run_folder.write_config(run, {"a": 1}),
    "versions.json": lambda run: run_folder.write_config(run, {"a": 1}),
    ".lock": lambda run: files.lock_file(run / ".lock").__enter__(),
    "metrics.jsonl": lambda run: run_folder.lock_folder(run).__enter__(),
    "checkpoints/trainer_state.json": lambda run: run_folder.lock_folder(run).__enter__(),
    "episodes/episodes.jsonl": lambda run: EpisodeWriter(run / "episodes"),
    "episodes/retried.jsonl": lambda run: run_folder.move_failed_episodes(run),
    "episodes/scores/own.jsonl": lambda run: score_run(run, name="own", replace=True),
}


@each("name", [*WRITTEN])
def test_nothing_is_written_to_a_file_that_has_another_name(tmp_path, name):
    mine = tmp_path / "mine"
    run = forge_run(tmp_path / "gift", [make_line(0, end_reason="error")])
    mine.write_bytes((run / "episodes" / "episodes.jsonl").read_bytes())
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.link(mine, run / name)
    before = mine.read_bytes()
    with pytest.raises((OSError, ViewboxError), match=r"several names \(hard links\)"):
        WRITTEN[name](run)
    assert mine.read_bytes() == before


def test_a_link_to_a_file_that_has_another_name_is_refused(tmp_path):
    (tmp_path / "mine").write_text(SECRET)
    run = forge_run(tmp_path / "gift")
    (run / "episodes" / "images").mkdir()
    os.link(tmp_path / "mine", run / "episodes" / "images" / "x")  # pictures are not looked at
    (run / "metrics.jsonl").symlink_to("episodes/images/x")
    with pytest.raises(ConfigError, match="several names"):
        lock(run)


def test_links_inside_a_run_are_fine(tmp_path):
    run = forge_run(tmp_path / "gift")
    (run / "best").symlink_to("episodes")
    with run_folder.lock_folder(run):
        assert (run / ".lock").exists()


def make_with_tokens(number):
    ref = ImageRef.of(np.full((8, 8), number, np.uint8))
    tokens = EpisodeTokens((1,), (number,), (1,), (-0.5,), (ref,), 1)
    return Episode(
        Task(f"t{number}", (ref,), reference=REFERENCE), answer=REFERENCE, environment="digits", tokens=tokens
    )


@pytest.mark.parametrize("name", ["images", "tokens", "images/ab", "format.json", "episodes.jsonl"])
def test_what_a_run_wrote_is_not_read_or_written_through_a_link(tmp_path, name):
    folder, outside = written(tmp_path / "run/episodes", *map(make_with_tokens, range(5))), tmp_path / "outside"
    (folder / "images" / "ab").mkdir(exist_ok=True)
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]}
    if name in ("format.json", "episodes.jsonl"):
        with pytest.raises(StoreError, match=rf"{name}: cannot be read"):
            load(tmp_path / "run")
    else:
        read = list(load(tmp_path / "run", errors="skip", tokens=True))
        assert len(read) == (0 if name == "tokens" else 5)
        if name == "images":
            with pytest.raises(ImageError, match="leads out"):
                read[0].task.images[0].open()
    if name != "images/ab":
        with pytest.raises(StoreError):
            EpisodeWriter(folder)
    assert {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]} == before


# ---------------------------------------------------------------------- the one reader
def test_a_regular_file_is_read_and_anything_else_is_not(tmp_path):
    (tmp_path / "a").write_text("text")
    assert files.read_regular(tmp_path / "a", limit=4, inside=tmp_path) == b"text"
    (tmp_path / "link").symlink_to("a")
    assert files.read_regular(tmp_path / "link", limit=4, inside=tmp_path) == b"text"
    for put in HOSTILE.values():
        put(tmp_path / "b")
        with pytest.raises(OSError, match=r".") as caught:
            files.read_regular(tmp_path / "b", limit=100, inside=tmp_path)
        assert caught.value.strerror
        (tmp_path / "b").rmdir() if (tmp_path / "b").is_dir() and not (tmp_path / "b").is_symlink() else (
            tmp_path / "b"
        ).unlink()


def test_a_file_that_its_size_does_not_tell_is_cut_off():
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.read_regular("/proc/self/status", limit=10)


def test_a_pipe_with_a_writer_does_not_help(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_text("x"), daemon=True).start()
    with pytest.raises(OSError, match="not a regular file"):
        files.read_regular(tmp_path / "pipe", limit=10)
    (tmp_path / "pipe").open().read()
