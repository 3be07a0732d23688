"""What an export to verl writes, against verl's own settings, data set and checks."""

import pytest
import yaml
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset

from tests.support.verl.server import StubServer, compose_trainer, run_row
from viewbox.errors import ConfigError
from viewbox.integrations.verl import stage
from viewbox.integrations.verl.export import export_verl


def list_keys(values, path=""):
    for key, value in values.items():
        name = f"{path}{key}"
        yield name
        yield from list_keys(value, f"{name}.") if isinstance(value, dict) else ()


@pytest.fixture(scope="session")
def own_model(exported):
    """An override: the shipped model as a folder, so that a config of a hub model needs no hub."""
    return f"model.name={exported / 'model'}"


def test_every_setting_is_one_of_verls(exported, tmp_path):
    """hydra takes keys of a file that the trainer never reads."""
    written = yaml.safe_load((exported / "trainer.yaml").read_text())
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump({key: written.pop(key) for key in ("hydra", "defaults")}))
    known = OmegaConf.to_container(compose_trainer(tmp_path, folder=exported, name="bare"))
    unknown = set(list_keys(written)) - set(list_keys(known))
    assert unknown == {f"data.mm_processor_kwargs.{name}" for name in ("min_pixels", "max_pixels")}


LARGE = ["trainer.nnodes=4", "actor_rollout_ref.rollout.tensor_model_parallel_size=4"]  # 32 B: docs/scaling.md
LARGE += ["actor_rollout_ref.rollout.gpu_memory_utilization=0.6", "data.train_batch_size=64"]


@pytest.mark.parametrize(("gpus", "more"), [(1, []), (8, []), (8, LARGE)])
def test_verls_own_checks_accept_the_settings(exported, gpus, more):
    trainer = compose_trainer(exported, f"trainer.n_gpus_per_node={gpus}", *more)
    validate_config(config=trainer, use_reference_policy=False, use_critic=False)
    actor = omega_conf_to_dataclass(trainer.actor_rollout_ref.actor)
    assert actor.strategy == actor.engine.strategy == "fsdp2"
    # What `viewbox config memory --gpus` counts with
    assert (actor.engine.model_dtype, actor.engine.fsdp_size) == ("fp32", -1)
    assert not actor.engine.use_no_sync_for_gradient_accumulation
    rollout = omega_conf_to_dataclass(trainer.actor_rollout_ref.rollout)
    assert (rollout.name, rollout.n, rollout.calculate_log_probs) == ("vllm", 8, True)
    assert rollout.logprobs_mode == "processed_logprobs"
    assert (rollout.prompt_length, rollout.response_length) == (128, 400)
    assert trainer.trainer.v1.trainer_mode == "sync"


def test_the_lora_of_a_config_becomes_verls(own_model, exported, tmp_path):
    folder = tmp_path / "run"
    export_verl("qwen3_vl_4b_lora", folder, [own_model])
    trainer = compose_trainer(folder, folder=exported)
    model = trainer.actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (32, 64, ".*language_model.*_proj")
    assert trainer.actor_rollout_ref.rollout.load_format == "safetensors"
    assert trainer.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 8192


def test_the_rows_hold_no_images_and_no_answers(exported, config, worker):
    dataset = RLHFDataset(config.data.val_files, worker.tokenizer, config.data, worker.processor)
    row = dataset[3]
    assert row["extra_info"] == {"index": 3, "split": "held_out", "task": "digits-test-3"}
    assert row["raw_prompt"] == [{"role": "user", "content": "digits-test-3"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": ""}
    assert row["agent_name"] == "viewbox"
    assert b"bbox" not in (exported / "train.parquet").read_bytes()


def test_a_mixture_plays_each_task_in_its_own_environment(own_model, exported, tmp_path):
    folder = tmp_path / "run"
    export_verl("mixture", folder, [own_model, "log.eval_tasks=8"])
    trainer = compose_trainer(folder, folder=exported)
    worker = AgentLoopWorker(trainer, StubServer(exported / "model", ["malformed"]))
    dataset = RLHFDataset(trainer.data.val_files, worker.tokenizer, trainer.data, worker.processor)
    sources = {dataset[number]["data_source"] for number in range(len(dataset))}
    assert len(sources) >= 2
    outputs = [run_row(worker, dataset, number) for number in range(4)]
    names = [set(output.extra_fields["reward_extra_info"]) for output in outputs]
    assert all(found == names[0] for found in names)
    assert all(output.response_mask.any() for output in outputs)


def write_environment(tmp_path, body):
    path = tmp_path / "secret.py"
    path.write_text(f"from viewbox.envs.digits import Digits\n\n\nclass Secret(Digits):\n    name = 'secret'\n{body}\n")
    return f"env.name={path}:Secret"


@pytest.fixture
def restricted(exported, tmp_path):
    """A worker's settings for an environment whose images stay on this machine."""
    folder = tmp_path / "run"
    export_verl("quickstart", folder, [write_environment(tmp_path, "    restricted = True"), "log.report_to=[wandb]"])
    return folder


def test_restricted_data_is_exported_without_trackers_and_played_on_one_machine(restricted, exported):
    trainer = compose_trainer(restricted)
    assert list(trainer.trainer.logger) == ["console"]
    assert "restricted to one machine" in (restricted / "README.md").read_text()
    worker = AgentLoopWorker(trainer, StubServer(exported / "model"))
    dataset = RLHFDataset(trainer.data.val_files, worker.tokenizer, trainer.data, worker.processor)
    assert run_row(worker, dataset).response_mask.any()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("trainer.nnodes=2", "images would go to the machines of the cluster"),
        ("actor_rollout_ref.rollout.trace.backend=weave", "episodes would be sent to weave"),
        (["trainer.logger=[console,wandb]", "trainer.log_val_generations=4"], "replies would be sent to wandb"),
    ],
)
def test_images_and_replies_of_restricted_data_leave_no_machine(restricted, override, says, monkeypatch):
    monkeypatch.setattr(stage, "_stages", {})
    trainer = compose_trainer(restricted, *([override] if isinstance(override, str) else override))
    monkeypatch.setattr(stage, "get_view_settings", lambda *_: {})
    holder = type("Processor", (), {"config": None})()
    with pytest.raises(ConfigError, match=says):
        stage.open_stage("viewbox.yaml", trainer, holder)
