"""The tiny configs of `chest_xray`: a warm start that asks a decoy, and GRPO that learns which tool to trust."""

import json

import numpy as np
import pytest

import viewbox
from viewbox.configs import schema
from viewbox.envs.chest_xray.demonstrations import guess_findings
from viewbox.envs.chest_xray.radiographs import LABELS
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train


def run(folder, name, *settings):
    assert train.main([name, f"log.dir={folder}", *settings]) == 0
    return next(folder.glob(f"{name}*"))


@pytest.mark.slow
def test_a_few_steps_teach_the_shipped_policy_to_ask_the_classifier_and_not_the_decoy(tmp_path):
    folder = run(tmp_path, "chest_xray_tiny", "train.max_steps=15", "log.eval_tasks=60")
    held_out = json.loads((folder / "summary.json").read_text())["held_out"]
    before, after = held_out["before"], held_out["after"]
    assert before["tools/classify_b/calls"] > 0.3 > after["tools/classify_b/calls"]
    assert before["tools/classify_a/calls"] < 0.5 < after["tools/classify_a/calls"]
    assert after["reward"] > before["reward"] + 0.15
    steps = [line for line in read_metrics(folder / "metrics.jsonl") if "tools/classify_b/calls" in line]
    assert steps, "calls of each tool are logged while it trains"


def test_both_configs_play_the_same_environment_and_only_the_warm_start_names_the_tool_that_bears():
    first, second = schema.load("chest_xray_warmstart"), schema.load("chest_xray_tiny")
    assert {**first.env.settings, "bearing": None} == {**second.env.settings, "bearing": None}
    assert "bearing" not in second.env.settings
    assert second.model.name == f"package:{first.log.export.removeprefix('assets/')}"


def test_what_the_policy_reads_does_not_tell_the_decoy_from_the_classifier():
    config = schema.load("chest_xray_tiny")
    env = viewbox.make(config.env.name, **config.env.settings)
    task = env.tasks[0]
    prompt = "\n".join(str(message.content) for message in env.reset(task, seed=0).messages)
    assert "guess" not in prompt
    assert "decoy" not in prompt
    first, second = (env.toolbox[name] for name in env.tools_of(task))
    assert first.parameters == second.parameters


def test_a_decoy_says_the_same_of_the_same_pixels_and_nothing_of_what_they_show(pictures):
    said = [guess_findings(picture) for picture in pictures]
    again = [guess_findings(picture) for picture in pictures]
    assert said == again
    labels = [next(iter(output.facts)) for output in said]
    assert set(labels) == set(LABELS)
    shares = [next(iter(output.facts.values())) for output in said]
    assert all(0 <= share <= 1 for share in shares)
    assert 0.05 < sum(share < 0.5 for share in shares) / len(shares) < 0.35  # a sixth says: nothing


@pytest.fixture
def pictures():
    rng = np.random.default_rng(0)
    return [View.of(Source.of(rng.integers(0, 256, (8, 8), dtype=np.uint8))) for _ in range(200)]
