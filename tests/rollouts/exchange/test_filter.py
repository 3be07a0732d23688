"""`viewbox export --to run` takes the episodes that were asked for, says why not the rest, and changes no old run."""

import pytest
import yaml

from tests.support.saved_episodes import run, written  # noqa: F401
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.records import Episode, Scores, Task
from viewbox.rollouts.exchange.selection import Choice, filter_run
from viewbox.rollouts.store.reader import load


def make_episode(task, total, **changes):
    scores = None if total is None else Scores(total)
    return Episode(Task(task), answer={"label": "a"}, scores=scores, **changes)


BEST, BELOW, BAND = "not among the best 2 of its task", "not reward<1", "its task is outside --reward-between"
LOWER = [("a", 0.5), ("b", 0.0), ("c", 0.25)]


@each(
    "choice, rewards, left_out",
    [
        ({"best": 2, "per_task": True}, [("a", 1.0), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.25)],
         {BEST: 1, "without a score": 1, "broken": 0}),
        ({"best": 3}, [("a", 1.0), ("a", 0.5), ("a", 1.0)], {}),
        # conditions come before the best are chosen, and an episode without a score is not below 1
        ({"where": ["reward<1"], "best": 1, "per_task": True}, LOWER, {BELOW: 3}),
        ({"reward_between": (0.2, 0.8)}, [("c", 0.25)], {BAND: 5}),  # of tasks by their mean
    ],
)  # fmt: skip
def test_the_best_of_each_task_or_of_the_run_and_what_meets_conditions_are_taken_in_their_order(
    tmp_path, choice, rewards, left_out
):
    given = [("a", 1.0), ("a", 0.5), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.25), ("c", None)]
    graded = written(tmp_path / "graded", *(make_episode(*one) for one in given))
    report = filter_run(graded, tmp_path / "out", Choice(**choice))
    assert [(episode.task.id, episode.scores.total) for episode in load(tmp_path / "out")] == rewards
    assert left_out.items() <= report.left_out.items()
    assert len(left_out) < 3 or report.left_out == left_out


def test_a_filtered_run_is_complete(run, tmp_path, viewbox):  # noqa: F811
    status, out, _ = viewbox("export", run, "--to", "run", "--where", "end_reason=answered", "--out", tmp_path / "new")
    before = [episode for episode in load(run, tokens=True) if episode.end_reason == "answered"]
    assert status == 0
    assert f"{len(before)} of {len(load(run))} episodes" in out
    after = list(load(tmp_path / "new", tokens=True))
    old = (run / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    new = (tmp_path / "new" / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    assert new == [line for line in old if b'"end_reason":"answered"' in line.replace(b'": "', b'":"')]
    assert [image.open().size for episode in after for image in episode.turns[0].images]
    assert yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())["env"]["name"] == "digits"
    assert viewbox("score", tmp_path / "new", "--bootstrap", "0")[0] == 0


def test_broken_lines_and_images_cost_themselves(run, tmp_path, viewbox):  # noqa: F811
    lines = run / "episodes" / "episodes.jsonl"
    total = len(load(run))
    lines.write_bytes(b"\xff\x00junk\n" + lines.read_bytes())
    image = load(run, errors="skip")[0].turns[0].images[0]
    users = sum(any(image.hash == i.hash for t in e.turns for i in t.images) for e in load(run, errors="skip"))
    with open(image.uri, "wb") as file:
        file.write(b"not an image")
    status, _, err = viewbox("export", run, "--to", "run", "--out", tmp_path / "new")
    assert status == 1
    assert "line 1:" in err
    assert "line 2:" in err
    assert len(load(tmp_path / "new")) == total - users


def test_bad_options_write_nothing(tmp_path):
    graded = written(tmp_path / "graded", make_episode("a", 1.0))
    for choice in ({"where": ["nonsense=1"]}, {"best": 0}, {"per_task": True}, {"reward_between": (0.8, 0.2)}):
        with pytest.raises(ConfigError):
            filter_run(graded, tmp_path / "out", Choice(**choice))
    with pytest.raises(ConfigError, match="exists"):
        filter_run(graded, graded, Choice())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graded"]
