"""A new vision tower learns from close looks, and only from those that were answered right."""

import pytest
import torch

from viewbox.config import VisionWarmup
from viewbox.envs.digits import Digits
from viewbox.errors import StoreError
from viewbox.rollouts.evaluate import script_of
from viewbox.rollouts.scripted import Forced
from viewbox.rollouts.vision import close_looks, warm_up

ENV = Digits(noise=5, digit=16)  # easy to read: the test is of the mechanism


@pytest.fixture(scope="module")
def episodes(kits, play):
    kit = kits["qwen3_vl"] if isinstance(kits, dict) else kits("qwen3_vl")
    script = script_of(ENV, "demonstration", guess=0.3, too_far=0.0, astray=0.3)
    return kit, play(ENV, list(ENV.tasks[:120]), Forced(kit.tokens, script))


def test_only_looks_with_the_right_label_are_used(episodes):
    _, played = episodes
    looks = close_looks(played, "label")
    looked = [e for e in played if e.tool_call_count and e.answer["label"] == e.task.reference["label"]]
    assert len(looks) == len(looked) < sum(e.tool_call_count > 0 for e in played)
    assert {label for _, label in looks} <= {e.task.reference["label"] for e in played}


def test_the_tower_learns_to_tell_the_digits_and_the_language_model_is_left_alone(episodes):
    kit, played = episodes
    torch.manual_seed(0)
    model = kit.model()
    language = {name: value.clone() for name, value in model.model.language_model.named_parameters()}
    said = []
    right = warm_up(model, kit.tokens, played, VisionWarmup(steps=150, batch=24), 0, said.append)
    assert right > 0.3  # of ten classes
    assert said[0].startswith("vision 50/150")
    assert all(torch.equal(value, language[name]) for name, value in model.model.language_model.named_parameters())


def test_too_few_looks_are_refused_in_words(episodes):
    kit, played = episodes
    with pytest.raises(StoreError, match=r"0 demonstrations looked and answered 'label' right; needed: 64"):
        warm_up(kit.model(), kit.tokens, played[:0], VisionWarmup(), 0)
