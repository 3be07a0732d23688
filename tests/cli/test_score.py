"""`viewbox score`: tables for people, JSON for programs, and errors in words."""

import json
import re

IOU = ("--reward", "viewbox.rewards:IoUReward", "--where", "answer!=null", "--name", "iou")


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
    assert (found["metrics"]["end/timeout"]["mean"], found["fewer_draws"], found["problems"]) == (0.0, {}, [])


def test_metrics_are_printed_with_their_intervals(dots, viewbox):
    status, out, _ = viewbox("score", dots, "--env", "metric_dots:Dots")
    assert status == 0
    assert re.search(r"^label/accuracy +0\.500 \[0\.\d{3}, 0\.\d{3}\] +10 \(< 20\) +40$", out, re.MULTILINE)
    assert re.search(r"^labels/macro_f1 +0\.667 \[0\.\d{3}, 0\.\d{3}\] +10 \(< 20\) +40$", out, re.MULTILINE)
    assert re.search(r"^end/answered +1\.000", out, re.MULTILINE)
    assert "end/timeout" not in out
