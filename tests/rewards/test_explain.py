"""The sentences beside the scores: every reward has one, and none of them fails."""

from tests.support.tables import each
from viewbox.records import Episode, Task
from viewbox.rewards import (
    CombinedReward,
    Component,
    ExactMatchReward,
    FormatReward,
    IoUReward,
    LabelSetF1Reward,
    TokenF1Reward,
    ToolUseReward,
    build,
    explain_reward,
)
from viewbox.rewards.declare import load_reward
from viewbox.rewards.explain import explain_score


@each(
    ("reward", "said", "gold", "words"),
    [
        (ExactMatchReward("value"), "Cyst", "cyst", "value: 'Cyst' is 'cyst'"),
        (ExactMatchReward("value"), None, "cyst", "value: nothing is not 'cyst'"),
        (ExactMatchReward("value", tolerance=0.5), 3, 7, "value: 3 is not 7 (± 0.5)"),
        (ExactMatchReward("value"), "x" * 100, "cyst", f"value: '{'x' * 60}…' is not 'cyst'"),
        (TokenF1Reward("value"), "no cyst", "cyst",
            "value: 0 of 1 words are among the gold's 1; contradicts the gold: not cyst"),
        (TokenF1Reward("value"), "no big cyst", "no cyst", "value: 1 of 2 words are among the gold's 1 (not cyst)"),
        (TokenF1Reward("value"), None, "cyst", "value: no answer given; wanted 'cyst'"),
        (IoUReward("value"), None, [0, 0, 1, 1], "value: the answer does not hold a box"),
        (IoUReward("value"), [0, 0, 1, 0.5], [0, 0, 1, 1], "1 of 1 gold boxes matched: IoU 0.50"),
        (IoUReward("value", threshold=0.6), [0, 0, 1, 0.5], [0, 0, 1, 1],
            "0 of 1 gold boxes matched (threshold 0.6); 1 of 1 answer boxes is unmatched"),
        (LabelSetF1Reward("value"), ["cyst", "mass"], ["cyst", "nodule"],
            "value: 1 of 2 gold labels found; missing: nodule; wrong: mass"),
        (FormatReward(), None, None, "does not apply: it reads a whole episode"),
        (ToolUseReward(at_least=1), None, None, "does not apply: it reads a whole episode"),
        (lambda answer, reference: None, None, None, "does not apply"),
        (lambda answer, reference: 1 / 0, None, None, "failed: ZeroDivisionError: division by zero"),
    ],
)  # fmt: skip
def test_a_reward_says_why(reward, said, gold, words):
    assert explain_reward(reward, {"value": said}, {"value": gold}) == words


def test_a_combined_reward_says_why_part_by_part():
    reward = CombinedReward(
        {
            "inner": (CombinedReward({"label": (ExactMatchReward("label"), 1.0)}), 0.5),
            "box": Component(IoUReward("bbox"), 0.4, needs={"inner": 1.0}),
            "look": Component(ToolUseReward(at_least=1), 0.05, needs={"inner": 0.5}),
            "tail": Component(ExactMatchReward("label"), 0.05, needs={"format": 0.5}),
            "format": (FormatReward(), 0.0),
        }
    )
    explained = explain_score(reward, {"label": "cyst"}, {"label": "nodule"})
    assert {one.name: one.why for one in explained.components} == {
        "inner": "weighted mean of its components: 0", "inner.label": "label: 'cyst' is not 'nodule'",
        "box": "counts 0: inner is 0, needed: 1", "look": "counts 0: inner is 0, needed: 0.5",
        "tail": "does not apply, since format does not", "format": "does not apply: it reads a whole episode",
    }  # fmt: skip


OWN = """
class Plain:
    def __call__(self, answer, reference): return 0.5
    def explain(self, answer, reference): return "because"
class Named(Plain):
    name = "other"
class Whole:
    def of_episode(self, episode): return 0.5
    def explain_episode(self, episode): return "because"
class Called:
    def __call__(self, episode): return 0.5
    def explain_episode(self, episode): return "because"
made = Plain()
def function(answer, reference): return 0.5
function.explain = lambda answer, reference: "because"
"""


@each("path", ["Plain", "Named", "Whole", "Called", "made", "function", "made.__call__"])
def test_an_own_reward_gives_its_reason_whatever_its_class_and_name(tmp_path, path):
    (tmp_path / "own.py").write_text(OWN)
    episode = Episode(Task("a"))
    spec = build({"type": "python", "function": f"{tmp_path}/own.py:{path}", "name": "mine"})
    for reward in (load_reward(f"{tmp_path}/own.py:{path}"), load_reward(f"{tmp_path}/own.py:{path}", "mine"), spec):
        assert [row.why for row in explain_score(reward, {}, {}, episode).components] == ["because"]
