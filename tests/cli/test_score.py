"""`viewbox score`: tables for people, JSON for programs, and errors in words."""

import json
import re

IOU = ("--reward", "viewbox.rewards:IoUReward", "--where", "answer!=null", "--name", "iou")
DOTS = ("--env", "metric_dots:Dots")


def test_what_is_printed_stands_stored_beside_new(run, viewbox):
    status, out, err = viewbox("score", run, *IOU)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].endswith("episodes of 3 tasks where answer!=null")
    assert lines[1].split() == ["mean", "over", "tasks", "tasks", "episodes", "stored", "new", "change"]
    assert [line.split()[0] for line in lines[2:6]] == ["reward", "iou", "label", "box"]
    assert "%" in lines[6]
    assert f"written: {run}/episodes/scores/iou.jsonl" in out
    assert not set(out) & set("│┃\x1b")
    status, out, err = viewbox("score", run, "--where", "end_reson=answered")
    assert (status, out, "did you mean 'end_reason'" in err) == (2, "", True)


def test_json_is_one_object(run, viewbox):
    options = ("--name", "again", "--group-by", "end_reason", "--bootstrap", "50")
    status, out, _ = viewbox("score", run, "--format", "json", *options)
    found = json.loads(out)
    assert (status, found["episodes"], found["tasks"], found["resamples"], found["confidence"]) == (0, 21, 3, 50, 0.95)
    change = found["total"]["change"]
    assert (change["mean"], change["count"], change["tasks"], found["changed"]) == (0.0, 21, 3, 0)
    assert change["low"] < 0 < change["high"]
    assert found["components"].keys() == {"label", "box"}
    assert {group["value"] for group in found["groups"]} == {"answered", "malformed", "max_turns"}
    assert found["column"].endswith("again.jsonl")


# ---- the metrics of the environment
def test_metrics_are_printed_and_in_the_json_with_their_intervals(dots, viewbox):
    status, out, _ = viewbox("score", dots, *DOTS)
    assert status == 0
    assert re.search(r"^label/accuracy +0\.500 \[0\.\d{3}, 0\.\d{3}\] +10 \(< 20\) +40$", out, re.MULTILINE)
    assert re.search(r"^labels/macro_f1 +0\.667 \[0\.\d{3}, 0\.\d{3}\] +10 \(< 20\) +40$", out, re.MULTILINE)
    assert re.search(r"^end/answered +1\.000", out, re.MULTILINE)
    assert "end/timeout" not in out
    found = json.loads(viewbox("score", dots, *DOTS, "--format", "json")[1])
    accuracy = found["metrics"]["metrics/label/accuracy"]
    assert (accuracy["mean"], accuracy["count"], accuracy["tasks"]) == (0.5, 40, 10)
    assert found["metrics"]["end/timeout"]["mean"] == 0.0
    assert (found["fewer_draws"], found["problems"]) == ({}, [])


def test_an_environment_that_is_not_there_costs_the_metrics_but_not_the_scores(dots, viewbox):
    (dots / "config.yaml").unlink()
    status, out, err = viewbox("score", dots, "--reward", "viewbox.rewards:ExactMatchReward")
    assert (status, err) == (0, "")
    assert "warning: no metrics of the environment 'dots': env.name = 'dots'; allowed in a run's own files" in out
    assert "label/accuracy" not in out
    assert re.search(r"^end/answered +1\.000", out, re.MULTILINE)
