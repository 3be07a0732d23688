"""inspect-ai's own reader opens what `viewbox export --to inspect` writes, and what it writes again is imported."""

import sys
from unittest import mock

import pytest
from msgspec.structs import replace

from tests.support.saved_episodes import made, run, written  # noqa: F401
from viewbox.errors import ConfigError
from viewbox.records import ToolCall, Turn
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.inspect_log import CONVERT
from viewbox.rollouts.store.reader import load

log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")


def test_messages_images_and_scores_are_read_by_inspect(run, tmp_path):  # noqa: F811
    export_run(run, "inspect", tmp_path / "log.json")
    read = log.read_eval_log(str(tmp_path / "log.json"))
    assert read.status == "success"
    for sample, episode in zip(read.samples, load(run), strict=True):
        components = {} if episode.scores is None else {"reward": episode.scores.total, **episode.scores.components}
        assert {name: score.value for name, score in (sample.scores or {}).items()} == {
            name: value for name, value in components.items() if value is not None
        }
        assert sample.messages[1].content[0].type == "image"
    log.write_eval_log(read, str(tmp_path / "again.json"))
    report = import_file(tmp_path / "again.json", "inspect", tmp_path / "back")
    assert report.kept == 21
    # inspect sorts samples by epoch
    assert sorted(repr(one.scores) for one in load(tmp_path / "back")) == sorted(repr(one.scores) for one in load(run))


def test_native_calls_without_a_text_are_read_by_inspect(tmp_path):
    call = Turn("assistant", "", tool_calls=(ToolCall("1", "zoom", {"factor": 2.0}),))
    thought = replace(call, reasoning="Closer.")
    export_run(written(tmp_path / "run", replace(made(0), turns=(call, thought))), "inspect", tmp_path / "log.json")
    (sample,) = log.read_eval_log(str(tmp_path / "log.json")).samples
    assert [message.tool_calls[0].function for message in sample.messages] == ["zoom", "zoom"]
    assert [message.text for message in sample.messages] == ["", ""]


def test_a_packed_log_is_imported_and_without_pyarrow_the_error_names_the_way(run, tmp_path):  # noqa: F811
    export_run(run, "inspect", tmp_path / "log.json")
    packed = tmp_path / "log.eval"
    log.write_eval_log(log.read_eval_log(str(tmp_path / "log.json")), str(packed))
    with mock.patch.dict(sys.modules, {"pyarrow": None}), pytest.raises(ConfigError) as raised:
        import_file(packed, "inspect", tmp_path / "refused")
    assert CONVERT in str(raised.value)
    assert import_file(packed, "inspect", tmp_path / "back").kept == 21
    images = [
        [[image.hash for turn in one.turns for image in turn.images] for one in load(folder)]
        for folder in (run, tmp_path / "back")
    ]
    assert sorted(images[0]) == sorted(images[1])
