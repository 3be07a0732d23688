"""Rewards from YAML: what is written is what is made, and a mistake is named by its path."""

import subprocess
import sys

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    Component,
    ExactMatchReward,
    FormatReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    RewardSpec,
    TokenF1Reward,
    ToolUseReward,
    build,
)

KINDS = "brier, combined, exact_match, format, iou, judge, label_set_f1, python, ranking, seen, token_f1, tool_use"

YAML = """
reward:
  type: combined
  components:
    label: {type: exact_match, field: label, aliases: {seven: ["7"]}, tolerance: 1e-3, weight: 0.5}
    box: {type: iou, field: finding.bbox, reference_field: bbox, format: xywh, threshold: 0.5, weight: 0.3}
    text: {type: token_f1, field: report, stop_words: [the], weight: 0.2}
"""


class Run(BaseModel):
    reward: RewardSpec


def test_yaml_makes_the_rewards_it_names():
    assert build(yaml.safe_load(YAML)["reward"]) == CombinedReward(
        {
            "label": (ExactMatchReward("label", aliases={"seven": ["7"]}, tolerance=1e-3), 0.5),
            "box": (IoUReward("finding.bbox", "bbox", format="xywh", threshold=0.5), 0.3),
            "text": (TokenF1Reward("report", stop_words=["the"]), 0.2),
        }
    )


def test_a_reward_is_a_field_of_any_model_and_stands_as_built():
    run = Run.model_validate(yaml.safe_load(YAML))
    assert run.reward == build(yaml.safe_load(YAML)["reward"])
    assert Run(reward=run.reward).reward is run.reward
    with pytest.raises(ValidationError, match=r"reward\.color = 1: unknown key 'color'"):
        Run.model_validate({"reward": {"type": "iou", "field": "bbox", "color": 1}})


def test_a_mistake_carries_its_key():
    with pytest.raises(ConfigError) as caught:
        build(box(weight=1, threshold=2))
    assert caught.value.key == "reward.components.box.threshold"


def test_a_reward_of_a_room_above_is_imported_when_yaml_names_it(tmp_path):
    code = (
        "import sys\nfrom viewbox.rewards import build\n"
        "build({'type': 'iou'})\nassert 'viewbox.rollouts.judge.reward' not in sys.modules\n"
        "print(build({'type': 'judge', 'endpoint': 'http://127.0.0.1:9/v1', 'model': 'm'}).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "judge"


@each(
    ("spec", "made"),
    [
        ({"type": "exact_match"}, ExactMatchReward()),
        ({"type": "iou", "name": "box"}, IoUReward(name="box")),
        ({"type": "iou", "threshold": None}, IoUReward()),
        ({"type": "token_f1", "field": "report", "stop_words": True}, TokenF1Reward("report", stop_words=True)),
        ({"type": "token_f1", "field": "a", "negation_scope": False}, TokenF1Reward("a", negation_scope=False)),
        ({"type": "iou", "box_key": "box", "label_key": "name", "frame": "per_mille", "reference_frame": "unit"},
            IoUReward(box_key="box", label_key="name", frame="per_mille", reference_frame="unit")),
        ({"type": "label_set_f1", "aliases": {"a": ["b"]}}, LabelSetF1Reward(aliases={"a": ["b"]})),
        ({"type": "ranking", "metric": "ndcg", "k": 3}, RankingReward(metric="ndcg", k=3)),
        ({"type": "brier", "scale": 100}, BrierReward(scale=100)),
        ({"type": "brier", "of": {"type": "exact_match", "field": "answer"}},
            BrierReward(of=ExactMatchReward("answer"))),
        ({"type": "format", "malformed": 0.1}, FormatReward(malformed=0.1)),
        ({"type": "tool_use", "at_least": 1, "tools": ["zoom"]}, ToolUseReward(at_least=1, tools=["zoom"])),
    ],
)  # fmt: skip
def test_what_is_left_out_has_the_default_of_the_class(spec, made):
    assert build(spec) == made


def test_yaml_gates_a_part_by_another():
    spec = """
    type: combined
    components:
      label: {type: exact_match, weight: 0.9}
      look: {type: tool_use, at_least: 1, weight: 0.1, needs: {label: 1.0}}
    """
    look = Component(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0})
    assert build(yaml.safe_load(spec)) == CombinedReward({"label": (ExactMatchReward(), 0.9), "look": look})


def box(**options):
    return {"type": "combined", "components": {"box": {"type": "iou", **options}}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "iuo"}, "reward: unknown reward 'iuo'; allowed: " + KINDS + " (did you mean"),
        ({"field": "x"}, "reward.type: is missing; allowed: " + KINDS),
        ({"type": "token_f1"}, "reward.field: is missing; allowed: text"),
        ({"type": "iou", "treshold": 1}, "reward.treshold = 1: unknown key 'treshold'; allowed: area_penalty"),
        ({"type": "iou", "threshold": 2}, "reward.threshold = 2; allowed: a number above 0 and of at most 1 or null"),
        ({"type": "exact_match", "tolerance": float("nan")},
            "reward.tolerance = nan; allowed: a finite number of at least 0"),
        ({"type": "token_f1", "field": "a", "stop_words": "the"},
            "reward.stop_words = 'the'; allowed: true or false or a list of text"),
        ({"type": "iou", "weight": 1}, "reward.weight = 1: allowed only in a component of"),
        (box(weight=1, format="xx"), "reward.components.box.format = 'xx'; allowed: 'xyxy', 'xywh' or 'xyzxyz'"),
        (box(weight=0.5), "reward.components: weights sum to 0.5 (box: 0.5); allowed: a sum of 1"),
        (box(weight=-1), "reward.components.box.weight = -1; allowed: a number of at least 0"),
        (box(), "reward.components.box.weight: is missing; allowed: a number of at least 0"),
        ({"type": "combined", "components": {"combined": box()}}, "reward.components.combined.components.box.weight"),
        ({"type": "combined", "components": {"iou": {"type": "no"}}}, "reward.components.iou: unknown reward 'no'"),
        ({"type": "combined", "components": {}}, "reward.components: weights sum to 0 (no components)"),
        ({"type": "iou", "needs": {"label": 1}}, "reward.needs = {'label': 1}: allowed only in a component of"),
        (box(weight=1, needs={"label": 2}), "reward.components.box.needs.label = 2; allowed: a number above 0"),
        (box(weight=1, needs={"label": 1}), "reward.components.box.needs: unknown component 'label'"),
        (box(weight=1, needs={"box": 1}), "reward.components: needs form a cycle: box → box"),
        ({"type": "tool_use"}, "reward: neither at_least nor at_most is given"),
        ({"type": "brier", "of": {"type": "iou", "weight": 1}},
            "reward.of.weight = 1: allowed only in a component of"),
        ({"type": "brier", "of": {"type": "iuo"}}, "reward.of: unknown reward 'iuo'"),
        (box(weight=1, frame="pixel", reference_frame="unit"), "reward.components.box.size_field: is missing"),
        ({"type": []}, "reward: unknown reward"),
        (None, "reward = None; allowed: a mapping with `type`"),
        ("iou", "reward = 'iou'; allowed: a mapping with `type`"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_path_value_and_what_is_allowed(spec, message):
    if "combined.components" in message:
        spec["components"]["combined"]["weight"] = 1
    with pytest.raises(ConfigError) as caught:
        build(spec)
    assert str(caught.value).startswith(message)


def test_importing_rewards_loads_neither_torch_nor_environments(tmp_path):
    code = (
        "import sys, viewbox.rewards\n"
        "print([m for m in ('torch', 'transformers', 'viewbox.envs', 'rewards', 'envs') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
