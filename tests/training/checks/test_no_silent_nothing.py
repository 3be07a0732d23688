"""A run that would do nothing, or something else than it says, is refused or says so, before it begins if possible."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trl.trainer import grpo_trainer

from tests.support import forks, killer
from tests.support.run_cases import edit_json
from viewbox.errors import ConfigError
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train
from viewbox.training import findings
from viewbox.training.findings import check_launch

GRPO = {
    "env": {"name": "digits", "max_turns": 3, "eval": {"split": "test"}},
    "rollout": {"max_reply_tokens": 8, "max_completion_tokens": 300},
    "train": {"max_steps": 3, "num_generations": 4, "per_device_train_batch_size": 8},
    "log": {"eval_tasks": 4},
}
TRAIN = {"method": "sft", "demonstrations": {"count": 8}, "max_steps": 4, "learning_rate": 1e-3}
SFT = {**GRPO, "train": {**TRAIN, "per_device_train_batch_size": 4, "save_steps": 2}, "log": {"eval_tasks": 0}}


@pytest.fixture
def start(tmp_path, tiny_folder, capsys):
    """Runs `train` on a config with overrides: (status, stdout, stderr)."""

    def call(*arguments, content=GRPO):
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump({"model": {"name": str(tiny_folder)}, **content}))
        status = train.main([str(path), f"log.dir={tmp_path}/out", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["env.num_tasks=1", "log.eval_tasks=1"], ["has 1 tasks, fewer than the 2 of one generation", "no step would"]),
        (["env.max_turns=1"], ["env.max_turns = 1", "no tool can be called", "env.tools: []"]),
        (["env.eval.max_turns=1"], ["env.eval.max_turns = 1", "no tool can be called"]),
        (["env.history={last_images: 2}"], ["env.history = {last_images: 2}", "allowed: full"]),
        (["train.max_steps=0"], ["train.max_steps = 0", "at least 1, or -1"]),
        (["train.learning_rate=0.0"], ["train.learning_rate = 0.0; allowed: above 0"]),
        (["train.gradient_accumulation_steps=0"], ["gradient_accumulation_steps = 0; allowed: at least 1"]),
        (["train.sync_ref_model=true", "train.beta=0.1", "lora.r=4"], ["train.sync_ref_model", "train.beta", "lora"]),
        (["lora.target_modules=[q_prj]"], ["lora.target_modules = ['q_prj']: matches no linear layer", "q_proj"]),
        (  # of those in the tower and the output layer, which would be refused, none is offered
            ["lora.target_modules=[lm_hed]", "model.freeze=projector"],
            ["names such as down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj\n"],
        ),
        (["log.eval_patience=2"], ["log.eval_patience = 2: counts evaluations"]),
        (["log.eval_steps=2", "log.eval_tasks=0"], ["log.eval_steps = 2: log.eval_tasks = 0"]),
        (["reward={type: iuo}"], ["unknown reward 'iuo'", "did you mean 'iou'?"]),
        (["env.name=nowhere:Env"], ["nowhere:Env", "No module named 'nowhere'"]),
        (["env.eval.splitt=test"], ["digits: unknown setting 'splitt'", "did you mean 'split'?"]),
        (["env.tools=[zom]"], ["unknown tool 'zom'", "did you mean 'zoom'?"]),
        (["train.learning_rat=1"], ["train.learning_rat: unknown key", "did you mean 'learning_rate'?"]),
        (["train.top_p=0.9"], ["train.top_p: cannot be set here", "it is decided by rollout.top_p"]),
        (["train.min_p=0.1"], ["train.min_p: cannot be used", "rollout.top_p"]),
        (["train.num_generations=3"], ["train.num_generations = 3", "allowed: 2, 4, 8"]),
        (["train.lr_scheduler_type=wavy"], ["train.lr_scheduler_type = 'wavy'"]),
        (["rollout.temperature=0"], ["rollout.temperature = 0", "above 0"]),
        (["log.eval_tasks=30", "env.eval.num_tasks=20"], ["log.eval_tasks = 30", "20"]),
        (["model.name=/nowhere/model"], ["model.name = '/nowhere/model'", "no such folder"]),
        (["model.name=null", "model.tiny={}", "train.beta=0.1"], ["train.beta = 0.1"]),
        (["log.dir={file}"], ["log.dir '", "is not a folder; allowed: a folder"]),
    ],
)
def test_what_would_do_nothing_is_refused_with_2_and_a_sentence_at_the_dry_run(start, tmp_path, overrides, words):
    (tmp_path / "file").write_text("")
    status, out, err = start(
        *(one.format(file=tmp_path / "file") if "{file}" in one else one for one in overrides), "--dry-run"
    )
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not (tmp_path / "out").exists()


def test_tasks_whose_file_is_missing_and_a_disk_without_room_are_refused(start, tmp_path, monkeypatch):
    (tmp_path / "listed.py").write_text(
        "from pathlib import Path\nfrom viewbox.envs.digits import Digits\n"
        "class Listed(Digits):\n    @property\n    def tasks(self):\n        return Path('no.jsonl').read_text()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    status, _, err = start("env.name=listed:Listed", "--dry-run")
    assert status == 2
    assert "listed.py, line 6: FileNotFoundError: [Errno 2] No such file or directory: 'no.jsonl'" in err
    monkeypatch.setattr(findings.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    status, _, err = start("--dry-run")
    assert status == 2
    assert "GiB for checkpoints and the model" in err
    assert "train.save_total_limit" in err


def test_a_disk_that_is_full_in_the_middle_of_a_run_ends_it_with_2_and_a_sentence(tmp_path, tiny_folder):
    """No file may grow above 1 MiB, so that the first checkpoint cannot be written."""
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"model": {"name": str(tiny_folder)}, **SFT}))
    status, said = forks.start(killer.fill_disk, 2**20, path, f"log.dir={tmp_path}/out", folder=tmp_path).wait()
    assert status == 2, said[-3000:]
    last = said.splitlines()[-1]
    assert last.startswith("error: the disk is full")
    assert "--resume" in last


# ---------------------------------------------------------------------- launchers
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_PORT": "29500"}, "several processes and started one"),
        ({"ACCELERATE_USE_FSDP": "true", "WORLD_SIZE": "2"}, "FSDP"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed"),
    ],
)
def test_a_launcher_that_asks_for_what_would_not_happen_is_refused(variables, words):
    with pytest.raises(ConfigError, match=words):
        check_launch(variables=variables)


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "fails"), [(1, False), (2, True)])
def test_accelerate_itself_sets_the_variables_that_are_looked_for(number, fails):
    launch = [Path(sys.executable).with_name("accelerate"), "launch", "--cpu", "--no_python"]
    others = ("ACCELERATE", "MASTER_", "WORLD")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    command = [*launch, "--num_processes", str(number), "env"]
    said = subprocess.run(command, capture_output=True, text=True, env=clean).stdout
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    if not fails:
        return check_launch(variables=found)
    with pytest.raises(ConfigError, match="several processes and started one"):
        check_launch(variables=found)


# ---------------------------------------------------------------------- what is said
def test_a_dry_run_is_read_line_by_line_and_names_held_out_tasks_trained_on(start):
    status, out, _ = start("--dry-run", "lora.r=4")
    assert status == 0
    for words in (
        "plan           1 process, 100000 tasks; 8 episodes (2 tasks x 4) for 1 update; 50000 steps an epoch, 3 steps",
        "learning rate  1e-05 (default for what is trained)",
        "weights        LoRA adapters are trained, in float32",
        "parameters     ",
        "language",
        "GiB free",
        "images         env: the first 3 tasks show 3",
    ):
        assert words in out
    assert "{" not in out.splitlines()[-1]
    assert "also trained on" not in out
    _, out, _ = start("--dry-run", "env.eval={}")
    assert "warning: 4 of 4 held-out tasks are also trained on" in out
    assert "env.eval is empty" in out


def test_a_supervised_run_with_fewer_episodes_than_a_batch_ends_with_2_and_saves_no_model(start, tmp_path):
    few = {**SFT, "train": {**SFT["train"], "per_device_train_batch_size": 16, "dataloader_drop_last": True}}
    status, _, err = start(content=few)
    assert status == 2
    assert "no step was trained" in err
    assert not list((tmp_path / "out").glob("*/model"))


def test_a_run_says_what_it_will_do_and_how_long_it_takes_and_past_its_end_that_nothing_is_left(start, tmp_path):
    """The closing loss of a resumed run is that of the whole run."""
    status, out, err = start(content=SFT)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[1].startswith("plan: 1 process, ")
    assert any(re.match(r"about \S+ s a step: \S+ for the other \d+", line) for line in lines)
    run = tmp_path / "out" / "run-seed0"
    (whole,) = [line["train_loss"] for line in read_metrics(run / "metrics.jsonl") if "train_loss" in line]
    status, out, err = start(f"--resume={run}/checkpoints/checkpoint-2", content=SFT)
    assert status == 0, err
    assert "nothing is trained" not in out
    (resumed,) = [line["train_loss"] for line in read_metrics(run / "metrics.jsonl") if "train_loss" in line]
    assert resumed == pytest.approx(whole, rel=1e-6)
    status, out, _ = start(f"--resume={run}", content=SFT)
    assert status == 0
    assert "warning: checkpoint-4 is at the last step: nothing is trained" in out


# ---------------------------------------------------------------------- the reference model
def test_the_reference_model_has_the_revision_of_the_policy(start, monkeypatch):
    loaded = []

    def load(name, **settings):
        loaded.append(settings.get("revision"))
        return create(name, **settings)

    create = grpo_trainer.create_model_from_path
    monkeypatch.setattr(grpo_trainer, "create_model_from_path", load)
    status, _, err = start("train.beta=0.1", "model.revision=v2", "train.max_steps=1", "log.eval_tasks=0")
    assert status == 0, err
    assert loaded == ["v2"]


# ---------------------------------------------------------------------- models
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no file named model.safetensors"),
        (
            lambda folder: edit_json(folder / "config.json", model_type="bert", architectures=[]),
            "model_type 'bert' is no model of images and text in transformers",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(start, tiny_folder, tmp_path, damage, says):
    damage(shutil.copytree(tiny_folder, tmp_path / "other"))
    assert says in start(f"model.name={tmp_path}/other", "--dry-run")[2]


def test_4_bit_weights_without_their_package_or_of_a_new_model_are_refused(start, monkeypatch):
    assert "built in float32" in start("lora.quantize=4bit", "model={tiny: {}}", "--dry-run")[2]
    monkeypatch.setattr("viewbox.engines.hf.quantization.find_spec", lambda name: None)
    assert "needs the package bitsandbytes; " in start("lora.quantize=4bit", "--dry-run")[2]
