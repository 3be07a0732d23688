"""Runs that are damaged: file and line are named, the rest goes on, and the exit status tells."""

import numpy as np
import pytest

from tests.support.forged_runs import REFERENCE
from viewbox.errors import ImageError, StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

pytestmark = pytest.mark.timeout(120)


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
