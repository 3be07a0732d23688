"""verl's own trainer, unedited: main_ppo, ray, FSDP2 over gloo, a real vLLM, weights sent, checkpoints.

One run on two ray nodes for most tests. `make test-verl` keeps what it recorded for `test_verl_gradient.py`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import viewbox
from tests.support.verl import environment
from viewbox.integrations.verl.export import export_verl

pytestmark = pytest.mark.timeout(1200)
ROOT = Path(__file__).parents[2]
ENVIRONMENT = environment.__file__
UPDATES = 2
KEPT = os.environ.get("VERL_RECORDED")  # a folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("verl")


def train(folder, *settings, nodes):
    """Run verl's trainer on the export in `folder`, recorded; return its exit status."""
    exported = folder / "run"
    loop = (exported / "agent_loop.yaml").read_text()
    target = "viewbox.integrations.verl.agent_loop.ViewboxAgentLoop"
    (exported / "recording.yaml").write_text(loop.replace(target, "tests.support.verl.record.RecordingLoop"))
    given = {"VERL_RECORD": str(folder / "record"), "VERL_FILE_LOGGER_PATH": str(folder / "figures.jsonl")}
    command = [
        sys.executable, "-m", "tests.support.verl", exported, "--nodes", str(nodes), "trainer.logger=[console,file]",
        "actor_rollout_ref.model.external_lib=tests.support.verl.record",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{exported}/recording.yaml'",
    ]  # fmt: skip
    with open(folder / "log.txt", "w") as log:
        return subprocess.run(
            [*command, *settings], env=os.environ | given, cwd=ROOT, stdout=log, stderr=log
        ).returncode


@pytest.fixture(scope="module")
def figures(folder):
    """The figures of each step of a run on two nodes: the shipped model, a tool that sleeps and sometimes fails."""
    shown = [f"train.max_steps={UPDATES}", f"train.save_steps={UPDATES}", "train.per_device_train_batch_size=32"]
    place = f"env.name={ENVIRONMENT}:Slow"
    export_verl("quickstart", folder / "run", [place, *shown, "train.warmup_steps=0", "log.eval_tasks=8"])
    status = train(folder, nodes=2)
    if KEPT:
        shutil.copytree(folder, Path(KEPT) / "two_nodes", dirs_exist_ok=True)
    assert status == 0, (folder / "log.txt").read_text()[-3000:]
    return [json.loads(line)["data"] for line in (folder / "figures.jsonl").read_text().splitlines()]


def read_updates(folder, number):
    return [torch.load(path, weights_only=False) for path in sorted(folder.glob(f"record/update_{number}_rank_*.pt"))]


def test_every_step_is_sampled_with_the_weights_of_the_step_before(figures):
    steps = [step for step in figures if "actor/grad_norm" in step]
    assert [step["training/global_step"] for step in steps] == list(range(1, UPDATES + 1))
    for step in steps:
        assert step["training/rollout_probs_diff_max"] < 5e-3
        assert step["training/rollout_probs_diff_mean"] < 2e-5  # 4.5e-6; with the weights of the update before: 4.9e-3
        assert step["actor/grad_norm"] > 0


def test_both_nodes_have_the_same_weights_and_half_of_the_episodes_each(figures, folder):
    for number in range(1, UPDATES + 1):
        first, second = read_updates(folder, number)
        for name, value in first["after"].items():
            assert torch.equal(value, second["after"][name])
        changed = [name for name in first["after"] if not torch.equal(first["after"][name], first["before"][name])]
        assert len(changed) > 80


def test_the_episodes_are_those_of_the_record_without_faults(figures, folder):
    episodes = list(viewbox.load(str(folder / "record" / "episodes"), tokens=True))
    ranks = [rank for number in range(1, UPDATES + 1) for rank in read_updates(folder, number)]
    rows = [tuple(ids.tolist()) for rank in ranks for ids in rank["given"]["input_ids"]]
    assert len(episodes) == 32 * UPDATES
    faults = [episode for episode in episodes if episode.is_fault]
    assert 1 <= len(faults) < 16
    assert all("the disk is away" in episode.info["error"] for episode in faults)
    assert sorted(rows) == sorted((*e.tokens.prompt_ids, *e.tokens.completion_ids) for e in episodes if not e.is_fault)
    assert max(len(episode.tokens.images) for episode in episodes) > 1


def test_validation_has_every_episode_also_those_that_a_fault_ended(figures):
    print(figures[0])


def test_the_checkpoint_becomes_a_model_with_the_trained_weights(figures, folder):
    merge = ["merge", "--backend", "fsdp", "--target_dir", folder / "merged", "--local_dir"]
    actor = folder / "run" / "checkpoints" / f"global_step_{UPDATES}" / "actor"
    subprocess.run([sys.executable, "-m", "verl.model_merger", *merge, actor], check=True, capture_output=True)
    merged, trained = load_file(folder / "merged" / "model.safetensors"), read_updates(folder, UPDATES)[0]["after"]
    assert set(merged) == set(trained)
    assert all(torch.equal(merged[name], value.bfloat16()) for name, value in trained.items())
