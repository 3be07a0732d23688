"""What is exported comes back: the same messages, scores and records, for each form that can hold them."""

import json

from msgspec.structs import replace

from tests.support.saved_episodes import made, run, written  # noqa: F401
from tests.support.tables import each
from viewbox.core.messages import to_openai_messages
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Scores, Task, Turn
from viewbox.rollouts.exchange.conversation import list_messages
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter


def list_wire(folder):
    return [to_openai_messages(list_messages(episode)) for episode in load(folder)]


def strip_places(episode):
    """Its JSON without the files in which its images are."""
    return json.loads(episode.to_json(), object_hook=lambda found: {k: v for k, v in found.items() if k != "uri"})


@each("form", ["openai", "inspect", "parquet"])
def test_an_exported_run_comes_back_whole(run, tmp_path, form):  # noqa: F811
    export_run(run, form, tmp_path / "file")
    report = import_file(tmp_path / "file", form, tmp_path / "back")
    assert (report.kept, sum(report.left_out.values()), +report.not_held) == (21, 0, {})
    assert [strip_places(one) for one in load(tmp_path / "back")] == [strip_places(one) for one in load(run)]
    for episode in load(tmp_path / "back"):
        for image in [image for turn in episode.turns for image in turn.images]:
            assert ImageRef.of(image.open()).hash == image.hash


@each("form", ["openai", "inspect", "parquet"])
def test_thinking_beside_replies_and_why_they_ended_come_back(tmp_path, form):
    said = (Turn("assistant", "", reasoning="It is gray, so", finish_reason="length"), Turn("assistant", "Six."))
    episode = Episode(Task("a"), (Turn("user", "What?"), *said), environment="x")
    with EpisodeWriter(tmp_path / "run") as writer:
        writer.append(episode)
    export_run(tmp_path / "run", form, tmp_path / "file")
    import_file(tmp_path / "file", form, tmp_path / "back")
    assert next(iter(load(tmp_path / "back"))).turns == episode.turns
    if form != "parquet":  # messages alone hold the thinking
        text = (tmp_path / "file").read_text().replace('"viewbox": {', '"unknown": {')
        (tmp_path / "plain").write_text(text)
        import_file(tmp_path / "plain", form, tmp_path / "again")
        assert [turn.reasoning for turn in next(iter(load(tmp_path / "again"))).turns] == ["", "It is gray, so", ""]


@each("form", ["openai", "inspect"])
def test_without_the_record_messages_and_scores_come_back(run, tmp_path, form):  # noqa: F811
    export_run(run, form, tmp_path / "file")
    text = (tmp_path / "file").read_text().replace('"viewbox": {', '"unknown": {')
    (tmp_path / "file").write_text(text)
    report = import_file(tmp_path / "file", form, tmp_path / "back")
    assert report.kept == 21
    assert list_wire(tmp_path / "back") == list_wire(run)
    if form == "inspect":
        assert [one.scores for one in load(tmp_path / "back")] == [
            None if one.scores is None or one.scores.total is None else one.scores for one in load(run)
        ]
    else:
        assert report.not_held["field 'unknown'"] == 21  # plain messages hold no scores


def test_edited_messages_win_over_the_record(run, tmp_path):  # noqa: F811
    export_run(run, "openai", tmp_path / "file")
    rows = [json.loads(line) for line in (tmp_path / "file").read_text().splitlines()]
    rows[0]["messages"][-1]["content"] = "edited"
    (tmp_path / "file").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_file(tmp_path / "file", "openai", tmp_path / "back")
    first, second = load(tmp_path / "back")[:2]
    assert first.turns[-1].content == "edited"
    assert second.turns == tuple(replace(turn) for turn in second.turns)
    assert list_wire(tmp_path / "back")[1:] == list_wire(run)[1:]


def test_scores_are_kept_to_the_last_bit(tmp_path):
    scores = Scores(1 / 3, {"a": 0.1 + 0.2, "b": None}, {"b": "no judge"})
    written(tmp_path / "run", *(made(n, scores=scores) for n in range(2)))
    for form in ("openai", "inspect"):
        export_run(tmp_path / "run", form, tmp_path / form)
        import_file(tmp_path / form, form, tmp_path / f"back-{form}")
        assert [one.scores for one in load(tmp_path / f"back-{form}")] == [scores] * 2
