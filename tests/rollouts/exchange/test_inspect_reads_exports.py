"""inspect-ai's own reader opens what `viewbox export --to inspect` writes, and what it writes again is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.saved_episodes import run  # noqa: F401
from viewbox.errors import ConfigError
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


def test_a_packed_log_is_imported_after_the_command_that_the_error_names(run, tmp_path):  # noqa: F811
    export_run(run, "inspect", tmp_path / "log.json")
    packed = tmp_path / "log.eval"
    log.write_eval_log(log.read_eval_log(str(tmp_path / "log.json")), str(packed))
    with pytest.raises(ConfigError) as raised:
        import_file(packed, "inspect", tmp_path / "refused")
    assert CONVERT in str(raised.value)
    places = {"FOLDER": str(tmp_path / "converted"), "FILE": str(packed)}
    program, *arguments = (places.get(word, word) for word in CONVERT.split())
    subprocess.run([Path(sys.executable).with_name(program), *arguments], check=True, capture_output=True)
    assert import_file(tmp_path / "converted" / "log.json", "inspect", tmp_path / "back").kept == 21
    images = [
        [[image.hash for turn in one.turns for image in turn.images] for one in load(folder)]
        for folder in (run, tmp_path / "back")
    ]
    assert sorted(images[0]) == sorted(images[1])
