"""`viewbox evaluate`: both ways are played, stored and compared, and an interrupted evaluation is resumed."""

import base64
import io
import json
import re
import sys

import numpy as np
import pytest
from PIL import Image

from tests.support.servers import make_completion, serve
from viewbox.cli import app as cli
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
def evaluate(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["viewbox", "evaluate", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        return caught.value.code or 0, said.out, said.err

    return run


@pytest.mark.parametrize("more", [(), ("--refuse",)])
def test_both_ways_are_played_stored_and_compared(evaluate, tmp_path, more):
    arguments = ["--env", "digits", "--model", "m", "--tasks", 5, "--out", tmp_path / "e", "--json", *more]
    with serve(look_if_possible) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
    assert status == 0
    found = json.loads(out.splitlines()[-1])
    assert found["tasks"] == 5
    assert found["gains"]["reward"]["difference"]["mean"] > 0.1
    assert "scores" not in found  # they are the gains
    assert found["tools"]["zoom"] == {"calls": 5, "per_episode": 1.0, "episodes": 1.0, "success": 1.0, "faults": 0}
    assert "5 tasks are too few to conclude from" in out  # one task of five was solved
    assert [len(list(load(tmp_path / "e" / way / "episodes"))) for way in ("with_tools", "without_tools")] == [5, 5]
    with serve(look_if_possible) as server:  # the same command again has nothing left to play
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert server.bodies == []
    saved = json.loads((tmp_path / "e" / "tool_gain.json").read_text())
    assert saved == found


def test_every_command_prints_one_mean_of_the_same_episodes(evaluate, tmp_path, viewbox):
    def answer(body, number):
        if number % 5 == 0:  # a fault, which leaves groups of two and three
            return make_completion("", finish="content_filter")
        return make_completion(RIGHT if number % 3 else WRONG)

    arguments = ["--env", "digits", "--model", "m", "--tasks", 6, "--group", 3, "--out", "e", "--concurrency", 1]
    with serve(answer) as server:
        assert evaluate(*arguments, "--endpoint", server.url, "--json")[0] == 0
    gain = json.loads((tmp_path / "e" / "tool_gain.json").read_text())["gains"]["reward"]
    runs = {run["path"]: run["first_reward"] for run in json.loads(viewbox("runs", "e", "--format", "json")[1])["runs"]}
    compared = json.loads(viewbox("compare", "e/without_tools", "e/with_tools", "--format", "json")[1])
    compared = compared["scores"]["reward"]
    page = compare_sets(*find_sets(["e/without_tools", "e/with_tools"]))["scores"]["reward"]
    pooled = []
    for way, side in (("with_tools", "b"), ("without_tools", "a")):
        rows = load(f"e/{way}").to_pandas().query("end_reason != 'error'")
        wanted = rows.groupby("task").total.mean().mean()
        assert set(rows.groupby("task").size()) == {2, 3}
        pooled.append(abs(rows.total.mean() - wanted) > 0.001)
        summary = json.loads((tmp_path / "e" / way / "summary.json").read_text())["metrics"]
        scored = json.loads(viewbox("score", f"e/{way}", "--format", "json")[1])["total"]
        logged = viewbox_summarize(load(f"e/{way}"), {})["reward"].mean
        found = [gain[side]["mean"], compared[side]["mean"], page[side]["mean"], runs[f"e/{way}"], summary["reward"]]
        assert [*found, scored["new"]["mean"], scored["stored"]["mean"], logged] == pytest.approx([wanted] * 8)
        assert "tokens/sampled" not in summary
    assert any(pooled)
    assert gain["difference"]["mean"] == pytest.approx(compared["difference"]["mean"])
    for command in (("score", "e/with_tools"), ("compare", "e/with_tools", "e/without_tools"), ("runs", "e")):
        assert "mean over tasks" in viewbox(*command)[1]


def test_the_held_out_tasks_of_a_config_are_played(evaluate, tmp_path):
    with serve(look_if_possible) as server:
        evaluate("--config", "quickstart", "--model", "m", "--endpoint", server.url, "--tasks", 2, "--out", "e")
    assert {e.task.metadata["split"] for e in load(tmp_path / "e" / "with_tools" / "episodes")} == {"test"}


def test_an_environment_without_tools_is_refused_in_words(evaluate):
    status, _, err = evaluate("--env", "digits", "--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "env.tools=[]")
    assert status == 2
    assert "digits: has no tools, so nothing can be compared" in err


@pytest.mark.slow
def test_a_model_that_is_not_there_is_named_with_its_neighbors(evaluate, tmp_path):
    (tmp_path / "runs" / "mine" / "model").mkdir(parents=True)
    status, _, err = evaluate("--config", "quickstart", "--model", "runs/mine/modle", "--tasks", 1)
    assert status == 2
    assert "'runs/mine/modle': no such folder (did you mean 'runs/mine/model'?)" in err


# ---------------------------------------------------------------------- other pictures
def read_last_picture(body):
    pictures = re.findall(r"data:image/\w+;base64,([^\"]+)", json.dumps(body["messages"]))
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[-1]))).convert("L")), len(pictures)


def answer_what_is_seen(body, number):
    """Right if the picture shows something; wrong on a blank one."""
    return make_completion(RIGHT if read_last_picture(body)[0].std() > 0 else WRONG)


def zoom_and_answer(body, number):
    picture, count = read_last_picture(body)
    return ZOOM if count == 1 else make_completion(RIGHT if picture.std() > 0 else WRONG)


def zoom_and_guess(body, number):
    return ZOOM if read_last_picture(body)[1] == 1 else make_completion(RIGHT)


def test_the_pictures_are_worth_what_is_lost_without_them(evaluate, tmp_path):
    arguments = [
        "--env",
        "digits",
        "--model",
        "m",
        "--tasks",
        6,
        "--out",
        "e",
        "--pictures",
        "real,blank,other,shuffled",
    ]
    with serve(answer_what_is_seen) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
        assert status == 0
        asked = len(server.bodies)
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert len(server.bodies) == asked  # what is stored is not played again
    assert "cost: episodes: 6 real, 6 blank, 6 other, 6 shuffled; what the folder has is not played again" in out
    found = json.loads((tmp_path / "e" / "pictures.json").read_text())
    worth = {name: one["scores"]["reward"]["difference"]["mean"] for name, one in found["pictures"].items()}
    assert worth["blank"] > 0.1
    assert (worth["other"], worth["shuffled"]) == (0.0, 0.0)
    assert 0 <= found["blind"] < 0.5
    shown = {
        way: {episode.task.id: episode.turns[0].images[0].hash for episode in load(f"e/{way}")}
        for way in ("real", "other", "shuffled")
    }
    assert not set(shown["real"].values()) & set(shown["shuffled"].values())
    assert all(shown["other"][task] != hash for task, hash in shown["real"].items())


@pytest.mark.parametrize(("policy", "is_read"), [(zoom_and_answer, True), (zoom_and_guess, False)])
def test_a_call_is_worth_what_is_lost_when_its_picture_is_another(evaluate, tmp_path, policy, is_read):
    arguments = ["--env", "digits", "--model", "m", "--tasks", 6, "--out", "e", "--pictures", "real,blank,other"]
    with serve(policy) as server:
        status, out, _ = evaluate(*arguments, "--of", "zoom", "--endpoint", server.url)
    assert status == 0
    assert "cost: episodes: 6 real" in out
    assert "cost: episodes: 6 blank, 6 other" in out
    found = json.loads((tmp_path / "e" / "pictures.json").read_text())["pictures"]
    assert [(name, one["tasks"]) for name, one in found.items()] == [("blank", 6), ("other", 6)]
    worth = [one["scores"]["reward"]["difference"]["mean"] > 0.1 for one in found.values()]
    assert worth == [is_read, False]


@pytest.mark.parametrize(
    ("played", "tool"), [(["--env", "digits"], "zoom"), (["--config", "mixture"], "window_level")]
)  # digits has no window_level, the other part of the mixture has
def test_a_tool_that_is_not_called_is_said(evaluate, played, tool):
    arguments = [*played, "--model", "m", "--tasks", 2, "--out", "e", "--pictures", "blank", "--of", tool]
    with serve(answer_what_is_seen) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
    assert status == 0
    assert f"{tool} was not called: nothing can be compared" in out


def test_calls_in_several_replies_are_worth_something_each(evaluate, tmp_path):
    def zoom_twice(body, number):
        picture, count = read_last_picture(body)
        return ZOOM if count < 3 else make_completion(RIGHT if picture.std() > 0 else WRONG)

    arguments = ["--env", "digits", "--model", "m", "--tasks", 4, "--out", "e", "--pictures", "blank", "--of", "zoom"]
    with serve(zoom_twice) as server:
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
    found = json.loads((tmp_path / "e" / "pictures.json").read_text())["pictures"]
    worth = {name: one["scores"]["reward"]["difference"]["mean"] > 0.1 for name, one in found.items()}
    assert worth == {"blank": True, "blank_1": False, "blank_2": True}  # it answers by the last one


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--pictures", "blanc"],
            "unknown pictures 'blanc'; allowed: blank, other, real, shuffled",
        ),
        (["--pictures", "real"], "allowed: real, and blank, other, shuffled or some of these"),
        (["--pictures", "blank", "--of", "zom"], "unknown tool 'zom'; allowed: zoom (did you mean 'zoom'?)"),
        (["--pictures", "other", "--tasks", 1], "allowed: one with as many pictures (1) and another right answer"),
    ],
)
def test_pictures_that_cannot_be_shown_are_refused(evaluate, more, said):
    with serve(answer_what_is_seen) as server:
        arguments = ["--env", "digits", "--model", "m", "--endpoint", server.url, "--out", "e", *more]
        status, _, err = evaluate(*(arguments if "--tasks" in more else [*arguments, "--tasks", 3]))
    assert status == 2
    assert said in err


# ---------------------------------------------------------------------- a target at several scales
def read_from(least):
    """Return a policy that answers right if its latest picture shows at least so many pixels for one: the canvas has
    192 pixels, so the script's zoom by f shows f / 4."""

    def answer(body, number):
        factors = re.findall(
            r"factor\W+([\d.]+)", json.dumps([m for m in body["messages"] if m["role"] == "assistant"])
        )
        scale = float(np.prod([float(one) for one in factors])) / 4
        if scale == 0.25 and "used up" not in json.dumps(body["messages"]):
            return ZOOM  # which is refused
        task = ENV.tasks[ASKED.index(re.search(r"base64,([^\"]+)", json.dumps(body["messages"]))[1])]
        wrong = "two" if task.reference["label"] == "one" else "one"
        return make_completion(viewer.write_answer(ENV, task, None if scale >= least else wrong))

    return answer


ASKED = [
    ENV.reset(task, seed=0).messages[1].images[0].render().to_data_url().partition(",")[2] for task in ENV.tasks[:20]
]


@pytest.mark.parametrize("native", ["true", "false"])
def test_the_scale_from_which_a_target_is_read_is_found(evaluate, tmp_path, native):
    arguments = ["--env", "digits", "--model", "m", "--tasks", 20, "--acuity", "--out", "e", "--format", "json"]
    arguments += [f"endpoint.native_tools={native}"]
    with serve(read_from(0.75)) as server:
        status, out, _ = evaluate(*arguments, "--endpoint", server.url)
        assert status == 0
        asked = len(server.bodies)
        assert evaluate(*arguments, "--endpoint", server.url)[0] == 0
        assert len(server.bodies) == asked == 6 * 20 + 20  # what is stored is not played again
    assert "cost: episodes: 20 at_0.25, 20 at_0.5, 20 at_0.75, 20 at_0.875, 20 at_1, 20 at_2;" in out
    found = json.loads(out.splitlines()[-1])
    assert {one["scale"]: (one["mean"], one["tasks"]) for one in found["right"]} == {
        **dict.fromkeys((0.25, 0.5), (0.0, 20)),
        **dict.fromkeys((0.75, 0.875, 1.0, 2.0), (1.0, 20)),
    }
    assert (found["suggested"], found["seen_at"]) == (0.75, 0.8)
    assert found == json.loads((tmp_path / "e" / "acuity.json").read_text())
    for way, zooms in (("at_0.25", 1), ("at_2", 2)):
        for episode in load(f"e/{way}"):
            results = [result.success for turn in episode.turns for result in turn.tool_results]
            assert results == ([True, False] if zooms == 1 else [True, True])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--acuity", "--refuse"], "allowed: one of them, and --of with --pictures"),
        (["--acuity", "--of", "zoom"], "allowed: one of them, and --of with --pictures"),
        (["--acuity", "env.tools=[]"], "no target can be shown; allowed: tasks with one target"),
    ],
)
def test_targets_that_cannot_be_shown_are_refused(evaluate, more, said):
    arguments = ["--env", "digits", "--model", "m", "--endpoint", "http://127.0.0.1:9/v1", "--tasks", 3]
    status, _, err = evaluate(*arguments, *more)
    assert status == 2
    assert said in err
