"""A plan: each part is made once, and all that is wrong with a stage is said together, cheap questions first."""

import subprocess
import sys

import pytest

from viewbox.configs.schema import parse
from viewbox.errors import ConfigError
from viewbox.training import dry_run
from viewbox.training import plan as plans
from viewbox.training.findings import ROWS, STAGES, check
from viewbox.training.plan import Plan

SMALL = {"num_generations": 2, "per_device_train_batch_size": 2, "max_steps": 1}


def make(folder, **sections):
    log = {"dir": str(folder / "runs"), "eval_tasks": 2}
    raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": "digits"}, "train": SMALL, "log": log}
    return Plan(parse(raw | sections))


def test_every_row_needs_earlier_ones_and_stages_come_in_order():
    rows = [*ROWS, *dry_run.ROWS]
    asked = [row.ask for row in rows]
    assert len(asked) == len(set(asked))
    for number, row in enumerate(rows):
        assert set(row.needs) <= set(asked[:number])
    assert [STAGES.index(row.stage) for row in rows] == sorted(STAGES.index(row.stage) for row in rows)


WRONG = {
    "train.learning_rat=1": "'learning_rate'?",
    "env.noize=3": "'noise'?",
    "log.dir=/dev/null": "log.dir",
    "rollout.temperature=0": "rollout.temperature = 0: grpo needs samples that differ",
    "log.eval_patience=3": "only with log.eval_steps",
}


@pytest.mark.parametrize("given", [[*WRONG], ["train.learning_rat=1"]], ids=["five", "one"])
def test_all_that_is_written_wrong_is_said_together_before_torch_is_loaded(tmp_path, given):
    code = (
        "import os, sys\nfrom viewbox.training.command import main\n"
        f"print(main(['quickstart', *{given!r}]), 'torch' in sys.modules, 'transformers' in sys.modules)\n"
        "assert sum(os.times()[:2]) < 2"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ended.stdout == "2 False False\n", ended.stderr
    assert ended.returncode == 0, "more than two seconds of the processor"
    for word in [WRONG[override] for override in given]:
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


def test_environments_are_built_once_for_all_who_ask(tmp_path, monkeypatch):
    built = []

    def build(config, settings):
        built.append(dict(settings))
        return build_envs(config, settings)

    build_envs = plans.build_envs
    monkeypatch.setattr(plans, "build_envs", build)
    rollout = {"max_completion_tokens": 400, "max_reply_tokens": 40}
    plan = make(tmp_path, env={"name": "digits", "num_tasks": 64}, rollout=rollout)
    check(plan, dry_run.ROWS)
    plan.load()
    assert len(built) <= 2  # without the processor, and with it
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
