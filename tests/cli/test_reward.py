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


def test_every_component_is_printed_with_weight_score_gate_and_why(viewbox, reward):
    status, out, err = viewbox("reward", "try", reward, "--answer", WRONG, "--reference", GOLD)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "component  weight  score  gate    why", "label         0.5      0          label: 'six' is not 'seven'",
        "box           0.3      0  closed  counts 0: label is 0, needed: 1",
        "tools         0.2      -          does not apply: it reads a whole episode", "combined: 0"
    ]  # fmt: skip


def test_components_inside_a_component_stand_under_it_and_what_is_given_may_stand_in_files(viewbox, reward, tmp_path):
    inner = "inner: {type: combined, weight: 1.0, components: {label: {type: exact_match, weight: 1.0}}}"
    (tmp_path / "deep.yaml").write_text(f"type: combined\ncomponents: {{{inner}}}")
    out = viewbox("reward", "try", tmp_path / "deep.yaml", "--answer", GOLD, "--reference", GOLD)[1]
    assert [line.split("  ")[:2] for line in out.splitlines()[1:3]] == [["inner", ""], ["", "inner.label"]]
    (tmp_path / "answer.json").write_text(WRONG)
    (tmp_path / "gold.json").write_text(GOLD)
    given = ("--answer", f"@{tmp_path}/answer.json", "--reference", f"@{tmp_path}/gold.json")
    assert components(viewbox, reward, *given)[0]["label"]["why"] == "label: 'six' is not 'seven'"


NAN = '{"label": "seven", "bbox": [NaN, 0, Infinity, 1]}'
MINE = """
def half(answer, reference):
    return 0.5
def broken(answer, reference):
    return answer['nothing']
class Mine:
    name = 'mine'
    def __call__(self, answer, reference):
        return 1.0
    def explain(self, answer, reference):
        return 'two\\nlines \\x1b[31m'
"""
SAID = [  # the reward, the answer, the status, a line that is printed
    (YAML, "null", 0, "combined: 0"),
    (YAML, NAN, 0, "box           0.3      0        bbox: the answer does not hold a box"),
    ("env: {name: digits}\nreward: {type: exact_match, field: label}", GOLD, 0, "exact_match: 1"),
    ("env: {name: vqa}\n", '{"answer": "a"}', 0, "combined: 1"),  # that of its family
    ("{type: tool_use, at_least: 1}", GOLD, 0, "tool_use: does not apply, as no component does"),
    ("mine.py:half", GOLD, 0, "half: 0.5"),
    ("mine.py:Mine", "{}", 0, "mine            1      1        two lines \\x1b[31m"),
    ("mine.py:broken", "{}", 1, "broken: has no score, because a component failed"),
]


def test_what_is_printed_of_a_reward(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    reference = GOLD[:-1] + ', "answer": "A."}'
    for reward, answer, status, line in SAID:
        (tmp_path / "a.yaml").write_text(reward)
        given = reward if reward.startswith("mine.py") else "a.yaml"
        found, out, err = viewbox("reward", "try", given, "--answer", answer, "--reference", reference)
        assert (found, line in out.splitlines()) == (status, True), out
        assert ("raised KeyError: 'nothing'" in err) == bool(status)


def test_a_saved_episode_brings_answer_reference_and_what_it_did_unless_they_are_given(viewbox, reward, run):
    found, total = components(viewbox, reward, "--episode", f"{run}#2")
    scores = {name: row["score"] for name, row in found.items()}
    assert (scores["label"], scores["tools"]) == (1.0, 0.5)
    assert 0.9 < scores["box"] < 1  # it was said in thousandths
    assert total == pytest.approx(0.5 + 0.3 * scores["box"] + 0.1)
    for option in ("--answer", "--reference"):
        found = components(viewbox, reward, "--episode", f"{run}#2", option, '{"label": "none"}')[0]
        assert (found["label"]["score"], found["tools"]["score"]) == (0.0, 0.5)


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
    (["--episode", "nowhere#1"], "nowhere: no episodes here"), (["--episode", "run#3"], "line 3: not an episode"),
    (["--episode", "run#4"], "line 4: there is no episode in this line; allowed: 1 to 3")
]  # fmt: skip


def test_what_is_wrong_ends_with_2_in_one_line(viewbox, reward, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (run / "episodes.jsonl").open("a") as file:
        file.write("{}\n")
    (tmp_path / "bad.yaml").write_text("{type: iuo}")
    nothing = "reward 'nothing'; allowed: a file reward.yaml, package.module:name or path/to/file.py:name"
    both = ["--answer", "{}", "--reference", "{}"]
    given = [([reward, *arguments], problem) for arguments, problem in WRONG_ARGUMENTS]
    for arguments, problem in [*given, (["bad.yaml", *both], "unknown reward 'iuo'"), (["nothing", *both], nothing)]:
        status, out, err = viewbox("reward", "try", *arguments)
        assert (status, out, err[:7], problem in err) == (2, "", "error: ", True), err
        assert err.count("\n") == 1
