"""A new vision tower learns to read from close looks that were answered right, and to find in overviews."""

import pytest
import torch

from viewbox.configs.train_sections import VisionSection
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits
from viewbox.errors import StoreError
from viewbox.training.evaluate import build_script
from viewbox.training.sft.vision_task import VisionTask, find_close_looks, find_overviews

ENV = Digits(noise=5, digit=16, places=2, margin=0.25)  # easy to read: the test is of the mechanism


@pytest.fixture(scope="module")
def episodes(kits, play):
    kit = kits["qwen3_vl"] if isinstance(kits, dict) else kits("qwen3_vl")
    script = build_script(ENV, "demonstration", guess=0.3, too_far=0.0, astray=0.3)
    return kit, play(ENV, list(ENV.tasks[:120]), ScriptedGenerator(kit.tokens, script))


def test_only_looks_with_the_right_label_are_used(episodes):
    _, played = episodes
    looks = find_close_looks(played, "label")
    looked = [e for e in played if e.tool_call_count and e.answer["label"] == e.task.reference["label"]]
    assert len(looks) == len(looked) < sum(e.tool_call_count > 0 for e in played)
    assert {label for _, label in looks} <= {e.task.reference["label"] for e in played}


def test_every_overview_is_used_with_the_center_of_its_gold_box(episodes):
    _, played = episodes
    found = find_overviews(played, "bbox")
    assert [image.hash for image, _ in found] == [e.tokens.images[0].hash for e in played]
    assert {round(value, 2) for _, center in found for value in center} == {0.25, 0.75}


def test_the_tower_learns_to_tell_the_digits_and_where_they_are(episodes):
    kit, played = episodes
    torch.manual_seed(0)
    model = kit.model()
    task = VisionTask(model, kit.tokens, played, VisionSection(batch=24), 0)
    optimizer = torch.optim.AdamW([*model.model.visual.parameters(), *task.parameters()], lr=3e-3)
    right = []
    for _ in range(150):
        task.compute_loss(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        right.append(task.accuracy)

    def share(name, part):
        return sum(one[name] for one in part) / len(part)

    assert share("vision/label_accuracy", right[-20:]) > 0.3  # of ten classes
    assert share("vision/center_accuracy", right[-20:]) > 0.5  # of four places
    assert share("vision/center_accuracy", right[:5]) < 0.3


def test_the_weight_scales_the_loss_and_the_seed_decides_the_batches(episodes):
    kit, played = episodes
    model = kit.model()

    def loss(weight, seed=0):
        torch.manual_seed(0)
        task = VisionTask(model, kit.tokens, played, VisionSection(batch=8, weight=weight), seed)
        return task.compute_loss(model).item()

    assert loss(2.0) == pytest.approx(2 * loss(1.0), rel=1e-5)
    assert loss(1.0, seed=0) == loss(1.0, seed=0) != loss(1.0, seed=1)


def test_too_few_looks_are_refused_in_words(episodes):
    kit, played = episodes
    with pytest.raises(StoreError, match=r"0 demonstrations .* answered 'label' correctly; allowed: at least 64"):
        VisionTask(kit.model(), kit.tokens, played[:0], VisionSection(), 0)
