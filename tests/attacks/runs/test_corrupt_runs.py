"""Runs that are damaged: file and line are named, the rest goes on, and the exit status tells."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from tests.support.forged_runs import REFERENCE, make_line
from viewbox.errors import ImageError, StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

pytestmark = pytest.mark.timeout(120)


def name_image(digest):
    ref = {"hash": digest, "width": 1, "height": 1, "mode": "L"}
    return json.dumps(make_line(9, task={"id": "x", "images": [ref]})).encode()


def make(number):
    ref = ImageRef.of(np.full((8, 8), number, np.uint8))
    tokens = EpisodeTokens((1,), (number,), (1,), (-0.5,), (ref,), 1)
    return Episode(
        Task(f"t{number}", (ref,), reference=REFERENCE), answer=REFERENCE, environment="digits", tokens=tokens
    )


@pytest.fixture
def run(tmp_path):
    with EpisodeWriter(tmp_path / "run" / "episodes") as writer:
        for number in range(5):
            writer.append(make(number))
    return tmp_path / "run"


def insert(run, line, place=2):
    path = run / "episodes" / LINES
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:place], line + b"\n", *lines[place:]]))


JUNK = {
    "binary junk": np.random.default_rng(3).bytes(5000).replace(b"\n", b"x"),
    "zeros": bytes(5000),
    "a PNG": b"\x89PNG\r\x1a",
    "half a line": b'{"task": {"id": "t9", "imag',
    "another schema": b'{"episode": 1, "steps": []}',
    "a list": b"[1, 2]",
    "a number": b"7",
    "text": "schön".encode("latin-1"),
    "UTF-16": '{"task": {"id": "a"}}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"task": {"id": "a"}}',
    "brackets": b"[" * 3_000_000,
    "a path as a hash": name_image("../../../etc/passwd"),
    "a path of two letters": name_image(".."),
}


def test_bad_lines_are_named_and_the_others_are_read(run, viewbox):
    insert(run, b"\n".join(JUNK.values()))
    for tokens in (False, True):
        episodes = load(run, errors="skip", tokens=tokens)
        assert [episode.task.id for episode in episodes] == ["t0", "t1", "t2", "t3", "t4"]
        assert [name for number, name in enumerate(JUNK, 3) if number not in episodes.unreadable] == []
        assert (episodes.skipped, len(episodes)) == (len(JUNK), 5)
    with pytest.raises(StoreError, match=r"run/episodes/episodes\.jsonl, line 3: "):
        list(load(run))
    status, out, _ = viewbox("score", run)
    assert status == 1
    assert f"{len(JUNK)} lines" in out
    assert "line 3: " in out


def test_a_line_of_200_mb_costs_itself_and_no_memory(run, viewbox):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    insert(run, b'{"task": {"id": "' + b"x" * 200_000_000 + b'"}}')
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # making the line took memory
    episodes = load(run, errors="skip")
    assert len(list(episodes)) == 5
    assert "longer than 33,554,432 bytes" in episodes.unreadable[3]
    assert score_run(run).episodes == 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - max(before, grown) < 200_000
    with pytest.raises(StoreError, match="33,554,432 bytes"):
        EpisodeWriter(run / "episodes")


@pytest.mark.parametrize("damage", ["missing", "other pixels", "junk", "a link out", "a pipe", "empty", "a folder"])
def test_a_bad_image_is_named_when_it_is_opened_and_only_then(run, tmp_path, damage):
    episode = load(run)[2]
    path = run / "episodes" / "images" / episode.task.images[0].hash[:2] / f"{episode.task.images[0].hash}.png"
    path.rename(tmp_path / "image.png")
    if damage == "other pixels":
        Image.new("L", (8, 8), 99).save(path)
    elif damage == "junk":
        path.write_bytes(os.urandom(500))
    elif damage == "a link out":
        path.symlink_to(tmp_path / "image.png")
    elif damage == "a pipe":
        os.mkfifo(path)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "a folder":
        path.mkdir()
    assert len(list(load(run))) == 5
    assert score_run(run).episodes == 5
    for number, one in enumerate(load(run)):
        if number == 2:
            with pytest.raises(ImageError, match=episode.task.images[0].hash[:12]):
                one.task.images[0].open()
        else:
            assert one.task.images[0].open().size == (8, 8)


@pytest.mark.parametrize("name", ["images", "tokens", "images/ab", "format.json", "episodes.jsonl"])
def test_nothing_is_read_or_written_through_a_link(run, tmp_path, name):
    folder, outside = run / "episodes", tmp_path / "outside"
    (folder / "images" / "ab").mkdir(exist_ok=True)
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]}
    if name in ("format.json", "episodes.jsonl"):
        with pytest.raises(StoreError, match=rf"{name}: cannot be read"):
            load(run)
    else:
        read = list(load(run, errors="skip", tokens=True))
        assert len(read) == (0 if name == "tokens" else 5)
        if name == "images":
            with pytest.raises(ImageError, match="leads out"):
                read[0].task.images[0].open()
    if name != "images/ab":
        with pytest.raises(StoreError):
            EpisodeWriter(folder)
    assert {path: path.stat().st_mtime_ns for path in [outside, *outside.rglob("*")]} == before
