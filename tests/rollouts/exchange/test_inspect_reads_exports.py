"""inspect-ai's own reader opens what `viewbox export --to inspect` writes, and what it writes again is imported."""

import pytest

from tests.support.saved_episodes import run  # noqa: F401
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
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
