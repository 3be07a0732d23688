"""The turn loop as a model and an author meet it, one behaviour a test."""

import asyncio
import json
import subprocess
import sys
from typing import ClassVar

import pytest
from PIL import Image
from pydantic import BaseModel

from viewbox.envs import prompts
from viewbox.envs.base import BaseMultiTurnEnv, Reply
from viewbox.envs.frozen import FrozenDict
from viewbox.envs.reply import MAX_BYTES
from viewbox.envs.types import Episode, ImageRef, RunConfig, Task, ToolCall
from viewbox.errors import ConfigError, ImageError
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward

PICTURE = Image.linear_gradient("L").resize((80, 40))
TASK = Task("t", (ImageRef.of(PICTURE),), {"question": "What is it?"}, {"label": "left", "bbox": [0, 0, 0.5, 1]})


class Finding(BaseModel):
    label: str
    bbox: tuple[float, float, float, float] | None = None


class Find(BaseMultiTurnEnv):
    name = "find"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    max_turns = 6

    def default_reward(self):
        return ExactMatchReward("label")


class Plain(BaseMultiTurnEnv):
    """No answer schema: plain text answers."""

    name = "plain"
    max_turns = 3

    def default_reward(self):
        return ExactMatchReward("text", reference_field="label")


def call(name="zoom", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answer(label="left", **fields):
    return json.dumps({"label": label, **fields})


NOTES = answer(**{"continue": True})


class Play:
    """One play, a reply at a time."""

    def __init__(self, env, task=TASK):
        self.state = env.reset(task, seed=0)

    def say(self, *replies):
        for reply in replies:
            self.result = asyncio.run(self.state.env.step(self.state, reply))
        return self.result

    def told(self, *replies):
        """The environment's words to the last reply."""
        return "\n".join(message.text for message in self.say(*replies).messages)


def played(env, *replies, task=TASK):
    said = iter(replies)
    return env.play(task, lambda messages: next(said))


# ---- the opening


def test_an_episode_opens_with_the_rules_the_picture_and_the_question():
    state = Find(max_pixels=800).reset(TASK, seed=0)
    system, user = state.messages
    assert (system.role, user.role) == ("system", "user")
    assert "fractions of the image" in system.text
    assert '"bbox": [x1, y1, x2, y2], "continue": false' in system.text
    assert user.text == "What is it?"
    assert (user.images[0].width, user.images[0].height) == (40, 20)


def test_the_reference_never_reaches_the_model():
    task = Task("t", TASK.images, reference={"label": "sinistral", "bbox": [0.123, 0, 1, 1]})
    said = "".join(message.text for message in Find().reset(task, seed=0).messages)
    assert "sinistral" not in said
    assert "0.123" not in said


def test_the_tools_offered_are_those_of_the_environment():
    assert [tool["function"]["name"] for tool in Find(tools=["crop", "reset"]).tool_schemas] == ["crop", "reset"]


def test_with_one_turn_there_are_no_tools_and_the_answer_is_in_the_opening():
    env = Find(max_turns=1)
    assert env.tool_schemas == ()
    assert '"label"' in env.opening(TASK)
    assert played(env, answer()).end_reason == "answered"


def test_a_task_whose_image_is_missing_is_an_error_that_names_it():
    with pytest.raises(ImageError, match=r"nowhere\.png"):
        Find().reset(Task("t", (ImageRef("0", 1, 1, uri="nowhere.png"),)), seed=0)


def test_a_task_without_an_image_can_be_answered_but_not_looked_at():
    play = Play(Find(), Task("t"))
    assert "this task has no image" in play.told(call())
    assert play.say(answer()).terminated


# ---- ends


def test_an_answer_terminates():
    episode = played(Find(), answer())
    assert (episode.end_reason, episode.terminated, episode.truncated) == ("answered", True, False)
    assert episode.answer == {"label": "left", "bbox": None}


def test_turns_that_run_out_truncate():
    episode = played(Find(max_turns=3), *[call()] * 3)
    assert (episode.end_reason, episode.terminated, episode.truncated) == ("max_turns", False, True)
    assert (episode.num_turns, episode.answer) == (3, None)


def test_the_turn_budget_is_kept_whatever_is_said():
    for reply in (call(), "hm", NOTES, call("nothing")):
        episode = played(Find(max_turns=4), *[reply] * 4)
        assert episode.num_turns <= 4
        assert episode.end_reason in ("max_turns", "answered")


def test_a_step_after_the_end_is_the_programs_fault():
    play = Play(Find())
    play.say(answer())
    with pytest.raises(RuntimeError, match="answered"):
        play.say(answer())


def test_a_play_that_is_broken_off_is_recorded_as_cancelled():
    play = Play(Find())
    play.say(call())
    episode = play.state.episode(RunConfig("m"))
    assert (episode.end_reason, episode.truncated, episode.run_config.model_name) == ("cancelled", True, "m")


def test_an_ended_step_says_nothing_more():
    result = Play(Find()).say(answer())
    assert (result.done, result.messages, result.end_reason) == (True, (), "answered")


# ---- malformed replies


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "the reply is empty"),
        ("I see it.", "no JSON object"),
        ("[1]", "not a list"),
        ('{"label": "le', "cannot be read"),
        ('{"bbox": null}', "label: Field required"),
        ('{"label": 3}', "label: Input should be a valid string"),
        ('{"label": "a", "continue": "perhaps"}', '"continue" must be true or false'),
        (Reply('{"label"', finish_reason="length"), "cut off"),
        (answer(bbox=[0, 0, 1.5, 1]), "x = 1.5 is out of range; allowed: 0 to 1"),
        (answer(bbox=[0.5, 0, 0.5, 1]), "x1 < x2"),
        (answer(bbox=[0, 0, 1]), "bbox"),
        ("x" * (MAX_BYTES + 1), "longer than"),
    ],
)
def test_a_malformed_reply_is_told_why_and_what_is_wanted(reply, words):
    play = Play(Find())
    told = play.told(reply)
    assert words in told
    assert play.state.env.skeleton in told
    assert not play.result.done


@pytest.mark.parametrize("given", ["abcd", 3, {"x1": 0}, [1, 2], [True, 0, 1, 1], ["0", "0", "1", "1"]])
def test_what_is_no_box_is_a_nudge_also_where_the_schema_lets_it_pass(given):
    class Loose(Find):
        answer = FrozenDict(type="object", properties={"label": {"type": "string"}})

    assert "bbox: a box is 4 numbers" in Play(Loose()).told(answer(bbox=given))


def test_an_answer_is_checked_against_a_json_schema():
    class Listed(Find):
        answer = FrozenDict(type="object", properties={"label": {"enum": ["left", "right"]}}, required=["label"])

    play = Play(Listed())
    assert "'up' is not one of" in play.told(answer("up"))
    assert play.say(answer("right")).terminated


def test_an_author_may_refuse_an_answer_in_words():
    class Strict(Find):
        def validate_answer(self, answer, task):
            return None if answer["label"] == task.reference["label"] else "label: look again"

    play = Play(Strict())
    assert "label: look again" in play.told(answer("up"))
    assert play.say(answer("left")).terminated


def test_after_two_nudges_in_a_row_the_model_is_told_to_finish():
    play = Play(Find())
    finalise = prompts.FINALISE.format(skeleton=play.state.env.skeleton)
    assert [play.told("hm") == finalise for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("good", [call(), NOTES])
def test_a_good_reply_starts_the_count_in_a_row_again(good):
    play = Play(Find(max_turns=10))
    play.say("hm", "hm", good)
    assert play.told("hm").startswith("Not usable")


def test_a_failed_call_does_not_start_the_count_in_a_row_again():
    play = Play(Find(max_turns=10))
    play.say("hm", "hm", call("nothing"))
    assert play.told("hm").startswith("Stop and answer now")


def test_the_fifth_malformed_reply_in_all_ends_the_episode():
    good = (call(), NOTES)
    episode = played(Find(max_turns=20), "hm", "hm", *good, "hm", "hm", *good, "hm")
    assert (episode.end_reason, episode.truncated, episode.info["malformed"]) == ("malformed", True, 5)


def test_calls_that_cannot_be_read_count_as_malformed():
    episode = played(Find(max_turns=20), *["<tool_call>zoom(2)</tool_call>"] * 5)
    assert (episode.end_reason, episode.num_turns) == ("malformed", 5)


# ---- the last turn


@pytest.mark.parametrize("reply", ["hm", call(), call("nothing"), NOTES])
def test_the_last_turn_is_announced_in_the_observation_before_it(reply):
    play = Play(Find(max_turns=3))
    assert "Last turn" not in play.told(reply)
    told = play.told(reply)
    assert told.endswith("Last turn: no more tool calls. Answer now with label, bbox, continue.")
    assert told.count("Last turn") == 1


def test_a_call_on_the_last_turn_is_not_run():
    episode = played(Find(max_turns=2), call(), call())
    assert episode.end_reason == "max_turns"
    assert sum(len(turn.tool_results) for turn in episode.turns) == 1


def test_an_answer_beside_a_call_on_the_last_turn_counts_and_is_flagged():
    episode = played(Find(max_turns=2), call(), call() + answer())
    assert (episode.end_reason, episode.answer["label"], episode.flags) == ("answered", "left", {"salvaged"})


def test_an_answer_beside_a_native_call_on_the_last_turn_counts_and_is_flagged():
    episode = played(Find(max_turns=1), Reply(answer(), (ToolCall("x", "zoom"),)))
    assert (episode.end_reason, episode.flags) == ("answered", {"salvaged"})


def test_a_native_call_alone_on_the_last_turn_is_not_malformed():
    episode = played(Find(max_turns=1), Reply("", (ToolCall("x", "zoom"),)))
    assert (episode.end_reason, episode.info["malformed"]) == ("max_turns", 0)


def test_an_answer_beside_a_call_before_the_last_turn_is_set_aside():
    play = Play(Find())
    play.say(call() + answer())
    assert (play.result.done, play.state.answer) == (False, None)
    assert play.result.messages[0].role == "tool"


def test_an_invalid_answer_on_the_last_turn_ends_as_max_turns():
    episode = played(Find(max_turns=1), answer(bbox=[0, 0, 2, 2]))
    assert (episode.end_reason, episode.answer) == ("max_turns", None)


def test_an_answer_cut_off_after_it_was_whole_is_flagged():
    assert played(Find(), Reply(answer() + " becau", finish_reason="length")).flags == {"salvaged"}


def test_a_whole_answer_has_no_flag():
    assert played(Find(), "I think: " + answer()).flags == frozenset()


# ---- continue and idleness


def test_continue_keeps_the_episode_going_and_shows_the_turn():
    play = Play(Find())
    assert play.told(NOTES).startswith("Turn 1 of 6.")
    assert (play.result.done, play.state.answer) == (False, None)


def test_continue_on_the_last_turn_is_the_answer():
    assert played(Find(max_turns=1), NOTES).end_reason == "answered"


def test_a_model_that_never_looks_is_told_to_answer_at_turn_three():
    play = Play(Find())
    assert [play.told(NOTES).startswith("Stop and answer now") for _ in range(3)] == [False, False, True]
    assert play.say(answer()).end_reason == "answered"


def test_a_model_that_has_looked_may_go_on():
    play = Play(Find())
    play.say(call())
    assert [play.told(NOTES).startswith("Turn") for _ in range(3)] == [True, True, True]


def test_without_tools_nobody_is_idle():
    assert Play(Find(tools=[])).told(NOTES, NOTES, NOTES).startswith("Turn 3")


# ---- tool calls


def test_a_call_shows_the_new_view_and_what_it_covers():
    message = Play(Find(max_pixels=800)).say(call(factor=2, center=[0, 0])).messages[0]
    assert (message.role, message.name, len(message.images)) == ("tool", "zoom", 1)
    assert "shows: [0.0, 0.0, 0.5, 0.5]" in message.text


def test_calls_work_on_the_view_the_last_one_left():
    play = Play(Find())
    play.say(call(factor=2, center=[0, 0]), call(factor=2, center=[1, 1]))
    assert play.state.view.window == (0.375, 0.375, 0.625, 0.625)  # about the corner the first one left


def test_several_calls_in_one_reply_are_answered_in_order_each_under_its_id():
    said = Play(Find()).say(call(factor=2) + call("reset") + call("adjust_contrast", factor=2)).messages
    assert [(m.tool_call_id, m.name) for m in said] == [
        ("call_0", "zoom"),
        ("call_1", "reset"),
        ("call_2", "adjust_contrast"),
    ]


def test_native_calls_are_answered_under_their_own_ids():
    calls = (ToolCall("a", "zoom", '{"factor": 2}'), ToolCall("b", "zoom", '{"factor": NaN}'))
    said = Play(Find()).say(Reply("", calls)).messages
    assert [m.tool_call_id for m in said] == ["a", "b"]
    assert [len(m.images) for m in said] == [1, 0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (call("nothing"), "unknown tool 'nothing'"),
        (call(factor=9), "allowed: 0.5 to 4"),
        (call(center=[2, 0]), "out of range"),
        ("<tool_call>zoom</tool_call>", "not valid JSON"),
    ],
)
def test_a_failing_call_says_why_and_the_others_still_run(bad, words):
    play = Play(Find())
    said = play.say(call(factor=2) + bad + call(factor=2)).messages
    assert [len(m.images) for m in said] == [1, 0, 1]
    assert said[1].text.startswith("error: ")
    assert words in said[1].text
    assert play.state.view.window == (0.375, 0.375, 0.625, 0.625)


def test_a_tool_that_is_not_offered_is_unknown():
    assert "unknown tool 'crop'; allowed: zoom" in Play(Find(tools=["zoom"])).told(call("crop", box=[0, 0, 1, 1]))


def test_no_chain_of_zooms_raises_or_exceeds_the_budget():
    play = Play(Find(max_pixels=800))
    said = play.say("".join([call(factor=4)] * 60)).messages
    assert all(image.width * image.height <= 800 for m in said for image in m.images)
    assert "as close as it gets" in said[-1].text


def test_control_characters_and_length_of_tool_text_are_bounded():
    told = Play(Find()).told(call("a\x07b" * 9000))
    assert "\x07" not in told
    assert len(told) <= 8000


def test_the_record_holds_calls_results_and_images():
    episode = played(Find(), call(factor=2) + call(factor=9), answer())
    assert [turn.role for turn in episode.turns] == ["user", "assistant", "tool_result", "assistant"]
    assert (episode.tool_call_count, episode.tools_used()) == (2, {"zoom"})
    assert [result.success for result in episode.turns[2].tool_results] == [True, False]
    assert len(episode.turns[2].images) == 1
    assert Episode.from_json(episode.to_json()) == episode


# ---- boxes


@pytest.mark.parametrize(
    ("coordinates", "box"),
    [("unit", [0.25, 0.5, 0.5, 1]), ("per_mille", [250, 500, 500, 1000]), ("pixel", [10, 10, 20, 20])],
)
def test_boxes_are_stored_as_fractions_of_the_original_in_every_convention(coordinates, box):
    env = Find(coordinates=coordinates, max_pixels=800)  # the overview is 40x20 pixels
    for before in ((), (call(factor=4),)):
        assert played(env, *before, answer(bbox=box)).answer["bbox"] == pytest.approx((0.25, 0.5, 0.5, 1))


@pytest.mark.parametrize(("coordinates", "most"), [("unit", 1), ("per_mille", 1000), ("pixel", 40)])
def test_a_box_out_of_range_is_a_nudge_that_states_the_range(coordinates, most):
    play = Play(Find(coordinates=coordinates, max_pixels=800))
    told = play.told(answer(bbox=[0, 0, most + 0.5, 1]))
    assert f"bbox: x = {most + 0.5:g} is out of range; allowed: 0 to {most} (" in told
    assert not play.result.done


def test_the_view_a_tool_shows_is_stated_in_the_convention_of_the_environment():
    told = Play(Find(coordinates="per_mille")).told(call(factor=2, center=[0, 0]))
    assert "shows: [0, 0, 500, 500]" in told


# ---- plain text


def test_plain_text_answers_where_there_is_no_schema():
    episode = played(Plain(), call(), "left")
    assert (episode.end_reason, episode.answer, episode.scores.total) == ("answered", {"text": "left"}, 1.0)


def test_json_is_only_text_where_there_is_no_schema():
    assert played(Plain(), '{"label": "left"}').answer == {"text": '{"label": "left"}'}


@pytest.mark.parametrize("reply", ["", "  \n", "x" * (MAX_BYTES + 1)])
def test_no_text_or_far_too_much_is_malformed_also_where_text_answers(reply):
    play = Play(Plain())
    assert play.told(reply).startswith("Not usable")


def test_the_last_turn_asks_for_plain_text_where_text_answers():
    assert Play(Plain(max_turns=2)).told(call()).endswith("Answer now with plain text.")


# ---- a simulated user


class Asked(Find):
    def on_answer(self, state, answer):
        return "What do you mean?" if answer["label"] == "unclear" else None


def test_a_users_words_keep_the_episode_going():
    play = Play(Asked())
    assert play.told(answer("unclear")) == "What do you mean?"
    assert play.say(answer()).terminated
    assert play.state.answer["label"] == "left"


def test_on_the_last_turn_the_user_has_no_word():
    assert played(Asked(max_turns=1), answer("unclear")).end_reason == "answered"


# ---- settings


def test_max_turns_above_the_ceiling_is_clamped_with_a_warning():
    with pytest.warns(UserWarning, match="max_turns = 99: clamped to 30") as caught:
        assert Find(max_turns=99).max_turns == 30
    assert caught[0].filename == __file__


def test_an_environment_cannot_be_changed():
    env = Find()
    with pytest.raises(AttributeError, match="cannot be changed"):
        env.max_turns = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del env.max_turns
    assert (env.max_turns, isinstance(env.tools, tuple)) == (6, True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_turn": 3}, r"find: unknown setting 'max_turn'; allowed: .*\(did you mean 'max_turns'\?\)"),
        ({"tools": ["zom"]}, r"unknown tool 'zom'; .*did you mean 'zoom'"),
        ({"max_turns": 0}, "max_turns = 0: allowed: a whole number of at least 1"),
        ({"max_turns": "many"}, "max_turns = 'many'"),
        ({"coordinates": "pixels"}, "coordinates = 'pixels': .*'unit', 'per_mille', 'pixel' or 'gaze'"),
        ({"max_pixels": 10}, "max_pixels = 10"),
        ({"max_pixels": 1000, "pixel_multiple": 32}, "max_pixels = 1000; allowed .* at least 1024"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error_in_words(given, words):
    with pytest.raises(ConfigError, match=words):
        Find(**given)


def test_what_an_author_writes_on_the_class_is_checked_too():
    class Wrong(Find):
        max_turns = 0

    class Listed(Find):
        tools = ["zoom"]  # noqa: RUF012

    with pytest.raises(ConfigError, match="max_turns = 0"):
        Wrong()
    assert Listed().tools == ("zoom",)


def test_an_environment_without_a_reward_says_so():
    with pytest.raises(ConfigError, match="no default reward"):
        BaseMultiTurnEnv()


# ---- scores


def test_every_component_of_the_score_is_kept_by_name():
    parts = {"label": (ExactMatchReward("label"), 0.25), "box": (IoUReward("bbox"), 0.75)}
    scores = played(Find(reward=CombinedReward(parts)), answer(bbox=[0, 0, 1, 1])).scores
    assert scores.total == pytest.approx(0.625)
    assert scores.components == {"label": 1.0, "box": 0.5}


def test_a_single_reward_is_its_own_component():
    assert played(Find(), answer()).scores.components == {"exact_match": 1.0}


@pytest.mark.parametrize("replies", [[call()] * 6, ["hm"] * 5])
def test_an_episode_without_an_answer_scores_zero(replies):
    episode = played(Find(), *replies)
    assert (episode.answer, episode.scores.total) == (None, 0.0)


def test_a_reward_that_does_not_apply_is_kept_as_none():
    class Never:
        name = "never"

        def __call__(self, answer, reference):
            return None

    scores = played(Find(reward=Never()), answer()).scores
    assert (scores.total, scores.components) == (0.0, {"never": None})


def test_a_reward_may_read_the_whole_episode():
    class Short:
        name = "short"

        def of_episode(self, episode):
            return 1 / episode.num_turns

    assert played(Find(reward=Short()), call(), answer()).scores.total == 0.5


# ---- reading an answer apart from a play


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (answer(), "left"),
        ("I see " + answer(), "left"),
        (call() + answer(), "left"),
        (NOTES, "left"),
        (call(), None),
        ("hm", None),
        ("", None),
        (answer(bbox=[0, 0, 2, 2]), None),
    ],
)
def test_read_answer_gives_what_a_last_reply_would_give(text, label):
    read = Find().read_answer(text, TASK)
    assert (read and read["label"]) == label
    assert read == played(Find(max_turns=1), text).answer


@pytest.mark.parametrize("text", ["left", "", call(), call() + answer()])
def test_read_answer_gives_what_a_last_reply_would_give_in_plain_text(text):
    assert Plain().read_answer(text, TASK) == played(Plain(max_turns=1), text).answer


# ---- playing


def test_play_hands_the_policy_the_messages_so_far():
    seen = []

    def policy(messages):
        seen.append([message.role for message in messages])
        return call() if len(seen) == 1 else answer()

    Find().play(TASK, policy)
    assert seen == [["system", "user"], ["system", "user", "assistant", "tool"]]


def test_a_policy_may_be_a_coroutine_function_and_may_give_replies():
    async def policy(messages):
        await asyncio.sleep(0)
        return Reply(answer())

    assert Find().play(TASK, policy, seed=5).run_config.seed == 5


def test_one_environment_plays_many_episodes_at_once():
    env = Find()

    async def one(number):
        async def policy(messages):
            await asyncio.sleep(0)
            return call(center=[number / 20, 0]) if len(messages) == 2 else answer(str(number))

        return await env.play_async(TASK, policy)

    async def many():
        return await asyncio.gather(*(one(number) for number in range(20)))

    together = asyncio.run(many())
    assert [episode.answer["label"] for episode in together] == [str(number) for number in range(20)]
    assert together == [asyncio.run(one(number)) for number in range(20)]


SCRIPT = """
import json
from viewbox.envs.digits import Digits
env = Digits(max_turns=3)
task = env.tasks[7]
zoom = '<tool_call>{"name": "zoom", "arguments": {"factor": 3}}</tool_call>'
said = iter([zoom, "hm", json.dumps(env.gold_answer(task))])
line = env.play(task, lambda messages: next(said), seed=1).to_json()
"""


def test_an_episode_is_the_same_in_another_process(tmp_path):
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT + "print(line)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONHASHSEED": "1", "PYTHONUTF8": "1"},
    ).stdout.strip()
    here = {}
    exec(SCRIPT, here)
    assert there == here["line"]
    assert Episode.from_json(there).end_reason == "answered"


def test_overviews_are_kept_by_bytes_and_the_oldest_go_first(monkeypatch):
    opened = []

    class Counting(Find):
        """Counts how often an image is opened."""

        def images(self, task):
            opened.append(task.id)
            return super().images(task)

    side = 64  # 4,096 native bytes and an overview of as many pixels: 16 kB each, so two fit
    monkeypatch.setattr("viewbox.envs.base.OVERVIEWS", 40_000)
    env = Counting()
    tasks = [Task(f"t{i}", images=(ImageRef.of(Image.new("L", (side, side), i)),)) for i in range(4)]
    for task in (tasks[0], tasks[0], tasks[1], tasks[2], tasks[0], tasks[2]):
        env.reset(task, seed=0)
    assert opened == ["t0", "t1", "t2", "t0"]
