"""One bad line of somebody's run costs itself: it is named and skipped, and the rest is scored."""

import json
import resource
import time

import numpy as np
import pytest

import viewbox as package
from tests.support.forged_runs import REFERENCE, forge_run, make_line
from tests.support.tables import each
from viewbox.errors import StoreError
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter


def nested(depth, kind="["):
    opened, closed = ("[", "]") if kind == "[" else ('{"a":', "}")
    return opened * depth + "1" + closed * depth


def raw(**fields):
    """A good line with JSON text in place of some of its fields."""
    marks = {name: f"@@{name}@@" for name in fields}
    text = json.dumps(make_line(9, **marks))
    for name, mark in marks.items():
        text = text.replace(json.dumps(mark), fields[name])
    return text


def image(**fields):
    return {"hash": "a" * 64, "width": 4, "height": 4, "mode": "L", "uri": None, **fields}


def show(**fields):
    return json.dumps(make_line(9, turns=[{"role": "user", "images": [image(**fields)]}]))


CALL = '[{"role": "assistant", "tool_calls": [{"id": "1", "name": "a", "arguments": @}]}]'
RESULT = '[{"role": "tool_result", "tool_results": [{"tool_name": "a", "arguments": @}]}]'
BAD = {
    "not JSON": "{",
    "a list": "[1]",
    "a text": '"x"',
    "a number": "7",
    "null": "null",
    "no task": json.dumps({"answer": {}}),
    "a task that is text": raw(task='"x"'),
    "a task that is null": raw(task="null"),
    "a task that is a list": raw(task="[]"),
    "an id that is a number": raw(task='{"id": 7}'),
    "binary junk": np.random.default_rng(3).bytes(5000).replace(b"\n", b"x"),
    "zeros": bytes(5000),
    "a PNG": b"\x89PNG\r\x1a",
    "half a line": b'{"task": {"id": "t9", "imag',
    "another schema": b'{"episode": 1, "steps": []}',
    "a byte order mark of UTF-16": b'\xff\xfe{"task": {"id": "a"}}',
    "3 MB of brackets": b"[" * 3_000_000,
    "invalid UTF-8": b'{"task": {"id": "\xff\xfe"}}',
    "UTF-16": '{"task": {"id": "a"}}'.encode("utf-16"),
    "a zero byte": b'{"task": {"id": "a\0"}}',
    "NaN": raw(answer='{"a": NaN}'),
    "an infinity": raw(answer='{"a": -Infinity}'),
    "a total that is NaN": raw(scores='{"total": NaN}'),
    "a total that is too large": raw(scores='{"total": 1e999}'),
    "a total of 5,000 digits": raw(scores='{"total": ' + "9" * 5000 + "}"),
    "a total of 400 digits": raw(scores='{"total": ' + "9" * 400 + "}"),
    "a total of 1e308": raw(scores='{"total": 1e308}'),
    "a component of -1e308": raw(scores='{"total": 1, "components": {"label": -1e308}}'),
    "a total that is text": raw(scores='{"total": "x"}'),
    "a component that is a list": raw(scores='{"total": 1, "components": {"a": []}}'),
    "scores that are a list": raw(scores="[1]"),
    "a confidence of 2": raw(confidence="2"),
    "a confidence that is too large": raw(confidence="1e400"),
    "tokens of 400 digits": raw(total_tokens='"x"'),
    "a number of 5,000 digits": raw(answer='{"a": ' + "9" * 5000 + "}"),
    "lists 300 deep": raw(answer='{"a": ' + nested(300) + "}"),
    "lists 900 deep": raw(answer='{"a": ' + nested(900) + "}"),
    "lists 100,000 deep": raw(answer='{"a": ' + nested(100_000) + "}"),
    "objects 300 deep": raw(answer='{"a": ' + nested(300, "{") + "}"),
    "objects 900 deep": raw(answer='{"a": ' + nested(900, "{") + "}"),
    "a reference 900 deep": raw(task='{"id": "a", "reference": {"a": ' + nested(900) + "}}"),
    "a prompt 100 deep": raw(task='{"id": "a", "prompt": {"a": ' + nested(100) + "}}"),
    "metadata 65 deep": raw(task='{"id": "a", "metadata": ' + nested(65, "{") + "}"),
    "info 900 deep": raw(info='{"a": ' + nested(900) + "}"),
    "arguments 200 deep": raw(turns=CALL.replace("@", nested(200, "{"))),
    "facts 200 deep": raw(turns=RESULT.replace("@", nested(200, "{")).replace("arguments", "facts")),
    "arguments that ran 70 deep": raw(turns=RESULT.replace("@", nested(70, "{"))),
    "an unread key 900 deep": raw(answer="{}", info='{"x": ' + nested(900, "{") + "}"),
    "a sample of 30 digits": raw(info='{"sample": ' + "1" + "0" * 30 + "}"),
    "a sample of 400 digits": raw(info='{"sample": ' + "9" * 400 + "}"),
    "a sample that is text": raw(info='{"sample": "x"}'),
    "a sample below 0": raw(info='{"sample": -1}'),
    "an index that is a list": raw(info='{"index": []}'),
    "an index that is a fraction": raw(info='{"index": 1.5}'),
    "malformed that is text": raw(info='{"malformed": "x"}'),
    "malformed that is null": raw(info='{"malformed": null}'),
    "malformed that is an object": raw(info='{"malformed": {}}'),
    "malformed of 300 digits": raw(info='{"malformed": ' + "9" * 300 + "}"),
    "a million lists": '{"task": {"id": "a"}, "answer": {"a": [' + "[]," * 1_000_001 + "[]]}}",
    "info that is a list": raw(info="[1]"),
    "info that is text": raw(info='"x"'),
    "an answer that is text": raw(answer='"x"'),
    "an answer that is a list": raw(answer="[[1]]"),
    "50,000 components": raw(scores=json.dumps({"total": 1, "components": {f"c{n}": 1 for n in range(50_000)}})),
    "257 components": raw(scores=json.dumps({"total": 1, "components": {f"c{n}": 1 for n in range(257)}})),
    "earned by more replies than there are": raw(scores='{"total": 1, "turns": [0.5, 0.5]}'),
    "components that are a list": raw(scores='{"total": 1, "components": [1]}'),
    "components that are a number": raw(scores='{"total": 1, "components": 1}'),
    "turns that are a number": raw(turns="1"),
    "a turn that is text": raw(turns='["x"]'),
    "a turn that is null": raw(turns="[null]"),
    "a role that does not exist": raw(turns='[{"role": "admin"}]'),
    "calls that are text": raw(turns='[{"role": "assistant", "tool_calls": "x"}]'),
    "a call that is a number": raw(turns='[{"role": "assistant", "tool_calls": [7]}]'),
    "results that are null": raw(turns='[{"role": "tool_result", "tool_results": null}]'),
    "an image that is text": raw(turns='[{"role": "user", "images": ["x"]}]'),
    "an image without a hash": raw(turns='[{"role": "user", "images": [{}]}]'),
    "a hash that is a path": show(hash="../../x"),
    "a hash of two dots": show(hash=".."),
    "a hash that is a number": show(hash=7),
    "a mode that is a list": show(mode=[]),
    "a width of text": show(width="x"),
    "a picture without a type": show(height=None),
    "an end that does not exist": raw(end_reason='"won"'),
    "flags that are a number": raw(flags="7"),
    "an environment that is a list": raw(environment="[]"),
    "a run_config that is a list": raw(run_config="[]"),
    "versions that are nested": raw(run_config='{"versions": {"a": []}}'),
    "a seed of 5,000 digits": raw(run_config='{"seed": ' + "9" * 5000 + "}"),
}
# What may be odd and is an episode all the same.
ODD = {
    "a key twice": '{"task": {"id": "first"}, "task": {"id": "a"}, "environment": "digits"}',
    "unknown keys": json.dumps(make_line(9, __class__="x", constructor={"a": [1]})),
    "its own tokens": json.dumps(make_line(9, tokens={"prompt_ids": [1]})),
    "tokens that are code": json.dumps(make_line(9, tokens="x", stored_tokens={"file": "/etc/passwd"})),
    "pixels in an image": show(pixels="x", folder="/"),
    "half a character": '{"task": {"id": "\\ud800"}, "answer": {"label": "\\udfff"}, "environment": "digits"}',
    "control characters": json.dumps(make_line(9, task={"id": "\x1b]52;c;x\x07"})),
    "a number of 300 digits": raw(answer='{"label": ' + "9" * 300 + ', "bbox": [1e308, -1e308, 1e308, 1e308]}'),
    "a label that is a list": raw(answer='{"label": [1, [2]], "bbox": "x"}'),
    "a reference without a box": json.dumps(make_line(9, task={"id": "a", "reference": {"label": "one", "bbox": 7}})),
    "a reference of odd types": json.dumps(make_line(9, task={"id": "a", "reference": {"label": {}, "bbox": [[]]}})),
    "boxes upside down": json.dumps(make_line(9, answer={"label": "one", "bbox": [0.9, 0.9, 0.1, 0.1]})),
    "an empty id": json.dumps(make_line(9, task={"id": ""})),
    "a usage that is text": raw(info='{"usage": "x", "error": [1], "step": "\\u001b[2J"}'),
    "names of 10,000 characters": raw(scores=json.dumps({"total": 1, "components": {"c" * 10_000: 1}})),
    "256 components": raw(scores=json.dumps({"total": 1, "components": {f"c{n}": 1 for n in range(256)}})),
    "many turns": json.dumps(make_line(9, turns=[{"role": "assistant", "content": "x"}] * 3000)),
    "lists 60 deep": raw(answer='{"a": ' + nested(60) + "}"),
}


def test_bad_lines_are_named_and_the_rest_is_scored(tmp_path, viewbox):
    forge_run(tmp_path / "gift", [make_line(0), *BAD.values(), make_line(1)])
    report = score_run(tmp_path / "gift")
    assert [name for number, name in enumerate(BAD, 2) if number not in report.unreadable] == []
    assert (report.skipped, report.episodes) == (len(BAD), 2)
    read = load(tmp_path / "gift", errors="skip", tokens=True)
    assert ([episode.task.id for episode in read], read.skipped, len(read)) == (["t0", "t1"], len(BAD), 2)
    status, out, err = viewbox("score", tmp_path / "gift")
    assert (status, err) == (1, "")
    assert "2 episodes of 2 tasks" in out
    assert f"{len(BAD)} lines of" in out
    assert "line 2: " in out
    assert out.replace("\n", "").isprintable()


def test_odd_lines_are_scored_too(tmp_path, viewbox):
    run = forge_run(tmp_path / "gift", [make_line(0), *ODD.values(), make_line(1)])
    status, out, err = viewbox("score", run, "--group-by", "answer.label")
    assert (status, err) == (0, "")
    assert f"{len(ODD) + 2} episodes of" in out
    assert out.replace("\n", "").isprintable()
    out = viewbox("score", run, "--format", "json", "--name", "own")[1]
    json.loads(out, parse_constant=pytest.fail)
    assert viewbox("view", run, "--out", tmp_path / "a.html")[0] in (0, 1)
    assert len(list(load(run, scores="own"))) == len(ODD) + 2
    str(package.summarize(load(run)))


@each("line", ["not JSON", "lists 900 deep", "a sample of 400 digits", "invalid UTF-8", "50,000 components"])
def test_with_errors_raised_it_is_a_store_error_that_names_the_line(tmp_path, line):
    forge_run(tmp_path / "gift", [make_line(0), BAD[line]])
    with pytest.raises(StoreError, match=r"episodes\.jsonl, line 2: "):
        list(load(tmp_path / "gift"))


@pytest.mark.timeout(60)
def test_many_lines_with_many_names_are_bounded(tmp_path):
    many = [make_line(n, scores={"total": 1, "components": {f"c{n}-{m}": 1 for m in range(250)}}) for n in range(120)]
    run = forge_run(tmp_path / "gift", many)
    started = time.process_time()
    report = score_run(run)
    summary = package.summarize(load(run))
    assert time.process_time() - started < 30
    assert len(report.components) <= 256
    assert "names of scores are left out" in report.problems[-1]
    assert "names of scores are left out" in summary.problems[-1]
    assert report.components["label"].new.count == 120


@pytest.mark.timeout(60)
def test_many_names_of_environments_are_bounded(tmp_path):
    run = forge_run(tmp_path / "gift", [make_line(n, environment=f"gift{n}:E") for n in range(2000)])
    assert len(package.summarize(load(run)).problems) == 5


def test_a_metric_that_cannot_read_one_pair_keeps_the_others(tmp_path):
    odd = make_line(1, task={"id": "odd", "reference": {**REFERENCE, "label": {"a": [1]}}}, answer={"label": {"a": 1}})
    report = score_run(forge_run(tmp_path / "gift", [make_line(0), odd, make_line(2)]))
    assert report.metrics["metrics/label/accuracy"].count >= 2


@pytest.mark.timeout(100)
def test_a_label_for_each_task_fills_no_memory(tmp_path):
    def make(number):
        task = {"id": f"t{number}", "reference": {**REFERENCE, "label": f"label {number}"}}
        return make_line(number, task=task, answer={**REFERENCE, "label": f"label {number}"})

    report = score_run(forge_run(tmp_path / "gift", [make(number) for number in range(5000)]), resamples=20)
    assert "metrics/box: this metric failed and is left out" in report.problems[0]
    assert "metrics/label/accuracy" in report.metrics


def test_nothing_but_bad_lines_is_an_error_in_words(tmp_path, viewbox):
    forge_run(tmp_path / "gift", [BAD["not JSON"]])
    status, out, err = viewbox("score", tmp_path / "gift")
    assert (status, out) == (2, "")
    assert "holds no episodes (1 lines cannot be read; line 1: " in err


@pytest.mark.timeout(120)
def test_a_line_of_200_mb_costs_itself_and_no_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = [make_line(0), b'{"task": {"id": "' + b"x" * 200_000_000 + b'"}}', make_line(1)]
    run = forge_run(tmp_path / "gift", lines)
    del lines
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # making the line took memory
    episodes = load(run, errors="skip")
    assert len(list(episodes)) == 2
    assert "longer than 33,554,432 bytes" in episodes.unreadable[2]
    assert score_run(run).episodes == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - max(before, grown) < 200_000
    with pytest.raises(StoreError, match="33,554,432 bytes"):
        EpisodeWriter(run / "episodes")
