"""`viewbox runs` lists runs with their figures, names broken ones, and writes nothing."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.forged_runs import forge_run, make_line
from viewbox.rollouts.listing import list_runs
from viewbox.rollouts.store.reader import load

ROOT = Path(__file__).parents[2]


def make_run(folder, days=0, files={}, **config):  # noqa: B006
    forge_run(folder, [make_line(0), make_line(1)], {"env": {"name": "digits"}, **config})
    for name, text in files.items():
        (folder / name).write_text(text)
    for path in folder.rglob("*"):
        os.utime(path, (1.7e9 + days * 86400,) * 2)
    return folder


@pytest.fixture
def runs(tmp_path):
    runs = tmp_path / "runs"
    lines = [{"step": 1, "reward": 0.25}, {"step": 2}, {"step": 3, "reward": 0.75}, {"step": 4, "held_out/reward": 0.5}]
    metrics = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 5, "rew'
    config = {"model": {"name": "Qwen/Qwen3-VL-4B"}, "train": {"method": "grpo"}}
    make_run(runs / "trained", files={"metrics.jsonl": metrics}, **config)
    summary = json.dumps({"model": "gpt", "metrics": {"reward": 0.5}})
    make_run(runs / "group" / "played", days=2, files={"summary.json": summary})
    return runs


def test_runs_are_listed_newest_first_with_their_figures(runs):
    found = list_runs(runs)
    assert found.broken == {}
    played, trained = found.runs
    assert (played.path, trained.path) == (str(runs / "group" / "played"), str(runs / "trained"))
    assert (trained.environment, trained.model, trained.method) == ("digits", "Qwen/Qwen3-VL-4B", "grpo")
    assert (trained.steps, trained.episodes, trained.first_reward, trained.last_reward) == (4, 2, 0.25, 0.75)
    assert (played.model, played.method, played.steps, played.first_reward) == ("gpt", "rollout", None, 1.0)  # of lines
    assert trained.modified == "2023-11-14T22:13:20+00:00"
    assert trained.size == sum(path.stat().st_size for path in (runs / "trained").rglob("*") if path.is_file())


def test_a_run_or_its_episodes_may_be_named_links_are_not_followed_and_nothing_is_written(runs, tmp_path):
    make_run(tmp_path / "elsewhere")
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    assert len(list_runs(runs).runs) == 2
    assert list_runs(runs / "trained").runs[0].steps == 4
    assert list_runs(runs / "trained" / "episodes").runs[0].episodes == 2
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_broken_runs_are_named_and_passed_over_and_what_a_run_says_does_not_act_on_the_terminal(runs, viewbox):
    make_run(runs / "gift", env={"name": "a\x1b]52;c;x\x07b"}, model={"name": "x" * 10_000})
    spoilt = {"config.yaml": "a: [", "summary.json": "{", "episodes/format.json": '{"format": 9}'}
    for name, (file, text) in zip(("yaml", "summary", "format"), spoilt.items(), strict=True):
        make_run(runs / name, files={file: text})
    (make_run(runs / "out") / "metrics.jsonl").symlink_to("/etc/hostname")
    os.mkfifo(make_run(runs / "pipe") / "summary.json")
    found = list_runs(runs)
    assert len(found.runs) == 3
    assert set(found.broken) == {str(runs / name) for name in ("yaml", "summary", "format", "out", "pipe")}
    status, out, err = viewbox("runs", runs)
    assert (status, "trained" in out, err.count("warning: ")) == (1, True, 5)
    assert ("\x1b" in out, len(out) < 2500) == (False, True)


def test_the_command_prints_a_table_markdown_or_json(runs, viewbox, monkeypatch):
    status, out, _ = viewbox("runs", runs)
    assert status == 0
    heading, first, second = out.splitlines()
    heads = "run environment model method steps episodes reward (mean over tasks) not found date size"
    assert " ".join(heading.split()) == heads
    assert ("played" in first, "0.250 → 0.750" in second) == (True, True)
    _, out, _ = viewbox("runs", runs, "--format", "markdown")
    lines = out.splitlines()
    assert lines[1].startswith("| --- | ---: |")
    assert lines[3].startswith(f"| {runs}/trained | ")
    status, out, _ = viewbox("runs", runs, "--format", "json")
    assert [run["episodes"] for run in json.loads(out)["runs"]] == [2, 2]
    monkeypatch.chdir(runs.parent)
    assert "runs/trained" in viewbox("runs")[1]
    status, _, err = viewbox("runs", "nowhere")
    assert (status, "no such folder" in err) == (2, True)


def test_a_run_that_tar_packed_as_the_docs_say_is_the_same_without_weights(runs, tmp_path):
    run = (runs / "trained").rename(runs / "quickstart-seed0")
    for name in ("model", "checkpoints/checkpoint-1", "wandb"):
        (run / name).mkdir(parents=True)
        (run / name / "weights").touch()
    text = (ROOT / "docs" / "rollouts.md").read_text()
    subprocess.run("\n".join(re.findall("^.*tar -.*$", text, re.M)), shell=True, check=True, cwd=tmp_path)
    packed = tmp_path / "theirs" / run.name
    assert list(load(packed)) == list(load(run))
    left = {path.name for path in run.iterdir()} - {path.name for path in packed.iterdir()}
    assert left == {"model", "checkpoints", "wandb"}


def test_odd_configs_cost_a_figure(tmp_path):
    odd = ["[1]", "env: 3", "env: {name: [1]}", "model: x\ntrain: [2]", "env: {name: null}"]
    lines = '[1]\n{"step": "x", "reward": true}\n{"step": 2, "reward": 1e999}\n'
    for number, config in enumerate(odd):
        forge_run(tmp_path / str(number) / "gift", [make_line(0)], config)
        (tmp_path / str(number) / "gift" / "metrics.jsonl").write_text(lines)
        (run,) = list_runs(tmp_path / str(number)).runs
        assert (run.environment, run.first_reward, run.steps, run.episodes) == ("digits", None, 2, 1)
