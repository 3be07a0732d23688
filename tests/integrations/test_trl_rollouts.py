"""An environment in TRL's own `GRPOTrainer`: what it trains on, what it cannot do, and what the adapter relies on."""

import asyncio
import inspect
import logging

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from trl import GRPOTrainer

from tests.support.everywhere_trl import build_kit, make_trainer
from tests.support.tables import each
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.envs.digits import Digits
from viewbox.envs.mixture import Mixture
from viewbox.errors import ConfigError, ImageError
from viewbox.integrations.trl_rollouts import ENDED, LIMITS, TRLRollouts
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.utils.frozen import thaw

ENV = Digits(num_tasks=6, max_turns=4, max_malformed=1, tools=("zoom", "crop"))
RIGHT = {"role": "assistant", "content": ENV.write_answer(ENV.tasks[0])}
ZOOM = {"factor": 2, "center": [500, 500]}


def ask(content="", *calls):
    """A reply as TRL parses it."""
    made = [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
    return {"role": "assistant", "content": content, "tool_calls": made}


def open_rollout(env=ENV, task=0):
    owner = TRLRollouts(env)
    rollout = owner.make_rollout()
    rollout.reset(task=task, prompt=[])
    return owner, rollout


def run_calls(rollout, *calls):
    """The answers to the calls of one reply, run as TRL runs them."""

    async def gather():
        return await asyncio.gather(*(getattr(rollout, name)(**given) for name, given in calls))

    return asyncio.run(gather())


class Talks(Digits):
    def on_answer(self, state, answer):
        return "Are you sure?"


class Offers(Digits):
    def tools_of(self, task):
        return ("zoom",)


class Words(BaseMultiTurnEnv):
    name = "words"
    tools = ()
    tasks = (Task("a", reference={"text": "yes"}),)

    def default_reward(self):
        return ExactMatchReward("text", reference_field="text")


LACKS = [
    (Digits(max_malformed=1), ("notes", "unknown tools")), (Digits(max_turns=1), ()), (Words(max_malformed=1), ()),
    (Offers(), ("nudges", "notes", "unknown tools", "offered tools")),
]  # fmt: skip


@each("env, limits", LACKS)
def test_what_trl_cannot_do_is_said_at_construction(env, limits, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "viewbox.envs"):
        assert TRLRollouts(env).limits == limits
    assert all(LIMITS[name] in record.message for name, record in zip(limits, caplog.records, strict=True))


@each("env, words", [
    (Talks(), "its user answers the model's answer"),
    (Digits(history={"last_images": 1}), "settings.history: TRL never shortens the history; allowed: full"),
    (Mixture(environments={"digits": {}}), "it mixes environments"),
])  # fmt: skip
def test_what_trl_cannot_play_is_refused(env, words):
    with pytest.raises(ConfigError, match="cannot be played by TRL's own loop: " + words):
        TRLRollouts(env)


def test_the_calls_of_one_reply_are_one_turn_and_no_arguments_raise():
    owner, rollout = open_rollout()
    answers = run_calls(rollout, ("zoom", ZOOM), ("crop", {"box": [0, 0, 500, 500]}), ("zoom", {"factor": "x"}))
    assert [[part["type"] for part in answer] for answer in answers] == [["text", "image"], ["text", "image"], ["text"]]
    assert "factor" in answers[2][0]["text"]
    assert rollout._session.state.turn == 1
    said = [ask("So:", ("zoom", ZOOM)), *[{"role": "tool", "content": answer} for answer in answers], RIGHT]
    kept = []
    owner.on_episode = kept.append
    assert owner.compute_rewards([said], [rollout]) == [kept[0].scores.total]
    assert [turn.content for turn in kept[0].turns if turn.role == "assistant"] == ["So:", RIGHT["content"]]
    for arguments in ({"factor": "x"}, {"factor": -1}, {"center": 7}, {"self": 1, "name": 2}):
        _, rollout = open_rollout(Digits(num_tasks=6, max_turns=4, tools=("zoom",)))
        ((answer,),) = run_calls(rollout, ("zoom", arguments))
        assert "error" in answer["text"]


def test_a_rollout_of_which_trl_dropped_a_part_or_that_the_environment_would_answer_ends_by_its_name():
    cases = [([ask("", ("zoom", ZOOM))], "max_tokens")]
    for text in ("no JSON", "", '{"label": "two", "bbox": [1, 2, 3, 4], "continue": true}'):
        cases.append(([{"role": "assistant", "content": text}], "malformed"))
    for said, end in cases:
        owner, rollout = open_rollout()
        if end == "max_tokens":
            run_calls(rollout, ("zoom", ZOOM))
        kept = []
        owner.on_episode = kept.append
        assert owner.compute_rewards([said], [rollout]) == [0.0]
        assert kept[0].end_reason == end


def test_a_call_after_the_last_turn_is_told_so_and_a_tool_whose_name_trl_reserves_has_another_there():
    owner, rollout = open_rollout(Digits(num_tasks=2, max_turns=2, max_malformed=1))
    run_calls(rollout, ("zoom", ZOOM))
    for _ in range(2):  # a trainer without max_tool_calling_iterations goes on
        ((answer,),) = run_calls(rollout, ("zoom", ZOOM))
        assert answer["text"] == ENDED.format(reason="max_turns")
    said = [*[ask("", ("zoom", ZOOM))] * 3, RIGHT]
    assert owner.compute_rewards([said], [rollout]) == [0.0]
    owner, rollout = open_rollout(Digits(num_tasks=6, max_turns=4, max_malformed=1, tools=("zoom", "reset")))
    run_calls(rollout, ("zoom", ZOOM))
    answers = run_calls(rollout, ("reset_tool", {}))
    assert [part["type"] for part in answers[0]] == ["text", "image"]
    called = [call.name for turn in rollout._session.state.turns for call in turn.tool_calls]
    assert called == ["zoom", "reset"]
    assert owner.make_rollout().reset(task=0)  # TRL's own reset opens a task


def test_a_task_that_cannot_be_opened_costs_its_rollout():
    class Broken(Digits):
        def images(self, task):
            if task.metadata["seed"] == 1:
                raise ImageError("no such file")
            return super().images(task)

    owner, broken = open_rollout(Broken(num_tasks=3, max_malformed=1), task=1)
    whole = owner.make_rollout()
    whole.reset(task=0)
    ((answer,),) = run_calls(broken, ("zoom", ZOOM))
    assert "ended (error)" in answer["text"]
    assert owner.compute_rewards([[RIGHT], [RIGHT]], [broken, whole])[0] is None
    broken.reset(task=0)
    (total,) = owner.compute_rewards([[RIGHT]], [broken])
    assert total > 0.9


def test_the_tools_of_a_rollout_are_schemas_that_trl_takes_for_coroutine_functions(tmp_path):
    trainer = make_trainer(ENV, tmp_path, num_generations=2, per_device_train_batch_size=2)
    schemas = sorted(map(thaw, ENV.tool_schemas), key=lambda schema: schema["function"]["name"])
    assert [dict(tool) for tool in trainer.tools] == schemas
    assert all(inspect.iscoroutinefunction(tool) for tool in trainer.tools)
    talk = [{"role": "user", "content": "?"}]
    prompt = trainer.processing_class.apply_chat_template(talk, tools=trainer.tools, tokenize=False)
    assert '"minItems": 2' in prompt  # what TRL would not read from a function's annotations


def test_trls_own_trainer_trains_on_pictures_of_tools(tmp_path):
    kept = []
    small = {"num_generations": 2, "per_device_train_batch_size": 4, "max_completion_length": 600, "max_steps": 1}
    env = Digits(num_tasks=4, max_turns=3, max_malformed=1)
    kit = build_kit()
    trainer = make_trainer(env, tmp_path, kit=kit, on_episode=kept.append, cls=LooksFirst, learning_rate=1e-3, **small)
    before = torch.cat([weight.detach().flatten().clone() for weight in trainer.model.parameters()])
    trainer.reward_funcs[0] = give_different_rewards(trainer.reward_funcs[0])
    trainer.train()
    after = torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])
    assert (before != after).any()
    assert len(kept) == 4
    assert {episode.tool_call_count for episode in kept} == {1}
    assert all(turn.images for episode in kept for turn in episode.turns if turn.role == "tool_result")
    assert isinstance(trainer.train_dataset, Dataset)


class LooksFirst(GRPOTrainer):
    """Its first reply of every episode is a look; the model samples the others."""

    def _generate_single_turn(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
        if has_tool_images:
            return super()._generate_single_turn(prompt_ids, images, fields, num_generations, has_tool_images)
        text = '<tool_call>\n{"name": "zoom", "arguments": {"factor": 2, "center": [500, 500]}}\n</tool_call>'
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"] + [self._tokenizer.eos_token_id]
        return [list(ids) for _ in prompt_ids], None


def give_different_rewards(compute):
    """A random model never answers: its rewards are all 0, which teaches nothing."""

    def rewards(**given):
        return [reward + number for number, reward in enumerate(compute(**given))]

    rewards.__name__ = "rewards"
    return rewards
