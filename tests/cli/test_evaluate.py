"""`viewbox evaluate`: both ways are played, stored and compared, and an interrupted evaluation is resumed."""

import base64
import io
import json
import re
from functools import partial

import numpy as np
import pytest
from PIL import Image

from tests.support.servers import make_completion, serve
from tests.support.tables import each
from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.scoring.summary import summarize as viewbox_summarize
from viewbox.rollouts.store.reader import load
from viewbox.viewer.sources import compare_sets, find_sets

ENV = Digits()
RIGHT, WRONG = viewer.write_answer(ENV, ENV.tasks[0]), '{"label": "none", "bbox": [0, 0, 10, 10]}'
ZOOM = make_completion("", ("a", "zoom", '{"factor": 2}'))


def look_if_possible(body, number):
    """Right after a look that succeeded; wrong if there is no tool, or it is refused."""
    tools = [message for message in body["messages"] if message["role"] == "tool"]
    if tools:
        return make_completion(WRONG if "used up" in json.dumps(tools) else RIGHT)
    return ZOOM if body.get("tools") else make_completion(WRONG)


@pytest.fixture
def evaluate(viewbox, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return partial(viewbox, "evaluate", "--out", "e", "--model", "m")


def read(name):
    with open(f"e/{name}.json") as file:
        return json.load(file)


DIGITS = ("--env", "digits", "--tasks")


@pytest.mark.slow
@each("more", [(), ("--refuse",)])
def test_both_ways_are_played_stored_and_compared(evaluate, tmp_path, more):
    arguments = [*DIGITS, 5, *more]
    with serve(look_if_possible) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
    assert {bool(body.get("tools")) for body in server.bodies} == ({True} if more else {True, False})
    found = read("tool_gain")
    assert (status, found["tasks"]) == (0, 5)
    assert found["gains"]["reward"]["difference"]["mean"] > 0.1
    assert "scores" not in found  # they are the gains
    assert found["tools"]["zoom"] == {"calls": 5, "per_episode": 1.0, "episodes": 1.0, "success": 1.0, "faults": 0}
    assert "5 tasks are too few to conclude from" in out  # one task of five was solved
    assert [len(list(load(f"e/{way}/episodes"))) for way in ("with_tools", "without_tools")] == [5, 5]
    with serve(look_if_possible) as server:  # the same command again has nothing left to play
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert server.bodies == []
    assert read("tool_gain") == found


@pytest.mark.slow
def test_every_command_prints_one_mean_of_the_same_episodes(evaluate, viewbox):
    def answer(body, number):
        if number % 5 == 0:  # a fault, which leaves groups of two and three
            return make_completion("", finish="content_filter")
        return make_completion(RIGHT if number % 3 else WRONG)

    def ask(*words):
        return json.loads(viewbox(*words, "--format", "json")[1])

    with serve(answer) as server:
        given = (*DIGITS, 6, "--group", 3, "--concurrency", 1, "--endpoint", server.url)
        assert evaluate(*given)[0] == 0
    gain = read("tool_gain")["gains"]["reward"]
    runs = {run["path"]: run["first_reward"] for run in ask("runs", "e")["runs"]}
    compared = ask("compare", "e/without_tools", "e/with_tools")["scores"]["reward"]
    page = compare_sets(*find_sets(["e/without_tools", "e/with_tools"]))["scores"]["reward"]
    pooled = []
    for way, side in (("with_tools", "b"), ("without_tools", "a")):
        rows = load(f"e/{way}").to_pandas().query("end_reason != 'error'")
        wanted = rows.groupby("task").total.mean().mean()
        assert set(rows.groupby("task").size()) == {2, 3}
        pooled.append(abs(rows.total.mean() - wanted) > 0.001)
        summary, scored = read(f"{way}/summary")["metrics"], ask("score", f"e/{way}")["total"]
        logged = viewbox_summarize(load(f"e/{way}"), {})["reward"].mean
        found = [gain[side]["mean"], compared[side]["mean"], page[side]["mean"], runs[f"e/{way}"], summary["reward"]]
        assert [*found, scored["new"]["mean"], scored["stored"]["mean"], logged] == pytest.approx([wanted] * 8)
        assert "tokens/sampled" not in summary
    assert any(pooled)
    assert gain["difference"]["mean"] == pytest.approx(compared["difference"]["mean"])
    for command in (("score", "e/with_tools"), ("compare", "e/with_tools", "e/without_tools"), ("runs", "e")):
        assert "mean over tasks" in viewbox(*command)[1]


def test_the_held_out_tasks_of_a_config_are_played(evaluate):
    with serve(look_if_possible) as server:
        evaluate("--config", "quickstart", "--endpoint", server.url, "--tasks", 2)
    assert {e.task.metadata["split"] for e in load("e/with_tools/episodes")} == {"test"}


def read_last_picture(body):
    pictures = re.findall(r"data:image/\w+;base64,([^\"]+)", json.dumps(body["messages"]))
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[-1]))).convert("L")), len(pictures)


def answer_what_is_seen(body, number):
    """Right if the picture shows something; wrong on a blank one."""
    return make_completion(RIGHT if read_last_picture(body)[0].std() > 0 else WRONG)


def zoom_and_answer(body, number):
    picture, count = read_last_picture(body)
    return ZOOM if count == 1 else make_completion(RIGHT if picture.std() > 0 else WRONG)


def test_the_pictures_are_worth_what_is_lost_without_them(evaluate):
    arguments = [*DIGITS, 6, "--pictures", "real,blank,other,shuffled"]
    with serve(answer_what_is_seen) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
        assert status == 0
        asked = len(server.bodies)
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert len(server.bodies) == asked  # what is stored is not played again
    assert "cost: episodes: 6 real, 6 blank, 6 other, 6 shuffled; what the folder has is not played again" in out
    found, worth = read("pictures"), weigh()
    assert worth["blank"] > 0.1
    assert (worth["other"], worth["shuffled"]) == (0.0, 0.0)
    assert 0 <= found["blind"] < 0.5
    real, other, shuffled = ({episode.task.id: episode.turns[0].images[0].hash for episode in load(f"e/{way}")}
        for way in ("real", "other", "shuffled"))  # fmt: skip
    assert not set(real.values()) & set(shuffled.values())
    assert all(other[task] != hash for task, hash in real.items())


def weigh():
    """What is lost with each of the other pictures."""
    return {name: one["scores"]["reward"]["difference"]["mean"] for name, one in read("pictures")["pictures"].items()}


def test_a_call_is_worth_what_is_lost_when_its_picture_is_another(evaluate):
    with serve(zoom_and_answer) as server:
        given = (*DIGITS, 6, "--pictures", "real,blank,other", "--of", "zoom", "--endpoint", server.url)
        status, out, _ = evaluate(*given)
    assert status == 0
    assert all(f"cost: episodes: {words}" in out for words in ("6 real", "6 blank, 6 other"))
    assert [one["tasks"] for one in read("pictures")["pictures"].values()] == [6, 6]
    assert {name: worth > 0.1 for name, worth in weigh().items()} == {"blank": True, "other": False}


# digits has no window_level, the other part of the mixture has
@each("played, tool", [(["--env", "digits"], "zoom"), (["--config", "mixture"], "window_level")])
def test_a_tool_that_is_not_called_is_said(evaluate, tmp_path, played, tool):
    with serve(answer_what_is_seen) as server:
        given = ("--tasks", 2, "--pictures", "blank", "--of", tool, "--endpoint", server.url)
        status, out, _ = evaluate(*played, *given)
    assert (status, f"{tool} was not called: nothing can be compared" in out) == (0, True)


def test_calls_in_several_replies_are_worth_something_each(evaluate):
    def zoom_twice(body, number):
        picture, count = read_last_picture(body)
        return ZOOM if count < 3 else make_completion(RIGHT if picture.std() > 0 else WRONG)

    with serve(zoom_twice) as server:
        given = (*DIGITS, 4, "--pictures", "blank", "--of", "zoom", "--endpoint", server.url)
        assert evaluate(*given)[0] == 0
    found = {name: worth > 0.1 for name, worth in weigh().items()}
    assert found == {"blank": True, "blank_1": False, "blank_2": True}  # it answers by the last one


def read_from(least):
    """Return a policy that answers right if its latest picture shows at least so many pixels for one: the canvas has
    192 pixels, so the script's zoom by f shows f / 4."""

    def answer(body, number):
        said = json.dumps([one for one in body["messages"] if one["role"] == "assistant"])
        factors = re.findall(r"factor\W+([\d.]+)", said)
        scale = float(np.prod([float(one) for one in factors])) / 4
        if scale == 0.25 and "used up" not in json.dumps(body["messages"]):
            return ZOOM  # which is refused
        task = ENV.tasks[ASKED.index(re.search(r"base64,([^\"]+)", json.dumps(body["messages"]))[1])]
        wrong = "two" if task.reference["label"] == "one" else "one"
        return make_completion(viewer.write_answer(ENV, task, None if scale >= least else wrong))

    return answer


STATES = [ENV.reset(task, seed=0) for task in ENV.tasks[:20]]
ASKED = [one.messages[1].images[0].render().to_data_url().partition(",")[2] for one in STATES]


@pytest.mark.slow
@each("native", ["true", "false"])
def test_the_scale_from_which_a_target_is_read_is_found(evaluate, tmp_path, native):
    arguments = [*DIGITS, 20, "--acuity", "--format", "json", f"endpoint.native_tools={native}"]
    with serve(read_from(0.75)) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
        assert status == 0
        asked = len(server.bodies)
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert len(server.bodies) == asked == 6 * 20 + 20  # what is stored is not played again
    assert "cost: episodes: 20 at_0.25, 20 at_0.5, 20 at_0.75, 20 at_0.875, 20 at_1, 20 at_2;" in out
    found = json.loads(out.splitlines()[-1])
    right = {one["scale"]: (one["mean"], one["tasks"]) for one in found["right"]}
    assert right == {scale: (float(scale >= 0.75), 20) for scale in (0.25, 0.5, 0.75, 0.875, 1.0, 2.0)}
    assert (found["suggested"], found["seen_at"]) == (0.75, 0.8)
    assert found == read("acuity")
    for way, second in (("at_0.25", False), ("at_2", True)):
        for episode in load(f"e/{way}"):
            assert [result.success for turn in episode.turns for result in turn.tool_results] == [True, second]


@each("more, said", [(["--pictures", "blanc"], "unknown pictures 'blanc'; allowed: blank, other, real, shuffled"),
    (["--pictures", "real"], "allowed: real, and blank, other, shuffled or some of these"),
    (["--pictures", "blank", "--of", "zom"], "unknown tool 'zom'; allowed: zoom (did you mean 'zoom'?)"),
    (["--pictures", "other", "--tasks", 1], "allowed: one with as many pictures (1) and another right answer"),
    (["--acuity", "--refuse"], "allowed: one of them, and --of with --pictures"), (["--acuity", "--of", "zoom"],
    "allowed: one of them, and --of with --pictures"), (["--acuity", "env.tools=[]"],
    "no target can be shown; allowed: tasks with one target"), (["env.tools=[]"],
    "digits: has no tools, so nothing can be compared")])  # fmt: skip
def test_what_cannot_be_shown_is_refused(evaluate, tmp_path, more, said):
    status, _, err = evaluate("--endpoint", "http://127.0.0.1:9/v1", *DIGITS, 3, *more)
    assert (status, said in err) == (2, True), err
