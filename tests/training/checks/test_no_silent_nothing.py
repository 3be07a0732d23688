"""A run that would do nothing, or something else than it says, is refused or says so, before it begins if possible."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import forks, killer
from tests.support.run_cases import edit_json
from tests.support.tables import each
from viewbox.configs.schema import parse
from viewbox.errors import ConfigError
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train
from viewbox.training import dry_run, findings
from viewbox.training import plan as plans
from viewbox.training.findings import ROWS, STAGES, check, check_launch
from viewbox.training.plan import Plan

GRPO = {
    "env": {"name": "digits", "max_turns": 3, "eval": {"split": "test"}},
    "rollout": {"max_reply_tokens": 8, "max_completion_tokens": 300},
    "train": {"max_steps": 3, "num_generations": 4, "per_device_train_batch_size": 8}, "log": {"eval_tasks": 4},
}  # fmt: skip
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


UNREAD = [  # an override, or several, and words of the refusal
    ("env.num_tasks=1, log.eval_tasks=1", "has 1 tasks, fewer than the 2 of one generation", "no step would"),
    ("env.max_turns=1", "env.max_turns = 1", "no tool can be called", "env.tools: []"),
    ("env.eval.max_turns=1", "env.eval.max_turns = 1", "no tool can be called"),
    ("env.history={last_images: 2}", "env.history = {last_images: 2}", "allowed: full"),
    ("train.max_steps=0", "train.max_steps = 0", "at least 1, or -1"),
    ("train.learning_rate=0.0", "train.learning_rate = 0.0; allowed: above 0"),
    ("train.gradient_accumulation_steps=0", "gradient_accumulation_steps = 0; allowed: at least 1"),
    ("train.sync_ref_model=true, train.beta=0.1, lora.r=4", "train.sync_ref_model", "train.beta", "lora"),
    ("lora.target_modules=[q_prj]", "lora.target_modules = ['q_prj']: matches no linear layer", "q_proj"),
    # of those in the tower and the output layer, which would be refused, none is offered
    ("lora.target_modules=[lm_hed], model.freeze=projector",
        "names such as down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj\n"),
    ("log.eval_patience=2", "log.eval_patience = 2: counts evaluations"),
    ("log.eval_steps=2, log.eval_tasks=0", "log.eval_steps = 2: log.eval_tasks = 0"),
    ("train.top_p=0.9", "train.top_p: cannot be set here", "it is decided by rollout.top_p"),
    ("train.min_p=0.1", "train.min_p: cannot be used", "rollout.top_p"),
    ("model.name=null, model.tiny={}, train.beta=0.1", "train.beta = 0.1"),
    ("log.dir=FILE", "log.dir '", "is not a folder; allowed: a folder"),
]  # fmt: skip


@each("row", UNREAD)
def test_what_would_do_nothing_is_refused_with_2_and_a_sentence_at_the_dry_run(start, tmp_path, row):
    (tmp_path / "file").write_text("")
    overrides, *words = row
    status, out, err = start(*overrides.replace("FILE", str(tmp_path / "file")).split(", "), "--dry-run")
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
@each("variables, words", [
    ({"ACCELERATE_MIXED_PRECISION": "no", "MASTER_PORT": "29500"}, "several processes and started one"),
    ({"ACCELERATE_USE_FSDP": "true", "WORLD_SIZE": "2"}, "FSDP"), ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed"),
])  # fmt: skip
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
@pytest.fixture
def built(monkeypatch):
    """The settings with which environments are built: without the processor, and with it."""
    built, build_envs = [], plans.build_envs
    monkeypatch.setattr(plans, "build_envs", lambda *given: built.append(dict(given[1])) or build_envs(*given))
    return built


def test_a_dry_run_is_read_line_by_line_and_names_held_out_tasks_trained_on(start, tmp_path, built):
    status, out, _ = start("--dry-run", "lora.r=4", "env.num_tasks=64")  # all tasks are looked at, which takes seconds
    assert (status, len(built)) == (0, 2)
    for words in (
        "plan           1 process, 64 tasks; 8 episodes (2 tasks x 4) for 1 update; 32 steps an epoch, 3 steps",
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
    warning = check(make(tmp_path, env={"name": "digits", "num_tasks": 64})).lines["held out"]
    assert "warning: 2 of 2 held-out tasks are also trained on" in warning
    assert "env.eval is empty" in warning


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


# ---------------------------------------------------------------------- models
def test_a_model_of_text_alone_is_refused(start, tiny_folder, tmp_path):
    edit_json(shutil.copytree(tiny_folder, tmp_path / "other") / "config.json", model_type="bert", architectures=[])
    said = start(f"model.name={tmp_path}/other", "--dry-run")[2]
    assert "model_type 'bert' is no model of images and text in transformers" in said


def test_4_bit_weights_without_their_package_or_of_a_new_model_are_refused(start, monkeypatch):
    assert "built in float32" in start("lora.quantize=4bit", "model={tiny: {}}", "--dry-run")[2]
    monkeypatch.setattr("viewbox.engines.hf.quantization.find_spec", lambda name: None)
    assert "needs the package bitsandbytes; " in start("lora.quantize=4bit", "--dry-run")[2]


# ---------------------------------------------------------------------- the plan
SIZES = {"num_generations": 2, "per_device_train_batch_size": 2, "max_steps": 1}


def make(folder, **sections):
    log = {"dir": str(folder / "runs"), "eval_tasks": 2}
    raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": "digits"}, "train": SIZES, "log": log}
    return Plan(parse(raw | sections))


def test_every_row_needs_earlier_ones_and_stages_come_in_order():
    rows = [*ROWS, *dry_run.ROWS]
    asked = [row.ask for row in rows]
    assert len(asked) == len(set(asked))
    for number, row in enumerate(rows):
        assert set(row.needs) <= set(asked[:number])
    assert [STAGES.index(row.stage) for row in rows] == sorted(STAGES.index(row.stage) for row in rows)


MISTAKES = {
    "train.learning_rat=1": "'learning_rate'?", "env.noize=3": "'noise'?", "log.dir=/dev/null": "log.dir",
    "rollout.temperature=0": "rollout.temperature = 0: grpo needs samples that differ",
    "log.eval_patience=3": "only with log.eval_steps",
}  # fmt: skip


@pytest.mark.parametrize("given", [[*MISTAKES], ["train.learning_rat=1"]], ids=["five", "one"])
def test_all_that_is_written_wrong_is_said_together_before_torch_is_loaded(tmp_path, given):
    code = (
        "import os, sys\nfrom viewbox.training.command import main\n"
        f"print(main(['quickstart', *{given!r}]), 'torch' in sys.modules, 'transformers' in sys.modules)\n"
        "assert sum(os.times()[:2]) < 2"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout == "2 False False\n", ended.stderr
    assert ended.returncode == 0, "more than two seconds of the processor"
    for word in [MISTAKES[override] for override in given]:
        assert word in ended.stderr
    assert ("5 problems; what needs tasks and model is asked after these" in ended.stderr) == (len(given) == 5)


def test_what_needs_the_model_is_said_together_too(tmp_path):
    wrong = {"lora": {"r": 4, "target_modules": ["q_prj"]}, "rollout": {"max_completion_tokens": 60_000}}
    with pytest.raises(ConfigError) as caught:
        check(make(tmp_path, **wrong))
    assert caught.value.key == "rollout.max_completion_tokens"
    lines = str(caught.value).splitlines()
    for word, line in zip(("context of 4096", "'q_proj'?", "2 problems"), lines, strict=True):
        assert word in line


def test_environments_are_built_once_for_all_who_ask(tmp_path, built):
    """The forecast of memory is one of them: see the dry run above."""
    plan = make(tmp_path, env={"name": "digits", "num_tasks": 64})
    check(plan, [row for row in dry_run.ROWS if row.ask is not dry_run.show_memory])
    plan.load()
    assert len(built) <= 2
    assert built[0].items() <= built[-1].items()


def test_a_part_that_cannot_be_made_fails_once(tmp_path, monkeypatch):
    tried = []

    def fail(section):
        tried.append(section)
        raise ConfigError("model.name: cannot be read", key="model.name")

    monkeypatch.setattr(plans, "find_model", fail)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        check(make(tmp_path))
    assert len(tried) == 1
    assert str(caught.value).count("cannot be read") == 1
