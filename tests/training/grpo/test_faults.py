"""A fault of the environment and a reward that fails are no lessons: such episodes leave their group and teach nothing.

In every test they hit half the episodes of each group. The advantages of the others must be those that the others have
on their own.
"""

import asyncio
import logging
import math

import pytest
import torch

from tests.support.grpo_kit import compute_gradient, generate_batch, make_trainer, train_and_read_steps
from tests.support.servers import make_completion, make_response, serve
from viewbox.envs.digits import viewer
from viewbox.envs.digits.canvas import LABELS
from viewbox.errors import ImageError
from viewbox.records import Reply
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rollouts.judge.reward import JudgeReward
from viewbox.tools import Tool
from viewbox.training.grpo.groups import group_advantages

SIZE, GROUP = 8, 4


def is_hit(seed):
    """Whether the fault is in the episode with this seed: in two of every four."""
    return seed % GROUP < 2


async def ask_server(query: str) -> str:
    """Asks a server that is down."""
    raise ConnectionError("connection refused")


@pytest.fixture(scope="module")
def troubled(strips):
    """Environments in which half the episodes meet the fault `fault`; the policy looks, and then is right or wrong."""

    class Troubled(type(strips)):
        fault: str = ""

        def reset(self, task, *, seed=0):
            if self.fault == "image" and is_hit(seed):
                raise ImageError("scan.png: cannot be read")
            return super().reset(task, seed=seed)

        async def step(self, state, reply):
            right = state.seed % GROUP != 3
            if state.turn == 0:
                said = viewer.write_zoom(self, 2, 0.3, 0.6)
                if is_hit(state.seed) and self.fault == "tool":
                    said = '<tool_call>{"name": "ask_server", "arguments": {"query": "x"}}</tool_call>'
            else:
                said = viewer.write_answer(self, state.task, None if right else LABELS[0])
                if is_hit(state.seed) and self.fault == "step":
                    raise ConnectionError("the tool server is down")
                if is_hit(state.seed) and self.fault == "timeout":
                    await asyncio.sleep(60)
            return await super().step(state, Reply(said))

    def make(**settings):
        return Troubled(**{"max_turns": 4, "tools": ("zoom",)} | settings)

    return make


class Fails:
    """A reward of a whole episode; where the fault is, it gives `value` or raises it."""

    name = "fails"

    def __init__(self, value):
        self.value = value

    def of_episode(self, episode):
        if not is_hit(episode.run_config.seed):
            return float(episode.run_config.seed % GROUP == 3)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def compute_alone(rewards):
    """The advantages of the episodes with a reward, computed without the others; 0 for the others."""
    expected = torch.zeros(len(rewards))
    for first in range(0, len(rewards), GROUP):
        kept = [i for i in range(first, first + GROUP) if rewards[i] is not None]
        if kept:
            alone = group_advantages(torch.tensor([rewards[i] for i in kept]), len(kept), "group")
            expected[kept] = alone
    return expected


def play_batch(trainer):
    episodes, play = [], trainer._play_tasks
    trainer._play_tasks = lambda tasks: episodes.extend(play(tasks)) or list(episodes)
    inputs = generate_batch(trainer)
    return episodes, inputs


def check_only_the_faultless_teach(trainer):
    """Generates a batch; returns its episodes after holding advantages and masks against the faultless ones alone."""
    episodes, inputs = play_batch(trainer)
    hit = [i for i in range(SIZE) if is_hit(episodes[i].run_config.seed)]
    assert len(hit) == SIZE // 2
    totals = [None if i in hit else episode.scores.total for i, episode in enumerate(episodes)]
    torch.testing.assert_close(inputs["advantages"], compute_alone(totals))
    assert inputs["tool_mask"][hit].sum() == 0
    assert all(inputs["tool_mask"][i].sum() > 0 for i in range(SIZE) if i not in hit)
    assert inputs["advantages"].abs().sum() > 0  # the others do teach
    for i in hit:
        assert episodes[i].scores is None or episodes[i].scores.total is None
    assert compute_gradient(trainer, trainer._compute_loss(trainer.model, inputs)).isfinite().all()
    return episodes


@pytest.mark.parametrize("fault", ["step", "timeout", "image"])
def test_episodes_that_a_fault_ends_leave_the_mean_of_their_group(qwen3, tmp_path, troubled, fault, caplog):
    trainer = make_trainer(qwen3, tmp_path, troubled(fault=fault))
    rollout = trainer.player.sampler.rollout
    trainer.player.sampler.rollout = rollout.model_copy(update={"timeout": 8.0 if fault == "timeout" else None})
    with caplog.at_level(logging.WARNING, "viewbox.train"):
        episodes = check_only_the_faultless_teach(trainer)
    ends = {"step": "error", "timeout": "timeout", "image": "error"}
    assert [episode.end_reason for episode in episodes if is_hit(episode.run_config.seed)] == [ends[fault]] * 4
    assert trainer._metrics["train"]["episodes/faults"] == [0.5]
    assert trainer._metrics["train"]["episodes/dropped"] == [4.0]
    assert "4 of 8 episodes teach nothing" in caplog.text  # one line, not one an episode


BAD = {"nan": math.nan, "7": 7, "text": "high", "raises": KeyError("row")}


@pytest.mark.parametrize(
    ("value", "weight"), [(None, 1.0), (BAD["raises"], 1.0), *((value, 0.3) for value in BAD.values())]
)
def test_a_reward_that_fails_or_does_not_apply_leaves_the_group_and_changes_no_scale(
    qwen3, tmp_path, troubled, value, weight
):
    parts = {"fails": (Fails(value), weight)}
    if weight < 1:
        parts["label"] = (ExactMatchReward("label"), 1 - weight)
    trainer = make_trainer(qwen3, tmp_path, troubled(reward=CombinedReward(parts)))
    check_only_the_faultless_teach(trainer)
    metrics = trainer._metrics["train"]
    assert metrics["episodes/scored"] == [0.5]
    assert metrics["reward/faults"] == metrics["reward/faults/fails"] == [0.0 if value is None else 0.5]


def test_a_judge_that_is_down_costs_the_episodes_it_could_not_judge(qwen3, tmp_path, troubled):
    def answer(body, number):
        down = number % 2 == 0
        return make_response(503, "down") if down else make_completion('{"score": 0.5, "why": "so so"}')

    with serve(answer) as server:
        judge = JudgeReward(endpoint=server.url, model="m", attempts=1, show_question=True, concurrency=1)
        reward = CombinedReward({"judge": (judge, 0.5), "label": (ExactMatchReward("label"), 0.5)})
        trainer = make_trainer(qwen3, tmp_path, troubled(reward=reward))
        episodes, inputs = play_batch(trainer)
    totals = [episode.scores.total for episode in episodes]
    judged = [episode.scores.components["judge"] is not None for episode in episodes]
    assert [total is not None for total in totals] == judged
    assert 0 < sum(judged) < SIZE
    torch.testing.assert_close(inputs["advantages"], compute_alone(totals))
    assert trainer._metrics["train"]["reward/faults/judge"] == [1 - sum(judged) / SIZE]


def test_where_nothing_is_left_the_weights_do_not_move_whatever_the_momentum(qwen3, tmp_path, troubled):
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}

    class Down(type(troubled())):
        down = False

        async def step(self, state, reply):
            if type(self).down:
                raise ConnectionError("down")
            return await super().step(state, reply)

    trainer = make_trainer(qwen3, tmp_path, Down(max_turns=4, tools=("zoom",)), weight_decay=0.1, max_steps=4, **given)
    seen, create_optimizer = [], trainer.create_optimizer

    def create(*args, **kwargs):
        optimizer = create_optimizer(*args, **kwargs)
        step = optimizer.step

        def watched(*args, **kwargs):
            before = [weight.detach().clone() for weight in trainer.model.parameters()]
            result = step(*args, **kwargs)
            seen.append(any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True)))
            Down.down = len(seen) >= 2
            return result

        optimizer.step = watched
        return optimizer

    trainer.create_optimizer = create
    lines = train_and_read_steps(trainer, tmp_path)
    assert seen == [True, True, False, False]
    assert [line["episodes/faults"] for line in lines] == [0.0, 0.0, 1.0, 1.0]
    assert [line.get("reward") for line in lines][2:] in ([None, None], [pytest.approx(math.nan, nan_ok=True)] * 2)


def test_a_tool_whose_server_is_down_teaches_nothing_and_what_is_the_policys_own_doing_stays_a_lesson(
    qwen3, tmp_path, troubled
):
    class Mute(type(troubled())):
        async def step(self, state, reply):
            said = "hm" if is_hit(state.seed) else viewer.write_answer(self, state.task, None)
            return await type(self).__mro__[2].step(self, state, Reply(said))

    trainer = make_trainer(qwen3, tmp_path, Mute(max_turns=2, tools=("zoom",)))
    inputs = generate_batch(trainer)
    assert trainer._metrics["train"]["episodes/faults"] == [0.0]
    assert (inputs["advantages"] < 0).sum() == SIZE // 2
    assert (inputs["tool_mask"].sum(dim=1) > 0).all()
    env = troubled(tools=("zoom", Tool.from_function(ask_server)), fault="tool")
    trainer = make_trainer(qwen3, tmp_path / "down", env)
    inputs = generate_batch(trainer)
    metrics = trainer._metrics["train"]
    assert metrics["episodes/faults"] == [0.5]
    assert (metrics["tools/ask_server/raised"], metrics["tools/ask_server/success"]) == ([1.0], [0.0])
    assert ((inputs["tool_mask"].sum(dim=1) > 0).sum(), (inputs["advantages"] != 0).sum()) == (SIZE // 2, SIZE // 2)


def test_equal_rewards_have_an_advantage_of_exactly_zero_whatever_their_mean_is_rounded_to():
    for scale in ("group", "none", "batch"):
        for size in (2, 3, 7, 16):
            equal = (torch.arange(1001) / 1000).repeat_interleave(size)
            assert not group_advantages(equal, size, scale).any()
            with_others = torch.cat([equal[: 2 * size], torch.linspace(0, 1, size)])
            with_others[0] = torch.nan
            assert not group_advantages(with_others, size, scale)[: 2 * size].any()
            assert group_advantages(with_others, size, scale)[2 * size :].any()
