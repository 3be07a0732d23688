"""`viewbox reward`: a reward tried on an answer or a saved episode, how it ends, and the sheet."""

import json

import pytest

from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.store.writer import EpisodeWriter

YAML = """
type: combined
components:
  label: {type: exact_match, field: label, weight: 0.5}
  box: {type: iou, field: bbox, weight: 0.3, needs: {label: 1.0}}
  tools: {type: tool_use, at_least: 2, weight: 0.2}
"""
GOLD = '{"label": "seven", "bbox": [0, 0, 0.5, 1]}'
WRONG = '{"label": "six", "bbox": [0, 0, 0.5, 1]}'


@pytest.fixture
def reward(tmp_path):
    (tmp_path / "mine.yaml").write_text(YAML)
    return tmp_path / "mine.yaml"


@pytest.fixture
def run(tmp_path):
    """A folder of two episodes: one answers at once and wrong, one looks once and is right."""
    env = Digits()
    folder = tmp_path / "run"
    with EpisodeWriter(folder) as writer:
        for number, replies in enumerate(([], [viewer.write_gold_look(env, env.tasks[1])])):
            task = env.tasks[number]
            wrong = "one" if task.reference["label"] == "zero" else "zero"
            said = iter([*replies, viewer.write_answer(env, task, None if number else wrong)])
            writer.append(env.play(task, lambda messages, said=said: next(said)))
    return folder


def components(viewbox, *arguments):
    """The rows of `--format json` by name, and the total."""
    status, out, err = viewbox("reward", "try", *arguments, "--format", "json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    return {row["name"]: row for row in found["components"]}, found["total"]


# ---- an answer that is given


def test_every_component_is_printed_with_weight_score_gate_and_why(viewbox, reward):
    status, out, err = viewbox("reward", "try", reward, "--answer", WRONG, "--reference", GOLD)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "component  weight  score  gate    why",
        "label         0.5      0          label: 'six' is not 'seven'",
        "box           0.3      0  closed  counts 0: label is 0, needed: 1",
        "tools         0.2      -          does not apply: it reads a whole episode",
        "combined: 0",
    ]


def test_components_inside_a_component_stand_under_it(viewbox, tmp_path):
    inner = "inner: {type: combined, weight: 1.0, components: {label: {type: exact_match, weight: 1.0}}}"
    (tmp_path / "deep.yaml").write_text(f"type: combined\ncomponents: {{{inner}}}")
    out = viewbox("reward", "try", tmp_path / "deep.yaml", "--answer", GOLD, "--reference", GOLD)[1]
    assert [line.split("  ")[:2] for line in out.splitlines()[1:3]] == [["inner", ""], ["", "inner.label"]]


def test_answer_and_reference_may_stand_in_files(viewbox, reward, tmp_path):
    (tmp_path / "answer.json").write_text(WRONG)
    (tmp_path / "gold.json").write_text(GOLD)
    given = ("--answer", f"@{tmp_path}/answer.json", "--reference", f"@{tmp_path}/gold.json")
    assert components(viewbox, reward, *given)[0]["label"]["why"] == "label: 'six' is not 'seven'"


def test_null_is_no_answer(viewbox, reward):
    assert components(viewbox, reward, "--answer", "null", "--reference", GOLD)[1] == 0.0


def test_what_no_reply_may_hold_can_be_tried(viewbox, reward):
    answer = '{"label": "seven", "bbox": [NaN, 0, Infinity, 1]}'
    assert components(viewbox, reward, "--answer", answer, "--reference", GOLD)[0]["box"]["score"] == 0.0


@pytest.mark.parametrize("where", ["module", "file"])
def test_a_reward_may_be_given_by_its_import_path(viewbox, tmp_path, where):
    (tmp_path / "mine.py").write_text("def half(answer, reference):\n    return 0.5\n")
    path = f"{tmp_path}/mine.py:half" if where == "file" else "viewbox.rewards:ExactMatchReward"
    total = components(viewbox, path, "--answer", GOLD, "--reference", GOLD)[1]
    assert total == (0.5 if where == "file" else 1.0)


def test_the_reward_of_a_whole_config_is_its_section(viewbox, tmp_path):
    (tmp_path / "run.yaml").write_text("env: {name: digits}\nreward: {type: exact_match, field: label}")
    assert components(viewbox, tmp_path / "run.yaml", "--answer", GOLD, "--reference", GOLD)[1] == 1.0


def test_a_config_without_a_reward_tries_that_of_its_family(viewbox, tmp_path):
    (tmp_path / "run.yaml").write_text("env: {name: vqa}\n")
    status, out, _ = viewbox(
        "reward", "try", tmp_path / "run.yaml", "--answer", '{"answer": "a"}', "--reference", '{"answer": "A."}'
    )
    assert (status, out.splitlines()[-1]) == (0, "combined: 1")


def test_a_reason_is_one_line_of_what_can_be_printed(viewbox, tmp_path):
    source = "class Mine:\n    name = 'mine'\n    def __call__(self, answer, reference):\n        return 1.0\n"
    source += "    def explain(self, answer, reference):\n        return 'two\\nlines \\x1b[31m'\n"
    (tmp_path / "mine.py").write_text(source)
    out = viewbox("reward", "try", f"{tmp_path}/mine.py:Mine", "--answer", "{}", "--reference", "{}")[1]
    assert out.splitlines()[1] == "mine            1      1        two lines \\x1b[31m"


def test_nothing_that_applies_is_said_in_words(viewbox, tmp_path):
    (tmp_path / "tools.yaml").write_text("{type: tool_use, at_least: 1}")
    status, out, _ = viewbox("reward", "try", tmp_path / "tools.yaml", "--answer", GOLD, "--reference", GOLD)
    assert status == 0
    assert out.splitlines()[-1] == "tool_use: does not apply, as no component does"


def test_a_reward_that_fails_has_no_score_and_is_warned_of(viewbox, tmp_path):
    (tmp_path / "mine.py").write_text("def broken(answer, reference):\n    return answer['nothing']\n")
    status, out, err = viewbox("reward", "try", f"{tmp_path}/mine.py:broken", "--answer", "{}", "--reference", "{}")
    assert (status, out.splitlines()[-1]) == (1, "broken: has no score, because a component failed")
    assert "failed: KeyError: 'nothing'" in out
    assert "warning: reward component 'broken' raised KeyError: 'nothing'" in err


# ---- a saved episode


def test_a_saved_episode_brings_answer_reference_and_what_it_did(viewbox, reward, run):
    found, total = components(viewbox, reward, "--episode", f"{run}#2")
    scores = {name: row["score"] for name, row in found.items()}
    assert (scores["label"], scores["tools"]) == (1.0, 0.5)
    assert 0.9 < scores["box"] < 1  # it was said in thousandths
    assert total == pytest.approx(0.5 + 0.3 * scores["box"] + 0.1)


def test_an_answer_or_reference_that_is_given_stands_for_the_episodes(viewbox, reward, run):
    for option in ("--answer", "--reference"):
        found = components(viewbox, reward, "--episode", f"{run}#2", option, '{"label": "none"}')[0]
        assert (found["label"]["score"], found["tools"]["score"]) == (0.0, 0.5)


# ---- how it ends where something is wrong


WRONG_ARGUMENTS = [
    ([], "--answer and --reference: missing; give --answer and --reference, or --episode RUN#LINE"),
    (["--answer", "{}"], "--reference: missing"),
    (["--answer", "{", "--reference", "{}"], "--answer is '{': not JSON: "),
    (["--answer", "[1]", "--reference", "{}"], "--answer is '[1]'; allowed: a JSON object, or @file.json"),
    (["--answer", "{}", "--reference", "null"], "--reference is null"),
    (["--answer", '{"a": 1, "a": 2}', "--reference", "{}"], 'the key "a" is given twice'),
    (["--answer", "@nowhere.json", "--reference", "{}"], "--answer @nowhere.json: cannot be read (No such file"),
    (["--answer", "[" * 100_000, "--reference", "{}"], "not JSON"),
    (["--episode", "runs/x"], "--episode 'runs/x'; allowed: RUN#LINE"),
    (["--episode", "runs/x#last"], "--episode 'runs/x#last'; allowed: RUN#LINE"),
    (["--episode", "runs/x#" + "9" * 5000], "allowed: RUN#LINE"),
    (["--episode", "nowhere#1"], "nowhere: no episodes here"),
]


def test_what_is_wrong_ends_with_2_in_one_line(viewbox, reward):
    for arguments, problem in WRONG_ARGUMENTS:
        status, out, err = viewbox("reward", "try", reward, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")
        assert problem in err
        assert err.count("\n") == 1


def test_a_line_beyond_the_last_says_how_many_there_are(viewbox, reward, run):
    status, _, err = viewbox("reward", "try", reward, "--episode", f"{run}#3")
    assert status == 2
    assert "line 3: there is no episode in this line; allowed: 1 to 2" in err


NO_REWARDS = [
    ("{type: iuo}", "unknown reward 'iuo'"),
    ("[1, 2]", "does not hold a reward"),
    ("type: combined\ncomponents: {a: {type: exact_match, weight: 1, needs: {b: 1}}}", "unknown component 'b'"),
]


def test_a_yaml_that_is_no_reward_ends_with_2(viewbox, tmp_path):
    for text, problem in NO_REWARDS:
        (tmp_path / "bad.yaml").write_text(text)
        status, _, err = viewbox("reward", "try", tmp_path / "bad.yaml", "--answer", "{}", "--reference", "{}")
        assert status == 2
        assert problem in err


def test_a_reward_that_is_neither_file_nor_path_says_what_is_allowed(viewbox):
    status, _, err = viewbox("reward", "try", "nothing", "--answer", "{}", "--reference", "{}")
    assert (status, err) == (
        2,
        "error: reward 'nothing'; allowed: a file reward.yaml, package.module:name or path/to/file.py:name\n",
    )
