"""`viewbox export CONFIG --to verl`, without verl: what is written, and what is refused. See also tests/verl."""

import os
import subprocess
from pathlib import Path

import numpy
import pytest
import yaml
from pyarrow import parquet

from tests.support.families import save_family
from viewbox.configs.schema import load, parse
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.integrations.verl.export import (
    VerlExport,
    build_trainer_config,
    check_config,
    choose_numbers,
    describe_left_out,
    export_verl,
    write_readme,
    write_script,
)
from viewbox.integrations.verl.stage import Stage, build_reward_info
from viewbox.records import Episode, Scores, Task

FILES = {"README.md", "agent_loop.yaml", "held_out.parquet", "model", "run.sh", "trainer.yaml", "train.parquet"}


def test_the_command_writes_a_folder_and_says_what_comes_next(viewbox, tmp_path):
    out = tmp_path / "run"
    code, said, err = viewbox("export", "quickstart", "--to", "verl", "--out", out, "train.max_steps=2")
    assert code == 0, err
    assert {path.name for path in out.iterdir()} == FILES | {"viewbox.yaml"}
    assert "16 tasks for training, 200 for validation" in said
    assert "note: verl decides itself: train.lr_scheduler_type = linear" in said
    assert f"{out}/run.sh trainer.n_gpus_per_node=8" in said
    settings = yaml.safe_load((out / "trainer.yaml").read_text())
    assert settings["data"]["mm_processor_kwargs"] == {"min_pixels": 256, "max_pixels": 2304}
    assert load(str(out / "viewbox.yaml")).env == load("quickstart").env
    rows = parquet.read_table(out / "train.parquet").to_pylist()
    places = {row["extra_info"]["index"] for row in rows}
    assert len(places) == 16
    assert places != set(range(16))  # drawn from all tasks
    assert all(row["extra_info"]["task"] == f"digits-train-{row['extra_info']['index']}" for row in rows)


def test_two_exports_of_a_config_are_equal_and_a_folder_that_exists_is_left_alone(viewbox, tmp_path):
    one, other = (export(tmp_path, name=name) for name in "ab")
    for path in one.iterdir():
        assert path.is_dir() or path.read_bytes() == (other / path.name).read_bytes()
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = viewbox("export", "quickstart", "--to", "verl", "--out", empty, "log.eval_tasks=1")
    assert code != 0
    assert "exists; give another --out" in err
    assert [*empty.iterdir()] == []


def test_options_of_the_other_kind_of_export_are_refused(viewbox, tmp_path):
    for arguments, says in (
        (["quickstart", "--to", "verl", "--where", "reward>1"], "--where: goes with a run"),
        (["quickstart", "--to", "verl", "--push", "a/b"], "--push: goes with a run"),
        (["runs/a", "--to", "sft", "train.max_steps=1"], "settings go with --to verl; given --to sft"),
        (["nothing", "--to", "verl"], "nothing: no such file"),
    ):
        code, _, err = viewbox("export", *arguments, "--out", tmp_path / "x")
        assert code != 0
        assert says in err


REFUSED = [
    ("train={method: sft, episodes: x}", "train.method = 'sft': verl cannot do this; allowed: grpo"),
    ("train.curriculum={levels: [{env: {noise: 1}}]}", "train.curriculum: cannot be used; use env.name: mixture"),
    ("train.dynamic_sampling_rounds=2", "algorithm.filter_groups"),
    ("rollout.temperature=0", "rollout.temperature = 0"), ("rollout.top_p=0.9", "rollout.top_p = 0.9"),
    ("rollout.repetition_penalty=1.1", "rollout.repetition_penalty = 1.1"),
    ("train.loss_type=cispo", "allowed: dapo, bnpo, grpo, dr_grpo"),
    ("train.scale_rewards=batch", "train.scale_rewards = 'batch'"),
    ("train.credit.type=turns", "train.credit.type = 'turns': verl cannot do this; allowed: episode"),
    ("train.max_steps=0", "train.max_steps = 0: verl cannot do this; allowed: a whole number from 1, or -1"),
    ("train.max_steps=-2", "train.max_steps = -2"), ("train.max_steps=1.5", "train.max_steps = 1.5"),
    ("model.revision=main", "model.revision = 'main'"), ("lora={quantize: 4bit}", "lora.quantize = '4bit'"),
    ("env.history={last_images: 1}", "training uses the sampled tokens and removes none"),
]  # fmt: skip


def test_what_verl_cannot_run_is_refused_with_its_setting(tmp_path):
    for override, says in REFUSED:
        with pytest.raises(ConfigError) as caught:
            export_verl("quickstart", tmp_path / "x", [override])
        assert says in str(caught.value)
        assert not (tmp_path / "x").exists()
    config = parse({"model": {"tiny": {}}, "env": {"name": "digits"}})
    with pytest.raises(ConfigError, match=r"model\.tiny"):
        check_config(config)


CONFIG = {"model": {"name": "m"}, "env": {"name": "digits"}}


def build(**train):
    config = parse({**CONFIG, "train": {"method": "grpo", **train}})
    check_config(config)
    return build_trainer_config(config, Digits(), prompt_length=128, pixels={}), describe_left_out(config)


def test_the_settings_of_training_become_verls():
    settings, left_out = build(
        num_generations=4, per_device_train_batch_size=8, gradient_accumulation_steps=3, learning_rate=2e-5,
        beta=0.04, epsilon=0.1, epsilon_high=0.3, loss_type="dr_grpo", scale_rewards="none",
        lr_scheduler_type="cosine", importance_sampling_cap=3.0, micro_batch_tokens=20000, logging_steps=5,
    )  # fmt: skip
    actor = settings["actor_rollout_ref"]["actor"]
    assert settings["data"]["train_batch_size"] == actor["ppo_mini_batch_size"] == 6
    assert settings["actor_rollout_ref"]["rollout"]["n"] == 4
    assert (actor["clip_ratio_low"], actor["clip_ratio_high"]) == (0.1, 0.3)
    assert (actor["use_kl_loss"], actor["kl_loss_coef"]) == (True, 0.04)
    assert actor["loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert actor["ppo_max_token_len_per_gpu"] == 20000
    assert (actor["optim"]["lr"], actor["optim"]["lr_scheduler_type"]) == (2e-5, "cosine")
    assert settings["algorithm"]["norm_adv_by_std_in_grpo"] is False
    assert settings["algorithm"]["rollout_correction"] == {"rollout_is": "token", "rollout_is_threshold": 3.0}
    assert left_out == ["train.logging_steps = 5"]
    for steps, expected in ((-1, None), (7, 7)):  # -1 is TRL's word for "as many as the epochs have"
        settings, _ = build(max_steps=steps, num_train_epochs=2)
        trainer = settings["trainer"]
        assert (trainer["total_training_steps"], trainer["total_epochs"]) == (expected, 2)
        count = 7 * settings["data"]["train_batch_size"] if expected else 500
        assert len(choose_numbers(parse(CONFIG), settings, 500)) == count
    settings, _ = build(importance_sampling_cap=None, micro_batch_tokens=100)
    assert settings["algorithm"]["rollout_correction"]["rollout_is"] is None
    assert settings["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"] == 128 + 4096  # the longest episode fits


def test_the_reported_names_do_not_depend_on_the_episode():
    env = Digits()
    scored = Episode(Task("a"), scores=Scores(0.5, {"label": 1.0, "box": None}))
    failed = Episode(Task("a"), end_reason="error", info={"error": "x"})
    infos = [build_reward_info(episode, env, None) for episode in (scored, failed)]
    assert infos[0].keys() == infos[1].keys()
    assert "reward" not in infos[0]
    assert (infos[0]["rewards/label/mean"], infos[0]["rewards/box/mean"]) == (1.0, None)
    assert infos[1]["rewards/label/mean"] is None
    assert (infos[0]["end/answered"], infos[1]["end/error"], infos[1]["end/answered"]) == (1.0, 1.0, 0.0)
    assert build_reward_info(failed, env)["rewards/label/mean"] != build_reward_info(failed, env)["rewards/label/mean"]


def export(tmp_path, *overrides, name="run"):
    folder = tmp_path / name
    export_verl("quickstart", folder, ["train.max_steps=1", "log.eval_tasks=1", *overrides])
    return folder


def test_no_key_is_written_or_said_and_one_that_the_agent_loop_would_miss_is_refused(viewbox, tmp_path):
    out, key = tmp_path / "run", "hf_" + 24 * "x"
    given = ("train.hub_token=my-token-1234", f"log.name={key}", f"train.hub_model_id={key}", "log.eval_tasks=1")
    code, said, err = viewbox("export", "quickstart", "--to", "verl", "--out", out, "train.max_steps=1", *given)
    assert code == 0, err
    texts = said + err + "".join(path.read_text() for path in out.iterdir() if path.suffix in (".md", ".sh", ".yaml"))
    assert key not in texts
    assert "my-token" not in texts
    assert "train.hub_token = ***" in said
    ward = "from viewbox.envs.digits import Digits\n\n\nclass Ward(Digits):\n    api_key: str = ''\n"
    (tmp_path / "ward.py").write_text(ward)
    with pytest.raises(ConfigError, match=r"env\.api_key: looks like a key") as caught:
        export(tmp_path, f"env={{name: '{tmp_path}/ward.py:Ward', api_key: my-secret-key}}", name="refused")
    assert "my-secret-key" not in str(caught.value)


@pytest.mark.parametrize(
    ("failing", "says"),
    [("task.id == 'digits-test-0'", None), ("True", "no prompt could be made; task digits-train-.*: the disk is away")],
)
def test_a_task_that_fails_costs_itself_and_all_of_them_the_export(tmp_path, caplog, failing, says):
    (tmp_path / "bad.py").write_text(
        "from viewbox.envs.digits import Digits\n\n\nclass Bad(Digits):\n    name = 'bad'\n\n"
        "    def images(self, task):\n"
        f"        if {failing}:\n            raise OSError('the disk is away')\n        return super().images(task)\n"
    )
    changes = (f"env.name={tmp_path}/bad.py:Bad", "log.eval_tasks=4", "train.max_steps=1")
    if says is None:
        assert export_verl("quickstart", tmp_path / "run", changes).longest_prompt > 0
        assert "task digits-test-0: OSError: the disk is away; its prompt is not measured" in caplog.text
    else:
        with pytest.raises(ConfigError, match=says):
            export_verl("quickstart", tmp_path / "run", changes)


@pytest.mark.parametrize("name", ["it's here; touch hacked", '$HOME `id` $(id) "b"', "a=b,ü", "${oc.env:HOME}"])
def test_the_script_starts_verl_with_its_own_paths_wherever_it_lies_unless_hydra_would_change_them(tmp_path, name):
    folder, out = tmp_path / name, tmp_path / "said"
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python3"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{out}"\n')
    fake.chmod(0o755)
    folder.mkdir()
    (folder / "run.sh").write_text(write_script("model"))
    variables = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", folder / "run.sh", "a.b='c d'"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)
    if name.startswith("${"):
        assert (done.returncode, out.exists()) == (2, False)
        assert "move this folder" in done.stderr
        return
    quoted = str(folder).replace("'", "\\'")
    assert done.returncode == 0, done.stderr
    assert out.read_text().splitlines() == [
        *("-m", "verl.trainer.main_ppo", "--config-path", str(folder), "--config-name", "trainer"),
        f"data.train_files='{quoted}/train.parquet'",
        f"data.val_files='{quoted}/held_out.parquet'",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{quoted}/agent_loop.yaml'",
        f"trainer.default_local_dir='{quoted}/checkpoints'",  # verl goes on from what it finds there
        f"actor_rollout_ref.model.path='{quoted}/model'",
        "a.b='c d'",
    ]
    assert not (tmp_path / "hacked").exists()


def test_names_stay_within_their_line_of_the_readme():
    config = parse({"model": {"name": "m`id`\n# Run this"}, "env": {"name": "digits"}, "log": {"name": "a\nb"}})
    text = write_readme(config, Digits(), VerlExport(Path("x"), (1, 1), 64, 5, ("log.name = a`\n# b",)))
    assert "verl trains `m'id' # Run this`," in text
    assert "- `log.name = a' # b`" in text
    assert not [line for line in text.splitlines() if line.startswith(("# Run", "# b"))]


HELD = Digits(split="test")
PLACES = [
    ({"split": "test", "index": 0, "task": "a"}, "split = 'test'"),
    ({"split": ["train"], "index": 0, "task": "a"}, "split ="),
    ({"split": "train", "index": "0", "task": "a"}, "index = '0'"),
    ({"split": "train", "index": 0.5, "task": "a"}, "index = 0.5"),
    ({"split": "train", "index": None, "task": "a"}, "index = None"),
    ({}, "split = None"), ({"split": "train", "index": -1, "task": "a"}, "task -1 of the train tasks is 'missing'"),
    ({"split": "train", "index": 10**30, "task": "a"}, "is 'missing'"),
    ({"split": "train", "index": 1, "task": "digits-train-0"}, "is 'digits-train-1'"),
    ({"split": "held_out", "index": 0, "task": "digits-train-0"}, "is 'digits-test-0'"),
    ({"split": "train", "index": 0, "task": {"a": "x" * 10**6}}, "export again"),
    ({"split": "train", "index": 0}, "export again"),
]  # fmt: skip


def test_a_row_finds_its_task_and_one_that_was_not_exported_is_refused_in_words():
    stage = Stage(load("quickstart"), Digits(), HELD, tokens=None)
    for place, says in PLACES:
        with pytest.raises(ConfigError, match="export") as caught:
            stage.find_task(place)
        assert says in str(caught.value)
        assert len(str(caught.value)) < 500
    env, task = stage.find_task({"split": "held_out", "index": numpy.int64(3), "task": "digits-test-3"})
    assert (env, task.id) == (HELD, "digits-test-3")


@pytest.mark.parametrize(("family", "says"), [("gemma3", "Gemma3ImageProcessor"), ("glm4v", "Glm4vImageProcessor")])
def test_a_model_whose_pictures_verl_cannot_bound_is_refused_with_the_way_out(family, says, tmp_path):
    folder = save_family(family, tmp_path / family)
    with pytest.raises(ConfigError, match=f"its {says} takes no min_pixels and max_pixels.*viewbox train"):
        export_verl("quickstart", tmp_path / "x", [f"model.name={folder}"])
    assert not (tmp_path / "x").exists()
