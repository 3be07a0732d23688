"""A published package carries the snapshot of its literature, and answers from it without viewbox and its files."""

import importlib.metadata
import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import verifiers_server as scripted
from viewbox import make
from viewbox.assets import resolve_snapshot_path
from viewbox.envs.literature_vqa.sentences import write_query
from viewbox.envs.messages import to_openai_messages
from viewbox.errors import ConfigError
from viewbox.publish import models, publish

SETTINGS = {"split": "test", "num_tasks": 3, "questions": ["therapy", "limit"], "coordinates": "per_mille"}


@pytest.fixture
def unchecked(monkeypatch):
    """Without the trial in a process of its own, which takes seconds."""
    monkeypatch.setattr("viewbox.publish.package.check_staged", lambda folder: [])


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers_with_its_own_snapshot(tmp_path, monkeypatch):
    package = tmp_path / "out"
    done = publish("literature_vqa", package, settings=SETTINGS)  # tries the package in a process of its own
    assert done.findings[-1].endswith("; its snapshots open")
    assert any("snapshots/search.sqlite (package:literature) travels" in finding for finding in done.findings)
    carried = package / "viewbox_literature_vqa" / "snapshots" / "search.sqlite"
    assert carried.read_bytes() == Path(resolve_snapshot_path("package:literature")).read_bytes()
    assert "torch" not in (package / "pyproject.toml").read_text()
    env, scripts = make("literature_vqa", **SETTINGS), {}
    for task in env.tasks:
        overview = scripted.get_first_image(to_openai_messages(env.reset(task, seed=0).messages))
        look = json.dumps({"query": write_query(env.plan(task).fact)})
        answer = scripted.make_reply(env.write_answer(task))
        scripts[overview] = [scripted.make_reply("", ("a", "search_web", look)), answer]
    [installed] = importlib.metadata.entry_points(group="console_scripts", name="vf-eval")
    for key in [key for key in os.environ if key.startswith("PRIME_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.syspath_prepend(package)
    monkeypatch.chdir(tmp_path)
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3", "-o", "e"]
        monkeypatch.setattr(sys, "argv", ["vf-eval", "viewbox-literature-vqa", *given])
        installed.load()()
    [saved] = (tmp_path / "e").rglob("traces.jsonl")
    traces = [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
    assert [trace["stop_condition"] for trace in traces] == ["answered"] * 3
    assert all(trace["rewards"]["total"]["score"] > 0.99 for trace in traces)
    sys.modules.pop("viewbox_literature_vqa", None)


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
    with pytest.raises(ConfigError, match="takes 1 MiB; allowed in a package"):
        publish_with("package:literature", "digits")
    assert not (tmp_path / "out").exists()
