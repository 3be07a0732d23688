"""`viewbox import` reads what others write and trusts none of it; what was exported comes back as it was."""

import base64
import json
import pickle
import zipfile
import zlib

import pytest
from msgspec.structs import replace
from PIL import Image

from tests.support.saved_episodes import made, without_uris, written
from tests.support.tables import each
from viewbox import ConfigError, Episode, ImageRef, Scores, Task, Turn, load
from viewbox.core.messages import to_openai_messages
from viewbox.rollouts.exchange.conversation import list_messages
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file

PICTURE = Image.new("RGB", (6, 4), (9, 8, 7))
URL = ImageRef.of(PICTURE).to_data_url()
GOOD = {"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "This."}]}


def show(url):
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


def make_url(content, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(content).decode()


def make_bomb():
    """A PNG of 60,000 x 60,000 pixels."""

    def chunk(kind, content):
        return len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)

    parts = {
        b"IHDR": (60_000).to_bytes(4) * 2 + bytes((8, 0, 0, 0, 0)), b"IDAT": zlib.compress(bytes(10**6)), b"IEND": b""
    }  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, content) for kind, content in parts.items())


def make_record(**task):
    image = {"hash": "0" * 64, "width": 1, "height": 1, "mode": "RGB", "uri": "/etc/passwd"}
    turn = {"role": "user", "content": "What?", "images": [image]}
    return {**GOOD, "viewbox": {"task": {"id": "a", **task}, "turns": [turn]}}


HOSTILE = [
    # no line, no messages
    b"\xff\xfe\x00junk", b'{"messages": [', b"[1]", b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    {"text": "hello"}, {"messages": 3}, {"messages": ["hello"]}, {"messages": [{"role": "root", "content": "x"}]},
    {"messages": [{"role": "user", "content": 3}]},
    # files outside, a link to one, addresses, what is no image, a pickle, code, a decompression bomb
    *map(show, ("/etc/passwd", "../outside.png", "file:///etc/passwd", "http://127.0.0.1:9/image.png", "link.png")),
    *map(show, ("data:image/png;base64,!!", make_url(b"hello"), make_url(pickle.dumps(print)), make_url(make_bomb()))),
    show(make_url(b"<svg onload='alert(1)'/>", "image/svg+xml")),
    # records with a file outside, of another type, without a task, with a wrong score
    make_record(), {**GOOD, "viewbox": 3}, {**GOOD, "viewbox": {}},
    {**GOOD, "viewbox": {"task": {"id": "a"}, "scores": {"total": "high"}}},
]  # fmt: skip


@each("row", HOSTILE)
def test_a_hostile_line_costs_itself_and_is_named(tmp_path, row):
    (tmp_path / "folder").mkdir()
    PICTURE.save(tmp_path / "outside.png")
    (tmp_path / "folder" / "link.png").symlink_to(tmp_path / "outside.png")
    good, file = json.dumps(GOOD).encode(), tmp_path / "folder" / "rows.jsonl"
    file.write_bytes(b"\n".join([good, row if isinstance(row, bytes) else json.dumps(row).encode(), good]))
    report = import_file(file, "openai", tmp_path / "out")
    assert (report.kept, list(report.broken)) == (2, [f"{file}, line 2"])
    assert len(load(tmp_path / "out")) == 2


def test_a_line_of_200_megabytes_costs_itself(tmp_path):
    with (tmp_path / "rows.jsonl").open("wb") as file:
        file.write(json.dumps(GOOD).encode() + b"\n")
        file.writelines([b"x" * 2**20] * 200)
        file.write(b"\n" + json.dumps(GOOD).encode())
    report = import_file(tmp_path / "rows.jsonl", "openai", tmp_path / "out")
    assert report.kept == 2
    assert "longer than" in report.broken[f"{tmp_path / 'rows.jsonl'}, line 2"]


def test_images_of_data_urls_and_of_files_beside_are_stored_and_bad_lines_are_named(tmp_path, viewbox):
    PICTURE.save(tmp_path / "beside.png")
    rows = [show(URL), show("beside.png"), {"messages": [{"role": "\x1b[31mroot\u202e"}]}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    status, out, err = viewbox("import", tmp_path / "rows.jsonl", "--from", "openai", "--out", tmp_path / "out")
    assert [one.turns[0].images[0].open().getpixel((0, 0)) for one in load(tmp_path / "out")] == [(9, 8, 7)] * 2
    assert (status, "2 of 3 episodes" in out, "line 3" in err) == (1, True, True)
    assert not any(mark in out + err for mark in ("\x1b", "\u202e"))  # which would act on the terminal


NEAR = [  # kinds that are near, with the way
    ("openai", {"custom_id": "a", "response": {"body": {}}}, "a line of a batch"),
    ("openai", {"custom_id": "a", "method": "POST", "body": GOOD}, "joined by custom_id"),
    ("verifiers", {"prompt": [], "completion": [], "reward": 1.0}, "older results.jsonl"),
]
OTHER = (b"junk", pickle.dumps([1]), b"PAR1junkPAR1", b"PK\x03\x04junk", b"[" * 100_000, b"[]", b"")


def test_a_file_of_another_kind_is_refused_and_leaves_nothing(tmp_path):
    files = [(source, json.dumps(row).encode(), says) for source, row, says in NEAR]
    files += [(source, content, None) for source in ("parquet", "inspect") for content in OTHER]
    for source, content, says in files:
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(ConfigError, match=says):
            import_file(tmp_path / "file", source, tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_packed_log_is_read_and_its_bomb_is_not(tmp_path):
    sample = {"id": "a", "epoch": 1, **GOOD, "scores": {"acc": {"value": "C"}, "note": {"value": "fine"}}}
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/a.json", json.dumps(sample))
        archive.writestr("samples/bomb.json", " " * 10**7)
    report = import_file(tmp_path / "log.eval", "inspect", tmp_path / "out")
    assert (report.kept, list(report.broken)) == (1, [f"{tmp_path / 'log.eval'}, samples/bomb.json"])
    (episode,) = load(tmp_path / "out")
    assert (episode.scores.total, dict(episode.scores.components)) == (1.0, {"acc": 1.0})
    assert report.not_held["scores that are no numbers"] == 1


RAISED = {"error": {"message": "solver raised"}}


@each("more, end, said", [(RAISED, "error", "solver raised"), ({**RAISED, "messages": [], "input": "What?"}, "error",
    "solver raised"), ({"limit": {"type": "time", "limit": 60}}, "timeout", None), ({}, "answered", None),
    ({"limit": {"type": "token", "limit": 9}}, "max_tokens", None), ({"limit": {"type": "message", "limit": 9}},
    "max_turns", None)])  # fmt: skip
def test_a_sample_of_inspect_ends_as_its_log_says(tmp_path, more, end, said):
    score = {"value": 1.0, "answer": "x", "explanation": None}
    sample = {"id": 7, "epoch": 2, **GOOD, "scores": {"acc": score}, "output": {"model": "m"}, "total_time": 3, **more}
    (tmp_path / "log.json").write_text(json.dumps({"samples": [sample]}))
    report = import_file(tmp_path / "log.json", "inspect", tmp_path / "out")
    (episode,) = load(tmp_path / "out")
    assert (episode.task.id, episode.info["sample"], episode.run_config.model_name) == ("7", 1, "m")
    assert (episode.end_reason, episode.info.get("error"), episode.turns[0].content) == (end, said, "What?")
    assert (episode.scores is None) == (end == "error")
    assert {"'answer' of a score", "'total_time' of a sample"} < set(+report.not_held)


def test_a_conversation_keeps_its_name_its_reference_and_its_score(tmp_path, viewbox):
    named = {**GOOD, "id": 3, "reference": {"label": "a"}, "score": 0.25, "cost": 1}
    rows = json.dumps(named), json.dumps({**GOOD, "id": None, "reference": "a"})
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    report = import_file(tmp_path / "rows.jsonl", "openai", tmp_path / "out")
    first, second = load(tmp_path / "out")
    assert (first.task.id, first.task.reference, first.scores.total) == ("3", {"label": "a"}, 0.25)
    assert (second.task.id, second.task.reference, second.scores) == ("rows.jsonl:2", {"reference": "a"}, None)
    assert +report.not_held == {"field 'cost'": 1}
    status, out, _ = viewbox("score", tmp_path / "out", "--format", "json")
    assert (status, json.loads(out)["total"]["new"]["mean"]) == (0, 0.25)  # there is no environment to score with


def test_a_trace_of_verifiers_keeps_its_messages_and_rewards(tmp_path):
    def node(parent, role, content):
        return {"parent": parent, "message": {"role": role, "content": content}}

    content = [{"type": "image_url", "image_url": {"url": URL}}]
    trace = {
        "task": {"data": {"id": "t1"}},
        "nodes": [node(None, "user", content), node(0, "assistant", "cut"), node(0, "assistant", "this")],
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.25}}, "metrics": {"turns": 1.0}
    }  # fmt: skip
    circle = {**trace, "nodes": [{**trace["nodes"][0], "parent": 0}]}
    failed = {**trace, "errors": [{"type": "ProviderError"}]}
    (tmp_path / "traces.jsonl").write_text(json.dumps({"traces": [trace, circle, 3, failed]}))
    report = import_file(tmp_path / "traces.jsonl", "verifiers", tmp_path / "out")
    assert (report.kept, report.left_out["broken"]) == (2, 2)
    episode, broken_off = load(tmp_path / "out")
    assert (broken_off.end_reason, broken_off.scores) == ("error", None)
    assert (episode.task.id, episode.turns[-1].content, episode.scores.total) == ("t1", "this", 0.75)
    assert dict(episode.scores.components) == {"right": 1.0, "short": 0.25, "turns": 1.0}
    assert report.not_held["messages beside the last branch"] == 2


def test_a_file_of_which_no_row_can_be_read_is_refused_with_the_first_reason(tmp_path, viewbox):
    (tmp_path / "rows.jsonl").write_text('{"messages": 3}\n{"text": "x"}\n')
    status, _, err = viewbox("import", tmp_path / "rows.jsonl", "--from", "openai", "--out", tmp_path / "out")
    said = "rows.jsonl, line 1: ", "no episode is left, so nothing is written"
    assert (status, [words for words in said if words not in err]) == (2, [])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, [{"nodes": 3}, {"nodes": [], "task": None}])))
    with pytest.raises(ConfigError, match=r"line 1: not as verifiers writes it \(TypeError"):  # that Python found
        import_file(tmp_path / "rows.jsonl", "verifiers", tmp_path / "out")


def forget_record(file):
    """Leave the messages alone."""
    file.write_text(file.read_text().replace('"viewbox": {', '"unknown": {'))


def list_wire(folder):
    return [to_openai_messages(list_messages(episode)) for episode in load(folder)]


@each("form", ["openai", "inspect", "parquet"])
def test_an_exported_run_comes_back_whole(run, tmp_path, form):
    export_run(run, form, tmp_path / "file")
    report = import_file(tmp_path / "file", form, tmp_path / "back")
    assert (report.kept, sum(report.left_out.values()), +report.not_held) == (21, 0, {})
    back, before = ([without_uris(one.to_json()) for one in load(folder)] for folder in (tmp_path / "back", run))
    assert back == before
    for episode in load(tmp_path / "back"):
        for image in [image for turn in episode.turns for image in turn.images]:
            assert ImageRef.of(image.open()).hash == image.hash


@each("form", ["openai", "inspect", "parquet"])
def test_thinking_beside_replies_and_why_they_ended_come_back(tmp_path, form):
    said = (Turn("assistant", "", reasoning="It is gray, so", finish_reason="length"), Turn("assistant", "Six."))
    episode = Episode(Task("a"), (Turn("user", "What?"), *said), environment="x")
    export_run(written(tmp_path / "run", episode), form, tmp_path / "file")
    import_file(tmp_path / "file", form, tmp_path / "back")
    assert next(iter(load(tmp_path / "back"))).turns == episode.turns
    if form != "parquet":  # messages alone hold the thinking
        forget_record(tmp_path / "file")
        import_file(tmp_path / "file", form, tmp_path / "again")
        assert [turn.reasoning for turn in next(iter(load(tmp_path / "again"))).turns] == ["", "It is gray, so", ""]


@each("form", ["openai", "inspect"])
def test_without_the_record_messages_and_scores_come_back(run, tmp_path, form):
    export_run(run, form, tmp_path / "file")
    forget_record(tmp_path / "file")
    report = import_file(tmp_path / "file", form, tmp_path / "back")
    assert report.kept == 21
    assert list_wire(tmp_path / "back") == list_wire(run)
    if form == "inspect":
        scores = [one.scores if one.scores and one.scores.total is not None else None for one in load(run)]
        assert [one.scores for one in load(tmp_path / "back")] == scores
    else:
        assert report.not_held["field 'unknown'"] == 21  # plain messages hold no scores


def test_edited_messages_win_over_the_record_and_scores_are_kept_to_the_last_bit(run, tmp_path):
    export_run(run, "openai", tmp_path / "file")
    rows = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    rows[0]["messages"][-1]["content"] = "edited"
    (tmp_path / "file").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_file(tmp_path / "file", "openai", tmp_path / "back")
    first, second = load(tmp_path / "back")[:2]
    assert first.turns[-1].content == "edited"
    assert second.turns == tuple(replace(turn) for turn in second.turns)
    assert list_wire(tmp_path / "back")[1:] == list_wire(run)[1:]
    scores = Scores(1 / 3, {"a": 0.1 + 0.2, "b": None}, {"b": "no judge"})
    written(tmp_path / "scored", *(made(n, scores=scores) for n in range(2)))
    for form in ("openai", "inspect"):
        export_run(tmp_path / "scored", form, tmp_path / form)
        import_file(tmp_path / form, form, tmp_path / f"back-{form}")
        assert [one.scores for one in load(tmp_path / f"back-{form}")] == [scores] * 2
