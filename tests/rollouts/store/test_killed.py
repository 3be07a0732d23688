"""kill -9 in the middle of appends, an export and scoring: what was completed is whole, and nothing else is there."""

import json
import os
import signal
import time

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.saved_episodes import made, written
from viewbox import Episode, EpisodeTokens, EpisodeWriter, ExactMatchReward, ImageRef, StoreError, Task, Turn, load
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.selection import Choice, filter_run
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES

pytestmark = pytest.mark.timeout(120)


def make(kill, number):
    """An episode whose image, tokens and text all follow from its name."""
    ref = ImageRef.of(np.full((32, 32), (kill * 7 + number) % 256, np.uint8))
    ids = tuple(range(kill * 1000 + number, kill * 1000 + number + 300))
    tokens = EpisodeTokens(ids[:100], ids[100:], (1,) * 200, (-0.25,) * 200, (ref,), 1)
    return Episode(Task(f"{kill}-{number}", (ref,)), (Turn("assistant", "x" * 20_000),), tokens=tokens)


def kill_children(work, delays, count=1):
    """Run `work(number of the kill, number of the child, report)` in forked processes, and kill them after a delay.

    Returns what they had reported, by the number of the kill.
    """
    found = []
    for kill, delay in enumerate(delays):
        reading, writing = os.pipe()
        children = []
        for child in range(count):
            process = os.fork()
            if process == 0:
                try:
                    os.close(reading)
                    work(kill, child, lambda text, pipe=writing: os.write(pipe, f"{text}\n".encode()))
                finally:
                    os._exit(1)
            children.append(process)
        os.close(writing)
        with os.fdopen(reading) as file:
            first = file.readline()  # it has begun
            time.sleep(delay)
            for process in children:
                os.kill(process, signal.SIGKILL)
            statuses = [os.waitpid(process, 0)[1] for process in children]
            found.append([first.strip(), *file.read().splitlines()])
        assert all(os.WTERMSIG(status) == signal.SIGKILL for status in statuses)
    return found


def assert_whole(path):
    """Every episode is the one that its name says, bit for bit; returns their names."""
    names = []
    for episode in load(path, tokens=True):
        wanted = make(*map(int, episode.task.id.split("-")))
        assert replace(episode.tokens, images=()) == replace(wanted.tokens, images=())
        assert episode.task.images[0].open().tobytes() == wanted.task.images[0].open().tobytes()
        assert episode.turns == wanted.turns
        names.append(episode.task.id)
    assert len(set(names)) == len(names)
    return names


@pytest.mark.parametrize(("writers", "kills"), [(1, 2), (4, 2), pytest.param(1, 20, marks=pytest.mark.nightly)])
def test_what_was_appended_before_a_kill_is_read_back(tmp_path, writers, kills):
    def append(kill, child, report):
        with EpisodeWriter(tmp_path) as writer:
            for number in range(child * 10_000, child * 10_000 + 10_000):
                writer.append(make(kill, number))
                report(f"{kill}-{number}")

    delays = np.random.default_rng(0).uniform(0, 0.02, kills)
    reported = [name for some in kill_children(append, delays, writers) for name in some if name]
    names = assert_whole(tmp_path)
    assert set(reported) <= set(names)
    assert len(names) - len(set(reported)) <= writers * len(delays)  # stored, and killed before it was reported
    with EpisodeWriter(tmp_path) as writer:
        assert writer.count == len(names)
        writer.append(make(999, 1))
    assert assert_whole(tmp_path)[-1] == "999-1"
    assert not list(tmp_path.rglob("*.tmp"))
    assert (tmp_path / LINES).read_bytes().endswith(b"\n")


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_what_a_killed_export_leaves_is_whole_and_the_next_one_works(tmp_path, kills):
    run = written(tmp_path / "run", *map(made, range(30)))

    def export(kill, child, report):
        out = tmp_path / f"out-{kill}"
        out.mkdir()
        for number in range(10_000):
            export_run(run, "openai", out / f"{number}.jsonl")
            export_run(run, "inspect", out / f"{number}.json")
            filter_run(run, out / f"{number}-filtered", Choice())
            import_file(out / f"{number}.jsonl", "openai", out / f"{number}-imported")
            report(number)

    kill_children(export, np.random.default_rng(0).uniform(0, 0.25, kills))
    for path in tmp_path.glob("out-*/*"):
        if path.name.startswith("."):
            assert path.name.endswith(".tmp")
            continue
        text = path.read_text() if path.is_file() else ""
        rows = json.loads(text)["samples"] if path.suffix == ".json" else list(map(json.loads, text.splitlines()))
        assert len(rows or list(load(path))) == 30
    assert export_run(run, "openai", tmp_path / "out-0" / "again.jsonl").kept == 30


def test_killed_scoring_leaves_no_half_column(store):
    def score(kill, child, report):
        def slow(answer, reference):
            report("scoring")
            time.sleep(0.05)
            return 1.0

        score_run(store, reward=slow, name="slow")

    kill_children(score, [0.15])
    with pytest.raises(StoreError, match="unknown scores 'slow'; allowed: none"):
        load(store, scores="slow")
    assert score_run(store, reward=ExactMatchReward(), name="slow").episodes == 40
