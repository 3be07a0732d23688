"""verl's own trainer, unedited: main_ppo, ray, FSDP2 over gloo, a real vLLM, weights sent, checkpoints.

Two runs for all tests: Qwen3-VL on two ray nodes, with a tool that sleeps and fails; and Qwen2.5-VL on one, with
restricted data, whose worker is killed. `make test-verl` keeps what they recorded for `test_verl_gradient.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import viewbox
from tests.support.families import build_wide_family
from tests.support.verl import environment
from tests.support.verl.rows import read_rows
from viewbox.integrations.verl.export import export_verl

pytestmark = pytest.mark.timeout(1200)
ROOT = Path(__file__).parents[2]
UPDATES = 2
OVERRIDES = (
    *(f"train.max_steps={UPDATES}", "train.per_device_train_batch_size=32", "train.warmup_steps=0"),
    *("log.eval_tasks=8", "rollout.max_reply_tokens=40"),
)


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory):
    """Make a folder for a run; in VERL_RECORDED, if it is given."""
    kept = os.environ.get("VERL_RECORDED")

    def make(name):
        if kept is None:
            return tmp_path_factory.mktemp(name)
        (Path(kept).resolve() / name).mkdir(parents=True)
        return Path(kept).resolve() / name

    return make


def train(folder, *overrides, nodes, killed=0):
    """Export quickstart and train it with verl, recorded; return the exit status and the figures of each step."""
    exported = folder / "run"
    export_verl("quickstart", exported, [*OVERRIDES, *overrides])
    loop = (exported / "agent_loop.yaml").read_text()
    target = "viewbox.integrations.verl.agent_loop.ViewboxAgentLoop"
    (exported / "recording.yaml").write_text(loop.replace(target, "tests.support.verl.record.RecordingLoop"))
    written = folder / "figures.jsonl"
    given = {"VERL_RECORD": f"{folder}/record", "VERL_KILLED": str(killed), "VERL_FILE_LOGGER_PATH": str(written)}
    command = [
        sys.executable, "-m", "tests.support.verl", exported, "--nodes", str(nodes), "trainer.logger=[console,file]",
        "actor_rollout_ref.model.external_lib=tests.support.verl.record",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{exported}/recording.yaml'",
    ]  # fmt: skip
    with open(folder / "log.txt", "w") as log:
        status = subprocess.run(command, env=os.environ | given, cwd=ROOT, stdout=log, stderr=log).returncode
    assert written.exists(), (folder / "log.txt").read_text()[-3000:]
    return status, [json.loads(line)["data"] for line in written.read_text().splitlines()]


def read_updates(folder, number):
    return [torch.load(path, weights_only=False) for path in sorted(folder.glob(f"record/update_{number}_rank_*.pt"))]


# ---------------------------------------------------------------------- two nodes
@pytest.fixture(scope="module")
def folder(make_folder):
    return make_folder("two_nodes")


@pytest.fixture(scope="module")
def figures(folder):
    status, figures = train(folder, f"env.name={environment.__name__}:Slow", "train.save_steps=2", nodes=2)
    assert status == 0, (folder / "log.txt").read_text()[-3000:]
    return figures


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
        assert [len(rank["given"]["input_ids"]) for rank in (first, second)] == [16, 16]
        for name, value in first["after"].items():
            assert torch.equal(value, second["after"][name])
        changed = [name for name in first["after"] if not torch.equal(first["after"][name], first["before"][name])]
        assert len(changed) > 80


def test_the_episodes_are_those_of_the_record_without_faults(figures, folder):
    episodes = list(viewbox.load(str(folder / "record" / "episodes"), tokens=True))
    assert len(episodes) == 32 * UPDATES
    faults = [episode for episode in episodes if episode.is_fault]
    assert 1 <= len(faults) < 32
    assert all("zoom failed" in episode.info["error"] for episode in faults)
    ranks = [rank for number in range(1, UPDATES + 1) for rank in read_updates(folder, number)]
    own = [(*e.tokens.prompt_ids, *e.tokens.completion_ids) for e in episodes if not e.is_fault]
    assert sorted(ids for rank in ranks for ids in read_rows(rank)) == sorted(own)
    assert max(len(episode.tokens.images) for episode in episodes) > 1


def test_validation_has_every_episode_also_those_that_a_fault_ended(figures):
    found = {name.removeprefix("val-aux/slow/").removesuffix("/mean@1"): value for name, value in figures[0].items()}
    assert found["end/error"] == found["episodes/faults"] >= 1 / 8
    assert sum(value for name, value in found.items() if name.startswith("end/")) == pytest.approx(1)
    components = [found[f"rewards/{name}/mean"] for name in ("label", "box")]  # of the episodes that have a score
    scored = found["val-core/slow/reward"] / (1 - found["episodes/faults"])
    assert scored == pytest.approx(sum(components) / 2)


def test_the_checkpoint_becomes_a_model_with_the_trained_weights(figures, folder):
    merge = ["merge", "--backend", "fsdp", "--target_dir", folder / "merged", "--local_dir"]
    actor = folder / "run" / "checkpoints" / f"global_step_{UPDATES}" / "actor"
    subprocess.run([sys.executable, "-m", "verl.model_merger", *merge, actor], check=True, capture_output=True)
    merged, trained = load_file(folder / "merged" / "model.safetensors"), read_updates(folder, UPDATES)[0]["after"]
    assert set(merged) == set(trained)
    assert all(torch.equal(merged[name], value.bfloat16()) for name, value in trained.items())


# ---------------------------------------------------------------------- one node, killed
def test_restricted_data_train_on_one_machine_and_what_is_lost_of_a_killed_worker_is_since_its_checkpoint(make_folder):
    folder = make_folder("one_node")
    for part in build_wide_family("qwen2_5_vl"):
        part.save_pretrained(folder / "family")
    reward = f"{{type: python, function: '{environment.__name__}:count_letters'}}"
    named = [f"model.name={folder / 'family'}", f"env.name={environment.__name__}:Restricted", f"reward={reward}"]
    status, figures = train(folder, *named, "train.save_steps=1", nodes=1, killed=2)
    assert status != 0
    assert "ActorDiedError" in (folder / "log.txt").read_text()
    assert figures[-1]["training/global_step"] == 1
    assert (folder / "run" / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "1"
    assert all(episode.info["restricted"] for episode in viewbox.load(str(folder / "record" / "episodes")))
