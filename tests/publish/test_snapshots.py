"""A published package carries the snapshot of its literature, and answers from it without viewbox and its files."""

import json
from pathlib import Path

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import evaluate_package, map_overviews
from tests.support.publishing import check_only
from viewbox import make
from viewbox.assets import resolve_snapshot_path
from viewbox.envs.literature_vqa.world import write_query
from viewbox.errors import ConfigError
from viewbox.publish import models, publish

SETTINGS = {"split": "test", "num_tasks": 3, "questions": ["therapy", "limit"], "coordinates": "per_mille"}


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers_with_its_own_snapshot(tmp_path, monkeypatch):
    check_only(monkeypatch, "carried files")
    package = tmp_path / "out"
    done = publish("literature_vqa", package, settings=SETTINGS)
    assert any(finding.endswith("load: search") for finding in done.findings)
    assert any("snapshots/search.sqlite (package:literature) travels" in finding for finding in done.findings)
    carried = package / "viewbox_literature_vqa" / "snapshots" / "search.sqlite"
    assert carried.read_bytes() == Path(resolve_snapshot_path("package:literature")).read_bytes()
    assert "torch" not in (package / "pyproject.toml").read_text()
    env, scripts = make("literature_vqa", **SETTINGS), {}
    for overview, task in map_overviews(env).items():
        look = json.dumps({"query": write_query(env.plan(task).fact)})
        answer = scripted.make_reply(env.write_answer(task))
        scripts[overview] = [scripted.make_reply("", ("a", "search_web", look)), answer]
    evaluate_package(package, "viewbox-literature-vqa", scripts, tmp_path)


def test_a_snapshot_of_ones_own_travels_without_its_path(tmp_path, unchecked):
    own = tmp_path / "secret place" / "mine.sqlite"
    own.parent.mkdir()
    own.write_bytes(Path(resolve_snapshot_path("package:literature")).read_bytes())
    lit = {"kind": "literature", "snapshot": str(own), "max_calls": 2}
    out = tmp_path / "out"
    publish("digits", out, settings={"num_tasks": 3, "specialists": {"lit": lit}})
    init = (out / "viewbox_digits" / "__init__.py").read_text()
    assert "secret place" not in init
    assert "snapshots/lit.sqlite" in init
    assert (out / "viewbox_digits" / "snapshots" / "lit.sqlite").is_file()


def test_a_snapshot_that_cannot_travel_is_refused(tmp_path, unchecked, monkeypatch):
    def publish_with(snapshot, name):
        lit = {"kind": "literature", "snapshot": snapshot}
        publish(name, tmp_path / "out", settings={"specialists": {"search": lit}})

    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\x00 and nothing else")
    for given, problem in ((str(tmp_path / "none.sqlite"), "no such file"), (str(broken), "broken.sqlite")):
        for name in ("digits", "literature_vqa"):  # opened when the right answer is tried, or when it is copied
            with pytest.raises(ConfigError, match=rf"specialists.search.snapshot.*{problem}"):
                publish_with(given, name)
    monkeypatch.setattr(models, "MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match=r"take 1 MiB.*allowed in a package"):
        publish_with("package:literature", "digits")
    assert not (tmp_path / "out").exists()
