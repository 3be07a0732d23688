"""Offline scoring: the numbers of play come back, new ones stand beside them, and nothing that is stored changes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import viewbox
from viewbox.cli import app as cli
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError, StoreError
from viewbox.records import Episode, EpisodeTokens, RunConfig, Scores, Task, Turn
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward
from viewbox.rollouts.scoring.bootstrap import TaskSamples
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

SETTINGS = {"max_turns": 6, "canvas": 160}
SPEC = {
    "type": "combined",
    "components": {
        "label": {"type": "exact_match", "field": "label", "weight": 0.2},
        "box": {"type": "iou", "field": "bbox", "weight": 0.8},
    },
}


def play(env, number, *replies):
    said = iter(replies)
    return env.play(env.tasks[number], lambda messages: next(said), seed=number)


def plays(env):
    """Right, wrong, after a look, malformed and mended, malformed to the end, looks only, a box that is none."""
    found = []
    for n in range(3):
        task = env.tasks[n]
        right, wrong, look = (
            viewer.write_answer(env, task),
            viewer.write_answer(env, task, "two"),
            viewer.write_gold_look(env, task),
        )
        found += [
            play(env, n, right),
            play(env, n, wrong),
            play(env, n, look, right),
            play(env, n, "Hmm.", '{"label": "eleven"}', right),
            play(env, n, *["not JSON"] * 5),
            play(env, n, *[look] * 6),
            play(env, n, '{"label": "one", "bbox": [9, 9, 3, 3]}', wrong),
        ]
    return found


def written(folder, *episodes):
    with EpisodeWriter(folder) as writer:
        for episode in episodes:
            writer.append(episode)
    return folder


def scored(folder, **options):
    return [episode.scores for episode in load(folder, **options)]


@pytest.fixture
def run(tmp_path):
    """A run folder as training leaves it, with real episodes."""
    (tmp_path / "run").mkdir()
    config = {"env": {"name": "digits", "eval": {"split": "test"}, **SETTINGS}, "reward": SPEC}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    env = Digits(reward=CombinedReward({"label": (ExactMatchReward(), 0.2), "box": (IoUReward(), 0.8)}), **SETTINGS)
    written(tmp_path / "run" / "episodes", *plays(env))
    return tmp_path / "run"


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `viewbox score` in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["viewbox", "score", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return call


def made(number, **changes):
    """An episode without pictures, whose stored total says its number is even."""
    even = float(number % 2 == 0)
    plain = Episode(
        Task(f"t{number // 4}", reference={"label": "a"}, metadata={"number": number}),
        (Turn("assistant", "{}"),),
        {"label": "ab"[number % 2]},
        scores=Scores(even, {"label": even}),
        environment="digits",
    )
    return replace(plain, **changes)


@pytest.fixture
def store(tmp_path):
    """Forty small episodes of ten tasks."""
    return written(tmp_path / "store", *map(made, range(40)))


# ---- the environment's own reward


def test_the_plays_of_these_tests_end_in_every_way(run):
    found = list(load(run))
    assert {episode.end_reason for episode in found} == {"answered", "malformed", "max_turns"}
    assert {episode.num_turns for episode in found} == {1, 2, 3, 5, 6}
    assert any(episode.tools_used() for episode in found)
    assert len({episode.scores.total for episode in found}) > 4


@pytest.mark.parametrize("source", ["run", "episodes", "no reward in the config", "no config"])
def test_the_own_reward_gives_the_stored_scores_exactly(run, source):
    if source == "no reward in the config":
        config = {"env": {"name": "digits", "eval": {"split": "test"}, **SETTINGS}}
        (run / "config.yaml").write_text(yaml.safe_dump(config))
    if source == "no config":
        (run / "config.yaml").unlink()
    if source.startswith("no "):
        shutil.rmtree(run / "episodes")
        written(run / "episodes", *plays(Digits(**SETTINGS)))
    path = run / "episodes" if source == "episodes" else run
    report = score_run(path)
    assert scored(run, scores="own") == scored(run)
    assert report.total.change.mean == report.total.change.low == report.total.change.high == 0.0
    assert report.total.new == report.total.stored
    assert (report.episodes, report.tasks) == (21, 3)


def test_an_environment_of_ones_own_is_found_by_the_settings_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_dots.py").write_text(
        "import viewbox\n"
        "class Dots(viewbox.BaseMultiTurnEnv):\n"
        "    name = 'dots'\n    strict: bool = False\n"
        "    def default_reward(self):\n"
        "        return viewbox.ExactMatchReward(tolerance=None if self.strict else 5)\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("env: {name: 'own_dots:Dots', strict: true, eval: {strict: false}}")
    episode = Episode(Task("t", reference={"label": 3}), answer={"label": 4}, environment="dots")
    written(tmp_path / "run" / "episodes", episode)
    assert score_run("run").total.new.mean == 0.0
    (tmp_path / "run" / "config.yaml").write_text("env: {name: 'own_dots:Dots'}")
    assert score_run("run", replace=True).total.new.mean == 1.0
    (tmp_path / "run" / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"task 't': unknown environment 'dots'.*give the reward with --reward"):
        score_run("run", replace=True)


# ---- a reward that is given


@pytest.mark.parametrize("content", [SPEC, {"model": {}, "reward": SPEC, "env": {"name": "digits"}}])
def test_a_reward_file_holds_the_reward_or_a_whole_config(run, tmp_path, content):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    report = score_run(run, reward=str(tmp_path / "mine.yaml"))
    assert (report.name, report.reward) == ("mine", SPEC)
    assert scored(run, scores="mine") == scored(run)


def test_a_python_reward_is_given_by_path_or_as_an_object(store, tmp_path):
    (tmp_path / "mine.py").write_text("def always(answer, reference):\n    return 0.5\n")
    assert score_run(store, reward=f"{tmp_path}/mine.py:always").name == "always"
    assert score_run(store, reward=IoUReward("label")).name == "iou"
    assert score_run(store, reward=lambda answer, reference: 0.25, name="fourth").total.new.mean == 0.25
    assert [one.total for one in scored(store, scores="always")] == [0.5] * 40


def test_a_reward_of_the_episode_sees_all_of_it_but_its_tokens(tmp_path):
    tokens = EpisodeTokens((1,), (2,), (1,), (-0.5,))
    folder = written(tmp_path, made(0, tokens=tokens, flags={"salvaged"}))
    (tmp_path / "mine.py").write_text(
        "def mine(episode):\n"
        "    return float('salvaged' in episode.flags and episode.num_turns == 1 and episode.tokens is None)\n"
    )
    assert score_run(folder, reward=f"{tmp_path}/mine.py:mine").total.new.mean == 1.0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("type: exact_match\ntype: iou\n", r"mine\.yaml, line 2: .*given twice"),
        ("type: iou\n\tfield: x\n", r"mine\.yaml, line 2: .*tab"),
        ("type: [iou\n", r"mine\.yaml, line 2"),
        ("type: iuo\n", "unknown reward 'iuo'.*did you mean 'iou'"),
        ("- 1\n", r"mine\.yaml: does not hold a reward"),
        ("env: {name: digits}\n", r"mine\.yaml: has no section `reward`"),
    ],
)
def test_a_reward_file_that_is_wrong_is_named_with_its_line(store, tmp_path, content, words):
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(ConfigError, match=words):
        score_run(store, reward=str(tmp_path / "mine.yaml"))
    assert not (store / "scores").exists()


@pytest.mark.parametrize("given", ["iou", "nowhere.yaml", "nowhere:f"])
def test_a_reward_that_is_not_there_is_refused_before_anything_is_written(store, given):
    with pytest.raises(ConfigError, match=r"nowhere|allowed: a file"):
        score_run(store, reward=given)
    assert not (store / "scores").exists()


def test_a_reward_that_fails_counts_nothing_and_is_counted_with_the_first_one(store, tmp_path, command):
    (tmp_path / "mine.py").write_text(
        "def mine(answer, reference):\n    return {'a': 1.0, 'b': float('nan')}[answer['label']]\n"
        "def worse(answer, reference):\n    return 1 / (answer['label'] == 'a')\n"
    )
    report = score_run(store, reward=f"{tmp_path}/mine.py:mine")
    assert (report.failures, report.total.new.mean) == (20, 0.5)
    assert (report.first_failure.line, report.first_failure.task) == (2, "t0")
    assert "returned nan" in report.first_failure.error
    status, out, _ = command(store, "--reward", f"{tmp_path}/mine.py:worse")
    assert status == 0
    assert "the reward failed on 20 episodes, which count as 0; the first: line 2, task 't0'" in out
    assert "ZeroDivisionError" in out


# ---- columns


def test_stored_scores_are_never_touched(store):
    before = (store / "episodes.jsonl").read_bytes()
    score_run(store, reward=IoUReward("label"))
    assert (store / "episodes.jsonl").read_bytes() == before
    assert scored(store) == [made(n).scores for n in range(40)]


def test_a_column_has_a_line_an_episode_and_says_where_it_comes_from(store):
    report = score_run(store, reward="viewbox.rewards:ExactMatchReward", where=["answer.label=b"], name="strict-1.0")
    assert Path(report.column) == store / "scores" / "strict-1.0.jsonl"
    header, *lines = [json.loads(line) for line in Path(report.column).read_text().splitlines()]
    assert header.keys() == {"viewbox", "written", "reward", "where"}
    assert (header["viewbox"], header["reward"]) == (viewbox.__version__, "viewbox.rewards:ExactMatchReward")
    assert header["where"] == ["answer.label=b"]
    assert [line["line"] for line in lines] == list(range(2, 41, 2))
    assert lines[0].keys() == {"line", "crc", "task", "total", "components"}
    assert (lines[0]["task"], lines[0]["total"], lines[0]["components"]) == ("t0", 0.0, {"exact_match": 0.0})


def test_episodes_that_were_left_out_have_no_scores_in_the_column(store):
    score_run(store, reward=ExactMatchReward(), where=["task.id=t0|t9"], name="some")
    found = scored(store, scores="some")
    assert len(found) == 40
    assert [n for n, one in enumerate(found) if one is not None] == [0, 1, 2, 3, 36, 37, 38, 39]


def test_episodes_that_came_later_have_no_scores_in_the_column(store):
    score_run(store, reward=ExactMatchReward(), name="then")
    written(store, made(40))
    assert [one is None for one in scored(store, scores="then")] == [False] * 40 + [True]


def test_an_existing_column_is_kept_unless_it_is_to_be_replaced(store):
    score_run(store, reward=lambda answer, reference: 0.5, name="mine")
    with pytest.raises(ConfigError, match=r"mine\.jsonl: scores named 'mine' exist already.*--replace"):
        score_run(store, reward=IoUReward("label"), name="mine")
    assert {one.total for one in scored(store, scores="mine")} == {0.5}
    score_run(store, reward=IoUReward("label"), name="mine", replace=True)
    assert {one.total for one in scored(store, scores="mine")} == {0.0}


def test_an_unknown_column_is_named_with_those_there_are(store):
    score_run(store, reward=ExactMatchReward(), name="mine")
    with pytest.raises(StoreError, match=r"unknown scores 'mien'; allowed: mine .did you mean 'mine'"):
        load(store, scores="mien")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_file_name_is_refused(store, name):
    with pytest.raises(ConfigError, match="cannot name a column"):
        score_run(store, reward=ExactMatchReward(), name=name)


def test_a_column_of_episodes_that_were_rewritten_is_refused(store):
    score_run(store, reward=ExactMatchReward(), name="mine")
    lines = (store / "episodes.jsonl").read_text().splitlines(keepends=True)
    (store / "episodes.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(StoreError, match=r"mine\.jsonl: the episode in line 1 changed after it was scored"):
        list(load(store, scores="mine", errors="skip"))


def test_a_column_that_is_damaged_is_named_with_the_line(store):
    path = Path(score_run(store, reward=ExactMatchReward(), name="mine").column)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(StoreError, match=r"mine\.jsonl, line 41: not a line of scores"):
        list(load(store, scores="mine"))


def test_without_writing_nothing_is_left(store):
    assert score_run(store, reward=ExactMatchReward(), write=False).column is None
    assert not (store / "scores").exists()


def test_an_error_in_the_middle_leaves_no_column(store):
    class Stops(BaseException):
        pass

    def stops(answer, reference):
        raise Stops if answer["label"] == "b" else ValueError

    with pytest.raises(Stops):
        score_run(store, reward=stops, name="mine")
    assert list((store / "scores").iterdir()) == []


SLOW = """
import time
def slow(answer, reference):
    print("scoring", flush=True)
    time.sleep(0.05)
    return 1.0
"""


def test_a_killed_command_leaves_no_half_column(store, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = [sys.executable, "-m", "viewbox.cli", "score", str(store), "--reward", "slow.py:slow"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        for _ in range(3):
            assert child.stdout.readline() == "scoring\n"
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(StoreError, match="unknown scores 'slow'; allowed: none"):
        load(store, scores="slow")
    assert score_run(store, reward=ExactMatchReward(), name="slow").episodes == 40


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1) | st.none(), min_size=1, max_size=8), st.text(max_size=5))
def test_any_scores_come_back_exactly(tmp_path_factory, values, name):
    folder = written(tmp_path_factory.mktemp("store"), *(made(n) for n in range(len(values))))
    given_ = iter(values)
    reward = CombinedReward({f"part {name}": (lambda answer, reference: next(given_), 1.0)})
    score_run(folder, reward=reward, name="mine")
    found = scored(folder, scores="mine")
    assert [one.components[f"part {name}"] for one in found] == values
    assert [one.total for one in found] == [value or 0.0 for value in values]


# ---- what is read


def test_token_files_are_not_needed(tmp_path):
    tokens = EpisodeTokens((1,), (2,), (1,), (-0.5,))
    folder = written(tmp_path, *(made(n, tokens=tokens) for n in range(4)))
    shutil.rmtree(folder / "tokens")
    assert score_run(folder, reward=ExactMatchReward()).episodes == 4


def test_a_store_that_is_being_written_is_scored_to_its_last_whole_line(store):
    with (store / "episodes.jsonl").open("a") as file:
        file.write('{"task": {"id": "t10"')
    report = score_run(store, reward=ExactMatchReward())
    assert (report.episodes, report.skipped) == (40, 0)


def test_unreadable_lines_are_skipped_counted_and_named(store, command):
    with (store / "episodes.jsonl").open("a") as file:
        file.write('{"task": 3}\n{not json\n')
    written(store, made(40))
    report = score_run(store, reward=ExactMatchReward(), name="mine")
    assert (report.episodes, report.skipped, list(report.unreadable)) == (41, 2, [41, 42])
    assert scored(store, scores="mine", errors="skip")[-1].total == 1.0
    status, out, _ = command(store, "--no-write", "--reward", "viewbox.rewards:ExactMatchReward")
    assert status == 0
    assert f"warning: 2 lines of {store}/episodes.jsonl cannot be read and were skipped" in out
    assert "  line 41: not an episode: AttributeError" in out
    assert "  line 42: not an episode: JSONDecodeError" in out


def test_a_folder_without_episodes_is_an_error(tmp_path, command):
    status, _, err = command(tmp_path)
    assert status == 2
    assert err.startswith(f"error: {tmp_path}: no episodes here; expected a folder with episodes.jsonl")


@pytest.mark.parametrize("content", ["", "{not json\n"])
def test_a_store_without_a_readable_episode_is_an_error(tmp_path, content):
    written(tmp_path)
    (tmp_path / "episodes.jsonl").write_text(content)
    with pytest.raises(StoreError, match="holds no episodes" + (".*line 1: not an episode" if content else "$")):
        score_run(tmp_path, reward=ExactMatchReward())
    assert list((tmp_path / "scores").iterdir()) == []


def test_memory_does_not_grow_with_the_episodes(tmp_path):
    written(tmp_path, *(made(n, system_prompt="x" * 20_000) for n in range(400)))
    score_run(tmp_path, reward=ExactMatchReward(), write=False)
    tracemalloc.start()
    score_run(tmp_path, reward=ExactMatchReward(), write=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * (tmp_path / "episodes.jsonl").stat().st_size


def test_neither_torch_nor_transformers_is_imported(run):
    code = (
        "import sys\n"
        "from viewbox.cli import app as cli\n"
        f"sys.argv = ['viewbox', 'score', {str(run)!r}]\n"
        "try:\n    cli.main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print([name for name in ('torch', 'transformers', 'trl', 'datasets') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=run, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "21 episodes of 3 tasks" in done.stdout


# ---- which episodes


def test_conditions_are_all_met(store):
    report = score_run(
        store, reward=ExactMatchReward(), where=["answer.label=b", "task.metadata.number<10"], write=False
    )
    assert (report.episodes, report.total.stored.mean, report.total.new.mean) == (5, 0.0, 0.0)


def test_an_empty_selection_is_an_error_and_leaves_nothing(store):
    with pytest.raises(ConfigError, match=r"no episode meets --where 'answer.label=c' and 'num_turns>0'"):
        score_run(store, reward=ExactMatchReward(), where=["answer.label=c", "num_turns>0"])
    assert list((store / "scores").iterdir()) == []


def test_groups_have_a_row_a_value(store):
    report = score_run(store, reward=lambda answer, reference: 0.5, group_by="answer.label", write=False)
    assert [(one.value, one.episodes, one.tasks) for one in report.groups] == [("a", 20, 10), ("b", 20, 10)]
    assert [one.total.change.mean for one in report.groups] == [-0.5, 0.5]
    with pytest.raises(ConfigError, match="unknown field 'anser'"):
        score_run(store, reward=ExactMatchReward(), group_by="anser.label", write=False)


def test_too_many_groups_are_refused(tmp_path):
    folder = written(tmp_path, *(made(n) for n in range(101)))
    with pytest.raises(ConfigError, match=r"--group-by task\.metadata\.number: more than 100 values"):
        score_run(folder, reward=ExactMatchReward(), group_by="task.metadata.number")


# ---- how sure it is


def interval_of(values, tasks, resamples=2000, **options):
    samples = TaskSamples()
    for task, value in zip(tasks, values, strict=True):
        samples.add(str(task), {"x": value})
    return samples.compute_intervals(resamples, seed=0, **options)["x"]


def test_an_interval_of_independent_episodes_is_that_of_the_normal_approximation():
    values = np.random.default_rng(0).normal(size=2000)
    found = interval_of(values, range(2000))
    half = 1.96 * values.std() / np.sqrt(2000)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_copies_of_an_episode_make_it_no_surer():
    values = np.random.default_rng(1).normal(size=300)
    once = interval_of(values, range(300))
    copies = interval_of(np.repeat(values, 8), np.repeat(range(300), 8))
    pretended = interval_of(np.repeat(values, 8), range(2400))
    assert (copies.low, copies.high) == pytest.approx((once.low, once.high))
    assert pretended.high - pretended.low < 0.5 * (once.high - once.low)


def test_the_interval_holds_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(300):
        found = interval_of(rng.uniform(size=80), range(80), resamples=400)
        inside += found.low <= 0.5 <= found.high
    assert 0.90 <= inside / 300 <= 0.985


def test_a_change_is_paired(tmp_path):
    rng = np.random.default_rng(3)
    folder = written(tmp_path, *(made(n, scores=Scores(float(rng.uniform(0, 0.9)))) for n in range(80)))
    (tmp_path / "more.py").write_text("def more(episode):\n    return episode.scores.total + 0.1\n")
    total = score_run(folder, reward=f"{tmp_path}/more.py:more").total
    assert total.change.low == pytest.approx(0.1)
    assert total.change.high == pytest.approx(0.1)
    assert total.new.low < total.stored.high


def test_components_are_compared_over_the_episodes_that_have_both(tmp_path):
    parts = [{"a": 0.0, "old": 1.0}, {"a": None}, {"a": 0.5}, {}]
    folder = written(tmp_path, *(made(n, scores=Scores(0.0, part)) for n, part in enumerate(parts)))
    reward = CombinedReward({"a": (lambda answer, reference: 1.0, 1.0)})
    found = score_run(folder, reward=reward, write=False).components
    assert (found["a"].change.count, found["a"].change.mean) == (2, 0.75)
    assert (found["a"].new.count, found["a"].stored.count) == (4, 2)
    assert (found["old"].new, found["old"].change, found["old"].stored.count) == (None, None, 1)


def test_episodes_without_stored_scores_have_no_change(tmp_path):
    folder = written(tmp_path, *(made(n, scores=None) for n in range(4)))
    total = score_run(folder, reward=ExactMatchReward(), write=False).total
    assert (total.stored, total.change, total.new.mean) == (None, None, 0.5)


def test_the_same_seed_gives_the_same_interval(store):
    first, again, other = (score_run(store, reward=ExactMatchReward(), write=False, seed=seed) for seed in (0, 0, 1))
    assert first.total == again.total
    assert first.total.new.mean == other.total.new.mean


def test_one_task_has_no_interval_and_neither_has_no_bootstrap(store):
    one = score_run(store, reward=ExactMatchReward(), where=["task.id=t0"], write=False).total.new
    none = score_run(store, reward=ExactMatchReward(), resamples=0, write=False).total.new
    assert (one.low, one.high, none.low, none.high) == (None,) * 4
    assert none.mean == 0.5


# ---- what is printed


def test_what_is_printed_stands_stored_beside_new(run, command):
    status, out, err = command(run, "--reward", "viewbox.rewards:IoUReward", "--where", "answer!=null")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith("episodes of 3 tasks where answer!=null")
    assert lines[1].split() == ["episodes", "stored", "new", "change"]
    assert [line.split()[0] for line in lines[2:6]] == ["reward", "iou", "label", "box"]
    assert "%" in lines[6]
    assert f"written: {run}/episodes/scores/iou.jsonl" in out
    assert not set(out) & set("│┃\x1b")


def test_json_is_one_object(run, command):
    status, out, _ = command(run, "--json", "--name", "again", "--group-by", "end_reason", "--bootstrap", "50")
    assert status == 0
    found = json.loads(out)
    assert (found["episodes"], found["tasks"], found["resamples"], found["confidence"]) == (21, 3, 50, 0.95)
    assert found["total"]["change"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "count": 21}
    assert found["components"].keys() == {"label", "box"}
    assert {group["value"] for group in found["groups"]} == {"answered", "malformed", "max_turns"}
    assert found["column"].endswith("again.jsonl")


# ---- the metrics of the environment

DOTS = """
import viewbox
from viewbox.rewards.metrics import Accuracy, MacroF1
class Dots(viewbox.BaseMultiTurnEnv):
    name = 'dots'
    metrics = {'label': Accuracy('label'), 'labels': MacroF1('label')}
    def default_reward(self):
        return viewbox.ExactMatchReward('label')
"""


@pytest.fixture
def dots(tmp_path, monkeypatch):
    """A run of an environment of one's own that declares metrics: forty episodes of ten tasks, half of them right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "metric_dots", raising=False)
    (tmp_path / "metric_dots.py").write_text(DOTS)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("env: {name: 'metric_dots:Dots'}")
    written(tmp_path / "run" / "episodes", *(made(n, environment="dots") for n in range(40)))
    return tmp_path / "run"


def test_the_metrics_an_environment_declares_stand_in_the_report(dots):
    found = score_run(dots, write=False).metrics
    assert found["metrics/label/accuracy"].mean == 0.5
    assert found["metrics/labels/macro_f1"].mean == pytest.approx(2 / 3)  # one class: half of it found, none wrong
    assert (found["end/answered"].mean, found["tools/rate"].mean, found["episodes/turns"].mean) == (1.0, 0.0, 1.0)


def test_metrics_do_not_depend_on_the_reward_that_is_given(dots):
    with_own, with_other = (score_run(dots, reward=reward, write=False) for reward in (None, IoUReward("label")))
    assert with_own.metrics == with_other.metrics
    assert with_own.total.new != with_other.total.new


def test_metrics_are_of_the_episodes_that_were_asked_for(dots):
    found = score_run(dots, where=["answer.label=a"], write=False).metrics["metrics/label/accuracy"]
    assert (found.mean, found.count) == (1.0, 20)


def test_metrics_are_printed_with_their_intervals(dots, command):
    status, out, _ = command(dots, "--no-write")
    assert status == 0
    assert re.search(r"^label/accuracy +0\.500 \[0\.500, 0\.500\]$", out, re.MULTILINE)
    assert re.search(r"^labels/macro_f1 +0\.667 \[0\.667, 0\.667\]$", out, re.MULTILINE)
    assert re.search(r"^end/answered +1\.000", out, re.MULTILINE)
    assert "end/timeout" not in out


def test_metrics_are_in_the_json_with_their_intervals(dots, command):
    _, out, _ = command(dots, "--no-write", "--json")
    found = json.loads(out)
    assert found["metrics"]["metrics/label/accuracy"] == {"mean": 0.5, "low": 0.5, "high": 0.5, "count": 40}
    assert found["metrics"]["end/timeout"]["mean"] == 0.0
    assert (found["fewer_draws"], found["problems"]) == ({}, [])


def test_an_environment_that_is_not_there_costs_the_metrics_but_not_the_scores(dots, command):
    (dots / "config.yaml").unlink()
    status, out, err = command(dots, "--no-write", "--reward", "viewbox.rewards:ExactMatchReward")
    assert (status, err) == (0, "")
    assert "warning: no metrics of the environment 'dots': unknown environment 'dots'" in out
    assert "label/accuracy" not in out
    assert re.search(r"^end/answered +1\.000", out, re.MULTILINE)


# ---- whatever is given


def test_a_wrong_filter_ends_with_2_in_words(run, command):
    status, out, err = command(run, "--where", "end_reson=answered")
    assert (status, out) == (2, "")
    assert "did you mean 'end_reason'" in err


def test_a_saved_episode_of_any_text_is_scored(tmp_path):
    odd = made(0, task=Task("\ud800 [bold]é", reference={"label": "a"}), run_config=RunConfig("[/]"))
    score_run(written(tmp_path, odd), reward=ExactMatchReward(), name="mine")
    assert scored(tmp_path, scores="mine") == [Scores(1.0, {"exact_match": 1.0})]
