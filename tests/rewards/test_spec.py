"""Rewards from YAML and by import path: what is written is made, and a mistake is named before the first episode."""

import functools
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from tests.support.scoring import refuse
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
    to_combined,
)
from viewbox.rewards.declare import load_reward

KINDS = "brier, combined, evidence, exact_match, format, iou, judge, label_set_f1, python, ranking, seen, "
KINDS += "token_f1, tool_use"
YAML = """
type: combined
components:
  label: {type: exact_match, field: label, aliases: {seven: ["7"]}, tolerance: 1e-3, weight: 0.5}
  box: {type: iou, field: finding.bbox, reference_field: bbox, format: xywh, threshold: 0.5, weight: 0.3}
  text: {type: token_f1, field: report, stop_words: [the], weight: 0.1}
  look: {type: tool_use, at_least: 1, weight: 0.1, needs: {label: 1.0}}
"""
MADE = CombinedReward(
    {
        "label": (ExactMatchReward("label", aliases={"seven": ["7"]}, tolerance=1e-3), 0.5),
        "box": (IoUReward("finding.bbox", "bbox", format="xywh", threshold=0.5), 0.3),
        "text": (TokenF1Reward("report", stop_words=["the"]), 0.1),
        "look": Component(ToolUseReward(at_least=1), 0.1, needs={"label": 1.0}),
    }
)


def kind(type, /, **options):
    return {"type": type, **options}


def box(**options):
    return kind("combined", components={"box": kind("iou", **options)})


@each("spec, made", [
    (yaml.safe_load(YAML), MADE), (kind("exact_match"), ExactMatchReward()),
    (kind("iou", name="box"), IoUReward(name="box")), (kind("iou", threshold=None), IoUReward()),
    (kind("token_f1", field="a", negation_scope=False), TokenF1Reward("a", negation_scope=False)),
    (kind("iou", box_key="box", label_key="name", frame="per_mille", reference_frame="unit"),
     IoUReward(box_key="box", label_key="name", frame="per_mille", reference_frame="unit")),
    (kind("label_set_f1", aliases={"a": ["b"]}), LabelSetF1Reward(aliases={"a": ["b"]})),
    (kind("ranking", metric="ndcg", k=3), RankingReward(metric="ndcg", k=3)),
    (kind("brier", scale=100), BrierReward(scale=100)),
    (kind("brier", of=kind("exact_match", field="answer")), BrierReward(of=ExactMatchReward("answer"))),
    (kind("format", malformed=0.1), FormatReward(malformed=0.1)),
    (kind("tool_use", at_least=1, tools=["zoom"]), ToolUseReward(at_least=1, tools=["zoom"])),
])  # fmt: skip
def test_yaml_makes_the_rewards_it_names_and_what_is_left_out_has_the_default_of_the_class(spec, made):
    assert build(spec) == made


class Run(BaseModel):
    reward: RewardSpec


def test_a_reward_is_a_field_of_any_model_stands_as_built_and_a_mistake_carries_its_key():
    run = Run.model_validate({"reward": yaml.safe_load(YAML)})
    assert run.reward == MADE
    assert Run(reward=run.reward).reward is run.reward
    with pytest.raises(ValidationError, match=r"reward\.color = 1: unknown key 'color'"):
        Run.model_validate({"reward": {"type": "iou", "field": "bbox", "color": 1}})
    with pytest.raises(ConfigError) as caught:
        build(box(weight=1, threshold=2))
    assert caught.value.key == "reward.components.box.threshold"


@each("spec, message", [
    (kind("iuo"), "reward: unknown reward 'iuo'; allowed: " + KINDS + " (did you mean"),
    ({"field": "x"}, "reward.type: is missing; allowed: " + KINDS),
    (kind("token_f1"), "reward.field: is missing; allowed: text"),
    (kind("iou", treshold=1), "reward.treshold = 1: unknown key 'treshold'; allowed: area_penalty"),
    (kind("iou", threshold=2), "reward.threshold = 2; allowed: a number above 0 and of at most 1 or null"),
    (kind("exact_match", tolerance=float("nan")), "reward.tolerance = nan; allowed: a finite number of at least 0"),
    (kind("token_f1", field="a", stop_words="the"), "reward.stop_words = 'the'; allowed: true or false or a list"),
    (kind("iou", weight=1), "reward.weight = 1: allowed only in a component of"),
    (box(weight=1, format="xx"), "reward.components.box.format = 'xx'; allowed: 'xyxy', 'xywh' or 'xyzxyz'"),
    (box(weight=0.5), "reward.components: weights sum to 0.5 (box: 0.5); allowed: a sum of 1"),
    (box(weight=-1), "reward.components.box.weight = -1; allowed: a number of at least 0"),
    (box(), "reward.components.box.weight: is missing; allowed: a number of at least 0"),
    (kind("combined", components={"combined": {**box(), "weight": 1}}),
     "reward.components.combined.components.box.weight"),
    (kind("combined", components={"iou": kind("no")}), "reward.components.iou: unknown reward 'no'"),
    (kind("combined", components={}), "reward.components: weights sum to 0 (no components)"),
    (kind("iou", needs={"label": 1}), "reward.needs = {'label': 1}: allowed only in a component of"),
    (box(weight=1, needs={"label": 2}), "reward.components.box.needs.label = 2; allowed: a number above 0"),
    (box(weight=1, needs={"label": 1}), "reward.components.box.needs: unknown component 'label'"),
    (box(weight=1, needs={"box": 1}), "reward.components: needs form a cycle: box → box"),
    (kind("tool_use"), "reward: neither at_least nor at_most is given"),
    (kind("brier", of=kind("iou", weight=1)), "reward.of.weight = 1: allowed only in a component of"),
    (kind("brier", of=kind("iuo")), "reward.of: unknown reward 'iuo'"),
    (box(weight=1, frame="pixel", reference_frame="unit"), "reward.components.box.size_field: is missing"),
    ({"type": []}, "reward: unknown reward"), (kind("python"), "reward.function: is missing"),
    *((odd, f"reward = {odd!r}; allowed: a mapping with `type`") for odd in (None, "iou")),
])  # fmt: skip
def test_a_mistake_is_named_by_path_value_and_what_is_allowed(spec, message):
    with pytest.raises(ConfigError) as caught:
        build(spec)
    assert str(caught.value).startswith(message)


def test_rewards_load_neither_torch_nor_the_rooms_above_before_yaml_names_one(tmp_path):
    code = (
        "import sys\nfrom viewbox.rewards import build\nbuild({'type': 'iou'})\n"
        "rooms = 'torch', 'transformers', 'viewbox.envs', 'viewbox.rollouts.judge.reward', 'rewards', 'envs'\n"
        "print([m for m in rooms if m in sys.modules])\n"
        "print(build({'type': 'judge', 'endpoint': 'http://127.0.0.1:9/v1', 'model': 'm'}).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "judge"]


# ---- by import path
SOURCE = """
from dataclasses import dataclass
from neighbor import LIMIT
def half(answer, reference): return LIMIT
def lenient(answer, reference, *, slack=1, **more): return 1.0
def short(episode, longest=3): return float(episode.num_turns <= longest)
def one(answer): return 1.0
def none(): return 1.0
def three(answer, reference, extra): return 1.0
def keyword(answer, reference, *, extra): return 1.0
def two_of_episode(episode, other): return 1.0
async def late(answer, reference): return 1.0
def generator(answer, reference): yield 1.0
@dataclass(frozen=True)
class Made:
    name: str = "made"
    def __call__(self, answer, reference): return 0.25
class Nameless:
    def of_episode(self, episode): return 0.75
class Needs:
    def __init__(self, field): pass
class BadEpisode:
    def of_episode(self): return 1.0
made = Made("ready")
quick = lambda answer, reference: 0.125
number = 7
"""
EPISODE = SimpleNamespace(num_turns=2)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder with the module `own_rewards`, which is the current folder, and with modules that fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    files = {
        "neighbor": "LIMIT = 0.5\n",
        "own_rewards": SOURCE,
        "syntax": "def f(:",
        "raises": "1 / 0",
        "lacks": "import nowhere_at_all",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield tmp_path
    for name in files:
        sys.modules.pop(name, None)


@each("module", ["own_rewards", "own_rewards.py", "./own_rewards.py"])
@each("name, called, value", [
    ("half", "half", 0.5), ("lenient", "lenient", 1.0), ("short", "short", 1.0), ("Made", "made", 0.25),
    ("made", "ready", 0.25), ("Nameless", "Nameless", 0.75), ("quick", "quick", 0.125),
])  # fmt: skip
def test_every_form_is_a_reward_with_a_name_which_can_be_given(source, module, name, called, value):
    reward = load_reward(f"{module}:{name}")
    assert reward.name == called
    assert to_combined(reward).score({}, {}, EPISODE) == (value, {called: value})
    assert name == "made" or to_combined(load_reward(f"{module}:{name}", "mine")).score({}, {}, EPISODE)[1] == {
        "mine": value
    }
    assert load_reward("viewbox.rewards:IoUReward") == IoUReward()


@each("given, words", [
    ("own_rewards", r"allowed: package\.module:Name or path/to/file\.py:Name"),
    ("own_rewards:", r"allowed: package\.module:Name"),
    ("own_reward:half", "No module named 'own_reward'; allowed: a module"),
    ("absent.py:half", "absent.py: no such file; allowed"),
    ("own_rewards:hlf", "unknown name 'hlf'.*did you mean 'half'"),
    ("own_rewards:number", "is a int; allowed: a function of"),
    ("own_rewards:none", r"takes \(\), not \(answer, reference\)"),
    ("own_rewards:one", r"takes \(answer\), not \(answer, reference\)"),
    ("own_rewards:three", r"takes \(answer, reference, extra\), not \(answer, reference\)"),
    ("own_rewards:keyword", r"takes \(answer, reference, \*, extra\)"),
    ("own_rewards:two_of_episode", r"takes \(episode, other\), not \(episode\)"),
    ("own_rewards:BadEpisode", r"takes \(\), not \(episode\)"),
    ("own_rewards:Needs", "cannot be made without arguments: TypeError: .*'field'"),
    *((f"own_rewards:{name}", "is asynchronous or a generator") for name in ("late", "generator")),
    ("builtins:max", "its arguments cannot be read"),
    *((f"{name}:f", f"cannot be imported: .*{error}")
      for name, error in [("syntax", "SyntaxError"), ("raises", "ZeroDivisionError"), ("lacks", "nowhere")]),
])  # fmt: skip
def test_a_mistake_says_what_was_given_and_what_is_allowed(source, given, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_reward(given)
    assert repr(given) in str(caught.value) or given[0] in "srl"


def test_of_a_wrapped_function_what_is_called_says_its_arguments():
    def three(answer, reference, extra):
        return extra

    given = functools.wraps(three)(lambda answer, reference: three(answer, reference, 0.5))
    assert to_combined(given).score({}, {})[0] == 0.5
    passes_on = functools.wraps(three)(lambda *args: three(*args))
    refuse(r"takes \(answer, reference, extra\), not", lambda: to_combined(passes_on))


def test_yaml_names_a_reward_by_its_path(source):
    own = kind("python", function="own_rewards:half", weight=0.5)
    reward = build(
        kind("combined", components={"own": own, "short": {**own, "function": "own_rewards:short", "name": "brief"}})
    )
    assert reward.score({}, {}, EPISODE) == (0.75, {"own": 0.5, "short": 1.0})
    refuse("did you mean 'half'", build, spec=kind("python", function="own_rewards:hlf"))
