"""A real vLLM that viewbox starts: `rollout: {engine: vllm}` without a url."""

import json
import os
from pathlib import Path

import yaml

import viewbox as package
from tests.support.waiting import wait_until_gone
from viewbox.engines.vllm import process
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import read_metrics

TOLERANCE = 5e-5
WORST = "sampling/logp_difference/max"
OWN = "rollout.engine=vllm"


def record_pids(monkeypatch):
    """The process groups of the servers that are started from now on."""
    pids, start = [], process.ServerProcess._start

    def note(self):
        start(self)
        pids.append(self.pid)

    monkeypatch.setattr(process.ServerProcess, "_start", note)
    return pids


def use_repository(monkeypatch, folder):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(package.__file__).parent.parent))
    monkeypatch.chdir(folder)


def test_rollout_plays_on_a_server_of_its_own_as_with_our_engine(viewbox, tmp_path, monkeypatch):
    use_repository(monkeypatch, tmp_path)
    pids = record_pids(monkeypatch)
    given = ("rollout", "--config", "quickstart", "--held-out", "--model", "package:tiny_viewer", "--tasks", 30)
    code, _, err = viewbox(*given, "rollout.top_k=1", OWN, "--out", "served")
    assert code == 0, err
    assert len(pids) == 1
    wait_until_gone(pids)
    assert viewbox(*given, "rollout.top_k=1", "--out", "own")[0] == 0
    served, own = (sorted(load(tmp_path / name / "episodes"), key=lambda e: e.task.id) for name in ("served", "own"))
    assert [[t.content for t in e.turns] for e in served] == [[t.content for t in e.turns] for e in own]
    assert (tmp_path / "served" / "server.log").stat().st_size


def test_a_run_trains_on_a_server_of_its_own_that_is_killed_once(viewbox, tmp_path, monkeypatch):
    use_repository(monkeypatch, tmp_path)
    pids = record_pids(monkeypatch)
    from viewbox.training.reporting.callbacks import MetricsFile

    log = MetricsFile.on_log

    def kill_after_first(self, args, state, control, **more):
        if state.global_step == 1 and len(pids) == 1:
            os.killpg(pids[0], 9)
        return log(self, args, state, control, **more)

    monkeypatch.setattr(MetricsFile, "on_log", kill_after_first)
    config = {
        "model": {"name": "package:tiny_viewer", "dtype": "float32"},
        "env": {"name": "digits", "tools": ["zoom"], "max_turns": 3},
        "rollout": {"engine": "vllm", "max_reply_tokens": 40, "max_completion_tokens": 400, "slots": 16},
        "train": {"max_steps": 3, "per_device_train_batch_size": 16, "num_generations": 8, "learning_rate": 1e-3},
        "log": {"eval_tasks": 0},
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    code, _, err = viewbox("train", "run.yaml")
    assert code == 0, err
    assert len(pids) == 2
    wait_until_gone(pids)
    steps = [line for line in read_metrics(tmp_path / "runs/run-seed0/metrics.jsonl") if "grad_norm" in line]
    assert len(steps) == 3
    assert all(step["episodes/faults"] == 0 and step[WORST] <= TOLERANCE for step in steps), json.dumps(steps)
