"""A new vision tower learns to read from close looks that were answered right, and to find in overviews."""

import json

import pytest
import torch

from tests.test_benchmarks import load as load_benchmark
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits
from viewbox.errors import StoreError
from viewbox.training.held_out import build_script

EXAMPLE = load_benchmark("new_vision_tower")
ENV = Digits(noise=5, digit=16, places=2, margin=0.25)  # easy to read: the test is of the mechanism


@pytest.fixture(scope="module")
def episodes(qwen3, play):
    script = build_script(ENV, "demonstration", guess=0.3, too_far=0.0, astray=0.3)
    return play(ENV, list(ENV.tasks[:60]), ScriptedGenerator(qwen3.tokens, script))


def test_only_looks_with_the_right_label_are_used_and_every_overview_with_the_center_of_its_gold_box(episodes):
    looks = EXAMPLE.find_close_looks(episodes, "label")
    looked = [e for e in episodes if e.tool_call_count and e.answer["label"] == e.task.reference["label"]]
    assert len(looks) == len(looked) < sum(e.tool_call_count > 0 for e in episodes)
    found = EXAMPLE.find_overviews(episodes, "bbox")
    assert [image.hash for image, _ in found] == [e.tokens.images[0].hash for e in episodes]
    assert {round(value, 2) for _, center in found for value in center} == {0.25, 0.75}


def test_the_tower_learns_where_the_digits_are(qwen3, episodes):
    torch.manual_seed(0)
    model = qwen3.model()
    task = EXAMPLE.VisionTask(model, qwen3.tokens, episodes, EXAMPLE.Settings(batch=16), 0)
    optimizer = torch.optim.AdamW([*model.model.visual.parameters(), *task.parameters()], lr=3e-3)
    right = []
    for _ in range(60):
        task.compute_loss(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        right.append(task.accuracy["vision/center_accuracy"])
    assert sum(right[-10:]) / 10 > 0.5 > 0.3 > sum(right[:5]) / 5  # of four places


def test_too_few_looks_are_refused_in_words(qwen3, episodes):
    with pytest.raises(StoreError, match=r"0 demonstrations .* answered 'label' correctly; allowed: at least 64"):
        EXAMPLE.VisionTask(qwen3.model(), qwen3.tokens, episodes[:0], EXAMPLE.Settings(), 0)


def test_the_script_trains_with_the_losses_and_a_resumed_run_goes_on(tmp_path, capsys):
    given = ["tiny_warmstart", "--batch=4", f"log.dir={tmp_path}/runs", f"log.export={tmp_path}/model"]
    given += ["train.demonstrations.count=16", "train.max_steps=2", "train.per_device_train_batch_size=4"]
    given += ["env.num_tasks=64", "log.eval_tasks=0", "train.save_steps=1"]
    given += ["model.tiny={hidden: 48, layers: 1, vocab_size: 480}"]
    assert EXAMPLE.main(given) == 0
    (run,) = (tmp_path / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("vision/label_accuracy" in line for line in lines)
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert EXAMPLE.main([*given, f"--resume={run}/checkpoints/checkpoint-1"]) == 0
    again = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [[line["loss"] for line in some if "loss" in line] for some in (lines, again)]
    assert losses[0] == losses[1]
