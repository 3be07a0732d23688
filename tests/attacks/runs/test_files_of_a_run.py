"""Pipes, links, devices and forged headers in somebody's run: none hangs, fills memory or leads outside."""

import json
import os
import threading
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from tests.support.forged_runs import HOSTILE, REFERENCE, forge_run, make_line
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


def write(content):
    return lambda path: path.write_bytes(content)


TOKENS = [
    *HOSTILE.values(), lambda path: None,
    *map(write, (b"", b"\0" * 46, b"\1" * 52, b"\x80\x04cos\nsystem\n(S'id'\ntR.")),
]  # fmt: skip
IMAGE = {"hash": "a", "width": 1, "height": 1, "mode": "L"}
STORED_BADLY = {
    "prompt_length": [-1, 5, 10**30, "1", [1, 2]], "prompt_images": [5, -1],
    "file": ["../../config.yaml", "/etc/hostname", 7, "a\0", "a" * 5000, ""],
    "images": ["x", [{}], [{**IMAGE, "hash": "../../x"}], [{**IMAGE, "width": "x"}]],
}  # fmt: skip


def forge_tokens(tmp_path, put, **stored):
    run = forge_run(tmp_path / "gift", [make_line(0), make_line(1, stored_tokens={**STORED, **stored}), make_line(2)])
    (run / "episodes" / "tokens").mkdir()
    put(run / "episodes" / "tokens" / "t.bin")
    return run


# ---------------------------------------------------------------------- tokens
@each("put, stored", [
    *((put, {}) for put in TOKENS),
    *((None, {name: value}) for name, values in STORED_BADLY.items() for value in values),
])  # fmt: skip
def test_a_token_file_costs_its_episode_and_so_does_what_its_line_says_about_it(tmp_path, put, stored):
    episodes = load(forge_tokens(tmp_path, put or write(ROWS), **stored), tokens=True, errors="skip")
    assert [episode.task.id for episode in episodes] == ["t0", "t2"]
    assert stored or "its tokens cannot be read" in episodes.unreadable[2]


@each("stored", [7, "x", [1], True])
def test_or_tokens_that_are_no_mapping_and_scoring_opens_no_token_file(tmp_path, stored):
    run = forge_run(tmp_path / "run", [make_line(0, stored_tokens=stored), make_line(1)])
    assert len(list(load(run, tokens=True, errors="skip"))) == 1
    assert score_run(run).episodes == 2
    assert score_run(forge_tokens(tmp_path, os.mkfifo)).episodes == 3


# ---------------------------------------------------------------------- the files of the run
def lock(run):
    with run_folder.lock_folder(run):
        pytest.fail("it would be written")


def resume(run, config=None):
    run_folder.start_rollout(run, config or {"env": {"name": "digits"}}, {"tasks": 1})


@each("name, ask, words", [  # a file of the run, who asks for it, and the words of the refusal if it is none
    ("episodes/episodes.jsonl", load, "episodes"), ("episodes/episodes.jsonl", score_run, "cannot be read"),
    ("episodes/episodes.jsonl", lambda run: EpisodeWriter(run / "episodes"), "episodes"),
    ("config.yaml", score_run, "config.yaml: cannot be read"), ("config.yaml", resume, ""),
    ("rollout.json", resume, ""), ("episodes/scores/theirs.jsonl", lambda run: list(load(run, scores="theirs")), ""),
    ("episodes/scores/theirs.jsonl", lambda run: score_run(run, name="theirs"), ""), ("metrics.jsonl", lock, "metrics"),
    ("checkpoints/checkpoint-5/optimizer.pt", lock, "optimizer"), ("summary.json", lock, "summary"),
    (".lock", lock, "lock"),
])  # fmt: skip
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


@each("name", ["episodes", "episodes/scores", "episodes/scores/own.jsonl", "episodes/images"])
@each("to", ["run/episodes", "file", "new"])
def test_nothing_is_written_through_a_link(tmp_path, viewbox, name, to):
    outside = tmp_path / "outside"
    forge_run(outside / "run")
    (outside / "file").write_text(SECRET)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    run = forge_run(tmp_path / "gift")
    if name == "episodes":
        (run / "episodes").rename(run / "old")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside / to)
    viewbox("score", run, "--name", "own")
    viewbox("score", run, "--name", "own", "--replace")
    with pytest.raises(ConfigError, match="leads out"):
        lock(run)
    if name == "episodes/images":
        with pytest.raises(StoreError):
            EpisodeWriter(run / "episodes")
    assert before == {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}


COLUMN = {"line": 1, "crc": 1, "total": 1, "components": {}}


@each("line", [
    "{", "[1]", json.dumps(COLUMN), '{"line": 1, "crc": 1, "components": {}}',
    *(json.dumps(COLUMN | wrong) for wrong in (
        {"line": "1"}, {"crc": "x"}, {"total": float("nan")}, {"total": "x"}, {"components": [1]}, {"components": None},
        {"components": {str(number): 1 for number in range(10_000)}})),
    '{"line": 1, "crc": 1, "total": 1e999, "components": {}}',
    '{"line": 1, "crc": 1, "total": 1, "components": ' + "[" * 5000 + "]" * 5000 + "}",
])  # fmt: skip
def test_a_line_of_a_column_that_is_none(tmp_path, line):
    run = forge_run(tmp_path / "gift")
    (run / "episodes" / "scores").mkdir()
    (run / "episodes" / "scores" / "theirs.jsonl").write_text(f"{{}}\n{line}\n")
    with pytest.raises(StoreError, match=r"theirs\.jsonl"):
        list(load(run, scores="theirs"))


@each("name", ["../x", "a/b", "", ".x", "a" * 200, "\x1b[2J", "con\0"])
def test_a_name_of_a_column_is_no_path(tmp_path, name):
    run = forge_run(tmp_path / "gift")
    for ask in (lambda: load(run, scores=name), lambda: score_run(run, name=name)):
        with pytest.raises(ConfigError):
            ask()


# ---------------------------------------------------------------------- pictures
GRAY = Image.linear_gradient("L").resize((8, 6))


def forge_picture(tmp_path, put=None, **fields):
    ref = {**ImageRef.of(GRAY).to_dict(), "uri": None, **fields}
    turns = [{**say("look", "user"), "images": [ref]}, say("a reply")]
    run = forge_run(tmp_path / "gift", [make_line(0, turns=turns)])
    path = run / "episodes" / "images" / ref["hash"][:2] / f"{ref['hash']}.png"
    path.parent.mkdir(parents=True)
    GRAY.save(path) if put is None else put(path)
    return run


@each("put", [
    *HOSTILE.values(), Image.new("L", (8, 6), 7).save, GRAY.resize((16, 12)).save, GRAY.convert("RGB").save,
    lambda path: None, write(b"x"),
])  # fmt: skip
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


def say(content, role="assistant"):
    return {"role": role, "content": content}


USER, REPLY = say("look", "user"), say("said")
RESULT = {"role": "tool_result", "tool_results": [{"tool_name": "zoom", "error": "no"}]}


@each("fields", [
    *({"turns": turns} for turns in (
        [], [REPLY, USER], [REPLY] * 5, [RESULT, REPLY], [USER, REPLY, USER, USER], [USER, REPLY] * 5000,
        *([USER, say(text)] for text in ("   \n\t ", "x" * 1_000_000, "\x1b]52;c;x\x07\u202e\ud800\0")),
        [USER, {"role": "assistant"}], [USER, say("y" * 100_000, "user")],
        [{"role": "tool_result", "tool_results": [{"tool_name": "t" * 100, "error": "e" * 1000}] * 200}],
        [USER, {"role": "assistant", "tool_calls": [{"id": "", "name": "", "arguments": "{" * 1000}] * 100}])),
    *({"turns": [USER, REPLY], **fields} for fields in (
        {"answer": {"boxes": [[0, 0, 0.5, 0.5]] * 50_000}}, {"answer": {"label": "x" * 1_000_000}},
        {"task": {"id": "i" * 100_000, "prompt": {"question": ["a"] * 1000}, "reference": REFERENCE}},
        {"task": {"id": "\ud800", "reference": {"a": "\ud800"}}}, {"answer": None, "scores": None},
        {"scores": {"total": 1, "components": {"\x1b[2J" + "n" * 1000: 0.5}}},
        {"answer": {"bbox": [1e308, -1e308, 1e308, 1e308]}})),
])  # fmt: skip
def test_any_order_of_turns_and_any_answer_can_be_drawn(tmp_path, viewbox, fields):
    run = forge_run(tmp_path / "gift", [make_line(0, **fields)])
    status, _, err = viewbox("view", run, "--out", tmp_path / "a.html")
    assert (status, err) == (0, "")
    assert "cannot be shown" not in (tmp_path / "a.html").read_text()


# ---------------------------------------------------------------------- resuming in somebody's folder
@each("text", ["{", "[]", "null", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\0"])
def test_a_rollout_is_not_resumed_from_settings_that_are_none(tmp_path, text):
    (tmp_path / "config.yaml").write_text("env: {name: digits}")
    (tmp_path / "rollout.json").write_text(text)
    with pytest.raises(ConfigError):
        resume(tmp_path)
    (tmp_path / "rollout.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(text.replace("\0", "a: \0"))
    with pytest.raises(ConfigError):
        resume(tmp_path)


def configure(run):
    run_folder.write_config(run, {"a": 1})


def enter(run):
    run_folder.lock_folder(run).__enter__()


@each("name", ["config.yaml", "versions.json", ".lock", "episodes/retried.jsonl", "crash.log"])
def test_no_file_of_a_rollout_is_written_through_a_link(tmp_path, name):
    (tmp_path / "mine").write_text(SECRET)
    folder = forge_run(tmp_path / "gift", [make_line(0, end_reason="error")])
    (folder / name).symlink_to(tmp_path / "mine")
    for act in (configure, run_folder.move_failed_episodes, enter):
        with suppress(OSError, ViewboxError):
            act(folder)
    assert (tmp_path / "mine").read_text() == SECRET


@each("name, act", [
    ("config.yaml", configure), ("versions.json", configure), ("metrics.jsonl", enter),
    ("checkpoints/trainer_state.json", enter), (".lock", lambda run: files.lock_file(run / ".lock").__enter__()),
    ("episodes/episodes.jsonl", lambda run: EpisodeWriter(run / "episodes")),
    ("episodes/retried.jsonl", run_folder.move_failed_episodes),
    ("episodes/scores/own.jsonl", lambda run: score_run(run, name="own", replace=True)),
])  # fmt: skip
def test_nothing_is_written_to_a_file_that_has_another_name(tmp_path, name, act):
    mine = tmp_path / "mine"
    run = forge_run(tmp_path / "gift", [make_line(0, end_reason="error")])
    mine.write_bytes((run / "episodes" / "episodes.jsonl").read_bytes())
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).unlink(missing_ok=True)
    os.link(mine, run / name)
    before = mine.read_bytes()
    with pytest.raises((OSError, ViewboxError), match=r"several names \(hard links\)"):
        act(run)
    assert mine.read_bytes() == before


def test_a_link_to_a_file_that_has_another_name_is_refused_and_one_inside_a_run_is_fine(tmp_path):
    (tmp_path / "mine").write_text(SECRET)
    run = forge_run(tmp_path / "gift")
    (run / "episodes" / "images").mkdir()
    (run / "best").symlink_to("episodes")
    with run_folder.lock_folder(run):
        assert (run / ".lock").exists()
    os.link(tmp_path / "mine", run / "episodes" / "images" / "x")  # pictures are not looked at
    (run / "metrics.jsonl").symlink_to("episodes/images/x")
    with pytest.raises(ConfigError, match="several names"):
        lock(run)


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
@each("put", HOSTILE)
def test_a_regular_file_is_read_and_anything_else_is_not(tmp_path, put):
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "link"):
        assert files.read_regular(tmp_path / name, limit=4, inside=tmp_path) == b"text"
    put(tmp_path / "b")
    with pytest.raises(OSError, match=r".") as caught:
        files.read_regular(tmp_path / "b", limit=100, inside=tmp_path)
    assert caught.value.strerror


def test_a_file_that_its_size_does_not_tell_is_cut_off_and_a_pipe_with_a_writer_does_not_help(tmp_path):
    with pytest.raises(OSError, match="more than 10 bytes"):
        files.read_regular("/proc/self/status", limit=10)
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_text("x"), daemon=True).start()
    with pytest.raises(OSError, match="not a regular file"):
        files.read_regular(tmp_path / "pipe", limit=10)
    (tmp_path / "pipe").open().read()
