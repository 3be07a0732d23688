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


def show(**fields):
    ref = {"hash": "a" * 64, "width": 4, "height": 4, "mode": "L", "uri": None, **fields}
    return json.dumps(make_line(9, turns=[{"role": "user", "images": [ref]}]))


def list_components(count):
    return json.dumps({"total": 1, "components": {f"c{number}": 1 for number in range(count)}})


CALL = '[{"role": "assistant", "tool_calls": [{"id": "1", "name": "a", "arguments": @}]}]'
RESULT = '[{"role": "tool_result", "tool_results": [{"tool_name": "a", "arguments": @}]}]'
FIELDS = {
    # JSON texts that no field of an episode holds
    "task": ['"x"', "null", "[]", '{"id": 7}', '{"id": "a", "reference": {"a": ' + nested(900) + "}}",
        '{"id": "a", "prompt": {"a": ' + nested(100) + "}}", '{"id": "a", "metadata": ' + nested(65, "{") + "}"],
    "answer": ["[[1]]", '{"a": NaN}', '{"a": ' + "9" * 5000 + "}", '{"a": ' + nested(300, "{") + "}",
        *('{"a": ' + nested(depth) + "}" for depth in (300, 100_000))],
    "scores": [
        "[1]", *(f'{{"total": {total}}}' for total in ("NaN", "9" * 5000, "9" * 400, "1e308", '"x"')),
        *(f'{{"total": 1, "components": {part}}}' for part in ('{"label": -1e308}', '{"a": []}', "[1]", "1")),
        '{"total": 1, "turns": [0.5, 0.5]}',  # of more replies than there are
        list_components(50_000), list_components(257),
    ],
    "turns": ["1", "[null]", '[{"role": "admin"}]', '[{"role": "assistant", "tool_calls": [7]}]',
        '[{"role": "tool_result", "tool_results": null}]', '[{"role": "user", "images": [{}]}]',
        CALL.replace("@", nested(200, "{")), RESULT.replace("@", nested(70, "{")),
        RESULT.replace("@", nested(200, "{")).replace("arguments", "facts")],
    "info": ["[1]", '{"x": ' + nested(900, "{") + "}",
        *(f'{{"sample": {value}}}' for value in ("9" * 400, '"x"', -1)),
        *(f'{{"index": {value}}}' for value in ("[]", 1.5)),
        *(f'{{"malformed": {value}}}' for value in ('"x"', "null", "{}", "9" * 300))],
    "confidence": ["2", "1e400"], "total_tokens": ['"x"'], "end_reason": ['"won"'], "flags": ["7"],
    "environment": ["[]"], "run_config": ["[]", '{"versions": {"a": []}}', '{"seed": ' + "9" * 5000 + "}"],
}  # fmt: skip
NOT_UTF8 = b'{"task": {"id": "\xff\xfe"}}'
BAD = [
    "{", "[1]", "null", json.dumps({"answer": {}}), b'{"task": {"id": "t9", "imag', b"[" * 3_000_000, bytes(5000),
    np.random.default_rng(3).bytes(5000).replace(b"\n", b"x"), b'\xff\xfe{"task": {"id": "a"}}', NOT_UTF8,
    '{"task": {"id": "a"}}'.encode("utf-16"), b'{"task": {"id": "a\0"}}',
    '{"task": {"id": "a"}, "answer": {"a": [' + "[]," * 1_000_001 + "[]]}}",
    *(raw(**{field: text}) for field, texts in FIELDS.items() for text in texts),
    *(show(hash=value) for value in ("../../x", "..", 7)), show(mode=[]), show(width="x"), show(height=None),
]  # fmt: skip
ODD = [  # an episode all the same
    '{"task": {"id": "first"}, "task": {"id": "a"}, "environment": "digits"}', show(pixels="x", folder="/"),
    '{"task": {"id": "\\ud800"}, "answer": {"label": "\\udfff"}, "environment": "digits"}',
    *(json.dumps(make_line(9, **fields)) for fields in (
        {"__class__": "x", "constructor": {"a": [1]}}, {"tokens": {"prompt_ids": [1]}},
        {"tokens": "x", "stored_tokens": {"file": "/etc/passwd"}}, {"task": {"id": "\x1b]52;c;x\x07"}},
        {"task": {"id": ""}}, {"task": {"id": "a", "reference": {"label": "one", "bbox": 7}}},
        {"task": {"id": "a", "reference": {"label": {}, "bbox": [[]]}}},
        {"answer": {"label": "one", "bbox": [0.9, 0.9, 0.1, 0.1]}},
        {"turns": [{"role": "assistant", "content": "x"}] * 3000},
        {"scores": {"total": 1, "components": {"c" * 10_000: 1}}},
    )),
    raw(answer='{"label": ' + "9" * 300 + ', "bbox": [1e308, -1e308, 1e308, 1e308]}'),
    raw(answer='{"label": [1, [2]], "bbox": "x"}'), raw(answer='{"a": ' + nested(60) + "}"),
    raw(scores=list_components(256)), raw(info='{"usage": "x", "error": [1], "step": "\\u001b[2J"}'),
]  # fmt: skip


def test_bad_lines_are_named_and_the_rest_is_scored(tmp_path, viewbox):
    forge_run(tmp_path / "gift", [make_line(0), *BAD, make_line(1)])
    report = score_run(tmp_path / "gift")
    assert [line for number, line in enumerate(BAD, 2) if number not in report.unreadable] == []
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
    run = forge_run(tmp_path / "gift", [make_line(0), *ODD, make_line(1)])
    status, out, err = viewbox("score", run, "--group-by", "answer.label")
    assert (status, err) == (0, "")
    assert f"{len(ODD) + 2} episodes of" in out
    assert out.replace("\n", "").isprintable()
    out = viewbox("score", run, "--format", "json", "--name", "own")[1]
    json.loads(out, parse_constant=pytest.fail)
    assert viewbox("view", run, "--out", tmp_path / "a.html")[0] in (0, 1)
    assert len(list(load(run, scores="own"))) == len(ODD) + 2
    str(package.summarize(load(run)))


@each("line", [
    "{", NOT_UTF8, raw(answer='{"a": ' + nested(900) + "}"), raw(scores=list_components(50_000)),
])  # fmt: skip
def test_with_errors_raised_it_is_a_store_error_that_names_the_line(tmp_path, line):
    forge_run(tmp_path / "gift", [make_line(0), line])
    with pytest.raises(StoreError, match=r"episodes\.jsonl, line 2: "):
        list(load(tmp_path / "gift"))


@pytest.mark.timeout(120)
def test_many_names_of_scores_and_environments_are_bounded(tmp_path):
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
    run = forge_run(tmp_path / "environments", [make_line(n, environment=f"gift{n}:E") for n in range(2000)])
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
    forge_run(tmp_path / "gift", ["{"])
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
